/*
 * The words of one stream, one after the other: what is timed.
 *
 * Made four times from one text, for the three modes and for a thread that has no other stream to
 * wait for, so that a timed replay has no trace of the others. Nothing is checked here:
 * replay/check.c has been through the batch before.
 */
#include "replay/replay.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define AHEAD 12u	 /* words by which a cell is fetched before its turn */
#define SPIN_TICKS 4000u /* of waiting before the processor is given away */
#define SLEEP_AFTER 200u /* times it was given away */
#define SLEEP_NS 50000
#define STEP_TICKS 4000u /* of looking at the clock twice: for the rest another thread ran */
#define LONG_NS 50000u	 /* of thinking: there two readings of the CPU time are little */

#define BEAT_TICKS (UINT64_C(1) << 20)
#define BEAT_BYTES (UINT64_C(16) << 20)

enum how { ALONE, AMONG, SAMPLED, VERIFIED }; /* ALONE, AMONG others: TIMED */

#define ALWAYS static inline __attribute__((always_inline))

static uint32_t bucket(uint64_t ticks)
{
	uint32_t top;

	if (ticks < 8)
		return (uint32_t)ticks;
	top = 63u - (uint32_t)__builtin_clzll(ticks);
	return (top - 2) * 8 + (uint32_t)(ticks >> (top - 3) & 7);
}

static __attribute__((noinline)) void count(struct stream *l, enum scry_replay_kind kind,
					    uint64_t ticks)
{
	uint64_t timer = replay.head->timer_ticks;

	ticks = ticks > timer ? ticks - timer : 0;
	if (!replay.head->is_building)
		__atomic_fetch_add(&replay.head->histogram[kind][bucket(ticks)], 1,
				   __ATOMIC_RELAXED);
	l->left = replay.head->sample_every;
}

/* What waiting for another thread costs is not the allocator's: it is left out. */
struct wait {
	uint64_t begin; /* ticks */
	uint64_t from;	/* CPU time since the processor was given away */
	uint32_t turns;
};

static void wait_more(struct wait *w)
{
	if (__rdtsc() - w->begin < SPIN_TICKS) {
		_mm_pause();
		return;
	}
	if (!w->turns)
		w->from = replay_thread_ns();
	if (w->turns++ < SLEEP_AFTER)
		sched_yield();
	else
		nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

static void wait_over(struct stream *l, const struct wait *w)
{
	uint64_t ticks = __rdtsc() - w->begin;

	/* Not more than it spun, should it have lost the processor meanwhile. */
	l->wait_ticks += ticks < SPIN_TICKS ? ticks : SPIN_TICKS;
	if (w->turns)
		l->wait_ns += replay_thread_ns() - w->from + replay_clock_ns;
	l->waits++;
}

static __attribute__((noinline)) uint64_t wait_tag(struct stream *l, const uint64_t *cell,
						   uint64_t tag)
{
	struct wait w = {.begin = __rdtsc()};
	uint64_t value;

	while ((value = __atomic_load_n(cell, __ATOMIC_ACQUIRE)) >> 48 != tag)
		wait_more(&w);
	wait_over(l, &w);
	return value;
}

static __attribute__((noinline)) void gate(struct stream *l, const uint32_t *marks, uint32_t count)
{
	struct wait w = {.begin = __rdtsc()};

	if (__atomic_load_n(marks, __ATOMIC_ACQUIRE) >= count)
		return;
	while (__atomic_load_n(marks, __ATOMIC_ACQUIRE) < count)
		wait_more(&w);
	wait_over(l, &w);
}

/* Words that take long are not a standstill: the watching thread sees only every 512th. */
static void beat(void)
{
	__atomic_fetch_add(&replay.head->beats, 1, __ATOMIC_RELAXED);
}

/* As the program had something else to do until then. */
static __attribute__((noinline)) void sleep_until(struct stream *l, uint64_t us)
{
	uint64_t at = replay.head->ns_begin + us * 1000, from;
	struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};

	if (!replay.head->is_paced)
		return;
	from = replay_thread_ns();
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
	l->wait_ns += replay_thread_ns() - from + replay_clock_ns;
}

/*
 * As the program had something else to do: it takes the processor for as long. While it has lost it
 * to another thread it does not work, so of a step that took longer the rest does not count. It
 * ends also where reading the clock takes that long.
 *
 * The kernel counts such a step as CPU time where an interrupt or the hypervisor took it: 1 % of
 * all in a VM. So its count is what is left out, where that is long enough to ask for it.
 */
static __attribute__((noinline)) void think(struct stream *l, uint64_t ns)
{
	bool is_long = ns >= LONG_NS;
	uint64_t from = is_long ? replay_thread_ns() : 0;
	uint64_t ticks = replay_ns_ticks(ns), done = 0, reported = 0, last = __rdtsc(), now;

	while (done < ticks) {
		_mm_pause();
		now = __rdtsc();
		done += now - last < STEP_TICKS ? now - last : STEP_TICKS;
		last = now;
		if (done - reported > BEAT_TICKS) {
			reported = done;
			beat();
		}
	}
	if (is_long)
		l->wait_ns += replay_thread_ns() - from + replay_clock_ns;
	else
		l->wait_ticks += done;
}

/* Which words have a tag no branch predictor foresees: one branch, that is hardly ever taken. */
ALWAYS uint64_t take(struct stream *l, const uint64_t *cell, uint64_t w, const enum how how)
{
	uint64_t value = __atomic_load_n(cell, __ATOMIC_ACQUIRE), tag = w >> 48;
	uint64_t other = value >> 48 ^ tag;

	if (how == ALONE)
		return value & REPLAY_ADDRESS;
	other = tag ? other : 0;
	__asm__("" : "+r"(other));
	if (__builtin_expect(other != 0, 0))
		value = wait_tag(l, cell, tag);
	return value & REPLAY_ADDRESS;
}

/* One byte of each page of [from, to). */
ALWAYS void touch_pages(volatile char *p, uint64_t from, uint64_t to)
{
	for (from = (from + 4095) & ~UINT64_C(4095); from < to; from += 4096)
		p[from] = 1;
}

/* The same where the null allocator serves, which has less. */
static __attribute__((noinline)) void touch_round(volatile char *p, uint64_t size, uint32_t share,
						  uint32_t x)
{
	const uint64_t bytes = REPLAY_NULL_BYTES;
	uint64_t to = size * share / 65535;

	if (replay.touch == SCRY_TOUCH_ALL)
		for (uint64_t at = 0; at < size; at += bytes)
			memset((char *)p, 1, size - at < bytes ? size - at : bytes);
	else
		for (uint64_t at = (to * x / 64 + 4095) & ~UINT64_C(4095); at < to; at += 4096)
			p[at % bytes] = 1;
}

/* As the program would have done: `share` 65535ths of it, of which the first `x` 64ths were. */
ALWAYS void touch(void *p, uint64_t size, uint32_t share, uint32_t x)
{
	uint32_t policy = replay.touch;

	if (policy == SCRY_TOUCH_NONE)
		return;
	if (__builtin_expect(size >= 16, 1)) {
		((volatile uint64_t *)p)[0] = 1;
		((volatile uint64_t *)p)[1] = 1;
	} else {
		for (uint64_t i = 0; i < size; i += 4)
			((volatile char *)p)[i] = 1;
	}
	if (size <= 16 || policy == SCRY_TOUCH_FIRST)
		return;
	if (__builtin_expect(size >= BEAT_BYTES, 0))
		beat();
	if (__builtin_expect(size > REPLAY_NULL_BYTES, 0) && replay.head->is_null)
		touch_round(p, size, share, x);
	else if (policy == SCRY_TOUCH_ALL) {
		memset(p, 1, size);
	} else if (size > 4096) {
		uint64_t to = size * share / 65535;

		touch_pages(p, to * x / 64, to);
	}
}

ALWAYS void give(uint64_t *cell, void *p, uint64_t tag)
{
	uint64_t address = p ? (uint64_t)(uintptr_t)p : REPLAY_FAILED;

	__atomic_store_n(cell, address | tag << 48, __ATOMIC_RELEASE);
}

#define TIMED(kind, call)                                                \
	do {                                                             \
		if (how == SAMPLED && __builtin_expect(!--l->left, 0)) { \
			uint64_t t = __rdtsc();                          \
			call;                                            \
			count(l, kind, __rdtsc() - t);                   \
		} else {                                                 \
			call;                                            \
		}                                                        \
	} while (0)

/* What begins, in the mode; `size` and `align` are the call's. */
#define BEGIN(kind, zeroed, call)                                                           \
	do {                                                                                \
		uint64_t size =                                                             \
			w & SCRY_REPLAY_LONG ? SCRY_REPLAY_SIZE(w1) : SCRY_REPLAY_SHORT(w); \
		uint64_t align = UINT64_C(1) << SCRY_REPLAY_X(w1);                          \
		void *p;                                                                    \
		(void)align;                                                                \
		TIMED(SCRY_REPLAY_KIND_##kind, p = (call));                                 \
		begun(l, (struct begun){w, w1, size, (zeroed)}, p, how);                    \
	} while (0)

struct begun {
	uint64_t w, w1, size;
	bool is_zeroed;
};

ALWAYS void begun(struct stream *l, struct begun b, void *p, const enum how how)
{
	uint32_t slot = SCRY_REPLAY_SLOT(b.w);
	bool is_long = b.w & SCRY_REPLAY_LONG;

	if (__builtin_expect(!p, 0)) {
		l->failed += b.size != 0;
	} else if (how == VERIFIED) {
		if (b.is_zeroed)
			verify_zero(l, slot, p, b.size);
		verify_begin(l, slot, p, b.size,
			     is_long && SCRY_REPLAY_X(b.w1) ? UINT64_C(1) << SCRY_REPLAY_X(b.w1)
							    : 0);
	} else {
		touch(p, b.size, is_long ? SCRY_REPLAY_SHORT(b.w) : 65535, 0);
	}
	give(&replay.cells[slot], p, how == ALONE ? 0 : b.w >> 48);
}

ALWAYS void again(struct stream *l, uint64_t w, uint64_t w1, const enum how how)
{
	const struct replay_calls *c = &replay.calls;
	uint64_t *cell = &replay.cells[SCRY_REPLAY_SLOT(w)], size = SCRY_REPLAY_SIZE(w1);
	uint64_t address = take(l, cell, w, how);
	void *old = address == REPLAY_FAILED ? NULL : (void *)(uintptr_t)address, *p;

	size += !size; /* an end by realloc is a free: the libraries differ */
	if ((w & 31) == SCRY_REPLAY_REALLOC)
		TIMED(SCRY_REPLAY_KIND_REALLOC, p = c->realloc(old, size));
	else
		TIMED(SCRY_REPLAY_KIND_REALLOC, p = c->reallocarray(old, 1, size));
	if (!p) {
		l->failed++;
		p = old; /* goes on as it was */
	} else if (how == VERIFIED) {
		if (old)
			verify_again(l, SCRY_REPLAY_SLOT(w), p, size);
		else
			verify_begin(l, SCRY_REPLAY_SLOT(w), p, size, 0);
	} else {
		touch(p, size, SCRY_REPLAY_SHORT(w), SCRY_REPLAY_X(w1));
	}
	give(cell, p, how == ALONE ? 0 : w1 >> 48);
}

ALWAYS void ask(struct stream *l, uint64_t w, uint64_t w1, const enum how how)
{
	uint64_t *cell = &replay.cells[SCRY_REPLAY_SLOT(w)];
	uint64_t address = take(l, cell, w, how);

	if (address != REPLAY_FAILED) {
		void *p = (void *)(uintptr_t)address;
		size_t usable;

		TIMED(SCRY_REPLAY_KIND_USABLE, usable = replay.calls.usable(p));
		l->sink += usable;
		if (how == VERIFIED)
			verify_usable(l, SCRY_REPLAY_SLOT(w), usable);
	}
	__atomic_store_n(cell, address | (w1 >> 48) << 48, __ATOMIC_RELEASE);
}

#define FINISH(function)                                               \
	do {                                                           \
		uint64_t *cell = &replay.cells[SCRY_REPLAY_SLOT(w)];   \
		uint64_t address = take(l, cell, w, how);              \
		void *p = (void *)(uintptr_t)address;                  \
		if (__builtin_expect(address != REPLAY_FAILED, 1)) {   \
			if (how == VERIFIED)                           \
				verify_end(l, SCRY_REPLAY_SLOT(w), p); \
			TIMED(SCRY_REPLAY_KIND_FREE, c->function(p));  \
		}                                                      \
		__atomic_store_n(cell, 0, __ATOMIC_RELAXED);           \
	} while (0)

static void *by_posix_memalign(uint64_t align, uint64_t size)
{
	void *p;

	return replay.calls.posix_memalign(&p, align < sizeof(p) ? sizeof(p) : align, size) ? NULL
											    : p;
}

/* True: the thread ends. */
ALWAYS bool run(struct stream *l, const uint64_t *at, const enum how how)
{
	const struct replay_calls *c = &replay.calls;
	uint64_t *cells = replay.cells;
	const uint64_t *since = at;

	for (;;) {
		uint64_t w = at[0], w1 = at[1];

		__builtin_prefetch(&cells[SCRY_REPLAY_SLOT(at[AHEAD])], 0);
		at += 1 + (w >> 5 & 1);
		switch (w & 31) {
		case SCRY_REPLAY_MALLOC:
			BEGIN(MALLOC, false, c->malloc(size));
			break;
		case SCRY_REPLAY_FREE:
			FINISH(free);
			break;
		case SCRY_REPLAY_CALLOC:
			BEGIN(CALLOC, true, c->calloc(1, size));
			break;
		case SCRY_REPLAY_REALLOC_NULL:
			BEGIN(REALLOC, false, c->realloc(NULL, size));
			break;
		case SCRY_REPLAY_NEW:
			BEGIN(MALLOC, false, c->new (size));
			break;
		case SCRY_REPLAY_NEW_ARRAY:
			BEGIN(MALLOC, false, c->new_array(size));
			break;
		case SCRY_REPLAY_POSIX_MEMALIGN:
			BEGIN(ALIGNED, false, by_posix_memalign(align, size));
			break;
		case SCRY_REPLAY_ALIGNED_ALLOC:
			BEGIN(ALIGNED, false, c->aligned_alloc(align, size));
			break;
		case SCRY_REPLAY_MEMALIGN:
			BEGIN(ALIGNED, false, c->memalign(align, size));
			break;
		case SCRY_REPLAY_VALLOC:
			BEGIN(ALIGNED, false, c->valloc(size));
			break;
		case SCRY_REPLAY_PVALLOC:
			BEGIN(ALIGNED, false, c->pvalloc(size));
			break;
		case SCRY_REPLAY_REALLOC:
		case SCRY_REPLAY_REALLOCARRAY:
			again(l, w, w1, how);
			break;
		case SCRY_REPLAY_USABLE:
			ask(l, w, w1, how);
			break;
		case SCRY_REPLAY_DELETE:
			FINISH(delete);
			break;
		case SCRY_REPLAY_DELETE_ARRAY:
			FINISH(delete_array);
			break;
		case SCRY_REPLAY_SPAWN:
			replay_spawn(l, SCRY_REPLAY_SLOT(w), (uint32_t)(w >> 32));
			break;
		case SCRY_REPLAY_JOIN:
			replay_join(l, (uint32_t)(w >> 32));
			break;
		case SCRY_REPLAY_MARK:
			__atomic_fetch_add(&replay.epochs[SCRY_REPLAY_SLOT(w)], 1,
					   __ATOMIC_RELEASE);
			break;
		case SCRY_REPLAY_AT:
			sleep_until(l, w >> 6);
			break;
		case SCRY_REPLAY_THINK:
			if (replay.head->is_thinking)
				think(l, w >> 6);
			break;
		case SCRY_REPLAY_GATE:
			gate(l, &replay.epochs[SCRY_REPLAY_SLOT(w)], (uint32_t)(w >> 32));
			break;
		case SCRY_REPLAY_LINK:
			__atomic_fetch_add(&replay.head->position, (uint64_t)(at - since) - 1,
					   __ATOMIC_RELAXED);
			since = at = replay.m->words[SCRY_REPLAY_SLOT(w)];
			break;
		default: /* END, STOP */
			__atomic_fetch_add(&replay.head->position, (uint64_t)(at - since) - 1,
					   __ATOMIC_RELAXED);
			return (w & 31) == SCRY_REPLAY_STOP;
		}
	}
}

static __attribute__((noinline)) bool run_alone(struct stream *l, const uint64_t *at)
{
	return run(l, at, ALONE);
}

static __attribute__((noinline)) bool run_timed(struct stream *l, const uint64_t *at)
{
	return run(l, at, AMONG);
}

static __attribute__((noinline)) bool run_sampled(struct stream *l, const uint64_t *at)
{
	return run(l, at, SAMPLED);
}

static __attribute__((noinline)) bool run_verify(struct stream *l, const uint64_t *at)
{
	return run(l, at, VERIFIED);
}

bool replay_work(struct stream *l, uint32_t block)
{
	const uint64_t *at = replay.m->words[block];

	switch (replay.head->mode) {
	case SCRY_REPLAY_SAMPLED:
		return run_sampled(l, at);
	case SCRY_REPLAY_VERIFY:
		return run_verify(l, at);
	default:
		return replay.streams == 1 ? run_alone(l, at) : run_timed(l, at);
	}
}
