/*
 * This thread's buffer (wire/thread_buffers.h), independent of what is recorded.
 *
 *   t = scry_thread_buffer_enter();         a handler begins; NULL: pass through (see calls.h)
 *   w = scry_thread_buffer_reserve(t, n);   room for n words; NULL: none, count a loss
 *   tsc = scry_thread_buffer_stamp(t, &w);
 *   w[0] = ...; w[n - 1] = ...;
 *   scry_thread_buffer_publish(t, w + n);   any number of records
 *   scry_thread_buffer_leave(t);
 *
 * A thread is known by its thread pointer, through a small hash table on pages that a fork wipes: a
 * child finds it empty. So does a fork in a signal handler that interrupted us: the child comes
 * back here with a row of zeros, and what it still publishes goes to tracking.none. `inside` is up
 * from enter to leave, so that nothing of the kind happens twice in one thread (a signal handler, a
 * hooked function that calls another), and so that the host knows which threads would come back
 * into the agent. The whole way is plain loads and stores; only a thread that needs a segment makes
 * atomic operations, and waits when the pool is full (thread_buffer.c).
 */
#ifndef SCRY_AGENT_THREAD_BUFFER_H
#define SCRY_AGENT_THREAD_BUFFER_H

#include "agent/channel.h"

struct scry_agent_thread *scry_thread_buffer_find(struct scry_agent_channel *c, uint64_t fs);
uint64_t *scry_thread_buffer_claim(struct scry_agent_thread *t, uint32_t words);
struct scry_agent_thread *scry_thread_buffer_nested(struct scry_agent_thread *t, uint64_t sp);
void scry_thread_buffer_lost(const struct scry_agent_channel *c);
/* The row of a thread that has ended, or of none. */
int scry_thread_buffer_is_abandoned(const struct scry_agent_thread *t);
/* Waits until the keeper knows the owner: at most 2 s, while the lease is fresh. */
void scry_thread_buffer_await_keeper(void);
/* Did enter say no because this thread is in a handler of that channel? */
int scry_thread_buffer_is_inside(const struct scry_agent_channel *c);
uint64_t scry_thread_buffer_turn(struct scry_agent_thread *t);
uint64_t scry_thread_buffer_time(struct scry_agent_thread *t, uint64_t **at, uint64_t now);

/* A fork child, its state page closed, takes a child buffer if children are recorded: then 1. */
int scry_thread_buffer_moves_in(void);
void scry_thread_buffer_say_pid(void); /* it says which process it is */
/* For a thread that got no buffer: counts an event of a signal handler that interrupted us. */
void scry_thread_buffer_passed(const struct scry_agent_channel *c);

/* Read anew each time: a signal handler may have forked in between. */
static inline struct scry_thread_buffer *scry_thread_buffer_of(const struct scry_agent_thread *t)
{
	return (struct scry_thread_buffer *)((char *)&scry_agent.tracking.none +
					     *(const volatile int64_t *)&t->buffer_at);
}

static inline uint32_t scry_thread_buffer_tid(const struct scry_agent_thread *t)
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
#define scry_thread_buffer_enter_in(which_, rows_)                                              \
	({                                                                                      \
		uint64_t fs_, sp_;                                                              \
		struct scry_agent_thread *t_;                                                   \
		__asm__ volatile("mov %%fs:0, %0" : "=r"(fs_));                                 \
		__asm__ volatile("mov %%rsp, %0" : "=r"(sp_));                                  \
		t_ = &(rows_)[scry_thread_slot(fs_)];                                           \
		if (unlikely(t_->fs != fs_) || unlikely(scry_thread_buffer_tid(t_) != t_->tid)) \
			t_ = scry_thread_buffer_find(scry_channel(which_), fs_);                \
		if (t_ && unlikely(t_->inside))                                                 \
			t_ = scry_thread_buffer_nested(t_, sp_);                                \
		if (t_) {                                                                       \
			*(volatile uint64_t *)&t_->inside = sp_;                                \
			__asm__ volatile("" ::: "memory");                                      \
		}                                                                               \
		t_;                                                                             \
	})
#define scry_thread_buffer_enter() \
	scry_thread_buffer_enter_in(SCRY_CHANNEL_CORE, scry_agent_rows.threads)

static inline void scry_thread_buffer_leave(struct scry_agent_thread *t)
{
	__asm__ volatile("" ::: "memory");
	*(volatile uint64_t *)&t->inside = 0;
}

/* At most SCRY_THREAD_BUFFER_RECORD_MAX words. What it reads of the shared page is checked. */
static inline uint64_t *scry_thread_buffer_reserve(struct scry_agent_thread *t, uint32_t words)
{
	struct scry_thread_buffer *buffer = scry_thread_buffer_of(t);
	uint32_t head = *(volatile uint32_t *)&buffer->head;

	if (likely(*(volatile uint64_t *)&buffer->state == t->state) &&
	    likely(head <= SCRY_THREAD_BUFFER_ROOM - SCRY_THREAD_BUFFER_TIME_WORDS - words))
		return (uint64_t *)(buffer + 1) + head;
	return scry_thread_buffer_claim(t, words);
}

/* The time of the record that is written next, at *at. After reserve. */
static inline uint64_t scry_thread_buffer_stamp(struct scry_agent_thread *t, uint64_t **at)
{
	uint64_t now;

	*(volatile uint32_t *)&scry_thread_buffer_of(t)->stamping = 1;
	now = scry_tsc();
	return likely(now < t->epoch_end) ? now : scry_thread_buffer_time(t, at, now);
}

/*
 * The same in the core's channel, where only the order of records matters, and their time within a
 * few ms: while it is this thread's turn (wire/thread_buffers.h) a stamp is used up to 16 times.
 * Not within one segment with scry_thread_buffer_stamp.
 */
static inline uint64_t scry_thread_buffer_order(struct scry_agent_thread *t, uint64_t **at)
{
	uint64_t now;

	*(volatile uint32_t *)&scry_thread_buffer_of(t)->stamping = 1;
	if (likely(*(volatile uint64_t *)&scry_channel(SCRY_CHANNEL_CORE)->control->turn ==
		   (uint64_t)t) &&
	    likely(t->repeats)) {
		t->repeats--;
		return t->stamp;
	}
	now = scry_thread_buffer_turn(t);
	return likely(now < t->epoch_end) ? now : scry_thread_buffer_time(t, at, now);
}

/* `end`: behind the last word. One store: stamping ends with it. */
static inline void scry_thread_buffer_publish(struct scry_agent_thread *t, const uint64_t *end)
{
	struct scry_thread_buffer *buffer = scry_thread_buffer_of(t);

	/* the keeper's processor has read the lines that are written next */
	__asm__ volatile("prefetchw %0" ::"m"(end[32]));
	__asm__ volatile("" ::: "memory");
	__atomic_store_n((uint64_t *)(void *)&buffer->head,
			 (uint64_t)(end - (const uint64_t *)(buffer + 1)), __ATOMIC_RELEASE);
}
_Static_assert(offsetof(struct scry_thread_buffer, stamping) ==
			       offsetof(struct scry_thread_buffer, head) + 4 &&
		       offsetof(struct scry_thread_buffer, head) % 8 == 0,
	       "one word");

#endif
