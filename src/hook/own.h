/*
 * Which scry may edit a process: one at a time, whatever namespaces it runs in.
 *
 * The claim lies in the agent's process state page: private, and wiped in fork children. It is
 * looked at and written while the process's first thread (that lives) is ours by ptrace, which is
 * exclusive everywhere. It is good as long as the lease is fresh: a scry that is killed, or stopped
 * for long, loses it, and finds out before the next change.
 *
 * The abstract socket (scry_inject_lock) is a hint: it says at once, before anything is held, that
 * another one is at work in the same network namespace. Any process can bind its name, so it is
 * believed only of root and of oneself.
 */
#ifndef SCRY_HOOK_OWN_H
#define SCRY_HOOK_OWN_H

#include <stdbool.h>

#include "hook/inject.h"

/* The process's first thread, for as long as a claim is made. */
struct scry_own {
	struct scry_tracee first;
	bool is_held; /* by this; else it was ours already */
};

/* `ours` is a thread that we hold, or NULL. 0; -EAGAIN: another tracer is there at this moment. */
int scry_own_begin(struct scry_own *own, const struct scry_inject *inj,
		   const struct scry_tracee *ours);
void scry_own_end(struct scry_own *own);

/* Claims the agent at inj->header, between the two. -EBUSY with a sentence: it is another's. */
int scry_own_claim(struct scry_inject *inj);
/* The whole of it, for an agent that is there. */
int scry_own_take(struct scry_inject *inj, const struct scry_tracee *ours);
void scry_own_give_up(struct scry_inject *inj);

/* Before a change: is the claim still ours? 0; -EPERM with a sentence. */
int scry_own_check(const struct scry_inject *inj);
/* The same, and is the agent there? Not after leaving. No other scry unmaps it while we hold one of
 * the process's threads. 0; -EPERM, -ENOENT with a sentence. */
int scry_own_check_agent(const struct scry_inject *inj);

#endif
