/*
 * A thread for a remote call, and the stack that the call runs on.
 *
 * All calls but the first run on a stack of the agent's own, its last word says for which thread.
 * So they may be made in a thread on any stack. The first maps it: it waits for a thread on a stack
 * whose ends are known (sys/stack), as the memory below any other may be in use. If all are on
 * others, it runs at the end of a thread's own stack, where that was never used.
 */
#ifndef SCRY_HOOK_HOLD_H
#define SCRY_HOOK_HOLD_H

#include <sys/types.h>

#include "hook/inject.h"

/* Chooses a thread and holds it; *ret_stack is for struct scry_call. Asks again for five seconds.
 * 0, or -errno with a sentence. */
int scry_hold_one(struct scry_inject *inj, struct scry_tracee *t, uint64_t *ret_stack);

/* Holds thread `tid`, which must be one of the process. -EAGAIN: not now, or not in this one. */
int scry_hold_thread(struct scry_inject *inj, pid_t tid, struct scry_tracee *t,
		     uint64_t *ret_stack);

/* The same of a thread that is held already: may calls be made in it where it is? -EAGAIN with a
 * sentence. */
int scry_hold_check(struct scry_inject *inj, const struct scry_tracee *held, uint64_t *ret_stack);

/* scry_inject_stop, to put something in: each thread is asked for Syscall User Dispatch, some 3 us.
 * -ENOTSUP with a sentence, all are released: one has it, and not all is put in yet
 * (inj->is_entered). Once it is, the agent makes no call from then on. */
int scry_hold_all(struct scry_inject *inj, struct scry_stw *w);

/* Between two calls: a thread that has stood for a quarter of --max-pause is let run for a while,
 * if it may be (how->rests: its struct scry_inject). It stays ours, so that it stays decided which
 * scry owns the process. 0 or -errno; -ETIMEDOUT: it did not come back to where a call can be made.
 */
int scry_hold_rest(struct scry_tracee *t, const struct scry_call *how);

/* System calls (number and arguments) in a stopped thread, which may rest before each, up to the
 * first that fails: 0 or -errno. scry_tracee_finish is the caller's. */
int scry_hold_calls(struct scry_tracee *t, const struct scry_call *how, const uint64_t (*calls)[7],
		    size_t n);

#endif
