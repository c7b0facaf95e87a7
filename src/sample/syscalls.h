/*
 * The system calls of processes, summed in the kernel by bpf/syscalls.bpf.c: nothing is stopped,
 * nothing in the processes is changed, and what is counted stays the same whoever dies. Where eBPF
 * is not permitted, and only samples are wanted, perf events give them (sample/syscall_perf).
 *
 * Life: open, add each process, begin, then turn again and again; end writes all sums; close. One
 * thread.
 */
#ifndef SCRY_SAMPLE_SYSCALLS_H
#define SCRY_SAMPLE_SYSCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rec/writer.h"

struct scry_syscalls_watch;

struct scry_syscalls_watch_opts {
	struct scry_writer *writer; /* stays the caller's */
	bool follows;		    /* their children too, from now on and those that are there */
	bool exact;		    /* each call is counted */
	bool latency;		    /* and timed; implies exact */
	uint32_t rate;		    /* ticks a second on each processor */
};

/* Loads what runs in the kernel. 0 or -errno with a sentence, as scry_bpf_load; of samples, what
 * perf lacks as well. */
int scry_syscalls_watch_open(const struct scry_syscalls_watch_opts *opts,
			     struct scry_syscalls_watch **ret);
void scry_syscalls_watch_close(struct scry_syscalls_watch *w); /* NULL is legal */

/* A process that lives; or one of ours that is counted from its next exec on. 0 or -errno with a
 * sentence. Before begin. */
int scry_syscalls_watch_add(struct scry_syscalls_watch *w, pid_t pid, bool from_exec);

/* From now on. 0 or -errno with a sentence. */
int scry_syscalls_watch_begin(struct scry_syscalls_watch *w);

/* Takes what has come; waits for it no longer than `limit_ns`. 0 or -errno with a sentence. */
int scry_syscalls_watch_turn(struct scry_syscalls_watch *w, uint64_t limit_ns);

/* Is one of them left, or one that they have started? */
bool scry_syscalls_watch_lives(const struct scry_syscalls_watch *w);

/* It is over: writes what was counted, SYSCALLS and DETACH, TOTALS. `why` it is. 0 or -errno. */
int scry_syscalls_watch_end(struct scry_syscalls_watch *w, const char *why);

/* What a getppid() of this thread takes now: the least of some thousands, ns. */
uint64_t scry_syscalls_cost_ns(void);

#endif
