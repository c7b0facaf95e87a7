/*
 * The agent's table of threads (agent/threads.h) from outside: made ready for a watch, and asked
 * which is inside a handler that calls out. For instruments that record into thread buffers. In the
 * keeper.
 */
#ifndef SCRY_HOOK_THREADS_H
#define SCRY_HOOK_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/inject.h"
#include "wire/thread_buffers.h"

/*
 * Where an instrument's handlers record: which of the agent's channels that is, and the pages.
 * These are the agent's own, or, in a watch of several instruments, and in a fork child, a child
 * buffer's.
 */
struct scry_channel {
	enum scry_agent_channels number;
	uint64_t address; /* of the control page in the target */
	struct scry_control *control;
	uint64_t *ring;
};

/* The agent's own pages, after scry_inject_enter. */
struct scry_channel scry_channel_own(const struct scry_inject *inj,
				     enum scry_agent_channels number);

/*
 * After scry_inject_enter, before hooks are on; nothing is recorded yet. In one stop, or in the
 * `held` thread of a program that is being started. What an older watch left in the table, in
 * the pool of thread buffers and in the control page's counts is cleared, when no thread is inside
 * any more. Finds out where threads keep their tid: at one offset from the thread pointer in all of
 * them, else it is not used. `time_op`: the instrument's record of a whole TSC. Tables that
 * channels share are cleared by the first one only. 0 or -errno with a sentence.
 */
int scry_threads_start(struct scry_inject *inj, const struct scry_channel *to,
		       const struct scry_tracee *held, uint32_t time_op);

/* For handlers that record in no channel, but count in a table in its pages, and want no more of
 * threads than their tid: the same, but for the tables of threads, and the agent knows the place.
 */
int scry_threads_start_table(struct scry_inject *inj, const struct scry_channel *to,
			     const struct scry_tracee *held);

/* For scry_thread_buffers_ask, `inj` its argument: the tid of a thread that began when it was not
 * known yet where threads keep theirs, as in a static program before its libc is up. What is found
 * the agent uses from now on. 0: it is not known. */
uint32_t scry_threads_tid(void *inj, uint64_t pointer);

/* From now on they record; or no more. 0 or -errno: the target is gone. The second: in no channel.
 */
int scry_threads_record(struct scry_inject *inj, const struct scry_channel *to, bool is_on);
void scry_threads_stop(struct scry_inject *inj);

/* Until no thread is inside a handler of an older watch, whose child buffers are about to go. 0 or
 * -EBUSY with a sentence. */
int scry_threads_clear_out(struct scry_inject *inj);

/* Is a living thread inside a handler, its frame on the stack? With everybody stopped. True also
 * when it cannot be known. */
bool scry_threads_are_inside(const struct scry_inject *inj, const struct scry_stw *w);

/* After the hooks are off: waits some 100 ms for threads that are inside. Those that sleep there
 * are left to scry_inject_leave. */
void scry_threads_await(const struct scry_inject *inj, const struct scry_channel *to);

#endif
