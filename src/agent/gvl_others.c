/*
 * Locks of other ractors than the first: which mutex is one, and which table counts it.
 *
 * Every mutex of the VM is made by pthread_mutex_init, which is hooked: it is young then. The first
 * time that one is let go while the word where a lock has its owner names a thread, this decides:
 * it is a ractor's lock if that thread's ractor has its mutex just here. What is read for that may
 * be no pointer, so the kernel reads it; once for each young one. A ractor's memory may become
 * another mutex's, which is made anew then, and is no lock until it is seen to be one.
 *
 * A ractor's lock is let go by one thread at a time, as the first one's is. What all share, which
 * mutexes are known, is changed by who finds nobody there; who does not, after some tries, leaves
 * it and counts that: a lock may be missing then, and that is said.
 */
#include "agent/calling.h"
#include "agent/gvl_moment.h"
#include "agent/thread_buffer.h"

#define TRIES 200u     /* to change what is known, while another thread does */
#define TRIES_YOUNG 16 /* times let go with no owner: it is none */

struct way {
	uint64_t *mutex;
	uint8_t *is, *tries;
};

static struct way way_at(uint32_t set, uint32_t i)
{
	return (struct way){&scry_agent_gvl.known[set][i], &scry_agent_gvl.is[set][i],
			    &scry_agent_gvl.tries[set][i]};
}

/* That of `mutex`, or a free one (0); mutex NULL: there is none. */
static struct way find(uint64_t set_of, uint64_t mutex)
{
	const uint32_t set = scry_gvl_set_of(set_of);

	for (uint32_t i = 0; i < SCRY_GVL_WAYS; i++) {
		const struct way w = way_at(set, i);

		if (__atomic_load_n(w.mutex, __ATOMIC_ACQUIRE) == mutex)
			return w;
	}
	return (struct way){0};
}

/* ---- changes of what is known ---- */

static int begin_change(void)
{
	uint32_t *changes = &scry_agent.state_page->gvl_changes, is_none;

	for (uint32_t i = 0; i < TRIES; i++) {
		is_none = 0;
		if (__atomic_compare_exchange_n(changes, &is_none, 1, 0, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return 1;
		__builtin_ia32_pause();
	}
	return 0;
}

static void end_change(void)
{
	__atomic_store_n(&scry_agent.state_page->gvl_changes, 0, __ATOMIC_RELEASE);
}

static void set_way(const struct way *w, uint64_t mutex, uint8_t is)
{
	__atomic_store_n(w->mutex, 0, __ATOMIC_RELEASE);
	*w->is = is;
	*w->tries = 0;
	__atomic_store_n(w->mutex, mutex, __ATOMIC_RELEASE);
}

/* NULL: before the VM is known, or not this process's. */
static struct scry_gvl_table *first_now(void)
{
	const uint64_t at = __atomic_load_n(&scry_agent.state_page->table, __ATOMIC_ACQUIRE);

	return at > 1 ? (struct scry_gvl_table *)at : 0;
}

static void count_unproven(void)
{
	struct scry_gvl_table *first = first_now();

	if (first)
		__atomic_fetch_add(&first->unproven, 1, __ATOMIC_RELAXED);
}

/* One that is young makes room: the oldest, by turns, and first one that had no owner when it was
 * let go. */
static struct way oldest_of(uint32_t set)
{
	struct way oldest = {0};

	for (uint32_t i = 0; i < SCRY_GVL_WAYS; i++) {
		const struct way w = way_at(set, (scry_agent_gvl.victim[set] + i) % SCRY_GVL_WAYS);

		if (*w.is == SCRY_GVL_YOUNG && (!oldest.mutex || (*w.tries && !*oldest.tries)))
			oldest = w;
	}
	scry_agent_gvl.victim[set]++;
	return oldest;
}

static void put_young(uint64_t mutex)
{
	struct way w = find(mutex, 0);
	const int is_free = w.mutex != 0;

	if (!is_free)
		w = oldest_of(scry_gvl_set_of(mutex));
	if (!w.mutex || (!is_free && !*w.tries))
		count_unproven();
	if (w.mutex)
		set_way(&w, mutex, SCRY_GVL_YOUNG);
}

/* What was known of the mutex that was here is over: its words may be no VM's. Also while another
 * thread changes what is known. */
static void disprove(const struct way *w, uint64_t mutex)
{
	struct scry_gvl_table *first = first_now();
	const uint32_t which = *w->is - 1u;

	if (first && which < SCRY_GVL_OTHERS && scry_gvl_other_at(first, which)->mutex == mutex)
		scry_gvl_other_at(first, which)->is_over = 1;
	*w->is = SCRY_GVL_YOUNG;
}

void scry_gvl_made(uint64_t mutex)
{
	const struct way w = find(mutex, mutex);

	if (w.mutex)
		disprove(&w, mutex);
	if (!begin_change()) {
		count_unproven();
		return;
	}
	if (w.mutex && *w.mutex == mutex)
		set_way(&w, mutex, SCRY_GVL_YOUNG);
	else
		put_young(mutex);
	end_change();
}

static void forget(uint64_t mutex)
{
	struct way w;

	if (!begin_change())
		return;
	w = find(mutex, mutex);
	if (w.mutex)
		set_way(&w, 0, SCRY_GVL_YOUNG);
	end_change();
}

/* ---- is it a lock? ---- */

static int read_word(uint64_t at, uint64_t *ret)
{
	const struct scry_agent_piece to = {(uint64_t)ret, 8}, from = {at, 8};

	return scry_calling_read((struct scry_agent_pieces){&to, 1},
				 (struct scry_agent_pieces){&from, 1}) == 8;
}

static uint64_t owner_at(uint64_t mutex)
{
	return mutex + (scry_agent_gvl.plan.owner - scry_agent_gvl.plan.mutex);
}

static uint64_t queue_at(uint64_t mutex)
{
	return mutex + (scry_agent_gvl.plan.queue - scry_agent_gvl.plan.mutex);
}

/* No owner's and no waiter's struct is read then. */
static int has_no_queue(uint64_t mutex)
{
	uint64_t tail = 0;

	return read_word(queue_at(mutex) + 8, &tail) && tail == queue_at(mutex);
}

/* 1: it is; 0: it is not, or that cannot be known; -1: that is not known yet. One that the keeper
 * saw may have been made anew before the hooks were on. */
static int is_lock(uint64_t mutex, const struct way *w)
{
	const struct scry_gvl_plan *plan = &scry_agent_gvl.plan;
	const uint64_t at = owner_at(mutex);
	const int was_seen = *w->is == SCRY_GVL_PROVEN;
	uint64_t th = 0, ractor = 0;

	if (((at ^ mutex) >> 12) == 0 && at % 8 == 0)
		th = load64(at);
	else if (at % 8)
		return 0;
	else if (!read_word(at, &th)) {
		count_unproven();
		return 0;
	}
	if (!th && was_seen)
		return has_no_queue(mutex) ? 1 : -1;
	if (!th)
		return ++*w->tries < TRIES_YOUNG ? -1 : 0;
	if (!is_pointer(th))
		return 0;
	if (!read_word(th + plan->ractor, &ractor)) {
		count_unproven();
		return 0;
	}
	return ractor == mutex - plan->mutex_at;
}

/* ---- tables ---- */

static void clear(struct scry_gvl_table *t)
{
	volatile uint64_t *words = (volatile uint64_t *)t;
	const uint32_t uses = t->uses;

	for (uint32_t i = 0; i < sizeof(struct scry_gvl_other) / 8; i++)
		words[i] = 0;
	t->uses = uses;
}

/* A free one, or that of a lock of which the keeper knows all: it may have no more events. */
static struct scry_gvl_table *take_table(struct scry_gvl_table *first, uint32_t *ret_which)
{
	for (uint32_t i = 0; i < SCRY_GVL_OTHERS; i++) {
		struct scry_gvl_table *t = scry_gvl_other_at(first, i);
		struct way w;

		if (t->mutex && (__atomic_load_n(&t->may_go, __ATOMIC_ACQUIRE) != t->uses ||
				 t->may_go_at != t->sequence))
			continue;
		if (t->mutex) {
			w = find(t->mutex, t->mutex);
			if (w.mutex && *w.is == i + 1)
				set_way(&w, 0, SCRY_GVL_YOUNG);
			clear(t);
		}
		*ret_which = i;
		return t;
	}
	return 0;
}

/* Who holds `mutex`, a lock, is here, so nobody else takes a table for it. */
static struct scry_gvl_table *make_known(struct scry_gvl_table *first, uint64_t mutex,
					 uint32_t *ret_which)
{
	struct scry_gvl_table *t = 0;
	struct way w;

	if (!begin_change()) {
		count_unproven();
		return 0;
	}
	w = find(mutex, mutex);
	if (w.mutex) {
		t = take_table(first, ret_which);
		if (t) {
			t->uses++;
			if (*ret_which >= first->others)
				first->others = *ret_which + 1;
			__atomic_store_n(&t->mutex, mutex, __ATOMIC_RELEASE);
			set_way(&w, mutex, (uint8_t)(*ret_which + 1));
		} else {
			first->refused++;
			set_way(&w, 0, SCRY_GVL_YOUNG);
		}
	}
	end_change();
	return t;
}

static struct scry_gvl_table *table_of(struct scry_gvl_table *first, uint64_t mutex, uint32_t waits,
				       uint32_t *ret_which)
{
	const struct way w = find(mutex, mutex);
	struct scry_gvl_table *t;
	int is;

	if (!w.mutex)
		return 0;
	*ret_which = *w.is - 1u;
	if (*ret_which < SCRY_GVL_OTHERS) {
		t = scry_gvl_other_at(first, *ret_which);
		if (likely(t->mutex == mutex && !t->is_over))
			return t;
		*w.is = SCRY_GVL_YOUNG; /* in a fork child: it was its parent's */
	}
	is = *w.is == SCRY_GVL_YOUNG && waits ? -1 : is_lock(mutex, &w);
	if (!is)
		forget(mutex);
	return is > 0 ? make_known(first, mutex, ret_which) : 0;
}

void scry_gvl_let_go_other(uint64_t mutex, uint32_t waits)
{
	const struct scry_gvl_plan *plan = &scry_agent_gvl.plan;
	const uint64_t now = scry_tsc();
	struct scry_gvl_table *first, *t;
	struct scry_gvl_lock lock;
	uint32_t which = 0;

	if (!plan->mutex || !plan->ractor)
		return;
	first = scry_gvl_first_table();
	t = first ? table_of(first, mutex, waits, &which) : 0;
	if (!t)
		return;
	lock = (struct scry_gvl_lock){.t = t,
				      .shape = &scry_gvl_shape_other,
				      .ring = scry_gvl_ring_of_other(first, which),
				      .owner = owner_at(mutex),
				      .queue = queue_at(mutex),
				      .own = &scry_agent.state_page->gvl_others[which],
				      .watch = plan->watch + t->uses};
	scry_gvl_look(&lock, now, waits);
}
