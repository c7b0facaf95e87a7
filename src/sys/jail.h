/*
 * Another user's program, run by scry to learn from it: as that user, and locked in.
 *
 *   scry --- stub --- child
 *            ^ a copy of scry that never executes anything, pid 1 of a pid namespace of its own,
 *              which lies within the target's, so that the target's /proc knows its processes
 *
 * Where it is permitted the child has fresh user, pid, ipc, uts, net, cgroup and mount namespaces,
 * below those of the target, and its mounts are read-only and without devices; it runs as the
 * target's user and groups, without capabilities, new privileges, inherited descriptors, or a
 * controlling terminal, below a filter of system calls (jail_filter.c). The stub's end ends all of
 * them: it comes with scry's own, with scry_jail_end, or by a kill. Where no namespaces may be made
 * the filter, the limits and the stub are all there is; that is done only when the target lives in
 * our own namespaces, so that its program gets nothing that it does not have.
 *
 * Traps: in a pid namespace of its own the stub's getppid() is 0, and pid 1 ignores SIGALRM and
 * SIGXCPU: limits bind the child, and the stub looks at the clock.
 */
#ifndef SCRY_SYS_JAIL_H
#define SCRY_SYS_JAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/proc.h"

struct scry_jail_plan {
	const struct scry_proc *target; /* pid 0: there is none, it runs as we do */
	int exe;			/* executed by descriptor */
	int files[3];			/* its stdin, stdout, stderr */
	char *const *argv, *const *envp;
	unsigned int cpu_s, life_s; /* of a processor, for each process; by the clock, for all */
};

struct scry_jail {
	pid_t pid; /* the child; it stays a zombie until the end, so no other process has the number
		    */
	pid_t stub;    /* 0: not started, or ended */
	int report;    /* 0: none */
	bool has_pids; /* a pid namespace of its own */
};

/* Starts it. 0, or -errno with a sentence, and nothing is left. */
int scry_jail_start(const struct scry_jail_plan *plan, struct scry_jail *ret);

/*
 * Waits until `end_ms` (CLOCK_MONOTONIC) for the child's end. 1: it ended, *ret_status is that of
 * wait(2); 0: it runs; or -errno with a sentence: it could not be executed.
 */
int scry_jail_wait(struct scry_jail *jail, uint64_t end_ms, int *ret_status);

/* Kills and reaps all of them. One that is zeroed is legal. */
void scry_jail_end(struct scry_jail *jail);

/* Is it a child of a jail that is open, or a process that such a child has forked? */
bool scry_jail_has(pid_t pid);

/* jail_filter.c: from now on this thread, and whom it makes, may only make the system calls that a
 * quiet Ruby, the agent and remote calls need. Signals go to process `own` only; 0: to whom it can
 * see. 0 or -errno. */
int scry_jail_filter(pid_t own);

#endif
