/*
 * Samples of system calls where eBPF is not permitted: a clock of perf's for each thread that is
 * watched (perf_event_open(2)), with the thread's user registers and the top of its stack. Where a
 * tick falls in the kernel they are those with which the thread went there: `syscall` itself has
 * put the address behind it into rcx, and the flags into r11.
 *
 * It needs perf_event_paranoid <= 1 or CAP_PERFMON, and the right to look at the processes. Nothing
 * is stopped, nothing in the processes is changed; the kernel takes the clocks off with the
 * descriptors. They tick while their thread runs, so one that runs for less than a tick is not
 * seen: what these ran is known, and can be said.
 *
 * Life: open, add each process, then wait and take again and again; end; close. One thread.
 */
#ifndef SCRY_SAMPLE_SYSCALL_PERF_H
#define SCRY_SAMPLE_SYSCALL_PERF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/bpf_syscalls.h"

struct scry_syscall_perf;

struct scry_syscall_tick { /* that fell in the kernel */
	/* As of SCRY_SYSCALLS_STACK; the number of its key is not known. */
	struct scry_syscalls_stack stack;
	bool is_sure;	/* a `syscall` of 64-bit code; else it may also have been a fault */
	bool is_compat; /* the program is of 32 bits */
};

struct scry_syscall_perf_opts {
	uint64_t period_ns;
	bool follows; /* children too */
	uint32_t first_instance;
	/* Called by take, in the order of time: FORKED, EXECED, ENDED; ticks. */
	void (*news)(void *arg, const struct scry_syscalls_record *record);
	void (*tick)(void *arg, struct scry_syscall_tick *tick);
	void *arg;
};

struct scry_syscall_perf_sums {
	uint64_t ticks;	   /* while a thread that is watched ran */
	uint64_t lost;	   /* records for which there was no room */
	uint64_t children; /* that were started, and are not watched */
	uint64_t ran_ns;   /* what these threads ran */
};

/* May it be done? 0; -EPERM, -ENOTSUP, -ENOMEM with a sentence. */
int scry_syscall_perf_check(void);
/* As that. */
int scry_syscall_perf_open(const struct scry_syscall_perf_opts *opts,
			   struct scry_syscall_perf **ret);
void scry_syscall_perf_close(struct scry_syscall_perf *p); /* NULL is legal */

/* All threads of `pid`, and those that they start; `instance` 0: from its next exec on. 0 or -errno
 * with a sentence. */
int scry_syscall_perf_add(struct scry_syscall_perf *p, pid_t pid, uint32_t instance);

/* Does `pid` run that instance, now? Is it watched, as far as was reported? */
bool scry_syscall_perf_runs(struct scry_syscall_perf *p, pid_t pid, uint32_t instance);
bool scry_syscall_perf_has(const struct scry_syscall_perf *p, pid_t pid);

/* Waits till there is much to take, at most `limit_ns`. Takes all but the very newest; `is_last`:
 * these too. 0 or -ENOMEM with a sentence. */
void scry_syscall_perf_wait(struct scry_syscall_perf *p, uint64_t limit_ns);
int scry_syscall_perf_take(struct scry_syscall_perf *p, bool is_last);

/* Takes the clocks off; what is in the rings can still be taken. */
void scry_syscall_perf_stop(struct scry_syscall_perf *p);
struct scry_syscall_perf_sums scry_syscall_perf_sums(const struct scry_syscall_perf *p);

#endif
