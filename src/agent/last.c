/*
 * The two moments at which a VM waits for the keeper: when its first Ruby code makes an object,
 * until the layout was validated on it, and at its end, until the living were measured while their
 * memory is there.
 *
 * Before its first code a VM makes objects too, with a frame below all others that has a pc but
 * runs nothing. The keeper sees no code then and cannot judge; it is asked once more at the next
 * pc.
 *
 * The VM drops its event hooks when it is taken down, behind the program's own at_exit code. What
 * it offers for that moment is a list of functions (rb_set_end_proc), from which nothing can be
 * taken back: what is put there must not lead to us, as we may be gone by then. So it is the VM's
 * own rb_obj_memsize_of, of a hidden data object, which asks that object's type for a function;
 * when the agent goes, that is taken out of the type, and what is left is an object that has no
 * size.
 *
 * Heap profilers ask all objects for their size, ours too. They ask each once in a walk, and there
 * are two of ours (the other is that of compaction.c); the list has the one twice. Asked twice in a
 * row it is the end.
 *
 * A thread that waits for the keeper has the VM's lock, for as long as there is a lease and for
 * NAPS * NAP_NS at most.
 */
#include "agent/calling.h"
#include "agent/load.h"
#include "agent/objects.h"

#define NAP_NS 5000000
#define NAPS 400
#define JUDGE_ASKS 4 /* pcs at which it is asked to judge */

static uint64_t now_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

/* 0: it did not come. */
static int wait_for_keeper(const struct scry_state_page *g, enum scry_look what)
{
	const struct scry_control *control = scry_agent.control;
	struct scry_objects_account *c = &scry_account_of(control)->objects;
	uint32_t asked = c->looks_asked + 1, looked;

	c->look_tsc = now_tsc();
	c->look_for = what;
	__atomic_store_n(&c->looks_asked, asked, __ATOMIC_RELEASE);
	for (int i = 0; i < NAPS; i++) {
		looked = __atomic_load_n(&c->looks_done, __ATOMIC_ACQUIRE);
		if (looked == asked || !__atomic_load_n(&g->wanted, __ATOMIC_RELAXED))
			return 1;
		if (now_tsc() > __atomic_load_n(&control->lease_tsc, __ATOMIC_RELAXED) ||
		    (scry_calling_nap(&c->looks_done, looked, NAP_NS) == -1 &&
		     scry_calling_is_over()))
			return 0;
	}
	return 0;
}

int scry_is_judged(uint64_t pc)
{
	struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	struct scry_agent_objects *o = &scry_agent_objects;
	struct scry_objects_account *c;

	if (likely(!r->judge_first))
		return 1;
	c = &scry_account_of(scry_agent.control)->objects;
	if (r->judge_first == 1 && pc != o->judged_at &&
	    !__atomic_load_n(&c->judged, __ATOMIC_ACQUIRE)) {
		int came = wait_for_keeper(scry_agent.state_page, SCRY_LOOK_JUDGE);

		o->judged_at = pc;
		c->judge_missed += !came;
		if (!came || ++o->judge_asks == JUDGE_ASKS)
			r->judge_first = 2; /* what it has not judged it does not take */
	}
	if (__atomic_load_n(&c->judged, __ATOMIC_ACQUIRE))
		r->judge_first = 0;
	return scry_agent.state_page->wanted != 0;
}

uint64_t scry_asked_for_size(const void *data)
{
	struct scry_state_page *g = scry_agent.state_page;
	int is_end = scry_agent_objects.asked_last == (uint64_t)data &&
		     scry_agent_objects.last.data == (uint64_t)data;

	scry_agent_objects.asked_last = (uint64_t)data;
	if (!is_end || !g->wanted || g->wanted != g->taken || g->handling)
		return 0;
	__atomic_fetch_add(&g->inflight, 1, __ATOMIC_SEQ_CST);
	wait_for_keeper(g, SCRY_LOOK_LAST);
	__atomic_fetch_sub(&g->inflight, 1, __ATOMIC_SEQ_CST);
	return 0;
}

void scry_last_look_on(void)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	void (*at_end)(uint64_t, uint64_t) = (void *)r->set_end_proc;

	if (scry_agent_objects.last.data || !scry_agent_objects.anchor.data || !r->set_end_proc ||
	    !r->memsize_of)
		return;
	scry_data_object(&scry_agent_objects.last, scry_asked_for_size, 0);
	at_end(r->memsize_of, scry_agent_objects.last.object);
	at_end(r->memsize_of, scry_agent_objects.last.object);
}
