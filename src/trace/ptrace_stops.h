/*
 * All threads of some processes, traced for as long as a watch is on, each stopped alone and only
 * when it has hit a breakpoint, is given a signal, or makes a child.
 *
 * PTRACE_SEIZE: seizing stops no thread, and signals, group stops and restarted system calls are as
 * without us. Every signal is passed on but the traps of our breakpoints. Threads are followed from
 * their first instruction (PTRACE_O_TRACECLONE), and so is a process that shares the memory
 * (vfork); a child with a memory of its own is handed to `forked` before it has run, and let go.
 *
 * One set of processes for the whole keeper, in the thread that traces; statuses of processes that
 * are not in it are dropped, so nothing else may be traced by the keeper meanwhile.
 */
#ifndef SCRY_TRACE_PTRACE_STOPS_H
#define SCRY_TRACE_PTRACE_STOPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "sys/tracee.h"

struct scry_ptrace_stops; /* one process */

struct scry_ptrace_stops_handlers {
	/* Where a thread that has hit the int3 at `address` goes on; 0: that is none of ours. */
	uint64_t (*next)(void *arg, uint64_t address);
	/* Thread `t` has hit it. t->regs are its registers, but it is where it goes on already.
	 */
	void (*met)(void *arg, struct scry_tracee *t, uint64_t address);
	/* It is stopped, and is released afterwards; or the process is gone, and it, which shared
	 * the memory, is not. */
	void (*forked)(void *arg, pid_t child);
	void (*execed)(void *arg); /* all are let go; nothing of ours is in it */
};

/* Follows the threads of `pid` from now on, and children that share its memory; one that another
 * part of the keeper has held, `held` or NULL, is taken over and stays stopped until
 * scry_ptrace_stops_go. 0 or -errno with a sentence. */
int scry_ptrace_stops_new(pid_t pid, const struct scry_ptrace_stops_handlers *handlers, void *arg,
			  struct scry_tracee *held, struct scry_ptrace_stops **ret);
void scry_ptrace_stops_go(struct scry_ptrace_stops *s);

/* A word of the memory of a stopped thread. 0 or -EFAULT. */
int scry_ptrace_stops_word(const struct scry_tracee *t, uint64_t address, uint64_t *ret);
/* The low halves of its xmm0 to xmm7; zeros when they cannot be had. */
void scry_ptrace_stops_vectors(const struct scry_tracee *t, uint64_t ret[8]);

/* Takes what happens, for `ns` at most, and waits for it; of all processes. */
void scry_ptrace_stops_turn(uint64_t ns);

/* Lets all threads go, when there is no breakpoint any more: one that has hit one goes on where it
 * says. Returns how many could not be stopped for that: they are let go when they do, or when we
 * end. */
size_t scry_ptrace_stops_leave(struct scry_ptrace_stops *s);
/* NULL is legal. What is still there, as children are whose process has ended, is released. */
void scry_ptrace_stops_free(struct scry_ptrace_stops *s);

struct scry_ptrace_stops_stats {
	uint64_t stops, threads, children;
	uint64_t own_traps; /* of the program's */
};
void scry_ptrace_stops_stats(const struct scry_ptrace_stops *s,
			     struct scry_ptrace_stops_stats *ret);

#endif
