/* See thread_state.h. */
#include "name/thread_state.h"

#include <string.h>
#include <sys/syscall.h>

static bool is_sleep(const struct scry_task_now *now)
{
	switch (now->nr) {
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
		return true;
	case SYS_futex: /* a condition with a time limit */
		return now->args[3] != 0;
	case SYS_select:
	case SYS_pselect6:
		return now->args[0] == 0;
	case SYS_poll:
	case SYS_ppoll:
		return now->args[1] == 0;
	default:
		return false;
	}
}

enum scry_thread_state scry_thread_state(const struct scry_task_now *before,
					 const struct scry_task_now *now, bool waits_for_gvl)
{
	uint64_t ran = now->run_ns - before->run_ns, waited = now->wait_ns - before->wait_ns;

	if (now->is_gone)
		return SCRY_STATE_UNKNOWN;
	if (now->is_running)
		return waited > ran || now->is_ready ? SCRY_STATE_RUNNABLE : SCRY_STATE_CPU;
	if (now->nr == -2)
		return SCRY_STATE_UNKNOWN;
	if (waits_for_gvl)
		return SCRY_STATE_GVL;
	return is_sleep(now) ? SCRY_STATE_SLEEPING : SCRY_STATE_BLOCKED;
}

enum scry_thread_state scry_thread_state_named(enum scry_thread_state state, const char *method)
{
	return state == SCRY_STATE_BLOCKED && !strcmp(method, "Kernel#sleep") ? SCRY_STATE_SLEEPING
									      : state;
}

const char *scry_thread_state_words(enum scry_thread_state state)
{
	static const char *const words[] = {
		[SCRY_STATE_UNKNOWN] = "unknown",
		[SCRY_STATE_CPU] = "cpu",
		[SCRY_STATE_RUNNABLE] = "runnable",
		[SCRY_STATE_GVL] = "gvl",
		[SCRY_STATE_BLOCKED] = "blocked",
		[SCRY_STATE_SLEEPING] = "sleeping",
		[SCRY_STATE_GC] = "gc",
	};

	return state < SCRY_STATES ? words[state] : words[0];
}
