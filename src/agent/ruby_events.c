/*
 * The way onto and off the VM's hook list. The handlers are in ruby_objects.c.
 *
 * On: scry_agent_register is run in a Ruby thread by the host (it only calls the VM's
 * async-signal-safe rb_postponed_job_register_one), the VM runs `reconcile` at its next safepoint,
 * which puts the raw hook on. Off: the keeper clears `wanted`; the next event takes the hook off
 * from inside (legal: the VM only marks it deleted while the list runs), or a second `reconcile`
 * does. In a fork child the process state page is zero: the first event there moves it into a child
 * buffer of its own (child_buffer.c), or, when it is not followed, takes the hook off that child's
 * own list.
 */
#include "agent/load.h"
#include "agent/objects.h"

#define HOOK_SAFE 1 /* ruby/debug.h, rb_event_hook_flag_t */
#define HOOK_RAW_ARG 4

typedef void (*event_func)(uint64_t data, const void *trace_arg);

SCRY_EXPORT void scry_agent_boot(void);

/* Of events; none when the objects come by hooks. */
static event_func handler(void)
{
	if (scry_agent_vm.hooks.on)
		return 0;
	return (event_func)(scry_agent_objects.sampling.on ? (void *)scry_agent_sampled
							   : (void *)scry_agent_event);
}

/* A new watch: what the last one defined means nothing to this keeper. A handler that an earlier
 * watch has left on the list may be the wrong one; it is taken off, and a job puts the other on. */
void scry_take_up(struct scry_state_page *g)
{
	if (scry_child_buffer_is_owned(
		    g)) /* maybe by another instrument's event; else the host says it */
		g->by_bytes = scry_agent_objects.sampling.by_bytes;
	if (scry_agent.state.handler != (uint64_t)handler() || !scry_agent.state.hooked)
		return; /* by hooks: not by the first object; reconcile or boot do, when the VM is
			   up */
	scry_site_forget_all();
	scry_stack_forget_all();
	scry_pages_forget_all();
	if (scry_agent_objects.sampling.on)
		scry_sample_forget_all(g);
	g->gcs = 0;
	if (scry_agent_objects.major_gc_count)
		g->full_gcs = ((uint64_t(*)(uint64_t))scry_agent_vm.ruby.gc_stat)(
			scry_agent_objects.major_gc_count);
	g->sweeping = 1; /* not known: a sweep may be under way */
	g->last_node = 0;
	g->last_slot = 0;
	g->until_lease_check = 1;
	if (scry_agent_vm.hooks.on)
		scry_hooks_take_up(g);
	else
		g->vm_gcs = scry_gc_count();
	g->taken = g->wanted;
	__atomic_store_n(&scry_agent.control->armed, g->taken, __ATOMIC_RELEASE);
}

/* Its first object has been counted already. */
void scry_objects_compacted(struct scry_state_page *g)
{
	uint64_t (*stat)(uint64_t) = (void *)scry_agent_vm.ruby.gc_stat;

	g->by_bytes = scry_agent_objects.sampling.by_bytes;
	if (scry_agent_objects.major_gc_count)
		g->full_gcs = stat(scry_agent_objects.major_gc_count);
	scry_take_up(g);
	g->until_sample--;
}

/* The Symbol by which the VM is asked how many GCs were full; its tables are made at the first
 * question, which may allocate: here, and not inside a GC. */
static void learn_gc_counter(struct scry_state_page *g)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t (*intern)(const char *) = (void *)r->intern;
	uint64_t (*id2sym)(uint64_t) = (void *)r->id2sym;
	uint64_t (*stat)(uint64_t) = (void *)r->gc_stat;

	if (!r->intern || !r->id2sym || !r->gc_stat)
		return;
	scry_agent_objects.major_gc_count = id2sym(intern("major_gc_count"));
	g->full_gcs = stat(scry_agent_objects.major_gc_count);
	scry_agent_objects.compact_count = 0;
	if (r->ends_at_compaction) {
		scry_agent_objects.compact_count = id2sym(intern("compact_count"));
		scry_agent_objects.compactions = stat(scry_agent_objects.compact_count);
	}
	if (scry_agent_vm.hooks.on && !scry_agent_vm.hooks.objspace_made)
		scry_agent_objects.made_count = id2sym(intern("total_allocated_objects"));
}

static void hook_on(struct scry_state_page *g)
{
	void (*add)(event_func, uint32_t, uint64_t, int) =
		(void *)scry_agent_vm.ruby.add_event_hook2;

	if (scry_agent.state.hooked && scry_agent.state.handler != (uint64_t)handler())
		scry_hook_off(g);
	if (!scry_agent.state.hooked) {
		learn_gc_counter(g);
		scry_compaction_on();
		scry_agent.state.hooked = 1;
		scry_agent.state.handler = (uint64_t)handler();
		if (handler())
			add(handler(),
			    SCRY_RUBY_NEWOBJ |
				    (scry_agent_objects.sampling.on ? 0 : SCRY_RUBY_FREEOBJ) |
				    SCRY_RUBY_GC_START | SCRY_RUBY_GC_END_MARK |
				    SCRY_RUBY_GC_END_SWEEP,
			    0, HOOK_SAFE | HOOK_RAW_ARG);
	}
	if (g->taken != g->wanted)
		scry_take_up(g);
}

void scry_hook_off(const struct scry_state_page *g)
{
	int (*remove)(event_func, uint64_t) = (void *)scry_agent_vm.ruby.remove_event_hook;

	if (!scry_agent.state.hooked ||
	    (scry_agent.state.handler && remove((event_func)scry_agent.state.handler, 0) <= 0))
		return;
	scry_compaction_off();
	scry_data_object_off(&scry_agent_objects.last);
	scry_agent.state.hooked = 0;
}

/* Opt-in: only when the user asked for it, at a safepoint, as GC.start would. */
static void force_gc(struct scry_state_page *g)
{
	void (*start)(void) = (void *)scry_agent_vm.ruby.gc_start;
	struct scry_objects_account *c = &scry_account_of(scry_agent.control)->objects;
	uint64_t began;

	if (!g->open || !start || c->forced_gcs >= c->force_gcs)
		return;
	began = __builtin_ia32_rdtsc();
	if (scry_agent_vm.hooks.on)
		scry_hooks_collect(g, start);
	else
		start();
	c->forced_gc_tsc = __builtin_ia32_rdtsc() - began;
	__atomic_store_n(&c->forced_gcs, c->force_gcs, __ATOMIC_RELEASE);
}

/* Runs in the VM's own time, with the GVL, at a safepoint. Sets the hook list to what is wanted. */
void scry_agent_reconcile(void *unused)
{
	struct scry_state_page *g = scry_agent.state_page;

	(void)unused;
	__atomic_fetch_add(&g->inflight, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&scry_agent.state.jobs_run, 1, __ATOMIC_SEQ_CST);
	if (g->wanted || (!g->open && scry_child_buffer_claim(g, scry_objects_compacted))) {
		hook_on(g);
		force_gc(g);
	} else if (scry_agent.state.hooked) {
		scry_hook_off(g);
	}
	__atomic_fetch_sub(&g->inflight, 1, __ATOMIC_SEQ_CST);
}

/* Reached from the main program just before it loads the script: the VM is up. */
void scry_agent_boot(void)
{
	struct scry_state_page *g = scry_agent.state_page;

	__atomic_fetch_add(&g->inflight, 1, __ATOMIC_SEQ_CST);
	scry_account_of(scry_agent.control)->objects.booted = 1;
	if (g->wanted) { /* our own objects first: an event of theirs may take the hook off */
		scry_compaction_on();
		scry_last_look_on();
		hook_on(g);
	}
	__atomic_fetch_sub(&g->inflight, 1, __ATOMIC_SEQ_CST);
}
