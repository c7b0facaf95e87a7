/*
 * The agent's table of threads (agent/threads.h) from outside: made ready for a watch, and asked
 * who is inside a handler that calls out. For instruments that record into tracks. In the keeper.
 */
#ifndef SCRY_HOOK_THREADS_H
#define SCRY_HOOK_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/inject.h"

/*
 * After scry_inject_enter, before hooks are on; nothing is recorded yet. In one stop, or in the
 * `held` thread of a program that is being started. What an older watch left in the table, in
 * the pool of tracks and in the control page's counts is cleared, when nobody is inside any more.
 * Finds out where threads keep their tid: at one offset from the thread pointer in all of them,
 * else it is not used. `time_op`: the instrument's record of a whole TSC. 0 or -errno with a
 * sentence.
 */
int scry_threads_start(struct scry_inject *inj, const struct scry_tracee *held, uint32_t time_op);

/* For scry_tracks_ask, `inj` its argument: the tid of a thread that began when it was not known yet
 * where threads keep theirs, as in a static program before its libc is up. What is found the agent
 * uses from now on. 0: it cannot be told. */
uint32_t scry_threads_tid(void *inj, uint64_t pointer);

/* From now on they record; or no more. 0 or -errno: the target is gone. */
int scry_threads_record(struct scry_inject *inj, bool is_on);

/* Is a living thread inside a handler, its frame on the stack? With everybody stopped. True also
 * when it cannot be known. */
bool scry_threads_are_inside(const struct scry_inject *inj, const struct scry_world *w);

/* After the hooks are off: waits some 100 ms for who is inside. Those that sleep there are left to
 * scry_inject_leave. */
void scry_threads_await(const struct scry_inject *inj);

#endif
