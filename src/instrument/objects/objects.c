/*
 * `scry objects`: which lines allocate what. Source: the VM's own NEWOBJ and FREEOBJ events, taken
 * by the agent's raw hook (agent/ruby_events.c), or hooks on the VM's functions
 * (instrument/objects/source); switched on through a postponed job in a live process, or just
 * before the script is loaded in one that is being started.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "instrument/objects/objects.h"
#include "agent/agent.h"
#include "agent/vm.h"
#include "agent/objects.h"
#include "base/err.h"
#include "base/text.h"
#include "hook/ring.h"
#include "instrument/instruments.h"
#include "instrument/objects/asks.h"
#include "instrument/objects/collect.h"
#include "instrument/objects/own.h"
#include "instrument/objects/plan.h"
#include "instrument/objects/ractors.h"
#include "instrument/objects/source.h"
#include "instrument/objects/swept.h"
#include "name/objects.h"
#include "sys/ticks.h"
#include "vm/ruby.h"
#include "vm/ruby_boot.h"
#include "watch/ask.h"
#include "watch/until.h"

#define RETRY_NS 500000000ull
#define SLIPPED_NS 20000000ull
#define BUSY_NS 20000000ull /* of processor time: a thread runs, and does not get to us */

#define UNTIL_EVERY_NS 100000000ull
#define LAST_LOOK_NS 1000000000ull
#define LAST_LOOKS 16		/* a program ends once, but its children have its memory */
#define UNBOUND_NS 500000000ull /* a fork child that waits is not known for so long, at most */

/* What all processes of a run have in common. */
static struct {
	uint32_t next_site;
	size_t live_bytes;
} shared = {1, 0};

static struct scry_objects *new_names(const struct scry_watch *w,
				      const struct scry_objects_watch *o)
{
	return scry_objects_new(&(struct scry_objects_setup){
		.ruby = o->ruby,
		.limit_bytes = w->opts->memory,
		.sample_mean = o->sample_mean,
		.sample_unit = o->sampling.by_bytes ? o->sampling.unit : 0,
		.next_site = &shared.next_site,
		.live_bytes = &shared.live_bytes,
	});
}

int scry_objects_prepare(struct scry_watch *w, struct scry_ruby *ruby)
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	struct scry_objects_watch *o = calloc(1, sizeof(*o));
	int r;

	if (!o) {
		scry_ruby_free(ruby);
		return -ENOMEM;
	}
	w->state = o;
	o->ruby = ruby;
	scry_objects_fill_plan(o->ruby, &o->plan);
	if (!o->plan.add_event_hook2 || !o->plan.remove_event_hook ||
	    !(o->plan.job_register || (o->plan.job_preregister && o->plan.job_trigger)))
		return scry_fail(-ENOTSUP,
				 "this Ruby (%s) does not export %s, by which scry switches its "
				 "events on and off: such a Ruby is not supported yet",
				 o->ruby->description,
				 o->plan.add_event_hook2 ? "rb_postponed_job_trigger"
							 : "rb_add_event_hook2");
	r = scry_objects_choose(w, o->ruby, (enum scry_objects_source)opts->source, &o->hooks);
	if (r < 0)
		return r;
	r = scry_objects_rehearse(w, o->ruby, &o->hooks, &o->plan);
	if (r < 0)
		return r;
	o->batch = malloc(8ull * SCRY_RING_WORDS);
	o->sample_mean = scry_objects_fill_sampling(&opts->sample, o->ruby->layout.slot_size,
						    o->plan.page_mask != 0, &o->sampling);
	o->names = new_names(w, o);
	if (!o->batch || !o->names)
		return scry_no_memory("the tables");
	w->near = o->ruby->bias;
	w->runtime = o->ruby->description;
	if (w->held)
		scry_ruby_boot(o->ruby, &o->boot);
	o->plan.judge_first = w->held != NULL;
	return 0;
}

static int prepare(struct scry_watch *w)
{
	struct scry_ruby *ruby;
	int r = scry_ruby_open(w->proc.pid, w->held ? SCRY_RUBY_STARTS : SCRY_RUBY_BOOTED, &ruby);

	return r < 0 ? r : scry_objects_prepare(w, ruby);
}

void scry_objects_counted(const struct scry_watch *w, struct scry_objects_totals *ret)
{
	const struct scry_objects_watch *o = w->state;

	scry_objects_totals(o->names, ret);
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct scry_objects_watch *o = w->state;

	fprintf(out, "  runtime     %s\n", scry_text_shown(o->ruby->description).text);
	fprintf(out, "  module      %s\n", scry_text_shown(o->ruby->module).text);
	scry_objects_describe_source(&o->hooks, out);
	fprintf(out, "  layout      %zu items learned and checked (scry doctor -p %d lists them)\n",
		o->ruby->check_count, w->proc.pid);
	fprintf(out, "  pause       and each Ruby thread at most once for some 0.1 ms, until one "
		     "works\n");
	fprintf(out, "  cost        some %s on code that only allocates, %s on programs\n",
		o->hooks.plan.on ? "55 %" : "60 to 90 %",
		o->hooks.plan.on ? "5 to 12 %" : "15 to 25 %");
}

static bool wait_for_armed(const struct scry_watch *w, uint64_t ns)
{
	uint64_t until = scry_now_ns() + ns;

	while (!scry_objects_is_armed(w) && scry_now_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	return scry_objects_is_armed(w);
}

/* The call or slot by which the program starts leads to the agent first. */
static int hook_boot(struct scry_watch *w, struct scry_objects_watch *o)
{
	uint64_t to = scry_inject_symbol(w->inj, "scry_agent_boot_slot");
	struct scry_change change = {.addr = o->boot.addr,
				     .mapping = scry_maps_at(&w->inj->maps, o->boot.addr)};
	uint8_t old[8], new_[8] = {0xe8}; /* call rel32 */
	int32_t distance = (int32_t)(to - (o->boot.addr + 5));
	int r;

	change.size = o->boot.is_call ? 5 : 8;
	change.kind = o->boot.is_call ? SCRY_EDIT_TEXT : SCRY_EDIT_SLOT;
	change.old = old;
	change.new_ = new_;
	if (!o->boot.addr || scry_mem_read(&w->inj->mem, o->boot.addr, old, change.size) < 0)
		return -ENOENT;
	if (o->boot.is_call && (old[0] != 0xe8 || o->boot.addr + 5 + (int64_t)distance != to))
		return -ENOENT;
	if (o->boot.is_call)
		memcpy(new_ + 1, &distance, sizeof(distance));
	else
		memcpy(new_, &to, sizeof(to));
	r = scry_edit_poke(w->inj->mem.fd, scry_inject_symbol(w->inj, "scry_agent_boot_original"),
			   &o->boot.function, 8);
	return r < 0 ? r : scry_edit_change(&w->inj->edit, &change);
}

static int enter(struct scry_watch *w)
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	struct scry_objects_watch *o = w->state;
	const struct scry_control *c = w->inj->control;
	struct scry_account *account = scry_account_of(c);
	struct scry_agent_frames frames;
	uint64_t by_bytes = o->sampling.by_bytes;
	const uint32_t no = 0;
	int r;

	scry_watch_hurry(); /* a ring is full in a tenth of a second */
	scry_objects_fill_frames(&o->ruby->layout, opts->stacks,
				 !o->plan.each_objects && !o->sampling.on, &frames);
	if (o->hooks.plan.on)
		frames.pc_advanced = 0; /* that is around events only */
	r = scry_edit_poke(w->inj->mem.fd,
			   scry_inject_symbol(w->inj, "scry_agent_vm") +
				   offsetof(struct scry_agent_vm, ruby),
			   &o->plan, sizeof(o->plan));
	if (r == 0)
		r = scry_edit_poke(w->inj->mem.fd,
				   scry_inject_symbol(w->inj, "scry_agent_objects") +
					   offsetof(struct scry_agent_objects, sampling),
				   &o->sampling, sizeof(o->sampling));
	w->inj->vm_is_known = true;
	if (r == 0) /* of an older watch that was killed: code is described by plain loads */
		r = scry_edit_poke(w->inj->mem.fd,
				   w->inj->data + offsetof(struct scry_agent_data, line_plan.on),
				   &no, sizeof(no));
	if (r == 0)
		r = scry_objects_report_source(w, &o->hooks);
	if (r == 0)
		r = scry_edit_poke(w->inj->mem.fd,
				   w->inj->state_page + offsetof(struct scry_state_page, by_bytes),
				   &by_bytes, sizeof(by_bytes));
	if (r == 0)
		r = scry_edit_poke(w->inj->mem.fd,
				   w->inj->state_page + offsetof(struct scry_state_page, frames),
				   &frames, sizeof(frames));
	if (r == 0 && w->pool.head)
		r = scry_pool_announce(&w->pool, w->inj, &frames);
	if (r < 0)
		return scry_fail(r, "cannot write the plan into process %d", w->proc.pid);
	account->objects.ended = 0;
	account->objects.judged = 0;
	o->base_lost = c->lost;
	o->base_untracked = account->objects.untracked;
	o->blind = account->objects.blind;
	o->base_lease = c->lost_lease, o->base_busy = c->busy, o->base_bad = account->vm.bad;
	r = scry_ring_open(&o->ring, w->inj);
	if (r < 0)
		return r;
	r = scry_inject_want(w->inj, w->watch);
	if (r < 0)
		return scry_fail(r, "process %d is gone", w->proc.pid);
	r = scry_objects_hook(w, &o->hooks);
	if (r < 0)
		return r;
	if (w->held) {
		o->booting = true;
		r = hook_boot(w, o);
		if (r == -ENOENT)
			scry_watch_note(w, "this ruby starts in a way that scry does not know: "
					   "objects made before "
					   "the watch took hold are not counted");
		return r == -ENOENT ? 0 : r;
	}
	scry_objects_ractors_look(&o->ractors, o->ruby);
	o->registered = scry_objects_ask_again(w, wait_for_armed) > 0;
	o->retry_ns = scry_now_ns() + RETRY_NS;
	return 0;
}

/* A started program: once its VM runs code, the layout is checked on it; until then the agent
 * checks each step, and nothing is counted. One that does not hold is not used for the next program
 * either.
 */
static void check_booted(struct scry_watch *w, struct scry_objects_watch *o)
{
	int r;

	if (!o->booting || !scry_objects_is_armed(w))
		return;
	r = scry_ruby_validate(o->ruby);
	if (r == -EAGAIN || r == -ESRCH) {
		scry_error_clear();
		return;
	}
	o->booting = false;
	if (r == 0) {
		__atomic_store_n(&scry_account_of(w->inj->control)->objects.judged, 1,
				 __ATOMIC_RELEASE);
		scry_objects_ractors_look(&o->ractors, o->ruby);
		return;
	}
	if (!w->is_over) /* leaving has said so, and the memory may be the program's again */
		scry_inject_want(w->inj, 0);
	o->refused = true;
	scry_ruby_drop(o->ruby);
	w->errors++;
	scry_watch_lost_some(w, "the watch was refused when the program's Ruby was up");
	scry_watch_note(w, "the watch was refused, nothing is counted: %s; fix: try again, %s",
			scry_error(),
			o->ruby->unjudged
				? "the layout was kept from an earlier run, and is learned "
				  "anew now"
				: "with SCRY_NO_CACHE=1");
	scry_error_clear();
}

/* It was caught in its start, and its VM is up: the boot slot may have been passed already. */
static bool has_slipped_by(struct scry_watch *w, struct scry_objects_watch *o, uint64_t now)
{
	if (!w->is_caught || !o->booting || now < o->retry_ns)
		return false;
	o->retry_ns = now + SLIPPED_NS;
	return scry_ruby_validate(o->ruby) == 0;
}

static void notice_armed(struct scry_watch *w, struct scry_objects_watch *o)
{
	uint64_t now;

	if (o->armed_ns)
		return;
	now = scry_now_ns();
	if (scry_objects_is_armed(w)) {
		o->armed_ns = now;
	} else if (has_slipped_by(w, o, now)) {
		o->registered = scry_objects_ask(w, SCRY_ASK_ALL, wait_for_armed) > 0;
	} else if (now > o->retry_ns && !w->held && !o->booting) {
		o->retry_ns = now + RETRY_NS;
		if (!o->registered)
			o->registered = scry_objects_ask(w, SCRY_ASK_ALL, wait_for_armed) > 0;
		else if (scry_proc_cpu_ns(w->proc.pid) > o->asked_cpu_ns + BUSY_NS)
			scry_objects_ask(w, SCRY_ASK_RUNNING,
					 wait_for_armed); /* a new thread, say */
	}
}

static void measure_now(struct scry_objects_watch *o)
{
	scry_objects_measure(o->names, false);
	scry_objects_totals(o->names, &o->last_look);
	o->has_looked = true;
}

/* The living, as they are now; or, when nothing was made or ended since, as they were then. */
static void measure(const struct scry_watch *w, struct scry_objects_watch *o)
{
	struct scry_objects_totals t;

	scry_objects_totals(o->names, &t);
	if (!o->has_looked || t.allocs != o->last_look.allocs || t.frees != o->last_look.frees ||
	    t.moved != o->last_look.moved || t.out_of_sight != o->last_look.out_of_sight ||
	    t.unfollowed != o->last_look.unfollowed)
		scry_objects_measure(o->names, w->target_gone);
}

/* --every: the counters as they are now. */
static void end_slice(struct scry_watch *w, struct scry_objects_watch *o)
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	struct scry_ev_slice slice = {.pid = (uint32_t)w->proc.pid};
	struct scry_objects_totals t;
	uint64_t now;

	if (!w->opts->every_ns || w->ended_ns || !w->is_own)
		return;
	now = scry_now_ns();
	if (!o->slice_ns)
		o->slice_ns = w->began_ns;
	if (now < o->slice_ns + w->opts->every_ns || !scry_objects_collect(w, now))
		return;
	measure(w, o);
	scry_objects_totals(o->names, &t);
	o->slices_missed += opts->gc_slices && t.full_gcs == o->full_before;
	slice.slice = ++o->slice;
	slice.begin_ns = o->slice_ns;
	slice.end_ns = now;
	slice.gc_count = t.gcs;
	slice.rss_bytes = scry_proc_rss(w->proc.pid);
	scry_writer_payload(w->writer,
			    &(struct scry_event){.time_ns = now, .type = SCRY_EVENT_SLICE}, &slice,
			    sizeof(slice));
	scry_objects_write(o->names, w->writer, slice.pid, slice.slice);
	o->slice_ns = now;
}

/* --until: looked at each 100 ms. */
static void check_until(struct scry_watch *w, struct scry_objects_watch *o)
{
	struct scry_objects_totals t;
	struct scry_until_now is;
	uint64_t now = scry_now_ns();

	if (w->opts->until.quantity == SCRY_UNTIL_NEVER || now < o->until_ns || w->ended_ns)
		return;
	o->until_ns = now + UNTIL_EVERY_NS;
	scry_objects_totals(o->names, &t);
	is = (struct scry_until_now){.rss_bytes = scry_proc_rss(w->proc.pid),
				     .allocated = t.estimated,
				     .live = t.estimated_live,
				     .gcs = t.gcs};
	if (scry_until_holds(&w->opts->until, &is))
		w->enough = "--until holds";
}

enum belief { BELIEVE, NOT_YET, NEVER };

/* A fork child lives by what its root's layout is worth. */
static enum belief belief(const struct scry_watch *w)
{
	const struct scry_objects_watch *judged =
		w->root && w->root->state ? w->root->state : w->state;

	return judged->refused ? NEVER : judged->booting ? NOT_YET : BELIEVE;
}

static void feed(struct scry_watch *w, struct scry_objects_watch *o, const uint64_t *words,
		 size_t count)
{
	uint64_t now = scry_now_ns();
	struct scry_objects_run run = {
		.producer = {.pid = (uint32_t)w->proc.pid, .start_ticks = w->proc.start_ticks},
		.words = words,
		.count = count,
		.first_ns = now,
		.last_ns = now};

	if (count && w->opts->raw)
		scry_objects_raw(o->names, &run, w->writer);
	else if (count)
		scry_objects_feed(o->names, words, count);
}

static void release(struct scry_watch *w, struct scry_objects_watch *o)
{
	feed(w, o, o->held.words, o->held.count);
	scry_objects_held_drop(&o->held);
}

/* What the ring holds now. How full it was, 0..1000; or -errno. */
static int take(struct scry_watch *w, struct scry_objects_watch *o)
{
	enum belief is = belief(w);
	ssize_t count;
	int fill;

	if (o->is_damaged)
		return -EIO;
	if (!o->ring.control) /* entering failed before it was opened */
		return 0;
	if (is == NOT_YET && !scry_objects_held_has_room(&o->held))
		return 0;
	count = scry_ring_take(&o->ring, o->batch, &fill);
	if (count < 0) { /* not written by our agent */
		w->errors++;
		o->is_damaged = true;
		return (int)count;
	}
	if (is == NEVER)
		return fill;
	if (is == NOT_YET)
		return scry_objects_held_put(&o->held, o->batch, (size_t)count) < 0 ? -ENOMEM
										    : fill;
	release(w, o);
	feed(w, o, o->batch, (size_t)count);
	if (o->blind != scry_account_of(w->inj->control)->objects.blind) {
		o->blind = scry_account_of(w->inj->control)->objects.blind;
		scry_objects_lose_sight(o->names);
	}
	return fill;
}

/* The program ends, or has. What it made before its layout could be judged on it is believed where
 * its own program's child has taught that. Where it waited to be judged and scry had no processor,
 * that says nothing about a kept layout; else one that could not be judged is not kept. */
static void settle(struct scry_watch *w, struct scry_objects_watch *o)
{
	if (belief(w) == NOT_YET && !o->ruby->unjudged && o->held.count)
		release(w, o);
	o->unbelieved = o->booting && o->ruby->unjudged && scry_objects_is_armed(w);
	o->is_missed = o->unbelieved && scry_account_of(w->inj->control)->objects.judge_missed;
	if (o->unbelieved && !o->is_missed)
		scry_ruby_drop(o->ruby);
	scry_objects_held_drop(&o->held);
}

/* What the ring holds, and the ends of samples that the agent has not come to say. */
static void take_last(struct scry_watch *w, struct scry_objects_watch *o, uint64_t until_ns)
{
	uint64_t *words;
	size_t count;

	while (take(w, o) > 0 && scry_now_ns() < until_ns)
		;
	if (!o->ruby->unjudged && belief(w) == NOT_YET)
		release(w, o);
	if (!o->ring.control || o->is_damaged || belief(w) == NEVER || o->held.count)
		return;
	count = scry_objects_swept(w, o, &words);
	feed(w, o, words, count);
	free(words);
}

/* It waits, and whose memory it is is not known: most often it is at the next turn, which asks all
 * that run. After that nothing of it is measured. */
static bool is_to_be_found(struct scry_objects_watch *o)
{
	if (o->ruby->elf)
		return false;
	if (!o->unbound_until_ns)
		o->unbound_until_ns = scry_now_ns() + UNBOUND_NS;
	return scry_now_ns() < o->unbound_until_ns;
}

/* The program waits: to be judged, or, as it is about to end, until what lives is measured while it
 * is there. */
static void look(struct scry_watch *w, struct scry_objects_watch *o)
{
	uint64_t began = scry_now_ns();
	enum scry_look what;

	if (!scry_ring_waits(&o->ring, &what))
		return;
	if (what == SCRY_LOOK_JUDGE) {
		check_booted(w, o);
		o->judge_ns += scry_ring_let_go(&o->ring);
		return;
	}
	if (is_to_be_found(o))
		return;
	if (o->looks++ >= LAST_LOOKS) {
		scry_ring_let_go(&o->ring);
		return;
	}
	take_last(w, o, began + LAST_LOOK_NS);
	measure_now(o);
	o->look_ns = scry_ring_let_go(&o->ring);
}

static int drain(struct scry_watch *w)
{
	struct scry_objects_watch *o = w->state;
	int fill;

	if (!w->is_over) /* afterwards there is no agent that could be asked */
		notice_armed(w, o);
	check_booted(w, o);
	if (o->armed_ns && !o->booting && !w->target_gone)
		scry_objects_ractors_look(&o->ractors, o->ruby);
	end_slice(w, o);
	check_until(w, o);
	fill = take(w, o);
	look(w, o);
	return fill;
}

/*
 * A fork child that records in a child buffer already: all is as in its root, but for what it
 * counts. Whose memory it is, is not known yet: until then nothing of it is read.
 */
static int adopt(struct scry_watch *w)
{
	const struct scry_objects_watch *root = w->root->state;
	struct scry_objects_watch *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	w->state = o;
	o->batch = root->batch;
	o->sampling = root->sampling;
	o->hooks.plan = root->hooks.plan;
	o->sample_mean = root->sample_mean;
	o->armed_ns = scry_now_ns();
	w->runtime = w->root->runtime;
	scry_ring_open_child_buffer(&o->ring, w->inj->control, w->inj->ring);
	r = scry_ruby_like(root->ruby, &o->ruby);
	if (r < 0)
		return r;
	o->names = new_names(w, o);
	return o->names ? 0 : scry_no_memory("the tables");
}

static void identified(struct scry_watch *w)
{
	struct scry_objects_watch *o = w->state;

	if (scry_ruby_bind(o->ruby, w->proc.pid) == 0)
		scry_objects_ractors_look(&o->ractors, o->ruby);
}

static bool wait_for_unhooked(const struct scry_watch *w, uint64_t ns)
{
	uint64_t until = scry_now_ns() + ns;
	struct scry_agent_state state = {.hooked = 1};

	while (scry_inject_state(w->inj, &state) == 0 &&
	       (state.hooked || state.jobs_registered != state.jobs_run) && scry_now_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	return !state.hooked && state.jobs_registered == state.jobs_run;
}

/* --force-gc: what lives after it is referenced by something. */
static void conclude(struct scry_watch *w)
{
	scry_objects_collect_last(w, drain);
}

static void leave(struct scry_watch *w)
{
	struct scry_objects_watch *o = w->state;

	scry_inject_want(w->inj, 0);
	take_last(w, o, scry_now_ns() + LAST_LOOK_NS);
	measure_now(o); /* at once: slots that die now are used again, and no event says so */
	if (!wait_for_unhooked(w, 20000000) && !(w->held && !o->hooks.plan.on)) {
		/* nothing allocates: a job takes it off at the next safepoint */
		scry_objects_ask_again(w, wait_for_unhooked);
		wait_for_unhooked(w, 20000000);
	}
	take_last(w, o, scry_now_ns() + LAST_LOOK_NS);
}

/* What the agent counted in this watch; a child buffer is another process's afterwards. */
static void take_counters(struct scry_watch *w, struct scry_objects_watch *o)
{
	const struct scry_control *c = w->inj->control;

	struct scry_objects_totals t;

	if (!c) /* a sum */
		return;
	settle(w, o);
	if (o->unbelieved)
		scry_watch_lost_some(w, "the layout could not be validated on the program");
	if (w->is_caught && !scry_account_of(c)->objects.booted)
		scry_watch_came_late(w);
	o->lost = c->lost - o->base_lost;
	o->lease = c->lost_lease - o->base_lease;
	o->busy = c->busy - o->base_busy;
	o->bad = scry_account_of(c)->vm.bad - o->base_bad;
	o->unfollowed = scry_account_of(c)->objects.untracked - o->base_untracked;
	o->unseen = scry_account_of(c)->objects.unseen;
	scry_objects_totals(o->names, &t);
	if (t.compactions && !o->plan.each_objects)
		o->unseen = 0; /* from 3.4 on the VM counts what it moves as made, too */
	o->uncollected = ((const struct scry_objects_opts *)w->opts->instrument_opts)->force_gc &&
			 t.allocs && !o->forced_gc_ns;
	measure(w, o);
}

static int finish(struct scry_watch *w)
{
	struct scry_objects_watch *o = w->state;
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	struct scry_objects_totals t;

	take_counters(w, o);
	scry_objects_note_waits(w, o);
	scry_objects_totals(o->names, &t);
	w->events = t.allocs + t.frees + o->lost;
	w->cost_ns = scry_objects_cost_ns(&o->sampling, o->hooks.plan.on, opts->stacks, &t);
	w->errors += o->bad + t.damaged + o->unseen;
	if (!o->ruby ||
	    (!o->ruby->layout.recycles && !scry_objects_ractors_unseen(&o->ractors, o->ruby, &t)))
		w->errors += t.replaced;
	w->frees_older = t.frees_older;
	w->totals = (struct scry_ev_totals){
		.gcs = t.gcs,
		.full_gcs = t.full_gcs,
		.compactions = t.compactions,
		.moved = t.moved,
		.sample_every = (uint64_t)(o->sample_mean + 0.5),
		.sample_bytes = opts->sample.bytes,
		.forced_gc_ns = o->forced_gc_ns,
		.uncollected = o->uncollected,
	};
	if (o->ruby)
		scry_objects_note_all(w, o, &t);
	scry_watch_lost(w, o->lost - o->lease,
			"the ring was full: scry did not get to run in time");
	scry_watch_lost(w, o->lease, "scry was held up for more than a second");
	scry_watch_lost(w, o->busy, "the handler was interrupted by itself");
	return scry_objects_write(o->names, w->writer, (uint32_t)w->proc.pid, 0);
}

static int merge(struct scry_watch *into, struct scry_watch *w)
{
	struct scry_objects_watch *sum = into->state, *o = w->state;
	struct scry_objects_totals t;

	take_counters(w, o);
	if (!sum) {
		sum = into->state = calloc(1, sizeof(*sum));
		if (!sum)
			return scry_no_memory("the tables");
		sum->sample_mean = o->sample_mean;
		sum->sampling = o->sampling;
		sum->names = new_names(into, sum);
		if (!sum->names)
			return scry_no_memory("the tables");
	}
	sum->lost += o->lost;
	sum->lease += o->lease;
	sum->busy += o->busy;
	sum->bad += o->bad;
	if (o->forced_gc_ns > sum->forced_gc_ns)
		sum->forced_gc_ns = o->forced_gc_ns;
	sum->uncollected += o->uncollected;
	into->errors += w->errors;
	scry_objects_totals(o->names, &t);
	if (o->ruby->layout.recycles || scry_objects_ractors_unseen(&o->ractors, o->ruby, &t))
		into->errors -= t.replaced; /* as in finish: an event that this VM does not make */
	if (!w->opts->raw) {
		scry_objects_merge(sum->names, o->names);
		return 0;
	}
	/* its sites have been written, with its single events */
	scry_objects_merge_totals(sum->names, o->names);
	return scry_objects_write(o->names, w->writer, 0, 0);
}

static void done(struct scry_watch *w)
{
	struct scry_objects_watch *o = w->state;

	scry_objects_source_done(&o->hooks);
	scry_objects_held_drop(&o->held);
	scry_objects_free(o->names);
	scry_ruby_free(o->ruby);
	if (!w->root)
		free(o->batch);
	free(o);
	w->state = NULL;
}

static bool wants(pid_t pid, const struct scry_maps *maps)
{
	size_t entry;

	return scry_ruby_find(pid, maps, &entry) == 0;
}

const struct scry_instrument scry_instrument_objects = {
	.name = "objects",
	.summary = "which lines of a Ruby program allocate objects, and which objects survive",
	.beside[SCRY_MEASURES_CALLS] =
		"objects are recorded beside: what the VM calls because of that, as the functions "
		"that lock its mutexes, for each object, is counted here, too; fix: without "
		"objects, where that matters",
	.parts = SCRY_PART_VM | SCRY_PART_OBJECTS,
	.wants = wants,
	.wanted = "Ruby",
	.unseen = "the program ended and no Ruby was seen in it; fix: name ruby itself, or -f to "
		  "watch the program's children too",
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.adopt = adopt,
	.identified = identified,
	.drain = drain,
	.conclude = conclude,
	.leave = leave,
	.finish = finish,
	.merge = merge,
	.done = done,
};
