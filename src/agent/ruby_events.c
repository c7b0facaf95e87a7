/*
 * The VM's NEWOBJ/FREEOBJ events, and the way onto and off its hook list.
 *
 * On: scry_agent_register is run in a Ruby thread by the host (it only calls the VM's
 * async-signal-safe rb_postponed_job_register_one), the VM runs `reconcile` at its next safepoint,
 * which puts the raw hook on. Off: the keeper clears `wanted`; the next event takes the hook off
 * from inside (legal: the VM only marks it deleted while the list runs), or a second `reconcile`
 * does. In a fork child the gate page is zero: the first event there takes the hook off that
 * child's own list and records nothing.
 *
 * The handler may not allocate, wait, or call the VM except to take itself off.
 */
#include "agent/agent.h"
#include "agent/load.h"

#define EVENT_NEWOBJ 0x100000u /* ruby/internal/event.h; public since 2.1 */
#define EVENT_FREEOBJ 0x200000u
#define HOOK_SAFE 1 /* ruby/debug.h, rb_event_hook_flag_t */
#define HOOK_RAW_ARG 4
#define FRAMES_MAX 4096 /* C frames above the first Ruby frame */

typedef void (*event_func)(uint64_t data, const void *trace_arg);

SCRY_EXPORT void scry_agent_event(uint64_t data, const uint8_t *trace_arg);
SCRY_EXPORT void scry_agent_boot(void);

static uint64_t word_at(const uint8_t *base, uint32_t offset)
{
	return *(const uint64_t *)(base + offset);
}

/* A new watch: what the last one defined means nothing to this keeper. */
static void take_up(struct scry_gate *g)
{
	scry_site_forget_all();
	g->until_lease_check = 1;
	g->taken = g->wanted;
	__atomic_store_n(&scry_agent.control->armed, g->taken, __ATOMIC_RELEASE);
}

static void hook_on(struct scry_gate *g)
{
	void (*add)(event_func, uint32_t, uint64_t, int) = (void *)scry_agent.ruby.add_event_hook2;

	if (!scry_agent.state.hooked) {
		scry_agent.state.hooked = 1;
		add((event_func)scry_agent_event, EVENT_NEWOBJ | EVENT_FREEOBJ, 0,
		    HOOK_SAFE | HOOK_RAW_ARG);
	}
	if (g->taken != g->wanted)
		take_up(g);
}

static void hook_off(const struct scry_gate *g)
{
	int (*remove)(event_func, uint64_t) = (void *)scry_agent.ruby.remove_event_hook;

	if (remove((event_func)scry_agent_event, 0) <= 0)
		return;
	scry_agent.state.hooked = 0;
	if (g->open) /* in a fork child the shared page is the parent's */
		__atomic_store_n(&scry_agent.control->removed, scry_agent.control->removed + 1,
				 __ATOMIC_RELEASE);
}

/* The first Ruby frame above a C frame; pc 0 when there is none before the stack ends. */
static void find_caller(const struct scry_agent_frames *f, const uint8_t *ec, const uint8_t *cfp,
			struct scry_agent_place *place)
{
	uint64_t end = word_at(ec, f->ec_stack) + 8 * word_at(ec, f->ec_stack_size);

	place->top = 0;
	place->depth = 0xffff;
	for (int i = 0; i < FRAMES_MAX; i++) {
		cfp += f->frame_size;
		if ((uint64_t)cfp + f->frame_size > end)
			break;
		place->pc = word_at(cfp, f->frame_pc);
		place->iseq = word_at(cfp, f->frame_iseq);
		if (place->pc && place->iseq)
			return;
	}
	place->pc = place->iseq = 0;
}

/* Where the object is made: the newest Ruby frame. Follows no pointer when the layout is not as
 * learned. */
static void find_place(const struct scry_agent_frames *f, const uint8_t *trace_arg,
		       struct scry_agent_place *place)
{
	const uint8_t *ec = (const uint8_t *)word_at(trace_arg, f->trace_ec);
	const uint8_t *cfp = (const uint8_t *)word_at(trace_arg, f->trace_cfp);
	uint64_t depth;

	if (unlikely(word_at(ec, f->ec_cfp) != (uint64_t)cfp)) {
		scry_agent.control->bad++;
		*place = (struct scry_agent_place){.depth = 0xffff};
		return;
	}
	place->pc = word_at(cfp, f->frame_pc);
	place->iseq = word_at(cfp, f->frame_iseq);
	if (unlikely(!place->pc || !place->iseq)) {
		find_caller(f, ec, cfp, place);
		return;
	}
	depth = (word_at(cfp, f->frame_sp) - word_at(cfp, f->frame_ep)) >> 3;
	place->depth = depth < 0xffff ? (uint32_t)depth : 0xffff;
	place->top = 1;
	place->pc -= f->pc_advanced;
}

static void on_alloc(struct scry_gate *g, const uint8_t *trace_arg, uint64_t object)
{
	struct scry_agent_place place;
	uint32_t code;

	find_place(&g->frames, trace_arg, &place);
	code = scry_site_code(&place, (const uint64_t *)object);
	if (unlikely(!code) || unlikely(!scry_ring_reserve(g, 1)))
		return;
	scry_ring_put(g, object >> 3 << 20 | code);
	scry_ring_publish(g);
}

static void on_free(struct scry_gate *g, uint64_t object)
{
	const struct scry_agent_ruby *r = &scry_agent.ruby;
	uint64_t flags = word_at((const uint8_t *)object, 0);
	uint32_t type = flags & SCRY_TYPE_MASK;

	if (unlikely(type == SCRY_TYPE_CLASS || type == SCRY_TYPE_MODULE))
		scry_site_forget_class(object);
	else if (unlikely(type == SCRY_TYPE_IMEMO) &&
		 (flags & r->iseq_flags_mask) == r->iseq_flags_value)
		scry_site_forget_iseq(object);
	if (!scry_ring_reserve(g, 1))
		return;
	scry_ring_put(g, object >> 3 << 20);
	scry_ring_publish(g);
}

void scry_agent_event(uint64_t data, const uint8_t *trace_arg)
{
	struct scry_gate *g = scry_agent.gate;
	uint64_t object;

	(void)data;
	if (unlikely(g->handling)) { /* a signal handler that allocates, or a second ractor */
		scry_agent.control->busy++;
		return;
	}
	g->handling = 1;
	__asm__ volatile("" ::: "memory");
	if (unlikely(g->wanted != g->taken) && g->wanted)
		take_up(g);
	if (unlikely(!g->wanted)) { /* off, or a fork child, whose gate page is zero */
		hook_off(g);
	} else {
		object = word_at(trace_arg, g->frames.trace_data);
		if (*(const uint32_t *)trace_arg == EVENT_NEWOBJ)
			on_alloc(g, trace_arg, object);
		else
			on_free(g, object);
		if (unlikely(!g->wanted)) /* it was the last one: see define.c */
			hook_off(g);
	}
	__asm__ volatile("" ::: "memory");
	g->handling = 0;
}

/* Runs in the VM's own time, with the GVL, at a safepoint. Sets the hook list to what is wanted. */
void scry_agent_reconcile(void *unused)
{
	struct scry_gate *g = scry_agent.gate;

	(void)unused;
	__atomic_fetch_add(&g->inflight, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&scry_agent.state.jobs_run, 1, __ATOMIC_SEQ_CST);
	if (g->wanted)
		hook_on(g);
	else if (scry_agent.state.hooked)
		hook_off(g);
	__atomic_fetch_sub(&g->inflight, 1, __ATOMIC_SEQ_CST);
}

/* Reached from the main program just before it loads the script: the VM is up. */
void scry_agent_boot(void)
{
	struct scry_gate *g = scry_agent.gate;

	__atomic_fetch_add(&g->inflight, 1, __ATOMIC_SEQ_CST);
	if (g->wanted)
		hook_on(g);
	__atomic_fetch_sub(&g->inflight, 1, __ATOMIC_SEQ_CST);
}
