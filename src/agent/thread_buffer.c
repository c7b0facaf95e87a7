/*
 * The seldom half of agent/thread_buffer.h: a thread's first event, its next segment, the wait for
 * one.
 *
 * Waiting: when all segments are in use and the keeper is behind, the thread naps on its futex,
 * some ms at a time, as long as the lease is fresh and the keeper gives segments back. If the lease
 * is over then, none was given back for a second, or as many threads live as there are segments,
 * events pass unrecorded and are counted as lost. A thread that finds room needs no lease.
 */
#include "agent/thread_buffer.h"

#include "agent/syscall.h" /* numbers of errors */

#define NAP_NS 5000000
#define NAPS_MAX 200 /* without a segment given back by any thread */
#define CUTS 16	     /* naps that a signal ended, at the most, for one: it may come each 100 us */
#define AWAIT_NAPS 400
#define NO_BUFFER 1ull /* a state that no segment has */
#define HOME_STEP 4u   /* segments apart: the keeper looks no further than the last one ever used */
#define STACK_MAX (8ull << 20)
#define PAGE 4096u
#define TID_AT_MAX 2048u
#define TID_AT_GLIBC 720u
#define REPEATS 15u   /* of a stamp */
#define TURNS_MAX 16u /* in a segment: then threads run side by side */
#define TRIES 32      /* others can only do so much in between */

static void add(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* 1: it was not cut short. */
static int nap(uint32_t *word, uint32_t value)
{
	return scry_calling_nap(word, value, NAP_NS) == SCRY_ETIMEDOUT;
}

/* Whose row it is. */
static struct scry_agent_channel *channel_of(const struct scry_agent_thread *t)
{
	return scry_channel((uint64_t)(t - scry_agent_rows.threads) < SCRY_THREADS
				    ? SCRY_CHANNEL_CORE
				    : SCRY_CHANNEL_CALLS);
}

/* A fork child's process state page is all zero. */
static int is_on(const struct scry_agent_channel *c)
{
	return __atomic_load_n(&c->is_on, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&scry_agent.state_page->open, __ATOMIC_ACQUIRE);
}

static uint64_t thread_pointer(void)
{
	uint64_t fs;

	__asm__ volatile("mov %%fs:0, %0" : "=r"(fs));
	return fs;
}

/* Is this thread another one than before? Its libc says so, or the keeper, which takes segments
 * from those only that have ended. So is one that a signal handler took, by longjmp, out of the
 * midst of a change of segments: the older one stays open, until the keeper sees a younger thread.
 */
static int is_reused(const struct scry_agent_thread *t)
{
	if (scry_thread_buffer_tid(t) != t->tid)
		return 1;
	if (t->state == NO_BUFFER)
		return t->buffer_at != 0;
	return __atomic_load_n(&scry_thread_buffer_of(t)->state, __ATOMIC_ACQUIRE) != t->state;
}

/* The entry says first that it has no segment: else it would look as if the keeper had taken it. */
static void close_buffer(struct scry_agent_thread *t)
{
	struct scry_thread_buffer *buffer = scry_thread_buffer_of(t);
	uint64_t open = t->state;

	__atomic_store_n(&t->state, NO_BUFFER, __ATOMIC_RELEASE);
	if (open != NO_BUFFER) {
		__atomic_compare_exchange_n(&buffer->state, &open,
					    (open & ~3ull) | SCRY_THREAD_BUFFER_CLOSED, 0,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
		__atomic_store_n(&channel_of(t)->all_open, 0, __ATOMIC_RELAXED);
	}
	t->buffer_at = 0;
}

/*
 * A static program is entered before it has a control block. At its first event it has one thread,
 * whose tid is known: where in it is that? Looked at as far as the block's first page goes.
 */
static void find_tid(uint64_t fs)
{
	struct scry_agent_tracking *k = &scry_agent.tracking;
	uint64_t end = (fs | (PAGE - 1)) + 1 - fs;

	for (uint64_t i = 0; i + 4 <= end && i < TID_AT_MAX && !k->tid_offset; i += 4) {
		uint64_t at = i ? i : TID_AT_GLIBC; /* where that would do, it is that */

		if (at + 4 <= end && *(const volatile uint32_t *)(fs + at) == k->first_tid)
			k->tid_offset = (uint32_t)at;
	}
	k->first_tid = 0;
}

/*
 * A thread pointer that is not libc's: of a thread that clone() made with a block of its own, or
 * while the program has set another one. Behind it there may be no more than a few words. Those of
 * libc's threads all have the same guard. Where it is not known yet (libc sets it after its first
 * thread's control block), the first thread that has one says it.
 */
static int is_foreign(uint64_t fs)
{
	uint64_t *known = &scry_agent.tracking.guard, guard;

	if (!fs || (fs & (PAGE - 1)) > PAGE - SCRY_GUARD_AT - sizeof(guard))
		return 1;
	/* not by `fs`, the word at the thread pointer, which need not lead anywhere */
	__asm__ volatile("mov %%fs:%c1, %0" : "=r"(guard) : "i"(SCRY_GUARD_AT));
	if (unlikely(!*known))
		*known = guard;
	return guard != *known;
}

/* As its libc keeps it; 0: where is not known, and the keeper finds out whose it is. */
static uint32_t tid_of(uint64_t fs)
{
	uint32_t offset;

	if (unlikely(scry_agent.tracking.first_tid))
		find_tid(fs);
	offset = scry_agent_rows.calling.odd_fs == fs ? 0 : scry_agent.tracking.tid_offset;
	return offset ? *(const volatile uint32_t *)(fs + offset) : 0;
}

/* An entry whose fs is odd: no other thread uses it, and the thread's own signal handlers pass. */
static void settle(struct scry_agent_thread *t, uint64_t fs)
{
	const struct scry_agent_tracking *k = &scry_agent.tracking;

	t->tid = tid_of(fs);
	t->tid_at =
		t->tid ? (int64_t)(fs + k->tid_offset - (uint64_t)t) : (char *)&t->tid - (char *)t;
	t->birth = scry_tsc();
	t->serial = 0;
	t->repeats = 0;
	t->stamp = 0;
	t->epoch_end = 0;
	t->inside = 0;
	t->ec_word = 0;
	t->stack_low = t->stack_high = t->stack_foreign = 0;
	t->walker_wait = 0;
	t->home = (uint16_t)(__atomic_fetch_add(&channel_of(t)->claims, 1, __ATOMIC_RELAXED) *
			     HOME_STEP);
	t->buffer_at = 0;
	t->state = NO_BUFFER;
	__atomic_store_n(&t->fs, fs, __ATOMIC_RELEASE);
}

/* The entry is this thread's, and it another one than before. 0: another thread took the entry of
 * one that had ended. */
static int settle_again(struct scry_agent_thread *t, uint64_t fs)
{
	uint64_t have = fs;

	if (!__atomic_compare_exchange_n(&t->fs, &have, fs | 1, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return 0;
	close_buffer(t);
	settle(t, fs);
	return 1;
}

/* Its thread has ended: the keeper has taken its segment. One that lives may go on to its next
 * meanwhile: then `serial`, which goes up before that is its, or the state is another one. */
static int is_abandoned(const struct scry_agent_thread *t, uint64_t fs)
{
	uint32_t serial = __atomic_load_n(&t->serial, __ATOMIC_ACQUIRE);
	uint64_t state = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
	const struct scry_thread_buffer *buffer = scry_thread_buffer_of(t);

	return !(fs & 1) && state != NO_BUFFER &&
	       __atomic_load_n(&buffer->state, __ATOMIC_ACQUIRE) != state &&
	       __atomic_load_n(&t->state, __ATOMIC_ACQUIRE) == state &&
	       __atomic_load_n(&t->serial, __ATOMIC_ACQUIRE) == serial;
}

int scry_thread_buffer_is_abandoned(const struct scry_agent_thread *t)
{
	uint64_t fs = __atomic_load_n(&t->fs, __ATOMIC_ACQUIRE);

	return !fs || is_abandoned(t, fs);
}

/* The row that a thread finds whose word at its thread pointer is 0: no thread's, so that it stays
 * as a row that a fork has wiped. */
static int is_row_of_none(const struct scry_agent_channel *c, const struct scry_agent_thread *t)
{
	return t == &c->rows[scry_thread_slot(0)];
}

/* An entry for this thread, marked as being claimed. */
static struct scry_agent_thread *claim_entry(const struct scry_agent_channel *c, uint64_t fs)
{
	for (uint32_t i = 0; i < SCRY_THREADS_PROBES; i++) {
		struct scry_agent_thread *t = &c->rows[(scry_thread_slot(fs) + i) % SCRY_THREADS];
		uint64_t have = __atomic_load_n(&t->fs, __ATOMIC_ACQUIRE);

		if (is_row_of_none(c, t) || (have && !is_abandoned(t, have)))
			continue;
		if (__atomic_compare_exchange_n(&t->fs, &have, fs | 1, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return t;
	}
	return 0;
}

void scry_thread_buffer_await_keeper(void)
{
	struct scry_control *c = scry_agent.control;

	for (int naps = 0;
	     naps < AWAIT_NAPS * CUTS && !__atomic_load_n(&c->owner_pid, __ATOMIC_ACQUIRE);) {
		if (scry_tsc() > __atomic_load_n(&c->lease_tsc, __ATOMIC_RELAXED) ||
		    scry_calling_is_over())
			return;
		naps += nap(&c->owner_pid, 0) ? CUTS : 1;
	}
}

static int is_any_on(void)
{
	return __atomic_load_n(&scry_channel(SCRY_CHANNEL_CORE)->is_on, __ATOMIC_RELAXED) |
	       __atomic_load_n(&scry_channel(SCRY_CHANNEL_CALLS)->is_on, __ATOMIC_RELAXED);
}

static void say_pid_in(struct scry_control *c, uint32_t pid)
{
	__atomic_store_n(&c->child_pid, pid, __ATOMIC_RELEASE);
}

/* Where channels record, whose events are emitted by pid. */
void scry_thread_buffer_say_pid(void)
{
	const uint64_t fs = thread_pointer();
	uint32_t pid, own;

	if (!is_any_on())
		return;
	pid = scry_calling_pid();
	own = is_foreign(fs) ? 0 : tid_of(fs);
	/* not made by the libc's fork, or not the first thread: which of the two is not known */
	if (pid && own != pid)
		scry_agent_rows.calling.odd_fs = fs;
	pid = pid ? pid : own;
	say_pid_in(scry_agent.control, pid);
	for (uint32_t i = 0; i < SCRY_CHANNELS; i++)
		say_pid_in(scry_channel(i)->control, pid);
}

/* A fork child that is to be recorded too takes a child buffer at its first event. */
int scry_thread_buffer_moves_in(void)
{
	struct scry_state_page *g = scry_agent.state_page;

	if (g->open || !is_any_on() || !scry_child_buffer_claim(g, 0))
		return 0;
	if (scry_agent.follow.waits)
		scry_thread_buffer_await_keeper();
	return 1;
}

/* For a thread whose entry is not where it is looked for first, or that is new. */
__attribute__((noinline)) struct scry_agent_thread *
scry_thread_buffer_find(struct scry_agent_channel *c, uint64_t fs)
{
	struct scry_agent_thread *t = 0;

	if (!is_on(c) && !scry_thread_buffer_moves_in())
		return 0;
	for (uint32_t i = 0; i < SCRY_THREADS_PROBES; i++) {
		uint64_t have;

		t = &c->rows[(scry_thread_slot(fs) + i) % SCRY_THREADS];
		have = __atomic_load_n(&t->fs, __ATOMIC_ACQUIRE);
		if (have == (fs | 1)) { /* a signal handler, in the midst of what follows */
			add(&c->control->busy);
			return 0;
		}
		if (have == fs) {
			if (likely(scry_thread_buffer_tid(t) == t->tid) || settle_again(t, fs))
				return t;
			break;
		}
		if (!have && !is_row_of_none(c, t))
			break;
	}
	if (is_foreign(fs)) {
		add(&c->control->foreign);
		return 0;
	}
	t = claim_entry(c, fs);
	if (t)
		settle(t, fs);
	else
		add(&c->control->lost);
	return t;
}

/*
 * The thread is in a handler already: the function called another one of the kind, which is a part
 * of it, or a signal handler did. But a handler that was left by longjmp is not running: then this
 * one's frame does not lie below it on the same stack.
 */
__attribute__((noinline)) struct scry_agent_thread *
scry_thread_buffer_nested(struct scry_agent_thread *t, uint64_t sp)
{
	return sp - t->inside < STACK_MAX ? t : 0;
}

int scry_thread_buffer_is_inside(const struct scry_agent_channel *c)
{
	uint64_t fs = thread_pointer();

	for (uint32_t i = 0; i < SCRY_THREADS_PROBES; i++) {
		const struct scry_agent_thread *t =
			&c->rows[(scry_thread_slot(fs) + i) % SCRY_THREADS];

		if (t->fs == fs)
			return t->inside != 0;
	}
	return 0;
}

__attribute__((noinline)) uint64_t scry_thread_buffer_time(struct scry_agent_thread *t,
							   uint64_t **at, uint64_t now)
{
	t->epoch_end = now + SCRY_THREAD_BUFFER_EPOCH;
	(*at)[0] = channel_of(t)->time_op;
	(*at)[1] = now;
	*at += SCRY_THREAD_BUFFER_TIME_WORDS;
	return now;
}

/* The clock, then whose turn it is, in this order: the second load waits for the first value. */
static uint64_t clock_and_turn(const uint64_t *turn, uint64_t *ret_turn)
{
	uint64_t now, later;

	later = now = scry_tsc();
	__asm__ volatile("and $0, %0" : "+r"(later));
	*ret_turn = *(const volatile uint64_t *)(turn + later);
	return now;
}

/* Behind all that was done before: rdtsc waits for nothing, and so might say a time from before a
 * load that has seen what another thread did behind its own, later, stamp. */
static void fence(void)
{
	__asm__ volatile("lfence" ::: "memory");
}

/*
 * A thread that still has the turn, since an earlier stamp, needs no fence: that one was read
 * behind a fence and the exchange, the exchange came after all stamps of others, and they have had
 * none since.
 */
__attribute__((noinline)) uint64_t scry_thread_buffer_turn(struct scry_agent_thread *t)
{
	uint64_t *turn = &scry_channel(SCRY_CHANNEL_CORE)->control->turn, whose, now;
	int is_mine = t->stamp && *(volatile uint64_t *)turn == (uint64_t)t;

	if (!t->fs) /* wiped by a fork: the turn is the parent's */
		return scry_tsc();
	*(volatile uint32_t *)&t->repeats = 0; /* a signal handler may leave us for good */
	if (!is_mine)
		fence();
	now = clock_and_turn(turn, &whose);
	for (int i = 0; i < TRIES && whose != (uint64_t)t && (whose != SCRY_TURN_ALL || is_mine);
	     i++) {
		if (whose != SCRY_TURN_ALL) {
			whose = !i && t->turns++ < TURNS_MAX ? (uint64_t)t : SCRY_TURN_ALL;
			__atomic_exchange_n(turn, whose, __ATOMIC_SEQ_CST);
		}
		is_mine = 0;
		fence();
		now = clock_and_turn(turn, &whose);
	}
	t->stamp = now;
	t->repeats = REPEATS;
	return now;
}

/* So far the keeper looks. */
static void reach(struct scry_control *c, uint32_t segment)
{
	uint64_t *head = &c->head, want = (segment + 1ull) * SCRY_THREAD_BUFFER_WORDS;
	uint64_t have = __atomic_load_n(head, __ATOMIC_RELAXED);

	while (have < want && !__atomic_compare_exchange_n(head, &have, want, 1, __ATOMIC_SEQ_CST,
							   __ATOMIC_RELAXED))
		;
}

/* The next free segment from the thread's home on, so that it goes round in a few; or 0. How many
 * the keeper will give back soon. */
static int take_segment(const struct scry_agent_channel *c, struct scry_agent_thread *t,
			uint32_t *ret_closed)
{
	struct scry_thread_buffer *pool = c->pool;

	for (uint32_t i = 0; i < SCRY_THREAD_BUFFERS; i++) {
		uint32_t segment = (t->home + i) % SCRY_THREAD_BUFFERS;
		struct scry_thread_buffer *buffer =
			pool +
			(uint64_t)segment * (SCRY_THREAD_BUFFER_WORDS / SCRY_THREAD_BUFFER_HEAD);
		uint64_t have = __atomic_load_n(&buffer->state, __ATOMIC_ACQUIRE);
		uint64_t mine = (have & ~3ull) + 4 + SCRY_THREAD_BUFFER_OPEN;

		*ret_closed += (have & 3) == SCRY_THREAD_BUFFER_CLOSED;
		if ((have & 3) != SCRY_THREAD_BUFFER_FREE)
			continue;
		reach(c->control, segment);
		if (!__atomic_compare_exchange_n(&buffer->state, &have, mine, 0, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		buffer->head = 0;
		buffer->stamping = 0;
		buffer->thread = t->fs;
		buffer->birth = t->birth;
		buffer->serial = t->serial++;
		buffer->begin_tsc = scry_tsc();
		__atomic_store_n(&buffer->tid, t->tid, __ATOMIC_RELEASE);
		t->epoch_end = buffer->begin_tsc + SCRY_THREAD_BUFFER_EPOCH;
		t->repeats = 0;
		t->turns = 0;
		t->buffer_at = (char *)buffer - (char *)&scry_agent.tracking.none;
		__atomic_store_n(&t->state, mine, __ATOMIC_RELEASE);
		return 1;
	}
	return 0;
}

/*
 * 0: there is none, and it is not to be waited for: the lease is over, the keeper takes nothing
 * (what reads its output may not read), or there are as many other threads as segments.
 */
static int get_segment(struct scry_agent_channel *k, struct scry_agent_thread *t)
{
	struct scry_control *c = k->control;
	uint32_t seen = 0, naps = 0;

	for (int is_first = 1;; is_first = 0) {
		uint32_t freed = __atomic_load_n(&c->buffer_freed, __ATOMIC_SEQ_CST), closed = 0;

		if (freed + 1 == __atomic_load_n(&k->given_up, __ATOMIC_RELAXED) ||
		    freed + 1 == __atomic_load_n(&k->all_open, __ATOMIC_RELAXED))
			return 0;
		if (!is_on(k)) /* also one that was forked while it waited: the pool is its parent's
				*/
			return 0;
		if (take_segment(k, t, &closed))
			return 1;
		if (scry_calling_is_over())
			return 0;
		if (!closed) {
			__atomic_store_n(&k->all_open, freed + 1, __ATOMIC_RELAXED);
			return 0;
		}
		if (scry_tsc() > __atomic_load_n(&c->lease_tsc, __ATOMIC_RELAXED)) {
			__atomic_store_n(&k->given_up, freed + 1, __ATOMIC_RELAXED);
			return 0;
		}
		if (is_first || freed != seen)
			naps = 0;
		seen = freed;
		if (naps >= NAPS_MAX * CUTS) {
			__atomic_store_n(&k->given_up, freed + 1, __ATOMIC_RELAXED);
			return 0;
		}
		if (is_first)
			add(&c->buffer_waits);
		__atomic_store_n(&c->buffer_waiting, 1, __ATOMIC_SEQ_CST);
		naps += nap(&c->buffer_freed, freed) ? CUTS : 1;
	}
}

/*
 * A keeper whose lease is over may be dead, or have no processor: as long as there is room that is
 * all the same. Beyond the lease's end nothing is counted any more, and it may come back even so:
 * it is left a word. 0: it took the lease back.
 */
static int is_over(struct scry_agent_channel *k)
{
	struct scry_control *c = k->control;
	uint64_t lease = __atomic_load_n(&c->lease_tsc, __ATOMIC_ACQUIRE),
		 end = lease ? __atomic_load_n(&c->lease_end_tsc, __ATOMIC_RELAXED) : 0;

	if (likely(scry_tsc() <= end))
		return 0;
	if (__atomic_exchange_n(&k->is_on, 0, __ATOMIC_RELAXED) && end) {
		add(&c->lost);
		add(&c->lost_lease);
		__atomic_store_n(&c->buffer_over, 1, __ATOMIC_RELAXED);
	}
	return 1;
}

/* Was it because a handler of this thread is running? Else scry_thread_buffer_find has counted it.
 */
__attribute__((noinline, cold)) void scry_thread_buffer_passed(const struct scry_agent_channel *c)
{
	uint64_t fs = thread_pointer();

	for (uint32_t i = 0; i < SCRY_THREADS_PROBES && is_on(c); i++)
		if (c->rows[(scry_thread_slot(fs) + i) % SCRY_THREADS].fs == fs) {
			add(&c->control->busy);
			return;
		}
}

__attribute__((noinline, cold)) void scry_thread_buffer_lost(const struct scry_agent_channel *k)
{
	struct scry_control *c = k->control;

	if (!is_on(k))
		return;
	if (!thread_pointer()) {
		add(&c->foreign);
		return;
	}
	add(&c->lost);
	if (scry_tsc() > __atomic_load_n(&c->lease_tsc, __ATOMIC_RELAXED))
		add(&c->lost_lease);
}

__attribute__((noinline)) uint64_t *scry_thread_buffer_claim(struct scry_agent_thread *t,
							     uint32_t words)
{
	struct scry_agent_channel *c = channel_of(t);

	if (!is_on(c) || !t->fs) /* wiped by a fork: thread_buffer.h */
		return 0;
	if (is_reused(t)) {
		uint64_t inside = t->inside;

		if (!settle_again(t, thread_pointer()))
			return 0;
		t->inside = inside;
	}
	close_buffer(t);
	if (is_over(c) || !get_segment(c, t))
		return 0;
	return (uint64_t *)(scry_thread_buffer_of(t) + 1);
}
