/* See samples.h. */
#include "sample/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "sample/record.h"
#include "sample/rows.h"
#include "sample/threads.h"
#include "vm/ruby_gvl.h"

#define LIST_NS 20000000u /* the list of threads is read again after so long */
#define ASK_NS 20000000u  /* the kernel's own count is asked again after so long */
/* So long after an exec no other Ruby has booted that could be taken for this one: then reads fail.
 */
#define CHECK_NS 2000000u
#define OWED_TICKS 8  /* of a thread's clock */
#define RESTS_SURE 2u /* ticks: whether a thread is in the VM's queue by then */

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t = {0};

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int scry_samples_init(struct scry_samples *s, struct scry_ruby *ruby, struct scry_writer *writer)
{
	static const char unknown[] = "(unknown: it ran between looks)";

	*s = (struct scry_samples){.ruby = ruby, .writer = writer};
	scry_stacks_init(&s->stacks, SCRY_STACKS_MAX);
	scry_samples_cpu_init(&s->cpu);
	scry_samples_rows_init(s);
	s->named = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*s->named));
	if (s->named && scry_symbols_init(&s->symbols) == 0 && scry_walk_init(&s->walk) == 0) {
		scry_walk_watch_gc(&s->walk, ruby);
		scry_intern_put(&s->symbols.names, "(garbage collection)", 20, &s->gc_name);
		scry_intern_put(&s->symbols.names, unknown, sizeof(unknown) - 1, &s->unknown_name);
		return 0;
	}
	scry_samples_done(s);
	return -ENOMEM;
}

void scry_samples_done(struct scry_samples *s)
{
	for (size_t i = 0; i < s->count; i++)
		scry_task_close(&s->threads[i].task);
	free(s->threads);
	free(s->list);
	free(s->listed);
	free(s->waits);
	free(s->rows);
	free(s->named);
	scry_intern_done(&s->keys);
	scry_samples_cpu_done(&s->cpu);
	scry_stacks_done(&s->stacks);
	scry_symbols_done(&s->symbols);
	scry_walk_done(&s->walk);
	scry_samples_native_close(s->native);
	scry_samples_pause_close(s->pause);
	*s = (struct scry_samples){0};
}

int scry_samples_with_native(struct scry_samples *s)
{
	return scry_samples_native_open(s->ruby, &s->symbols.names, &s->native);
}

int scry_samples_with_pause(struct scry_samples *s)
{
	s->walk.is_still = true;
	return scry_samples_pause_open(s->ruby->pid, &s->pause);
}

/* --- one sample ------------------------------------------------------------------------------- */

/* Behind the oldest frame that is shown of a merged stack: native ones that are older than all of
 * Ruby's (main, the beginning of a thread) say nothing, and what has no native frames would begin
 * elsewhere. */
static size_t count_shown(struct scry_samples *s, const struct scry_woven *merged, size_t count)
{
	for (size_t i = count; i > 0; i--)
		if (!merged[i - 1].is_native && !s->named[merged[i - 1].at].is_hidden)
			return i;
	return count;
}

/* The stack of the walk, as a number of `stacks`; 0: no frame. A C method has its caller's place.
 */
static uint32_t intern_stack(struct scry_samples *s)
{
	struct scry_stack_frame frame = {0}, next;
	const struct scry_woven *merged = NULL;
	size_t count =
		s->native ? scry_samples_mixed_merge(s->native, &s->walk, &merged) : s->walk.count;
	uint32_t parent = 0;

	count = merged ? count_shown(s, merged, count) : count;
	for (size_t i = count; i > 0; i--) {
		size_t at = merged ? merged[i - 1].at : i - 1;

		if (merged && merged[i - 1].is_native) {
			next = scry_samples_native_frame(s->native, (uint32_t)at);
		} else {
			const struct scry_symbol *symbol =
				scry_symbols_get(&s->symbols, s->named[at].symbol);

			if (!symbol || s->named[at].is_hidden)
				continue;
			if (!symbol->is_c) {
				frame.path = symbol->path;
				frame.line = s->named[at].line;
			}
			frame.label = symbol->name;
			frame.flags = symbol->is_c ? SCRY_STACK_C : 0;
			next = frame;
		}
		next.parent = parent;
		parent = scry_stacks_add(&s->stacks, &next);
		if (!parent)
			return 0;
	}
	return parent;
}

static const char *newest_name(const struct scry_samples *s)
{
	for (size_t i = 0; i < s->walk.count; i++) {
		const struct scry_symbol *symbol =
			scry_symbols_get(&s->symbols, s->named[i].symbol);

		if (symbol && !s->named[i].is_hidden)
			return scry_symbols_text(&s->symbols, symbol->name);
	}
	return "";
}

/*
 * Of a thread that does not run only the newest frame could not be named: code of a JIT has pushed
 * it and not said where it is in its method. It is left out, as one on its way in.
 */
static bool drop_unplaced(struct scry_samples *s, size_t unnamed)
{
	if (!s->pause || unnamed != 1 || s->walk.count < 2 || s->named[0].symbol ||
	    s->named[0].is_hidden)
		return false;
	s->walk.count--;
	memmove(s->walk.frames, s->walk.frames + 1, s->walk.count * sizeof(*s->walk.frames));
	memmove(s->named, s->named + 1, s->walk.count * sizeof(*s->named));
	s->sums.dropped++;
	return true;
}

/* Names what was walked, with the verdict that the thread has. False: it may be tried again. */
static bool name_stack(struct scry_samples *s, struct scry_samples_thread *t)
{
	size_t unnamed;

	t->stack = 0;
	if (t->verdict > SCRY_WALK_REPAIRED)
		return t->verdict == SCRY_WALK_EMPTY;
	unnamed = scry_symbols_name(&s->symbols, s->ruby, &s->walk, s->named);
	if (!unnamed || drop_unplaced(s, unnamed)) {
		t->stack = intern_stack(s);
		t->state = scry_thread_state_named(t->state, newest_name(s));
		return true;
	}
	t->verdict = SCRY_WALK_REJECTED;
	return false;
}

/* Its native frames, for what is walked next. */
static void take_native(struct scry_samples *s, const struct scry_samples_thread *t)
{
	const struct user_regs_struct *held = NULL;

	if (s->native && s->pause)
		held = scry_samples_pause_registers(s->pause, t->ruby.tid);
	if (held)
		scry_samples_native_held(s->native, held);
	else if (s->native)
		scry_samples_native_waits(s->native, &t->now);
}

/* Walks and names; a stack of which a name cannot be read is taken once more. */
static void take_stack(struct scry_samples *s, struct scry_samples_thread *t)
{
	for (int try = 0; try < 2; try++) {
		uint64_t ec;

		/* Nothing is known of its stack: its ec may be another one, or come only now. */
		if ((t->hint.ec != t->ruby.ec || !t->ruby.ec) &&
		    scry_mem_u64(&s->ruby->mem, t->ruby.th + s->ruby->layout.th_ec, &ec) == 0)
			t->ruby.ec = ec;
		take_native(s, t);
		t->verdict = scry_walk_collect(&s->walk, s->ruby, &t->ruby, &t->hint);
		if (s->native && !s->pause && !scry_task_rests(&t->task, &t->now))
			scry_samples_native_none(s->native); /* of another moment than Ruby's */
		s->sums.collects += s->walk.collects;
		s->sums.dropped += s->walk.is_dropped;
		if (s->walk.ec_now != t->ruby.ec) { /* a fiber runs now */
			t->ruby.ec = s->walk.ec_now;
			t->verdict = SCRY_WALK_REJECTED;
			t->stack = 0;
			continue;
		}
		t->in_gc = s->walk.now.is_running;
		if (name_stack(s, t))
			return;
	}
}

static void count(struct scry_samples *s, const struct scry_samples_thread *t, uint64_t wall_ns,
		  uint64_t cpu_ns)
{
	size_t row = scry_samples_row(s, t);

	s->sums.valid += t->verdict == SCRY_WALK_VALID || t->verdict == SCRY_WALK_EMPTY;
	s->sums.repaired += t->verdict == SCRY_WALK_REPAIRED;
	s->sums.rejected += t->verdict == SCRY_WALK_REJECTED;
	if (row) {
		s->rows[row - 1].count++;
		s->rows[row - 1].wall_ns += wall_ns;
		s->rows[row - 1].repaired += t->verdict == SCRY_WALK_REPAIRED;
		s->rows[row - 1].cpu_ns += cpu_ns;
	} else {
		s->unrecorded++;
	}
}

/* A look: what it has used of a processor is shared out at the end. */
static void count_looked(struct scry_samples *s, const struct scry_samples_thread *t,
			 uint64_t stands_ns)
{
	bool may_run = !s->clock_ns && t->now.is_running;

	if (may_run)
		scry_samples_cpu_seen(&s->cpu, t->number, stands_ns, t->now.is_ready);
	count(s, t, stands_ns, may_run && !t->now.is_ready ? stands_ns : 0);
}

/* Is it sure whether it waits for the VM's lock? */
static bool is_settled(const struct scry_samples_thread *t)
{
	return t->now.nr != SYS_futex || t->rests > RESTS_SURE;
}

static void take_waiters(struct scry_samples *s)
{
	bool unsure = false;

	for (size_t i = 0; i < s->count; i++) {
		s->list[i] = s->threads[i].ruby;
		unsure |= !is_settled(&s->threads[i]);
	}
	if (!unsure || s->count < 2 || scry_ruby_gvl_waiters(s->ruby, s->list, s->count, s->waits))
		return;
	for (size_t i = 0; i < s->count; i++)
		if (!is_settled(&s->threads[i]) && s->waits[i] && !s->threads[i].now.is_running)
			s->threads[i].state = SCRY_STATE_GVL;
}

/* The same stack, with the collector as its newest frame. */
static uint32_t add_gc(struct scry_samples *s, uint32_t stack)
{
	struct scry_stack_frame frame;

	if (scry_stacks_frame(&s->stacks, stack, &frame))
		frame = (struct scry_stack_frame){0};
	frame.parent = stack;
	frame.label = s->gc_name;
	frame.flags = 0;
	return scry_stacks_add(&s->stacks, &frame);
}

/* Is it on a processor, or ready to be, while the collector is at work? */
static bool may_collect(const struct scry_samples_thread *t)
{
	return t->in_gc && !t->rests &&
	       (t->state == SCRY_STATE_CPU || t->state == SCRY_STATE_RUNNABLE);
}

/* Which thread collects: the one thread that runs meanwhile, or of several the one that has the
 * lock. */
static void take_collector(struct scry_samples *s)
{
	size_t may = 0, who = s->count;

	for (size_t i = 0; i < s->count; i++) {
		s->list[i] = s->threads[i].ruby;
		if (!may_collect(&s->threads[i]))
			continue;
		may++;
		who = i;
	}
	for (size_t i = 0; i < s->count && may > 1; i++)
		if (may_collect(&s->threads[i]) &&
		    scry_ruby_gvl_is_holder(s->ruby, s->list, s->count, i)) {
			may = 1;
			who = i;
		}
	if (may != 1)
		return;
	s->threads[who].state = SCRY_STATE_GC;
	s->threads[who].stack = add_gc(s, s->threads[who].stack);
	s->threads[who].has_last = false;
}

/* By the fd of its memory: is it still the same program? */
static int check_program(struct scry_samples *s)
{
	uint64_t root;

	s->checked_ns = now_ns(CLOCK_MONOTONIC);
	return scry_mem_u64(&s->ruby->mem, s->ruby->bias + s->ruby->layout.vm_root, &root) ? -ESRCH
											   : 0;
}

int scry_samples_list(struct scry_samples *s, bool now)
{
	int err = 0;

	if (now || now_ns(CLOCK_MONOTONIC) - s->listed_ns >= LIST_NS)
		err = scry_samples_list_threads(s, now);
	scry_samples_names(s, now_ns(CLOCK_MONOTONIC));
	if (err || (!now && now_ns(CLOCK_MONOTONIC) - s->checked_ns < CHECK_NS))
		return err;
	return check_program(s);
}

/* Has it not run since the tick before? The kernel's shared page is proven by its own count. */
static bool is_at_rest(const struct scry_samples *s, struct scry_samples_thread *t)
{
	struct scry_task_now now;

	if (s->pause) {
		scry_samples_pause_task(s->pause, t->ruby.tid, &now);
		return !t->now.is_running && !now.is_running && !t->now.is_gone && !now.is_gone &&
		       now.switches == t->now.switches && now.run_ns == t->now.run_ns;
	}
	if (t->task.turns && s->tick_ns - t->asked_ns < ASK_NS)
		return scry_task_is_still(&t->task, &t->now);
	t->asked_ns = s->tick_ns;
	if (scry_task_rests(&t->task, &t->now))
		return true;
	if (scry_task_is_still(&t->task, &t->now))
		scry_task_unwatch(&t->task);
	return false;
}

/* What the thread does now, and with what stack. */
static void look_at(struct scry_samples *s, struct scry_samples_thread *t)
{
	struct scry_task_now before = t->now;

	t->is_clocked = t->in_gc = false;
	if (t->has_last && is_at_rest(s, t)) {
		t->rests++;
		s->sums.unchanged++;
		return;
	}
	if (s->pause)
		scry_samples_pause_task(s->pause, t->ruby.tid, &t->now);
	else
		scry_task_read(&t->task, &t->now);
	scry_samples_cpu_ran(&s->cpu, t->number, &t->now);
	t->now.is_ready |= scry_task_is_ready(&before, &t->now);
	if (!s->pause && !s->clock_ns && t->now.is_running && !t->now.is_ready)
		t->now.is_ready = !scry_task_is_on_processor(&t->task);
	t->state = scry_thread_state(&before, &t->now, false);
	t->rests = 0;
	t->is_clocked = s->clock_ns && t->now.is_running;
	t->has_last = false;
	if (t->is_clocked)
		return;
	take_stack(s, t);
	t->has_last = t->verdict == SCRY_WALK_VALID;
	s->is_doubtful |= t->verdict > SCRY_WALK_REPAIRED;
}

/* While the collector is at work: is it this thread that collects? Then that is its state. */
static void name_collector(struct scry_samples *s, size_t i, struct scry_samples_thread *sample)
{
	for (size_t k = 0; k < s->count; k++)
		s->list[k] = s->threads[k].ruby;
	if (s->count > 1 && !scry_ruby_gvl_is_holder(s->ruby, s->list, s->count, i))
		return;
	sample->state = SCRY_STATE_GC;
	sample->stack = add_gc(s, sample->stack);
}

/* What is owed comes and goes with chance; it is counted when it is too much for that. */
static void count_clocked(struct scry_samples *s, size_t i, uint64_t stands_ns)
{
	struct scry_samples_thread *t = &s->threads[i];

	t->owed_ns += (int64_t)stands_ns;
	if (t->owed_ns < OWED_TICKS * (int64_t)s->clock_ns)
		return;
	t->state = SCRY_STATE_RUNNABLE;
	take_stack(s, t);
	if (t->in_gc)
		name_collector(s, i, t);
	count(s, t, (uint64_t)t->owed_ns, 0);
	t->owed_ns = 0;
}

/* All threads: their states and stacks. */
static int look_at_all(struct scry_samples *s)
{
	int err = 0;

	s->tick_ns = now_ns(CLOCK_MONOTONIC);
	s->is_doubtful = false;
	if (s->pause || s->tick_ns - s->listed_ns >= LIST_NS)
		err = scry_samples_list_threads(s, s->pause);

	if (err)
		return err;
	scry_symbols_turn(&s->symbols);
	for (size_t i = 0; i < s->count; i++)
		look_at(s, &s->threads[i]);
	take_waiters(s);
	take_collector(s);
	if (!s->pause && !s->is_doubtful && s->tick_ns - s->checked_ns < CHECK_NS)
		return 0;
	return check_program(s);
}

/* The same once more, as some thread has run meanwhile: what they do was asked before. */
static int look_again(struct scry_samples *s)
{
	int err = scry_samples_list_threads(s, true);

	for (size_t i = 0; i < s->count && !err; i++)
		take_stack(s, &s->threads[i]);
	take_waiters(s);
	take_collector(s);
	return err ? err : check_program(s);
}

/* All threads, while those that run are held. 1; 0: they are not looked at now; or -errno. */
static int look_held(struct scry_samples *s, uint64_t *stands_ns)
{
	struct scry_ev_sampling before = s->sums;
	int err, r = scry_samples_pause_begin(s->pause, stands_ns);

	if (r <= 0)
		return r;
	err = look_at_all(s);
	while (!err && (r = scry_samples_pause_holds(s->pause, *stands_ns)) == 0) {
		s->sums = before;
		err = look_again(s);
	}
	if (r == 0 || r == 1) /* it is held still */
		scry_samples_pause_end(s->pause);
	if (r == 1 && !err)
		return 1;
	for (size_t i = 0; i < s->count; i++)
		s->threads[i].has_last = false;
	return err ? err : r == 2 ? 0 : r;
}

int scry_samples_tick(struct scry_samples *s, uint64_t stands_ns)
{
	uint64_t began = now_ns(CLOCK_MONOTONIC);
	int r = s->pause ? look_held(s, &stands_ns) : look_at_all(s);

	if (r < 0 || (s->pause && !r))
		return r;
	for (size_t i = 0; i < s->count; i++)
		if (s->threads[i].is_clocked)
			count_clocked(s, i, stands_ns);
		else
			count_looked(s, &s->threads[i], stands_ns);
	scry_samples_names(s, now_ns(CLOCK_MONOTONIC)); /* none is held any more */
	s->sums.ticks++;
	s->sums.busy_ns += now_ns(CLOCK_MONOTONIC) - began;
	return 0;
}

/* --- by the thread's own clock ---------------------------------------------------------------- */

/* Names that may be others' by now are left out. */
static void keep_sure(struct scry_samples *s, struct scry_samples_thread *t, uint64_t taken_ns)
{
	bool is_new;

	if (scry_record_keep_sure(&s->walk, s->ruby, &s->symbols, s->named, taken_ns, &is_new)) {
		if (s->native) /* the frames that they belong to are not all there */
			scry_samples_native_none(s->native);
		s->unsure++;
		t->verdict = s->walk.count ? SCRY_WALK_REPAIRED : SCRY_WALK_REJECTED;
		is_new = true;
	}
	t->stack = is_new ? intern_stack(s) : t->stack;
}

int scry_samples_record(struct scry_samples *s, const void *record, size_t size)
{
	const struct scry_bpf_stack *r = record;
	struct scry_samples_thread *known, t;
	struct scry_ruby_gc_now gc;
	size_t at = 0;

	if (size < sizeof(*r))
		return -EPROTO;
	if (r->kind == SCRY_BPF_NATIVE)
		return s->native ? scry_samples_native_record(s->native, record, size) : -EPROTO;
	if (s->native)
		scry_samples_native_recorded(s->native, r->tid, r->time_ns);
	while (at < s->count && (s->threads[at].ruby.tid != (pid_t)r->tid ||
				 (s->threads[at].ruby.th != r->th && r->kind != SCRY_BPF_STRANGER)))
		at++;
	if (at == s->count)
		return -ENOENT;
	known = &s->threads[at];
	t = (struct scry_samples_thread){.number = known->number, .state = SCRY_STATE_CPU};
	gc = scry_record_gc(&s->walk, r);
	t.verdict = scry_record_take(&s->walk, s->ruby, r, size, gc);
	s->sums.collects++;
	s->sums.clocked++;
	if (name_stack(s, &t) && t.verdict == SCRY_WALK_VALID)
		keep_sure(s, &t, r->time_ns);
	if (gc.is_running)
		name_collector(s, at, &t);
	known->owed_ns -= (int64_t)s->clock_ns;
	count(s, &t, s->clock_ns, s->clock_ns);
	s->sums.dropped += t.verdict == SCRY_WALK_VALID && s->walk.is_dropped;
	return 0;
}

int scry_samples_write(struct scry_samples *s)
{
	const struct scry_event head = {.type = SCRY_EVENT_SAMPLES};
	int err = 0;

	scry_samples_names(s, UINT64_MAX);
	if (!s->clock_ns)
		scry_samples_place(s);
	for (size_t i = 0; i < s->row_count && !err; i++) {
		struct scry_ev_samples ev = s->rows[i];

		if (!ev.count && !ev.wall_ns && !ev.cpu_ns)
			continue;
		ev.stack = scry_stacks_write(&s->stacks, ev.stack, &s->symbols.names, s->writer);
		err = scry_writer_payload(s->writer, &head, &ev, sizeof(ev));
	}
	s->sums.pid = (uint32_t)s->ruby->pid;
	if (!err)
		err = scry_writer_payload(s->writer,
					  &(struct scry_event){.type = SCRY_EVENT_SAMPLING},
					  &s->sums, sizeof(s->sums));
	if (!err && s->pause) {
		struct scry_ev_pauses pauses = scry_samples_pause_sums(s->pause);

		err = scry_writer_payload(s->writer,
					  &(struct scry_event){.type = SCRY_EVENT_PAUSES}, &pauses,
					  sizeof(pauses));
	}
	return err;
}
