/*
 * Which thread has the VM's lock, which want it, and for how long: counted at the end of each
 * critical section of the mutex that guards it, when the VM's own words are as they will be seen.
 *
 * Two kinds of VM. In the older ones a thread takes the lock by itself: when a section ends in an
 * unlock the owner is the thread that runs. In the newer ones the giver names the next owner, which
 * is granted the lock then and has it when it ends a section itself. A thread wants the lock from
 * when it is seen in the queue; threads join that at its tail, and leave it only for the lock. What
 * wants it beside the queue is a thread of an older VM that waits after it gave the lock: it
 * yields.
 *
 * Called with the VM's mutex held: no other thread is here. Waits for nothing, calls nothing,
 * bounded.
 *
 * The table is shared with fork children, which may have fewer rights than we do: nothing in it is
 * an address that is read, nor an index that is not bounded. A thread's memory is read where the
 * VM's own words name it in this event; its stack only by the thread itself, which the process
 * state page knows.
 */
#include "agent/gvl_moment.h"

#include "agent/thread_buffer.h"

struct scry_agent_gvl scry_agent_gvl SCRY_SHARED;

#define ROWS_MASK (SCRY_GVL_THREADS - 1)
#define QUEUE_MAX 4096
#define FRAME_CFUNC 0x5555u /* vm_core.h, VM_FRAME_MAGIC_CFUNC, above 16 bits of flags */

/* While the first event is looked at: of what was before it nothing is known. */
static int is_first(const struct scry_gvl_table *t)
{
	return t->sequence < 2;
}

/* So many are runnable from now on. */
static void count_runnable(const struct scry_gvl_moment *m, int more)
{
	struct scry_gvl_table *t = m->t;
	const uint32_t have = *(volatile uint16_t *)&t->runnable;
	const uint32_t n = have < SCRY_GVL_RUNNABLE ? have : SCRY_GVL_RUNNABLE - 1;

	t->by_runnable[n] += m->now - t->changed;
	t->changed = m->now;
	t->runnable = (uint16_t)(have + (uint32_t)more);
}

static void lose(const struct scry_gvl_moment *m, uint32_t waiter, uint32_t holder, uint64_t ticks)
{
	struct scry_gvl_table *t = m->t;
	const struct scry_gvl_shape *shape = m->lock->shape;
	struct scry_gvl_pair *pairs = scry_gvl_pairs_at(shape, t, t->pairs_at);
	const uint32_t key = (waiter << 16 | holder) + 1;
	const uint64_t at = key * 0x9e3779b97f4a7c15ull >> 48;

	scry_gvl_row_in(m, holder)->lost += ticks;
	for (uint32_t i = 0; i < SCRY_GVL_PROBES; i++) {
		struct scry_gvl_pair *pair = &pairs[(at + i) & (shape->pairs - 1)];

		if (pair->key && pair->key != key)
			continue;
		pair->key = key;
		pair->ticks += ticks;
		pair->waits += pair->waits != UINT32_MAX;
		return;
	}
	t->lost_pairs += ticks;
}
_Static_assert(SCRY_GVL_PAIRS == 1u << 16, "the shift above");

/* Which thread had it while others waited up to now; 0: no thread, it changed hands. */
static uint32_t holder_of(const struct scry_gvl_moment *m)
{
	const struct scry_gvl_row *r = scry_gvl_row_in(m, m->t->owner);

	return m->t->owner && r->state == SCRY_GVL_HOLDS ? m->t->owner : 0;
}

static uint16_t *waiting_at(const struct scry_gvl_moment *m, uint32_t place)
{
	return scry_gvl_waiting_at(m->lock->shape, m->t, place);
}

static void settle_waiter(const struct scry_gvl_moment *m, uint32_t row, uint32_t holder)
{
	struct scry_gvl_row *r = scry_gvl_row_in(m, row);

	if (m->now > r->lost_since)
		lose(m, row, holder, m->now - r->lost_since);
	r->lost_since = m->now;
}

/* Before the lock gets another holder. */
static void settle_waiters(const struct scry_gvl_moment *m)
{
	uint32_t holder = holder_of(m);

	for (uint32_t i = 0; i < m->t->wanting && i <= m->rows_mask; i++)
		settle_waiter(m, *waiting_at(m, i), holder);
}

/* ---- runs of takes before those that have waited ---- */

static void end_run(const struct scry_gvl_moment *m)
{
	struct scry_gvl_table *t = m->t;
	struct scry_gvl_row *r = scry_gvl_row_in(m, t->run_row);
	const uint64_t ticks = m->now - t->run_began;

	if (!t->run_takes)
		return;
	r->runs++;
	r->run_ticks += ticks;
	if (ticks > r->run_longest)
		r->run_longest = ticks;
	if (t->run_takes > r->run_most)
		r->run_most = t->run_takes;
	t->run_takes = 0;
}

static void overtake(const struct scry_gvl_moment *m, uint32_t row)
{
	struct scry_gvl_table *t = m->t;

	scry_gvl_row_in(m, row)->overtakes++;
	if (t->run_takes++)
		return;
	t->run_row = row;
	t->run_began = m->now;
}

/* ---- which threads wait ---- */

static void add_waiting(const struct scry_gvl_moment *m, uint32_t row)
{
	struct scry_gvl_table *t = m->t;
	const uint32_t have = *(volatile uint16_t *)&t->wanting;

	if (have > m->rows_mask)
		return;
	if (!have)
		t->wanted_since = m->now;
	scry_gvl_row_in(m, row)->place = have;
	*waiting_at(m, have) = (uint16_t)row;
	t->wanting = (uint16_t)(have + 1);
}

static void drop_waiting(const struct scry_gvl_moment *m, uint32_t row)
{
	struct scry_gvl_table *t = m->t;
	const uint32_t have = *(volatile uint16_t *)&t->wanting;
	uint32_t place = scry_gvl_row_in(m, row)->place, last;

	if (!have || have > m->rows_mask + 1)
		return;
	last = *waiting_at(m, have - 1);
	t->wanting = (uint16_t)(have - 1);
	if (have == 1) {
		t->contended += m->now - t->wanted_since;
		end_run(m);
	}
	*waiting_at(m, place) = (uint16_t)last;
	scry_gvl_row_in(m, last)->place = place;
}

/* ---- states ---- */

static int is_runnable(uint32_t state)
{
	return state >= SCRY_GVL_WANTS;
}

/* A granted one waits still: it is among the waiting. */
static int is_waiting(uint32_t state)
{
	return state == SCRY_GVL_WANTS || state == SCRY_GVL_GRANTED;
}

/* The thread that has the row now. `th` is the VM's word. */
static void look_at_self(const struct scry_gvl_moment *m, struct scry_gvl_row *r, uint64_t th)
{
	const uint64_t self = load64(th + m->plan->self);

	if (self == r->self)
		return;
	r->self = self;
	r->tid = 0;
	r->threads++;
	m->t->births++;
}

/* Of this native thread; 0: not known. */
static inline uint32_t own_tid(void)
{
	const uint64_t at = scry_agent.tracking.tid_offset;
	uint32_t tid = 0;

	if (at)
		__asm__ volatile("movl %%fs:(%1), %0" : "=r"(tid) : "r"(at));
	return tid;
}

/* Is this native thread the one that runs it? */
static inline int is_own(const struct scry_gvl_plan *plan, uint64_t th)
{
	uint64_t native;

	if (!plan->hands_over)
		return 1;
	native = load64(th + plan->nt);
	return native && own_tid() == load32(native + plan->tid);
}

static void end_wait(const struct scry_gvl_moment *m, struct scry_gvl_row *r, uint64_t th)
{
	uint64_t waited = m->now - r->wait_began;

	if (m->plan->stacks && (waited >= m->plan->threshold || r->is_old)) {
		scry_gvl_take_stack(m, r, th, waited);
	} else if (m->plan->stacks) {
		r->brief += waited;
		r->brief_waits++;
	}
	if (r->is_old) {
		r->old_wait = waited;
		return;
	}
	r->waits++;
	r->lengths[scry_gvl_step(waited)]++;
	if (waited > r->longest)
		r->longest = waited;
}

/* From one state to the next: the only place where times are added up. `th`: the row's, as the VM
 * names it in this event; 0: the thread does not begin to wait, nor gets the lock. */
static void change(const struct scry_gvl_moment *m, uint32_t row, uint64_t th, uint32_t state)
{
	struct scry_gvl_row *r = scry_gvl_row_in(m, row);
	uint32_t was = r->state;
	uint64_t ticks = m->now - r->since;

	if (!row || was == state)
		return;
	if (was == SCRY_GVL_HOLDS)
		r->held += ticks;
	else if (was == SCRY_GVL_WANTS)
		r->wanted += ticks;
	else if (was == SCRY_GVL_GRANTED)
		r->granted += ticks;
	if (is_runnable(was) != is_runnable(state))
		count_runnable(m, is_runnable(state) ? 1 : -1);
	if (is_waiting(was) && !is_waiting(state)) {
		settle_waiter(m, row, holder_of(m));
		drop_waiting(m, row);
		if (state == SCRY_GVL_HOLDS)
			end_wait(m, r, th);
		r->is_old = 0;
	} else if (!is_waiting(was) && is_waiting(state)) {
		if (th)
			look_at_self(m, r, th);
		r->wait_began = r->lost_since = m->now;
		r->is_old = is_first(m->t);
		add_waiting(m, row);
	}
	if (state == SCRY_GVL_HOLDS) {
		look_at_self(m, r, th);
		r->takes++;
		if (is_waiting(was))
			end_run(m);
		else if (m->t->wanting && !is_first(m->t))
			overtake(m, row);
	}
	if (state == SCRY_GVL_OFF || state == SCRY_GVL_HOLDS)
		r->is_queued = 0;
	r->state = state;
	r->since = m->now;
}

/* The newest control frame of th, which this native thread runs: is it Thread.pass? -1: not seen.
 * A frame that is in C has its method's entry below its ep. */
static int is_passing(const struct scry_gvl_plan *plan, uint64_t th)
{
	uint64_t ec, cfp, ep, me, def;

	if (!plan->pass)
		return -1;
	ec = load64(th + plan->ec);
	cfp = is_pointer(ec) ? load64(ec + plan->cfp) : 0;
	if (!is_pointer(cfp))
		return -1;
	if (load64(cfp + plan->frame_iseq))
		return 0;
	ep = load64(cfp + plan->frame_ep);
	if (!is_pointer(ep) || (load64(ep) >> 16 & 0x7fff) != FRAME_CFUNC)
		return -1;
	me = load64(ep - plan->frame_me);
	if (!is_pointer(me) || (load64(me) & plan->me_mask) != plan->me_flags)
		return -1;
	def = load64(me + plan->me_def);
	return is_pointer(def) ? load64(def + plan->def_func) == plan->pass : -1;
}

/* By the thread itself, if its frame is to be looked at. */
static void count_yield(const struct scry_gvl_moment *m, struct scry_gvl_row *r)
{
	const int passes = m->had && r->th == m->had ? is_passing(m->plan, m->had) : -1;

	r->yields++;
	r->passes += passes == 1;
	r->forced += passes == 0;
}

static int is_in_queue(const struct scry_gvl_moment *m, uint64_t th)
{
	uint64_t node = load64(m->lock->queue + 8);

	for (uint32_t i = 0; node != m->lock->queue && i < QUEUE_MAX; i++) {
		if (node == th + m->plan->node)
			return 1;
		node = load64(node + 8);
	}
	return 0;
}

/* Whose it was, and which thread gave it. */
static void end_ownership(const struct scry_gvl_moment *m, uint32_t was, int yields)
{
	struct scry_gvl_row *r = scry_gvl_row_in(m, was);

	if (r->state == SCRY_GVL_GRANTED) { /* it had not run: another one was quicker */
		r->taken_back++;
		change(m, was, 0, is_in_queue(m, r->th) ? SCRY_GVL_WANTS : SCRY_GVL_OFF);
		r->is_queued = r->state == SCRY_GVL_WANTS;
		return;
	}
	change(m, was, 0, SCRY_GVL_OFF);
	if (yields) {
		change(m, was, 0, SCRY_GVL_WANTS);
		count_yield(m, r);
	}
}

static void look_at_owner(const struct scry_gvl_moment *m, uint64_t th, uint32_t waits)
{
	struct scry_gvl_table *t = m->t;
	uint32_t row = th ? scry_gvl_row_of(m, th) : 0, was = *(volatile uint16_t *)&t->owner;
	struct scry_gvl_row *r = scry_gvl_row_in(m, row);

	if (row != was) {
		settle_waiters(m);
		if (was)
			end_ownership(m, was, waits && !th && !m->plan->hands_over);
		t->owner = (uint16_t)row;
		t->recent = 0;
		if (row)
			change(m, row, th,
			       is_own(m->plan, th) || is_first(t) ? SCRY_GVL_HOLDS
								  : SCRY_GVL_GRANTED);
	} else if (row && r->state == SCRY_GVL_GRANTED && is_own(m->plan, th)) {
		settle_waiters(m);
		change(m, row, th, SCRY_GVL_HOLDS);
	} else {
		return;
	}
	if (!row || waits || r->state != SCRY_GVL_HOLDS || is_first(t) || r->tid == own_tid() ||
	    !is_own(m->plan, th))
		return;
	if (r->tid) {
		r->moves++;
		t->moves++;
		t->moved_from = r->tid;
	}
	r->tid = own_tid();
}

/* Which thread has joined the queue: from its tail to the first that was there. */
static void look_at_queue(const struct scry_gvl_moment *m)
{
	struct scry_gvl_table *t = m->t;
	uint64_t tail = load64(m->lock->queue + 8), node = tail;

	if (tail == t->tail)
		return;
	for (uint32_t i = 0; node != m->lock->queue && i < QUEUE_MAX; i++) {
		const uint64_t th = node - m->plan->node;
		uint32_t row = scry_gvl_row_of(m, th);
		struct scry_gvl_row *r = scry_gvl_row_in(m, row);
		int gave = r->state == SCRY_GVL_OFF && r->since == m->now && r->takes;

		if (row && r->is_queued)
			break;
		if (row == t->owner && row) {
			t->strange++;
			break;
		}
		change(m, row, th, SCRY_GVL_WANTS);
		if (row) {
			r->is_queued = 1;
			if (gave)
				count_yield(m, r);
		}
		node = load64(node + 8);
	}
	t->tail = tail;
}

/* ---- what the state page knows ---- */

static uint64_t thread_pointer(void)
{
	uint64_t fs;

	__asm__ volatile("mov %%fs:0, %0" : "=r"(fs));
	return fs;
}

/* The thread that has the lock, if this native thread runs it. */
static uint64_t own_holder(const struct scry_state_page_gvl *g)
{
	return g->holds && g->fs == thread_pointer() && !g->missed ? g->th : 0;
}

/*
 * The thread that had it up to now, if this native thread runs it. In older VMs it is the owner
 * that says that there is none any more: so the thread that is here has given it.
 */
static uint64_t own_last_holder(const struct scry_state_page_gvl *g,
				const struct scry_gvl_moment *m, uint64_t th)
{
	if (!th && g->holds && !g->missed && !m->plan->hands_over)
		return g->th;
	return own_holder(g);
}

/* A new watch, or the first event of a fork child's. */
static int begins(struct scry_state_page_gvl *g, uint64_t watch)
{
	if (likely(g->watch == watch))
		return 0;
	*g = (struct scry_state_page_gvl){.watch = watch};
	return 1;
}

static void miss(struct scry_state_page_gvl *g)
{
	*g = (struct scry_state_page_gvl){.watch = g->watch, .missed = 1};
}

/*
 * Whose it is after this event. In older VMs a thread that takes it ends that section without a
 * wait; in newer ones the native thread says it.
 */
static void look_at_state_page(struct scry_state_page_gvl *g, const struct scry_gvl_moment *m,
			       uint64_t th, int is_known)
{
	const int is_new = !g->holds || g->th != th;

	g->holds = th != 0;
	if (!th || (!is_new && !m->plan->hands_over))
		return;
	if (is_new)
		g->fs = g->tid = 0;
	g->th = th;
	if (!(is_known || m->plan->hands_over) || !is_own(m->plan, th))
		return;
	g->fs = thread_pointer();
	g->tid = own_tid();
	g->nt = m->plan->hands_over ? load64(th + m->plan->nt) : 0;
}

/* ---- the event ---- */

static inline void begin(struct scry_gvl_table *t, uint64_t sequence)
{
	__atomic_store_n(&t->sequence, sequence + 1, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
}

static inline void end(struct scry_gvl_table *t, uint64_t sequence, uint64_t now)
{
	t->last = now;
	__atomic_store_n(&t->sequence, sequence + 2, __ATOMIC_RELEASE);
}

static int is_over(struct scry_gvl_table *t, uint64_t now)
{
	if (likely(now < t->lease_end))
		return 0;
	t->lease_end = scry_agent.control->lease_end_tsc;
	if (!t->over && now <= t->lease_end)
		return 0;
	t->lease_end = 0; /* each event comes here, and no other look follows */
	t->over = 1;
	return 1;
}

/* a fork child's state page is all zero: the lock is a new one, held by its one thread */
struct scry_gvl_table *scry_gvl_first_table(void)
{
	uint64_t at;

	if (unlikely(!__atomic_load_n(&scry_agent.state_page->open, __ATOMIC_ACQUIRE)) &&
	    !scry_child_buffer_claim(scry_agent.state_page, 0))
		return 0;
	at = __atomic_load_n(&scry_agent.state_page->table, __ATOMIC_ACQUIRE);
	/* a fork child that is entered itself is open before it has a table */
	return at > 1 ? (struct scry_gvl_table *)at : 0;
}

void scry_gvl_look(const struct scry_gvl_lock *lock, uint64_t now, uint32_t waits)
{
	struct scry_gvl_moment m = {.plan = &scry_agent_gvl.plan,
				    .t = lock->t,
				    .lock = lock,
				    .rows = (uint8_t *)lock->t + lock->shape->row_at,
				    .rows_mask = lock->shape->rows - 1,
				    .now = now};
	struct scry_state_page_gvl *g = lock->own;
	const uint64_t th = load64(lock->owner), sequence = *(volatile uint64_t *)&m.t->sequence;
	const int is_start = begins(g, lock->watch);

	if (unlikely(sequence & 1)) {
		m.t->busy++;
		miss(g);
		return;
	}
	if (unlikely(is_over(m.t, now))) {
		miss(g);
		return;
	}
	begin(m.t, sequence);
	m.had = own_last_holder(g, &m, th);
	look_at_state_page(g, &m, th, !waits && !is_start);
	m.has = own_holder(g);
	if (unlikely(now < m.t->last)) /* the clock is read out of order with the mutex */
		m.now = m.t->last;
	if (is_first(m.t))
		m.t->began = m.t->changed = m.now;
	if (unlikely(m.t->asked != m.t->given))
		scry_gvl_give_back(&m);
	look_at_owner(&m, th, waits);
	look_at_queue(&m);
	end(m.t, sequence, m.now);
}

/* That of the first ractor. */
static __attribute__((noinline)) void look(uint64_t now, uint32_t waits)
{
	const struct scry_gvl_plan *plan = &scry_agent_gvl.plan;
	struct scry_gvl_table *t = scry_gvl_first_table();
	const struct scry_gvl_lock lock = {.t = t,
					   .shape = &scry_gvl_shape_first,
					   .ring = (uint64_t *)t + SCRY_GVL_RING_AT,
					   .owner = plan->owner,
					   .queue = plan->queue,
					   .own = &scry_agent.state_page->gvl,
					   .watch = plan->watch};

	if (t)
		scry_gvl_look(&lock, now, waits);
}

/*
 * What mostly happens, in few steps, which are those of look: no thread waits, and the lock is
 * given, or taken by the thread that gave it last, so that its row is right without a look at its
 * struct. That it takes it by itself is seen by whose the mutex is (glibc's: its third word), and
 * by the native thread, which may have run another one meanwhile.
 */
void scry_gvl_let_go(uint64_t mutex, uint32_t waits)
{
	const struct scry_gvl_plan *plan = &scry_agent_gvl.plan;
	struct scry_state_page *state_page = (struct scry_state_page *)plan->state_page;
	const uint64_t now = scry_tsc(), th = load64(plan->owner);
	struct scry_gvl_table *t;
	uint64_t sequence, roles;
	struct scry_gvl_row *r;

	/* a fork child has none: its state page is all zero, then 1 until it has a child buffer,
	 * whose lease is not known yet. Whether the state page is open lies on another line, and
	 * look asks */
	t = (struct scry_gvl_table *)__atomic_load_n(&state_page->table, __ATOMIC_ACQUIRE);
	if (unlikely((uint64_t)t <= 1 || waits))
		goto look;
	sequence = *(volatile uint64_t *)&t->sequence;
	roles = *(volatile uint64_t *)&t->roles;
	if (sequence & 1 || now < t->last || now >= t->lease_end ||
	    load64(plan->queue + 8) != t->tail)
		goto look;
	if (!th) {
		r = &t->row[roles & ROWS_MASK];
		if (roles >> 32 != 1ull << 16 || r->state != SCRY_GVL_HOLDS)
			goto look;
		begin(t, sequence);
		state_page->gvl.holds = 0;
		r->held += now - r->since;
		r->state = SCRY_GVL_OFF;
		t->by_runnable[1] += now - t->changed;
		t->roles = (roles & ROWS_MASK) << 16;
	} else {
		r = &t->row[roles >> 16 & ROWS_MASK];
		if (roles & ~0xffff0000ull || !roles || state_page->gvl.th != th ||
		    state_page->gvl.tid != load32(mutex + 8) ||
		    (plan->hands_over && load64(th + plan->nt) != state_page->gvl.nt))
			goto look;
		begin(t, sequence);
		state_page->gvl.holds = 1;
		r->takes++;
		r->state = SCRY_GVL_HOLDS;
		t->by_runnable[0] += now - t->changed;
		t->roles = (roles >> 16 & ROWS_MASK) | 1ull << 48;
	}
	r->since = t->changed = now;
	end(t, sequence, now);
	return;
look:
	look(now, waits);
}
