/*
 * This thread's track (wire/tracks.h): found, written, published. Independent of what is recorded.
 *
 *   t = scry_track_enter();	     a handler begins: NULL, pass through (calls.h has its own)
 *   w = scry_track_reserve(t, n);    room for n words, NULL: none; scry_track_lost counts it
 *   tsc = scry_track_stamp(t, &w);
 *   w[0] = ...; w[n - 1] = ...;
 *   scry_track_publish(t, w + n);    any number of records
 *   scry_track_leave(t);
 *
 * A thread is known by its thread pointer, through a small hash table on pages that a fork wipes: a
 * child finds it empty. So does who forks in a signal handler that interrupted us: the child comes
 * back here with a row of zeros, and what it still publishes goes to tracking.none. `inside` is up
 * from enter to leave, so that nothing of the kind happens twice in one thread (a signal handler, a
 * hooked function that calls another), and so that the host knows who would come back into the
 * agent. The whole way is plain loads and stores; only who needs a segment makes atomic operations,
 * and waits when the pool is full (track.c).
 */
#ifndef SCRY_AGENT_TRACK_H
#define SCRY_AGENT_TRACK_H

#include "agent/channel.h"

struct scry_agent_thread *scry_track_find(struct scry_agent_channel *c, uint64_t fs);
uint64_t *scry_track_claim(struct scry_agent_thread *t, uint32_t words);
struct scry_agent_thread *scry_track_nested(struct scry_agent_thread *t, uint64_t sp);
void scry_track_lost(const struct scry_agent_channel *c);
/* The row of a thread that has ended, or of none. */
int scry_track_is_abandoned(const struct scry_agent_thread *t);
/* Until the keeper has seen whose lane this is (owner_pid): two seconds at most, while the lease is
 * fresh. */
void scry_track_await_keeper(void);
/* Did enter say no because this thread is in a handler of that channel? */
int scry_track_is_inside(const struct scry_agent_channel *c);
uint64_t scry_track_turn(struct scry_agent_thread *t);
uint64_t scry_track_time(struct scry_agent_thread *t, uint64_t **at, uint64_t now);

/* A fork child whose gate is closed takes a lane, when children are recorded. 1: it has one. */
int scry_track_moves_in(void);
void scry_track_say_pid(void); /* it says who it is */
/* For who got no track: counts an event of a signal handler that interrupted us. */
void scry_track_passed(const struct scry_agent_channel *c);

/* Read anew each time: a signal handler may have forked in between. */
static inline struct scry_track *scry_track_of(const struct scry_agent_thread *t)
{
	return (struct scry_track *)((char *)&scry_agent.tracking.none +
				     *(const volatile int64_t *)&t->track_at);
}

static inline uint32_t scry_track_tid(const struct scry_agent_thread *t)
{
	return *(const volatile uint32_t *)((const char *)t +
					    *(const volatile int64_t *)&t->tid_at);
}

static inline uint64_t scry_tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi)::"memory");
	return (uint64_t)hi << 32 | lo;
}

/* NULL: this event is not recorded (no watch, a fork child, a handler of the channel is running).
 * `rows_`: the channel's, as a constant. */
#define scry_track_enter_in(which_, rows_)                                              \
	({                                                                              \
		uint64_t fs_, sp_;                                                      \
		struct scry_agent_thread *t_;                                           \
		__asm__ volatile("mov %%fs:0, %0" : "=r"(fs_));                         \
		__asm__ volatile("mov %%rsp, %0" : "=r"(sp_));                          \
		t_ = &(rows_)[scry_thread_slot(fs_)];                                   \
		if (unlikely(t_->fs != fs_) || unlikely(scry_track_tid(t_) != t_->tid)) \
			t_ = scry_track_find(scry_channel(which_), fs_);                \
		if (t_ && unlikely(t_->inside))                                         \
			t_ = scry_track_nested(t_, sp_);                                \
		if (t_) {                                                               \
			*(volatile uint64_t *)&t_->inside = sp_;                        \
			__asm__ volatile("" ::: "memory");                              \
		}                                                                       \
		t_;                                                                     \
	})
#define scry_track_enter() scry_track_enter_in(SCRY_CHANNEL_CORE, scry_agent_rows.threads)

static inline void scry_track_leave(struct scry_agent_thread *t)
{
	__asm__ volatile("" ::: "memory");
	*(volatile uint64_t *)&t->inside = 0;
}

/* At most SCRY_TRACK_RECORD_MAX words. What it reads of the shared page is checked. */
static inline uint64_t *scry_track_reserve(struct scry_agent_thread *t, uint32_t words)
{
	struct scry_track *track = scry_track_of(t);
	uint32_t head = *(volatile uint32_t *)&track->head;

	if (likely(*(volatile uint64_t *)&track->state == t->state) &&
	    likely(head <= SCRY_TRACK_ROOM - SCRY_TRACK_TIME_WORDS - words))
		return (uint64_t *)(track + 1) + head;
	return scry_track_claim(t, words);
}

/* The time of the record that is written next, at *at. After reserve. */
static inline uint64_t scry_track_stamp(struct scry_agent_thread *t, uint64_t **at)
{
	uint64_t now;

	*(volatile uint32_t *)&scry_track_of(t)->stamping = 1;
	now = scry_tsc();
	return likely(now < t->epoch_end) ? now : scry_track_time(t, at, now);
}

/*
 * The same in the core's channel, where only the order of records matters, and their time within a
 * few ms: while it is this thread's turn (wire/tracks.h) a stamp is used up to 16 times. Not within
 * one segment with scry_track_stamp.
 */
static inline uint64_t scry_track_order(struct scry_agent_thread *t, uint64_t **at)
{
	uint64_t now;

	*(volatile uint32_t *)&scry_track_of(t)->stamping = 1;
	if (likely(*(volatile uint64_t *)&scry_channel(SCRY_CHANNEL_CORE)->control->turn ==
		   (uint64_t)t) &&
	    likely(t->repeats)) {
		t->repeats--;
		return t->stamp;
	}
	now = scry_track_turn(t);
	return likely(now < t->epoch_end) ? now : scry_track_time(t, at, now);
}

/* `end`: behind the last word. One store: stamping ends with it. */
static inline void scry_track_publish(struct scry_agent_thread *t, const uint64_t *end)
{
	struct scry_track *track = scry_track_of(t);

	/* the keeper's processor has read the lines that are written next, when it took them last
	 */
	__asm__ volatile("prefetchw %0" ::"m"(end[32]));
	__asm__ volatile("" ::: "memory");
	__atomic_store_n((uint64_t *)(void *)&track->head,
			 (uint64_t)(end - (const uint64_t *)(track + 1)), __ATOMIC_RELEASE);
}
_Static_assert(offsetof(struct scry_track, stamping) == offsetof(struct scry_track, head) + 4 &&
		       offsetof(struct scry_track, head) % 8 == 0,
	       "one word");

#endif
