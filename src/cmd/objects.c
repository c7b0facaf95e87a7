/*
 * `scry objects`: which lines allocate what. Source: the VM's own NEWOBJ and FREEOBJ events, taken
 * by the agent's raw hook (agent/ruby_events.c), switched on through a postponed job in a live
 * process, or just before the script is loaded in one that is being started.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "cmd/watch_opts.h"
#include "hook/ring.h"
#include "name/objects.h"
#include "vm/ruby.h"

#define EVENT_COST_NS_X10 250 /* bench/objects.md: one event, with the VM's own part */
#define RETRY_NS 500000000ull

struct objects {
	struct scry_ruby *ruby;
	struct scry_objects *names;
	struct scry_agent_ruby plan;
	struct scry_ruby_boot boot; /* addr 0: none */
	uint64_t *batch;
	struct scry_ring ring;
	uint64_t defs_seen;
	uint64_t armed_ns; /* when the hook was seen to be on; 0: not yet */
	uint64_t retry_ns; /* next time to try again */
	uint64_t base_lost, base_lease, base_busy, base_bad;
	bool booting;	 /* started by us: validate when the VM is up */
	bool is_damaged; /* the ring made no sense */
	bool refused;	 /* the live check failed: the report says so */
	int ractors_at_start;
	bool registered; /* in at least one thread */
};

static void fill_plan(const struct scry_ruby *ruby, struct scry_agent_ruby *p)
{
	const struct scry_ruby_layout *l = &ruby->layout;

	*p = (struct scry_agent_ruby){
		.iseq_body = l->iseq_body,
		.body_encoded = l->body_encoded,
		.body_size = l->body_size,
		.body_path = l->body_path,
		.body_label = l->body_label,
		.body_first_line = l->body_first_line,
		.body_insns_info = l->body_insns_info,
		.insns_entries = l->insns_entries,
		.insns_count = l->insns_count,
		.insns_succ = l->insns_succ,
		.insns_entry_size = l->insns_entry_size,
		.insns_entry_line = l->insns_entry_line,
		.string_ptr = l->string_ptr,
		.string_len = l->string_len,
		.string_embed = l->string_embed,
		.string_embed_len_shift = l->string_embed_len_shift,
		.array_embed_ptr = l->array_embed_ptr,
		.array_ptr = l->array_ptr,
		.first_line_is_value = l->first_line_fixnum,
		.iseq_flags_mask = l->iseq_flags_mask,
		.iseq_flags_value = l->iseq_flags_value,
		.string_noembed = l->string_noembed,
		.string_embed_len_mask = l->string_embed_len_mask,
		.array_embed = l->array_embed,
		.class_ext = l->class_ext,
		.class_path = l->class_path,
		.class_path_table = l->class_path_table,
		.class_super = l->class_super,
		.class_attached = l->class_attached,
		.class_ivs = l->class_ivs,
		.vm_shapes = l->vm_shapes,
		.shape_size = l->shape_size,
		.shape_edge = l->shape_edge,
		.shape_index = l->shape_index,
		.shape_parent = l->shape_parent,
		.st_entries = l->st_entries,
		.st_bound_start = l->st_bound_start,
		.st_bound = l->st_bound,
		.classpath_id = l->classpath_id,
		.tmp_classpath_id = l->tmp_classpath_id,
		.attached_id = l->attached_id,
		.singleton_flag = l->singleton_flag,
		.add_event_hook2 = scry_ruby_symbol(ruby, "rb_add_event_hook2"),
		.remove_event_hook = scry_ruby_symbol(ruby, "rb_remove_event_hook_with_data"),
		.ractor_class = l->hooks_break_ractors ? scry_ruby_symbol(ruby, "rb_cRactor") : 0,
		.vm_word = ruby->bias + l->vm_root,
		.job_register = scry_ruby_symbol(ruby, "rb_postponed_job_register_one"),
		.job_preregister = scry_ruby_symbol(ruby, "rb_postponed_job_preregister"),
		.job_trigger = scry_ruby_symbol(ruby, "rb_postponed_job_trigger"),
		.job_wake = scry_ruby_symbol(ruby, "rb_during_gc"),
	};
}

static void fill_frames(const struct scry_ruby_layout *l, struct scry_agent_frames *f)
{
	*f = (struct scry_agent_frames){
		.trace_ec = l->trace_ec,
		.trace_cfp = l->trace_cfp,
		.trace_data = l->trace_data,
		.frame_pc = l->frame_pc,
		.frame_iseq = l->frame_iseq,
		.frame_sp = l->frame_sp,
		.frame_ep = l->frame_ep,
		.frame_size = l->frame_size,
		.ec_cfp = l->ec_cfp,
		.ec_stack = l->ec_stack,
		.ec_stack_size = l->ec_stack_size,
		.pc_advanced = l->trace_pc_advanced ? 8 : 0,
	};
}

static int prepare(struct scry_watch *w)
{
	struct objects *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	w->state = o;
	r = scry_ruby_open(w->proc.pid, !w->held, &o->ruby);
	if (r < 0)
		return r;
	fill_plan(o->ruby, &o->plan);
	if (!o->plan.add_event_hook2 || !o->plan.remove_event_hook ||
	    !(o->plan.job_register || (o->plan.job_preregister && o->plan.job_trigger)))
		return scry_fail(-ENOTSUP,
				 "this Ruby (%s) does not export %s, by which scry switches its "
				 "events on and off: such a Ruby is not supported yet",
				 o->ruby->description,
				 o->plan.add_event_hook2 ? "rb_postponed_job_trigger"
							 : "rb_add_event_hook2");
	if (o->ruby->layout.hooks_break_ractors &&
	    (!o->plan.ractor_class || (!w->held && scry_ruby_ractors(o->ruby) > 1)))
		return scry_fail(-ENOTSUP,
				 "process %d has several ractors, and this Ruby (%s) crashes when a ractor "
				 "starts while events are on; fix: Ruby 3.1.4 or later",
				 w->proc.pid, o->ruby->description);
	o->batch = malloc(8ull * SCRY_RING_WORDS);
	o->names = scry_objects_new(o->ruby, w->opts->memory);
	if (!o->batch || !o->names)
		return scry_fail(-ENOMEM, "not enough memory for the tables");
	w->near = o->ruby->bias;
	w->runtime = o->ruby->description;
	w->event_cost_ns_x10 = EVENT_COST_NS_X10;
	if (w->held)
		scry_ruby_boot(o->ruby, &o->boot);
	return 0;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct objects *o = w->state;

	fprintf(out, "  runtime     %s\n", o->ruby->description);
	fprintf(out, "  module      %s\n", o->ruby->module);
	fprintf(out, "  source      NEWOBJ and FREEOBJ events of the VM, by a raw event hook\n");
	fprintf(out,
		"  code        no byte of the program's or Ruby's code or data is patched by us; "
		"the\n"
		"              VM's own hook list gets one entry, which is taken out at the end\n");
	fprintf(out, "  layout      %zu items learned and checked (scry doctor -p %d lists them)\n",
		o->ruby->check_count, w->proc.pid);
	fprintf(out, "  pause       and each Ruby thread at most once for some 0.1 ms, until one "
		     "works\n");
	fprintf(out,
		"  cost        some 60 %% on code that only allocates, 15 to 25 %% on programs\n");
}

static bool is_armed(const struct scry_watch *w)
{
	return __atomic_load_n(&w->inj.control->armed, __ATOMIC_ACQUIRE) == w->watch;
}

static bool wait_for_armed(const struct scry_watch *w, uint64_t ns)
{
	uint64_t until = scry_now_ns() + ns;

	while (!is_armed(w) && scry_now_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	return is_armed(w);
}

/*
 * Runs scry_agent_register in the Ruby threads, running ones first, until `done` says that the VM
 * has got to it. A thread is only held for the call. Returns how many threads were asked.
 */
static int ask_threads(struct scry_watch *w, bool (*done)(const struct scry_watch *, uint64_t))
{
	struct objects *o = w->state;
	struct scry_ruby_thread *threads;
	ssize_t n = scry_ruby_threads(o->ruby, &threads);
	int asked = 0;
	bool finished = false;

	if (n < 0) {
		w->errors++;
		return 0;
	}
	for (int pass = 0; pass < 2 && !finished; pass++) {
		for (ssize_t i = 0; i < n && !finished; i++) {
			char state = scry_proc_task_state(w->proc.pid, threads[i].tid);

			if (!threads[i].tid || (state == 'R') != (pass == 0))
				continue;
			if (scry_inject_run(&w->inj, threads[i].tid, "scry_agent_register") == 0) {
				asked++;
				finished = done(w, 300000);
			}
		}
	}
	free(threads);
	scry_error_clear();
	return asked;
}

/* The call or slot by which the program starts leads to the agent first. */
static int hook_boot(struct scry_watch *w, struct objects *o)
{
	uint64_t to = scry_inject_symbol(&w->inj, "scry_agent_boot_slot");
	struct scry_change change = {.addr = o->boot.addr,
				     .mapping = scry_maps_at(&w->inj.maps, o->boot.addr)};
	uint8_t old[8], new_[8] = {0xe8}; /* call rel32 */
	int32_t distance = (int32_t)(to - (o->boot.addr + 5));
	int r;

	change.size = o->boot.is_call ? 5 : 8;
	change.kind = o->boot.is_call ? SCRY_EDIT_TEXT : SCRY_EDIT_SLOT;
	change.old = old;
	change.new_ = new_;
	if (!o->boot.addr || scry_mem_read(&w->inj.mem, o->boot.addr, old, change.size) < 0)
		return -ENOENT;
	if (o->boot.is_call && (old[0] != 0xe8 || o->boot.addr + 5 + (int64_t)distance != to))
		return -ENOENT;
	if (o->boot.is_call)
		memcpy(new_ + 1, &distance, sizeof(distance));
	else
		memcpy(new_, &to, sizeof(to));
	r = scry_edit_poke(w->inj.mem.fd, scry_inject_symbol(&w->inj, "scry_agent_boot_original"),
			   &o->boot.function, 8);
	return r < 0 ? r : scry_edit_change(&w->inj.edit, &change);
}

static int enter(struct scry_watch *w)
{
	struct objects *o = w->state;
	struct scry_control *c = w->inj.control;
	struct scry_agent_frames frames;
	int r;

	fill_frames(&o->ruby->layout, &frames);
	r = scry_edit_poke(w->inj.mem.fd, w->inj.data + offsetof(struct scry_agent_data, ruby),
			   &o->plan, sizeof(o->plan));
	if (r == 0)
		r = scry_edit_poke(w->inj.mem.fd, w->inj.gate + offsetof(struct scry_gate, frames),
				   &frames, sizeof(frames));
	if (r < 0)
		return scry_fail(r, "cannot write the plan into process %d", w->proc.pid);
	c->ended = 0;
	o->base_lost = c->lost;
	o->base_lease = c->lost_lease, o->base_busy = c->busy, o->base_bad = c->bad;
	r = scry_ring_open(&o->ring, &w->inj);
	if (r < 0)
		return r;
	r = scry_inject_want(&w->inj, w->watch);
	if (r < 0)
		return scry_fail(r, "process %d is gone", w->proc.pid);
	if (w->held) {
		o->booting = true;
		r = hook_boot(w, o);
		if (r == -ENOENT)
			scry_watch_note(w, "this ruby starts in a way that scry does not know: "
					   "objects made before "
					   "the watch took hold are not counted");
		return r == -ENOENT ? 0 : r;
	}
	o->ractors_at_start = scry_ruby_ractors(o->ruby);
	o->registered = ask_threads(w, wait_for_armed) > 0;
	o->retry_ns = scry_now_ns() + RETRY_NS;
	return 0;
}

/* A started program: once its VM is up, the layout is checked on it; until then the agent checks
 * each step. */
static void check_booted(struct scry_watch *w, struct objects *o)
{
	int r;

	if (!o->booting || !is_armed(w))
		return;
	r = scry_ruby_validate(o->ruby);
	if (r == -EAGAIN)
		return;
	o->booting = false;
	o->ractors_at_start = scry_ruby_ractors(o->ruby);
	if (r < 0) {
		scry_inject_want(&w->inj, 0);
		o->refused = true;
		scry_watch_note(w, "the watch was ended at once: %s", scry_error());
	}
}

static void notice_armed(struct scry_watch *w, struct objects *o)
{
	uint64_t now;

	if (o->armed_ns)
		return;
	now = scry_now_ns();
	if (is_armed(w)) {
		o->armed_ns = now;
	} else if (!o->registered && now > o->retry_ns && !w->held && !o->booting) {
		o->retry_ns = now + RETRY_NS;
		o->registered = ask_threads(w, wait_for_armed) > 0;
	}
}

static int drain(struct scry_watch *w)
{
	struct objects *o = w->state;
	uint64_t began = scry_now_ns();
	ssize_t count;
	int fill;

	notice_armed(w, o);
	check_booted(w, o);
	if (o->is_damaged)
		return -EIO;
	count = scry_ring_take(&o->ring, o->batch, &fill);
	if (count < 0) { /* not written by our agent */
		w->errors++;
		o->is_damaged = true;
		return (int)count;
	}
	if (count && w->opts->raw) {
		struct scry_objects_run run = {.producer = {.pid = (uint32_t)w->proc.pid,
							    .start_ticks = w->proc.start_ticks},
					       .words = o->batch,
					       .count = (size_t)count,
					       .first_ns = began,
					       .last_ns = began};

		scry_objects_raw(o->names, &run, w->writer);
	} else if (count) {
		scry_objects_feed(o->names, o->batch, (size_t)count);
	}
	return fill;
}

static bool wait_for_unhooked(const struct scry_watch *w, uint64_t ns)
{
	uint64_t until = scry_now_ns() + ns;
	struct scry_agent_state state = {.hooked = 1};

	while (scry_inject_state(&w->inj, &state) == 0 &&
	       (state.hooked || state.jobs_registered != state.jobs_run) && scry_now_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	return !state.hooked && state.jobs_registered == state.jobs_run;
}

static void leave(struct scry_watch *w)
{
	scry_inject_want(&w->inj, 0);
	if (wait_for_unhooked(w, 20000000) || w->held)
		return;
	ask_threads(w, wait_for_unhooked); /* nothing allocates: a job takes it off at the next
					      safepoint */
	wait_for_unhooked(w, 20000000);
}

static bool is_table_full(struct scry_watch *w)
{
	struct scry_agent_state state;

	return scry_inject_state(&w->inj, &state) == 0 && state.jobs_refused;
}

static void write_notes(struct scry_watch *w, struct objects *o,
			const struct scry_objects_totals *t)
{
	const struct scry_control *c = w->inj.control;
	int ractors = w->target_gone ? o->ractors_at_start : scry_ruby_ractors(o->ruby);

	if (!o->armed_ns && !is_armed(w) && o->booting)
		scry_watch_note(w,
				"the program ended before its Ruby VM was up: nothing was watched");
	else if (!o->armed_ns && !is_armed(w) && is_table_full(w))
		scry_watch_note(w, "the watch did not begin: this Ruby's table of 32 postponed jobs is "
				   "full; fix: restart the program");
	else if (!o->armed_ns && !is_armed(w) && !o->refused)
		scry_watch_note(w, "no Ruby thread ran while scry watched: the watch begins when "
				   "one wakes, and none "
				   "did; fix: watch longer, or while there is work");
	else if (o->armed_ns > w->began_ns + 100000000 && !w->held && o->registered)
		scry_watch_note(w,
				"the program was idle: the watch took hold %.1f s after scry came",
				(double)(o->armed_ns - w->began_ns) / 1e9);
	if ((ractors > 1 || o->ractors_at_start > 1) && !o->ruby->layout.hooks_of_all_ractors)
		scry_watch_note(w,
				"%d ractors: only the one that was armed is watched, objects of "
				"the others are "
				"not seen",
				ractors > o->ractors_at_start ? ractors : o->ractors_at_start);
	if (t->untracked)
		scry_watch_note(
			w, "%llu objects beyond --memory: made counted, not followed to their end",
			(unsigned long long)t->untracked);
	if (c->ended)
		scry_watch_note(w, "the watch ended when the program made a ractor: this Ruby crashes when "
				   "one starts while events are on; fix: Ruby 3.1.4 or later");
	if (t->replaced && o->ruby->layout.recycles)
		scry_watch_note(w,
				"%llu objects were taken back by the VM without an event: they count "
				"as freed from when their place was used again",
				(unsigned long long)t->replaced);
	if (c->busy != o->base_busy)
		scry_watch_note(w,
				"%llu events came while the handler ran (a signal handler that "
				"allocates) and "
				"were not recorded",
				(unsigned long long)(c->busy - o->base_busy));
}

static int finish(struct scry_watch *w)
{
	struct objects *o = w->state;
	const struct scry_control *c = w->inj.control;
	struct scry_objects_totals t;
	uint64_t lease = c->lost_lease - o->base_lease, lost = c->lost - o->base_lost;

	scry_objects_totals(o->names, &t);
	w->events = t.allocs + t.frees + lost;
	w->errors += (c->bad - o->base_bad) + t.damaged;
	if (!o->ruby->layout.recycles)
		w->errors += t.replaced;
	w->frees_older = t.frees_older;
	write_notes(w, o, &t);
	scry_watch_lost(w, lost - lease, "the ring was full: scry did not get to run in time");
	scry_watch_lost(w, lease, "scry was held up for more than a second");
	scry_watch_lost(w, c->busy - o->base_busy, "the handler was interrupted by itself");
	return scry_objects_write(o->names, w->writer, (uint32_t)w->proc.pid);
}

static void done(struct scry_watch *w)
{
	struct objects *o = w->state;

	scry_objects_free(o->names);
	scry_ruby_free(o->ruby);
	free(o->batch);
	free(o);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_objects = {
	.name = "objects",
	.summary = "which lines of a Ruby program allocate what",
	.needs_ruby = true,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};

int scry_cmd_objects(int argc, char **argv)
{
	struct scry_watch_opts opts = {0};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		SCRY_WATCH_ROWS(&opts, &talk),
		{0, "raw", SCRY_OPT_FLAG, &opts.raw, NULL,
		 "keep every event in the recording (with -o x.scry)", NULL},
		SCRY_REPORT_OPT_ROWS(&report),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry objects -p PID [-d TIME] | scry objects [OPTIONS] -- CMD...",
	};
	int rest, r = scry_watch_parse(&cli, argc, argv, &rest);

	if (r)
		return r == 1 ? 0 : SCRY_EXIT_USAGE;
	return opts.dry_run ? scry_dry_run(&opts, &scry_instrument_objects)
			    : scry_run(&opts, &scry_instrument_objects, &report);
}
