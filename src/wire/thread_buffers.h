/*
 * Thread buffers: a ring for many producers. Each thread of the target that records writes into a
 * segment of its own, which it takes from a pool; the keeper copies what was published, puts the
 * threads' words into one order by their time stamps (hook/thread_buffers), and gives finished
 * segments back.
 *
 * The pool lies where an instrument with one producer has its ring: SCRY_RING_WORDS words behind
 * the control page, or in a child buffer of a fork child.
 *
 *   segment = head (8 words) | words
 *
 * A segment's `state` word is generation << 2 | enum scry_thread_buffer_state, and is only changed
 * by compare-and-swap, so that no thread can close a segment that has been given to another.
 *   FREE -> OPEN     agent: it is this thread's; the generation goes up
 *   OPEN -> CLOSED   agent: it is full, or its thread is another one now
 *   OPEN -> DEAD     keeper: its thread has ended
 *   CLOSED, DEAD -> FREE   keeper: all of it has been read; `head` and `stamping` are 0 then
 *
 * Before it claims a segment, the agent raises control->head (atomic maximum) to the words up to
 * that segment's end: the keeper looks no further. After the claim it fills in the head; `thread`,
 * `birth`, `tid`, `serial` and `begin_tsc` are read when `head` is not 0. It publishes with
 * release, and never a part of a record; the last words are published before CLOSED.
 *
 * No segment is free: set control->buffer_waiting, look again, then futex(control->buffer_freed)
 * for a bounded nap, again and again while the lease is fresh and `buffer_freed` moves at least
 * once in a second; control->buffer_waits counts. A keeper that lives, but cannot come, moves it
 * too, with nothing given back (hook/heartbeat).
 *
 * Turns. Reading the clock costs more than all the rest of a record. Where only the order of
 * records matters a thread may use its last stamp again, as long as control->turn is still its own:
 * no other thread has got a stamp since. A thread that finds another value there takes the turn by
 * an exchange, and reads the clock after that. A stamp holds only if the turn, looked at after the
 * clock, is one's own or SCRY_TURN_ALL: else another thread may have begun to repeat an earlier
 * one. Threads that run side by side would only hand the turn about: they soon set SCRY_TURN_ALL,
 * and all read the clock for each record. The keeper takes the turn away in each of its own (and
 * SCRY_TURN_ALL now and then), so that a time is old by no more than that, and behind the clock of
 * that look, so that no stamp from before it is repeated after it; and sets SCRY_TURN_ALL before it
 * reads the clock for an end. Why this is an order: what the allocator did for a record lies before
 * its look at the turn (a beginning) or behind it (an end), and stores become visible in the order
 * of the program (TSO). So a thread that sees what that did, in memory, sees the turn of before
 * that as well. The clock is read behind an lfence where the turn is not one's own already: rdtsc
 * alone may run ahead of the loads that saw it.
 *
 * Freestanding. What the host reads here is hostile.
 */
#ifndef SCRY_WIRE_THREAD_BUFFERS_H
#define SCRY_WIRE_THREAD_BUFFERS_H

#include "wire/control.h"

#include <stdint.h>

#define SCRY_TURN_ALL 1ull /* else 0, or one that a thread has for itself */

#define SCRY_THREAD_BUFFER_WORDS 1024u /* 8 KiB, the head included */
#define SCRY_THREAD_BUFFER_HEAD 8u
#define SCRY_THREAD_BUFFERS (SCRY_RING_WORDS / SCRY_THREAD_BUFFER_WORDS) /* 1024 */

/* Handlers of one kind, with rows of threads of their own: agent/threads.h. */
enum scry_agent_channels {
	SCRY_CHANNEL_CORE,  /* malloc, entries: rows in scry_agent_rows */
	SCRY_CHANNEL_CALLS, /* entries and returns that are followed: rows in scry_agent_call_rows
			     */
	SCRY_CHANNELS,
};

enum scry_thread_buffer_state {
	SCRY_THREAD_BUFFER_FREE,
	SCRY_THREAD_BUFFER_OPEN,
	SCRY_THREAD_BUFFER_CLOSED,
	SCRY_THREAD_BUFFER_DEAD,
};

struct scry_thread_buffer { /* a segment's head; the agent writes all but some states */
	uint64_t state;
	uint32_t head;	   /* words published, from the first behind this head */
	uint32_t stamping; /* 1 from before the clock is read until the record is published: later
			      stamps of others must wait for it */
	uint64_t thread;   /* its thread pointer, fs:0 */
	uint64_t
		birth; /* TSC when that thread took its first segment: with `thread`, which it is */
	uint32_t tid;  /* 0: it does not know */
	uint32_t serial;    /* of the thread's segments: 0, 1, ... */
	uint64_t begin_tsc; /* when it was taken; stamps in it are not older */
	uint64_t reserved[2];
};
_Static_assert(sizeof(struct scry_thread_buffer) == 8 * SCRY_THREAD_BUFFER_HEAD, "one cache line");

#endif
