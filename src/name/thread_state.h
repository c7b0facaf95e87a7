/*
 * What a Ruby thread does at a moment: the kernel's words about its task and the VM's about its
 * lock and its collector, made into one of seven states.
 */
#ifndef SCRY_NAME_THREAD_STATE_H
#define SCRY_NAME_THREAD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/task.h"
#include "wire/payload_stacks.h"

/*
 * The state between two readings of its task. On a processor or only ready to be is known by what
 * of both has grown more since `before`; where nothing has grown it is on one, as the kernel counts
 * late there.
 */
enum scry_thread_state scry_thread_state(const struct scry_task_now *before,
					 const struct scry_task_now *now, bool waits_for_gvl);

/* The same, where the name of the newest frame is known: a thread that waits in Kernel#sleep
 * sleeps, whatever the VM does for it. */
enum scry_thread_state scry_thread_state_named(enum scry_thread_state state, const char *method);

/* "cpu", "runnable", "gvl", "blocked", "sleeping", "gc", "unknown". */
const char *scry_thread_state_words(enum scry_thread_state state);

#endif
