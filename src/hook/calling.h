/*
 * System calls that the agent makes, from outside: the ways into seccomp, and into Syscall User
 * Dispatch, are hooked, so that none of ours is under way when a program forbids them to itself
 * (agent/calling.h). A thread that went into seccomp by another way, with a system call instruction
 * of its own, is seen in /proc a moment later; one that went into dispatch so, when more is put in
 * (scry_hold_all).
 */
#ifndef SCRY_HOOK_CALLING_H
#define SCRY_HOOK_CALLING_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/hooks.h"

struct scry_calling { /* of a watch; all zero at first */
	bool is_over;
	uint64_t look_ns;
	uint64_t next; /* of many threads some are looked at each time */
};

/* After the user's functions are wanted: prctl and syscall, where there are any, each by its entry.
 * Where the user has hooked that himself it is his, and the look in /proc is all there is; but
 * calls that are recorded one by one are guarded by it (agent/shadow.c). 0 or -errno with a
 * sentence.
 */
int scry_calling_want(struct scry_hooks *h);

/* In scry_inject_enter: the agent may, again. 0 or -errno. */
int scry_calling_start(struct scry_inject *inj);

/* Each turn, while the target lives. True once: from now on the agent makes no system call. Looks
 * each 100 ms at 32 threads, 20 us each. */
bool scry_calling_turn(struct scry_calling *c, struct scry_inject *inj);

#endif
