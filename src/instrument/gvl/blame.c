/*
 * Which line makes others wait: the stack of the thread that holds the lock while another wants it.
 * A thread that runs gives it itself, by eBPF, at each millisecond of a processor (sample/holders):
 * nothing changes meanwhile, so that short calls are found, too. A thread that has the lock and
 * does not run, or any where eBPF cannot be had, is looked at from outside each millisecond. A
 * stack that changes meanwhile is read without the frames that do, so calls of a few microseconds
 * are then their callers'; that is noted.
 *
 * While no thread waited at the last looks, looks and ticks are four milliseconds apart: a watch of
 * a program whose threads do not wait for each other costs it little. A look stands for the time
 * since the one before, however long, and a tick for its period, so shares are right at either
 * pace.
 *
 * The stack at which a holder gives the lock would blame another line, as the VM looks at its
 * interrupts after a C function is off the stack. So holders are sampled while they hold. How long
 * others lost because of a holder is counted exactly by the agent; that time is shared out among
 * the holder's samples at the end, by the waiting that each stood for.
 *
 * A holder that has no processor makes others wait, and the line at which it lost that is not to
 * blame: it may be a call that has just waited for something else, as these are where threads are
 * put off. Such looks count only where a holder was seen in no others, and have a line only if it
 * has run since it got the lock; and one at a holder that has just been put on a processor stands
 * for what it has run.
 *
 * Where it runs a method in C of a library, as an extension's, the library's function is a frame
 * above it: the method's definition names it, so it is on the stack, whatever it calls.
 *
 * A holder that lets no other in makes no event. Until the first one the look from outside says
 * which thread has the lock and which want it: no thread comes or goes without an event.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/vector.h"
#include "instrument/gvl/gvl.h"
#include "instrument/gvl/past.h"
#include "instrument/gvl/people.h"
#include "instrument/gvl/ractors.h"
#include "name/stacks.h"
#include "sample/holders.h"
#include "sample/record.h"
#include "sys/modules.h"
#include "sys/task.h"
#include "vm/ruby_symbol.h"
#include "vm/ruby_walk.h"
#include "watch/ask.h"
#include "wire/payload.h"

#define PERIOD_NS 1000000
#define QUIET_PERIOD_NS 4000000
#define QUIET_LOOKS 16	       /* in which no thread waited */
#define GAP_MAX_NS 20000000ull /* a look stands for no more than that */
#define ROWS_MAX 100000u
#define FUNCTIONS_MAX 65536u
#define TASKS_MAX 64u
#define BEGUN_NS 100000u  /* after so long it has left the call in which it took the lock */
#define FIRST 0xffffffffu /* holder: which thread had it before the first event */

struct row {
	uint32_t holder, stack; /* as past.h names threads; a frame's number, 0: not read */
	struct seen {
		uint64_t samples, weight; /* weight: ns, times those that waited */
	} seen, ready;			  /* ready: it had no processor */
};

struct scry_gvl_blame {
	int timer;
	struct scry_symbols symbols;
	struct scry_stacks stacks;
	struct scry_walk walk;
	struct scry_named_frame *named;
	bool is_clocked; /* a thread that runs gives its stack itself */
	uint64_t last_ns, samples, torn, unrecorded;
	uint32_t quiet_looks; /* no thread waited in so many, one after the other */
	struct task {
		struct scry_task task; /* tid 0: none */
		uint64_t ran_ns;       /* since it is watched, up to the last look at it */
	} tasks[TASKS_MAX];	       /* of holders */
	uint32_t oldest_task;
	struct scry_modules *native;
	struct scry_map
		functions; /* of C methods -> their frame in `stacks`' terms, by place + 1 */
	struct scry_stack_frame *libraries;
	size_t library_count, library_room;
};

struct scry_gvl_held {	      /* of one lock */
	struct scry_map keys; /* holder << 32 | stack -> row + 1 */
	struct row *rows;
	size_t count, room;
	uint64_t hold_since, hold_ran_ns; /* the hold that was seen last, at its first look */
};

struct scry_gvl_held *scry_gvl_held_new(void)
{
	struct scry_gvl_held *h = calloc(1, sizeof(*h));

	if (h)
		scry_map_init(&h->keys, ROWS_MAX);
	return h;
}

void scry_gvl_held_free(struct scry_gvl_held *h)
{
	if (!h)
		return;
	scry_map_done(&h->keys);
	free(h->rows);
	free(h);
}

static int set_period(struct scry_gvl_blame *b, long ns)
{
	const struct itimerspec each = {{0, ns}, {0, ns}};

	return timerfd_settime(b->timer, 0, &each, NULL);
}

struct scry_gvl_blame *scry_gvl_blame_new(const struct scry_ruby *ruby)
{
	struct scry_gvl_blame *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->last_ns = scry_now_ns();
	b->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	b->named = calloc(SCRY_WALK_FRAMES_MAX, sizeof(*b->named));
	scry_stacks_init(&b->stacks, SCRY_STACKS_MAX);
	if (b->timer < 0 || !b->named || scry_symbols_init(&b->symbols) < 0 ||
	    scry_walk_init(&b->walk) < 0 || set_period(b, PERIOD_NS) < 0) {
		scry_gvl_blame_free(b);
		return NULL;
	}
	scry_walk_watch_gc(&b->walk, ruby);
	scry_map_init(&b->functions, FUNCTIONS_MAX);
	b->native = scry_modules_new(ruby->pid); /* NULL: then libraries have no names */
	return b;
}

void scry_gvl_blame_free(struct scry_gvl_blame *b)
{
	if (!b)
		return;
	if (b->timer >= 0)
		close(b->timer);
	scry_symbols_done(&b->symbols);
	scry_stacks_done(&b->stacks);
	scry_walk_done(&b->walk);
	scry_map_done(&b->functions);
	scry_modules_free(b->native);
	for (uint32_t i = 0; i < TASKS_MAX; i++)
		if (b->tasks[i].task.tid)
			scry_task_close(&b->tasks[i].task);
	free(b->libraries);
	free(b->named);
	free(b);
}

int scry_gvl_blame_fd(const struct scry_gvl_blame *b)
{
	return b->timer;
}

/* ---- C code that is not the VM's ---- */

/* The function in C that the newest frame's method is; 0: it is none, or not known. */
static uint64_t function_of(const struct scry_gvl_blame *b, const struct scry_ruby *ruby)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	const struct scry_walk_frame *f = &b->walk.frames[0];
	uint64_t entry, def, function;

	if (!l->gvl.pass || !b->walk.count || f->iseq ||
	    SCRY_FRAME_TYPE(f->flags) != SCRY_FRAME_CFUNC || !f->entry ||
	    !(entry = scry_walk_entry(ruby, f->entry)) ||
	    scry_mem_u64(&ruby->mem, entry + l->me_def, &def) ||
	    scry_mem_u64(&ruby->mem, def + l->gvl.def_func, &function))
		return 0;
	return function;
}

static uint32_t name_id(struct scry_gvl_blame *b, const char *text)
{
	uint32_t id = 0;

	if (text)
		scry_intern_put(&b->symbols.names, text, strlen(text), &id);
	return id;
}

static bool has_room(struct scry_gvl_blame *b)
{
	size_t room = b->library_room ? 2 * b->library_room : 64;
	struct scry_stack_frame *more;

	if (b->library_count < b->library_room)
		return true;
	more = reallocarray(b->libraries, room, sizeof(*more));
	if (!more)
		return false;
	b->libraries = more;
	b->library_room = room;
	return true;
}

/* Its frame, without a parent; all zeros: it is the VM's own, or of no file. */
static struct scry_stack_frame library_frame(struct scry_gvl_blame *b, const struct scry_ruby *ruby,
					     uint64_t function)
{
	struct scry_stack_frame frame = {0};
	struct scry_code_name name;
	uint64_t *at = scry_map_ref(&b->functions, function);

	if (at && *at)
		return b->libraries[*at - 1];
	if (!at || !has_room(b))
		return frame;
	/* What was mapped there at the last look may have gone: Ruby maps the files that it reads,
	 * and libraries come where they were. From the first call on a library stays. */
	scry_modules_see(b->native);
	scry_modules_name(b->native, function + 1, &name); /* of the byte before */
	if (name.module && name.module[0] == '/' && strcmp(name.module, ruby->module))
		frame = (struct scry_stack_frame){
			.path = name_id(b, name.module),
			.label = name_id(b, name.symbol),
			.line = name.symbol ? 0 : (uint32_t)name.offset - 1,
			.flags = SCRY_STACK_NATIVE,
		};
	b->libraries[b->library_count++] = frame;
	*at = b->library_count;
	free(name.module);
	return frame;
}

/* Above the method in C that runs, its function, where that is a library's. */
static uint32_t with_library(struct scry_gvl_blame *b, const struct scry_ruby *ruby, uint32_t stack)
{
	const uint64_t function = stack && b->native ? function_of(b, ruby) : 0;
	struct scry_stack_frame frame;
	uint32_t above;

	if (!function)
		return stack;
	frame = library_frame(b, ruby, function);
	if (!frame.path)
		return stack;
	frame.parent = stack;
	above = scry_stacks_add(&b->stacks, &frame);
	return above ? above : stack;
}

/* The walked stack as a number of `stacks`; a C method has its caller's line. */
static uint32_t intern_stack(struct scry_gvl_blame *b)
{
	struct scry_stack_frame frame = {0};
	uint32_t parent = 0;

	for (size_t i = b->walk.count; i > 0; i--) {
		const struct scry_symbol *symbol =
			scry_symbols_get(&b->symbols, b->named[i - 1].symbol);

		if (!symbol || b->named[i - 1].is_hidden)
			continue;
		if (!symbol->is_c) {
			frame.path = symbol->path;
			frame.line = b->named[i - 1].line;
		}
		frame.label = symbol->name;
		frame.flags = symbol->is_c ? SCRY_STACK_C : 0;
		frame.parent = parent;
		parent = scry_stacks_add(&b->stacks, &frame);
		if (!parent)
			return 0;
	}
	return parent;
}

static uint32_t only_frame(struct scry_gvl *g, const char *label)
{
	const struct scry_stack_frame frame = {.label = name_id(g->blame, label)};

	return scry_stacks_add(&g->blame->stacks, &frame);
}

uint32_t scry_gvl_blame_no_frames(struct scry_gvl *g)
{
	return only_frame(g, "[a thread that starts or ends]");
}

uint32_t scry_gvl_blame_brief(struct scry_gvl *g)
{
	return only_frame(g, "[waits shorter than --threshold]");
}

/* Of what the walk has found, which all has names. */
static uint32_t found_stack(struct scry_gvl *g)
{
	const uint32_t stack = intern_stack(g->blame);

	return stack ? with_library(g->blame, g->ruby, stack) : scry_gvl_blame_no_frames(g);
}

uint32_t scry_gvl_blame_write(struct scry_gvl *g, uint32_t stack)
{
	return scry_stacks_write(&g->blame->stacks, stack, &g->blame->symbols.names,
				 g->watch->writer);
}

uint32_t scry_gvl_blame_walk(struct scry_gvl *g, uint64_t th)
{
	struct scry_gvl_blame *b = g->blame;
	const struct scry_ruby *ruby = g->ruby;
	struct scry_ruby_thread t = {.th = th};
	enum scry_walk_verdict verdict;

	for (int i = 0; i < 2; i++) {
		if (scry_mem_u64(&ruby->mem, th + ruby->layout.th_ec, &t.ec) < 0)
			break;
		scry_symbols_turn(&b->symbols);
		verdict = scry_walk_collect(&b->walk, ruby, &t, NULL);
		if (verdict == SCRY_WALK_EMPTY)
			return scry_gvl_blame_no_frames(g);
		if (verdict <= SCRY_WALK_REPAIRED && b->walk.ec_now == t.ec &&
		    scry_symbols_name(&b->symbols, ruby, &b->walk, b->named) == 0)
			return found_stack(g);
	}
	b->torn++;
	return 0;
}

uint32_t scry_gvl_blame_take(struct scry_gvl *g, const struct scry_walk_copy *copy)
{
	struct scry_gvl_blame *b = g->blame;
	uint32_t stack = 0;

	scry_symbols_turn(&b->symbols);
	b->walk.is_still = true;
	if (scry_walk_take(&b->walk, g->ruby, copy) == SCRY_WALK_VALID &&
	    scry_symbols_name(&b->symbols, g->ruby, &b->walk, b->named) == 0)
		stack = found_stack(g);
	b->walk.is_still = false;
	return stack;
}

/* Of a record; 0: it had none that could be read. */
static uint32_t stack_of(struct scry_gvl *g, const struct scry_bpf_stack *r, size_t size)
{
	struct scry_gvl_blame *b = g->blame;
	const struct scry_ruby_gc_now gc = scry_record_gc(&b->walk, r);
	enum scry_walk_verdict verdict;
	bool is_new;

	scry_symbols_turn(&b->symbols);
	verdict = scry_record_take(&b->walk, g->ruby, r, size, gc);
	if (verdict == SCRY_WALK_EMPTY)
		return scry_gvl_blame_no_frames(g);
	if (verdict != SCRY_WALK_VALID ||
	    scry_symbols_name(&b->symbols, g->ruby, &b->walk, b->named))
		return 0;
	if (scry_record_keep_sure(&b->walk, g->ruby, &b->symbols, b->named, r->time_ns, &is_new))
		return b->walk.count ? intern_stack(b) : 0; /* the newest frames are gone */
	return found_stack(g);
}

static void add_seen(struct seen *sum, const struct seen *more)
{
	sum->samples += more->samples;
	sum->weight += more->weight;
}

static void add(struct scry_gvl *g, const struct row *sample)
{
	struct scry_gvl_held *h = g->held;
	uint64_t *at = scry_map_ref(&h->keys, (uint64_t)sample->holder << 32 | sample->stack);

	if (!at || (!*at && scry_vector_reserve(&h->rows, h->count, &h->room))) {
		g->blame->unrecorded++;
		return;
	}
	if (!*at) {
		h->rows[h->count++] =
			(struct row){.holder = sample->holder, .stack = sample->stack};
		*at = h->count;
	}
	add_seen(&h->rows[*at - 1].seen, &sample->seen);
	add_seen(&h->rows[*at - 1].ready, &sample->ready);
}

void scry_gvl_blame_regroup(struct scry_gvl *g)
{
	struct scry_gvl_held *h = g->held, before = *h;

	*h = (struct scry_gvl_held){.hold_since = before.hold_since,
				    .hold_ran_ns = before.hold_ran_ns};
	scry_map_init(&h->keys, ROWS_MAX);
	for (size_t i = 0; i < before.count; i++) {
		before.rows[i].holder = scry_gvl_past_who(g->past, before.rows[i].holder);
		add(g, &before.rows[i]);
	}
	scry_map_done(&before.keys);
	free(before.rows);
}

/* Of the thread that had the lock at a tick, and others wanted it. */
static void take_record(void *arg, const struct scry_bpf_stack *r, size_t size)
{
	struct scry_gvl *g = scry_gvl_ractors_by_table(arg, r->lock, r->lock_uses);
	const uint64_t weight = scry_holders_period_ns() * r->waiting;
	struct row sample = {.holder = r->holder, .seen = {.samples = 1, .weight = weight}};

	/* a lock that is not known yet, or has ended; or other processes are watched on */
	if (!g || !g->held || ((const struct scry_gvl *)arg)->ended.tsc)
		return;
	sample.stack = stack_of(g, r, size);
	g->blame->samples++;
	add(g, &sample);
}

void scry_gvl_blame_clock(struct scry_gvl *g, uint64_t table)
{
	struct scry_gvl_blame *b = g->blame;
	const struct scry_holders_of of = {.pid = g->watch->proc.pid,
					   .ruby = g->ruby,
					   .walk = &b->walk,
					   .table = table,
					   .give = take_record,
					   .arg = g};

	b->is_clocked = scry_holders_add(&of) == 0;
	if (!b->is_clocked)
		scry_watch_note(g->watch,
				"which thread holds the lock, and where, is read from outside, as "
				"eBPF cannot be had: a call of less than some 20 us counts on its "
				"caller's line (%s)",
				scry_error());
	scry_error_clear();
}

struct holding {		       /* as it is now */
	uint32_t holder, waiting, tid; /* tid: as the thread knows it; 0: not known */
	uint64_t th, since;	       /* since: when it got the lock */
};

static bool is_held_first(struct scry_gvl *g, struct holding *ret)
{
	const struct scry_gvl_snapshot *s = &g->first_look;

	if (!g->has_first_look)
		scry_gvl_look_first(g, 1);
	*ret = (struct holding){.holder = FIRST, .th = s->owner, .waiting = (uint32_t)s->count};
	return g->has_first_look && s->owner && s->count;
}

/* FIRST: there was no event yet. */
static bool is_held(struct scry_gvl *g, struct holding *ret)
{
	const volatile struct scry_gvl_table *t = g->table;
	const uint32_t row = t->owner & (g->shape->rows - 1);
	const volatile struct scry_gvl_row *r = scry_gvl_row_at(g->shape, g->table, row);

	if (!t->sequence && g->since)
		return is_held_first(g, ret);
	*ret = (struct holding){.holder = SCRY_GVL_WHO(row, r->uses),
				.waiting = t->wanting,
				.tid = r->tid,
				.th = r->th,
				.since = r->since};
	return row && ret->waiting && ret->waiting <= g->shape->rows && ret->th &&
	       r->state == SCRY_GVL_HOLDS;
}

/* Since it was found to, without an end: each take begins at another moment. */
static bool is_held_still(struct scry_gvl *g, const struct holding *was)
{
	struct holding now;

	return is_held(g, &now) && now.holder == was->holder && now.since == was->since;
}

static void close_task(struct task *t)
{
	if (t->task.tid)
		scry_task_close(&t->task);
	*t = (struct task){0};
}

/* That of one of the holders; of many the one that came first makes room. NULL: there is none. */
static struct task *task_of(struct scry_gvl *g, pid_t tid)
{
	struct scry_gvl_blame *b = g->blame;
	struct task *t = &b->tasks[b->oldest_task];

	for (uint32_t i = 0; i < TASKS_MAX; i++)
		if (b->tasks[i].task.tid == tid)
			return &b->tasks[i];
	close_task(t);
	b->oldest_task = (b->oldest_task + 1) % TASKS_MAX;
	scry_task_open(&t->task, g->watch->proc.pid, tid);
	if (t->task.schedstat_fd >= 0) { /* it is one of this process */
		scry_task_watch(&t->task);
		return t;
	}
	close_task(t);
	return NULL;
}

/* NULL: it is not known. */
static struct task *holders_task(struct scry_gvl *g, const struct holding *held)
{
	const struct scry_gvl_person *person = scry_gvl_person_of(g, held->th);

	if (person && person->tid > 0 && !g->are_turns)
		return task_of(g, person->tid);
	return g->tids_are_ours && held->tid ? task_of(g, (pid_t)held->tid) : NULL;
}

/* How long it has run of the time that a look stands for. 0: it is ready to run, and on no
 * processor. One that sleeps, or is not known, has stood where it is. *ret_is_reported: as it runs,
 * it gives its stack itself. */
static uint64_t ran_of(struct scry_gvl *g, const struct holding *held, uint64_t stands_ns,
		       bool *ret_is_reported)
{
	struct scry_gvl_blame *b = g->blame;
	const bool is_clocked = b->is_clocked && held->tid; /* as bpf/stacks asks for it */
	struct task *t = holders_task(g, held);
	struct scry_task_now now;
	uint64_t first, second, before;

	*ret_is_reported = !t && is_clocked;
	if (!t)
		return stands_ns;
	scry_task_read(&t->task, &now);
	if (now.is_gone) /* its number may be another thread's */
		close_task(t);
	if (now.is_gone || !now.is_running || !scry_task_ran(&t->task, &first) ||
	    !scry_task_ran(&t->task, &second))
		return stands_ns;
	before = t->ran_ns;
	t->ran_ns = second;
	if (g->held->hold_since != held->since)
		g->held->hold_ran_ns = second;
	g->held->hold_since = held->since;
	if (first == second)
		return 0;
	*ret_is_reported = is_clocked;
	return second - before < stands_ns ? second - before : stands_ns;
}

/* Of one that is put off: it is where its own work has brought it. */
static bool has_begun(struct scry_gvl *g, const struct holding *held)
{
	const struct task *t = holders_task(g, held);

	return t && t->ran_ns - g->held->hold_ran_ns >= BEGUN_NS;
}

/* Stacks of waits have to be taken while there is room for more. */
static void keep_pace(struct scry_gvl *g)
{
	struct scry_gvl_blame *b = g->blame;
	const bool was_quiet = b->quiet_looks >= QUIET_LOOKS;
	bool waits = g->fresh && scry_gvl_ractors_are_pressed(g);
	struct scry_gvl *lock;

	for (size_t i = 0; (lock = scry_gvl_ractors_at(g, i)); i++)
		waits |= lock->table->wanting || scry_gvl_past_is_pressed(lock) ||
			 (!lock->table->sequence && lock->first_look.count);
	if (waits || g->has_stacks)
		b->quiet_looks = 0;
	else if (!was_quiet)
		b->quiet_looks++;
	if (was_quiet == (b->quiet_looks >= QUIET_LOOKS))
		return;
	set_period(b, was_quiet ? PERIOD_NS : QUIET_PERIOD_NS);
	scry_holders_pace(g, !was_quiet);
}

static void look_at_holder(struct scry_gvl *g, const struct holding *held, uint64_t stands_ns)
{
	struct scry_gvl_blame *b = g->blame;
	struct row sample = {.holder = held->holder};
	bool is_reported = false;
	const uint64_t ran_ns =
		held->holder == FIRST ? stands_ns : ran_of(g, held, stands_ns, &is_reported);

	if (is_reported)
		return;
	*(ran_ns ? &sample.seen : &sample.ready) = (struct seen){
		.samples = 1, .weight = (ran_ns ? ran_ns : stands_ns) * held->waiting};
	sample.stack = ran_ns || has_begun(g, held) ? scry_gvl_blame_walk(g, held->th) : 0;
	if (!is_held_still(g, held)) /* its stack may be of when it had it no more */
		sample.stack = 0;
	b->samples++;
	add(g, &sample);
}

void scry_gvl_blame_look(struct scry_gvl *g)
{
	struct scry_gvl_blame *b = g->blame;
	const uint64_t now = scry_now_ns(), gap = now - b->last_ns,
		       stands_ns = gap < GAP_MAX_NS ? gap : GAP_MAX_NS;
	struct holding held;
	struct scry_gvl *lock;
	uint64_t ticks;

	if (read(b->timer, &ticks, sizeof(ticks)) != sizeof(ticks) && gap < PERIOD_NS)
		return;
	b->last_ns = now;
	for (size_t i = 0; (lock = scry_gvl_ractors_at(g, i)); i++)
		if (lock->held && is_held(lock, &held))
			look_at_holder(lock, &held, stands_ns);
	scry_holders_take();
	for (size_t i = 0; (lock = scry_gvl_ractors_at(g, i)); i++)
		if (lock->waiters)
			scry_gvl_waiters_look(lock, stands_ns);
	if (g->check)
		scry_gvl_check_look(g, now);
	keep_pace(g);
}

void scry_gvl_blame_settle(struct scry_gvl *g, const struct scry_gvl_table *t,
			   uint32_t first_holder)
{
	struct scry_gvl_held *b = g->held;

	for (size_t i = 0; i < b->count; i++)
		b->rows[i].holder = b->rows[i].holder == FIRST
					    ? first_holder
					    : scry_gvl_past_number(t, b->rows[i].holder);
}

/* The holder's samples share what others lost because of it. */
void scry_gvl_blame_report(struct scry_gvl *g, uint32_t holder, uint64_t lost_ns)
{
	struct scry_gvl_held *b = g->held;
	struct scry_ev_gvl_line ev = {.pid = (uint32_t)g->watch->proc.pid,
				      .holder = scry_gvl_number(g, holder)};
	struct seen all = {0}, ready = {0};

	for (size_t i = 0; i < b->count; i++) {
		if (b->rows[i].holder != holder)
			continue;
		add_seen(&all, &b->rows[i].seen);
		add_seen(&ready, &b->rows[i].ready);
	}
	for (size_t i = 0; i < b->count; i++) {
		const struct row *row = &b->rows[i];
		const struct seen *seen = all.weight ? &row->seen : &row->ready;
		const uint64_t weight = all.weight ? all.weight : ready.weight;

		if (row->holder != holder || !seen->weight)
			continue;
		ev.stack = scry_gvl_blame_write(g, row->stack);
		ev.samples = (uint32_t)seen->samples;
		ev.lost_ns = (uint64_t)((double)lost_ns * (double)seen->weight / (double)weight);
		scry_watch_event(g->watch, SCRY_EVENT_GVL_LINE, &ev, sizeof(ev));
	}
	if (all.weight || ready.weight || !lost_ns)
		return;
	ev.stack = 0; /* it held it between two looks only */
	ev.samples = 0;
	ev.lost_ns = lost_ns;
	scry_watch_event(g->watch, SCRY_EVENT_GVL_LINE, &ev, sizeof(ev));
}
