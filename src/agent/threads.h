/*
 * The threads that record into thread buffers (agent/thread_buffer.h): their table, and what the
 * host says of them.
 */
#ifndef SCRY_AGENT_THREADS_H
#define SCRY_AGENT_THREADS_H

#include "wire/thread_buffers.h"

#define SCRY_THREADS 4096u /* that are known at a time; more pass through, and are counted */
#define SCRY_THREADS_PROBES 64u
#define SCRY_THREAD_BUFFER_ROOM (SCRY_THREAD_BUFFER_WORDS - SCRY_THREAD_BUFFER_HEAD)
#define SCRY_THREAD_BUFFER_RECORD_MAX 656u /* words */
#define SCRY_THREAD_BUFFER_TIME_WORDS 2u
_Static_assert(SCRY_THREAD_BUFFER_RECORD_MAX + 2 * SCRY_THREAD_BUFFER_TIME_WORDS <=
		       SCRY_THREAD_BUFFER_ROOM,
	       "it fits");
#define SCRY_THREAD_BUFFER_EPOCH (1ull << 34) /* ticks after which a TIME record comes */

struct scry_agent_thread {
	uint64_t fs; /* 0: empty; odd: being claimed */
	/* In a row that a fork has wiped both offsets lead to something that may be used. */
	int64_t tid_at;	   /* bytes from here: where its libc keeps the tid, or, not known, `tid` */
	int64_t buffer_at; /* bytes from tracking.none, which it is in a row that a fork has wiped
			    */
	uint64_t state;	   /* of the thread buffer, while it is ours */
	uint64_t inside;   /* stack pointer of the handler that runs; 0: none */
	uint64_t epoch_end; /* TSC */
	uint32_t tid;	    /* 0: not known */
	uint32_t repeats;   /* records that may still have `stamp` again: thread_buffer.h */
	uint64_t stamp;	    /* TSC */
	/* seldom */
	uint64_t pad;
	uint16_t home;	/* where it looks for a segment first */
	uint16_t turns; /* that it took in this segment */
	uint32_t serial;
	uint64_t ec_word; /* lines.h: where its execution context was emitted; 0: not known */
	/* walk.h */
	uint64_t stack_low, stack_high; /* [low, high) of its stack: readable while it lives */
	uint64_t stack_foreign;		/* a page that was found to be of another stack */
	uint32_t walker, walker_wait;
	uint64_t birth; /* TSC */
};
_Static_assert(sizeof(struct scry_agent_thread) == 128, "two cache lines");

/*
 * Handlers of one kind, and where they record: a thread has a row and a segment in each. Which
 * handlers those are is fixed; where their pages lie the host says. One instrument uses the
 * agent's own, several at once have pages each (hook/threads.h).
 */
struct scry_agent_channel {
	/* host writes */
	struct scry_control *control;	 /* of the pages: its turn, heads and counters */
	struct scry_thread_buffer *pool; /* the ring there */
	struct scry_agent_thread *rows;	 /* of threads; NULL: never used */
	uint32_t time_op; /* the instrument's record that says the whole time; 0: it needs none */
	uint32_t is_on;	  /* the agent clears it when no keeper will come back */
	/* agent */
	uint32_t claims;   /* threads ever */
	uint32_t given_up; /* buffer_freed + 1 when a thread had waited in vain, or might not wait:
			      until it moves no thread waits, or looks through the pool again */
	uint32_t all_open; /* buffer_freed + 1 when each segment was another thread's: until it
			      moves or one is closed no thread looks through the pool again */
	uint32_t pad;
};

#define SCRY_GUARD_AT 0x28u

struct scry_agent_tracking {
	/* host writes */
	uint32_t tid_offset; /* of the tid from the thread pointer, in all threads; 0: not known */
	uint32_t first_tid; /* of a program that has one thread, without a control block yet; else 0
			     */
	struct scry_agent_channel channels[SCRY_CHANNELS];
	struct scry_thread_buffer none; /* of threads that have no segment: `state` is
				   SCRY_THREAD_BUFFER_CLOSED, which is never theirs */
	/* Host, or of a program that starts the agent, writes: libc's stack guard, which each of
	 * its threads has SCRY_GUARD_AT bytes behind its thread pointer (where compilers expect
	 * it); 0: not known. */
	uint64_t guard;
};

static inline uint32_t scry_thread_slot(uint64_t fs)
{
	return (uint32_t)((fs >> 6) * 0x9e3779b97f4a7c15ull >> 52); /* 2^12 */
}
_Static_assert(SCRY_THREADS == 1u << 12, "the shift above");

#endif
