/*
 * The stack of a thread that has waited for the VM's lock, copied into the ring of its table: by
 * the thread itself, called as agent/gvl.c says.
 */
#include "agent/gvl_moment.h"

static void put(const struct scry_gvl_moment *m, uint64_t at, uint64_t from, uint64_t words)
{
	for (uint64_t i = 0; i < words; i++)
		m->lock->ring[(at + i) & (m->lock->shape->ring - 1)] = load64(from + 8 * i);
}

/*
 * Where its own stack of Ruby frames lies, and its values up to those that the newest environment
 * on the stack ends with. 0: it has none, or one that is deeper than fits.
 */
static int find_stack(const struct scry_gvl_plan *plan, struct scry_gvl_wait *w)
{
	const uint64_t ec = load64(w->th + plan->ec);
	uint64_t bytes, ep;

	if (!is_pointer(ec))
		return 0;
	w->ec = ec;
	w->cfp = load64(ec + plan->cfp);
	w->stack = w->bottom = w->top = load64(ec + plan->ec_stack);
	bytes = 8 * load64(ec + plan->ec_stack_size);
	w->end = w->stack + bytes;
	if (!is_pointer(w->stack) || w->end < w->stack || w->cfp - w->stack >= bytes ||
	    w->cfp % 8 || w->end - w->cfp > SCRY_GVL_STACK_BYTES)
		return 0;
	for (uint64_t at = w->cfp; at < w->end && w->top == w->stack; at += plan->frame_size) {
		ep = load64(at + plan->frame_ep);
		if (ep - w->stack < w->cfp - w->stack && !(ep % 8))
			w->top = ep + 8;
	}
	return w->top - w->stack <= SCRY_GVL_STACK_BYTES;
}

void scry_gvl_take_stack(const struct scry_gvl_moment *m, const struct scry_gvl_row *r, uint64_t th,
			 uint64_t waited)
{
	struct scry_gvl_table *t = m->t;
	struct scry_gvl_wait w = {.th = th,
				  .ticks = waited,
				  .who = SCRY_GVL_WHO(r - (struct scry_gvl_row *)m->rows, r->uses),
				  .is_old = r->is_old};
	const uint64_t head = *(volatile uint64_t *)&t->ring_head,
		       tail = *(volatile uint64_t *)&t->ring_tail;
	const uint64_t room = m->lock->shape->ring;
	const int has_stack = th == m->has && find_stack(m->plan, &w);

	w.words = SCRY_GVL_WAIT_WORDS + (has_stack ? (w.end - w.cfp + w.top - w.bottom) / 8 : 0);
	if (head - tail > room || w.words > room - (head - tail)) {
		t->unstacked++;
		return;
	}
	put(m, head, (uint64_t)&w, SCRY_GVL_WAIT_WORDS);
	if (has_stack) {
		put(m, head + SCRY_GVL_WAIT_WORDS, w.cfp, (w.end - w.cfp) / 8);
		put(m, head + SCRY_GVL_WAIT_WORDS + (w.end - w.cfp) / 8, w.bottom,
		    (w.top - w.bottom) / 8);
	}
	__atomic_store_n(&t->ring_head, head + w.words, __ATOMIC_RELEASE);
}
