/*
 * Asks the VM to run scry_agent_reconcile at its next safepoint: a postponed job. The host runs
 * scry_agent_register in a thread that may be anywhere, so only what the VM calls async-signal-safe
 * is called.
 *
 * To 3.2 a job is put into a queue, once, and leaves it when it runs: as many run as were accepted.
 *
 * From 3.3 on the VM has a table of 32 functions, whose slots are taken for the life of the
 * process, and a bit for each. rb_postponed_job_preregister puts a function into the first free
 * slot, or finds it in the one it has, by compare-and-swap: no lock, no memory, in all versions to
 * 4.0 (vm_trace.c), where it also serves the older call from signal handlers.
 * rb_postponed_job_trigger sets the bit and flags the thread. Triggers of a bit that is set already
 * are one run, and a run that has begun in one thread while the bit is set again in another cannot
 * be distinguished from one that has not. Nothing could then say whether a job is pending. So ours
 * is triggered only when none is: as many run as were triggered. A thread that is to be flagged
 * while ours is pending triggers a function that does nothing and never goes away (job_wake,
 * rb_during_gc): its safepoint runs all bits, ours too.
 *
 * What is left in the table points at memory of ours that may be gone. Nothing triggers it, as only
 * a caller with a function at just that address knows the slot's number. The next scry maps its
 * agent at the same place if that is still free, and finds its slot again.
 */
#include "agent/ec.h"
#include "agent/load.h"
#include "agent/objects.h"

#define JOBS_MAX                                                                                \
	32u /* bits; the VM's "table is full" is ~0: triggering that would set a bit of someone \
	       else */

SCRY_EXPORT void scry_agent_register(void);

static void register_classic(struct scry_agent_state *s)
{
	int (*job)(unsigned, void (*)(void *), void *) = (void *)scry_agent_vm.ruby.job_register;

	if (job(0, scry_agent_reconcile, 0) == 1)
		__atomic_fetch_add(&s->jobs_registered, 1, __ATOMIC_SEQ_CST);
}

static void trigger(struct scry_agent_state *s)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	unsigned (*slot_of)(unsigned, void (*)(void *), void *) = (void *)r->job_preregister;
	void (*set)(unsigned) = (void *)r->job_trigger;
	uint64_t run = __atomic_load_n(&s->jobs_run, __ATOMIC_SEQ_CST);
	unsigned slot = slot_of(0, scry_agent_reconcile, 0);

	if (slot >= JOBS_MAX) {
		s->jobs_refused++;
		return;
	}
	if (__atomic_compare_exchange_n(&s->jobs_registered, &run, run + 1, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST)) {
		set(slot);
		return;
	}
	slot = r->job_wake ? slot_of(0, (void (*)(void *))r->job_wake, 0) : JOBS_MAX;
	if (slot < JOBS_MAX)
		set(slot);
}

/* Run by the host in a thread that has an execution context; async-signal-safe. */
void scry_agent_register(void)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;

	__atomic_fetch_add(&scry_agent.state_page->inflight, 1, __ATOMIC_SEQ_CST);
	/* not after the VM's end, nor, as far as we know the place, in a thread that is none of
	 * Ruby's
	 */
	if (load64(r->vm_word) && (!scry_agent_vm.hooks.on || scry_current_ec())) {
		if (r->job_preregister && r->job_trigger)
			trigger(&scry_agent.state);
		else
			register_classic(&scry_agent.state);
	}
	__atomic_fetch_sub(&scry_agent.state_page->inflight, 1, __ATOMIC_SEQ_CST);
}
