/*
 * Signals as the kernel delivers them: its tracepoint signal_deliver by perf (perf_event_open(2)),
 * of all processes, a ring for each processor. Nothing is stopped and nothing in a process is
 * changed; a delivery takes 1 us longer (bench/calls.md). Signals that are ignored or blocked are
 * not delivered, and SIGKILL, which ends each thread of a process that exits, is left out. Forks
 * and ends of processes are reported beside them: whose child a process was cannot be found once it
 * has ended.
 *
 * Life: open, take each few ms, close. One reader.
 */
#ifndef SCRY_SYS_SIGNALS_H
#define SCRY_SYS_SIGNALS_H

#include <stdint.h>

#define SCRY_SIGNALS_LAG_NS 100000u /* until one that is being written is there */

struct scry_signal {
	uint64_t tsc;	   /* as of struct scry_syscall */
	uint32_t pid, tid; /* ours, not those of the process's own namespace */
	uint32_t number;   /* 0: process `pid` was forked by process `parent`, or */
	uint32_t parent;   /* 0: its main thread has ended */
};

struct scry_signals;

/* 0; -EPERM, -EACCES, -ENOTSUP, -EMFILE: it may not be, or cannot, without a sentence; -ENOMEM. */
int scry_signals_open(struct scry_signals **ret);
void scry_signals_close(struct scry_signals *s); /* NULL is legal */
/* Gives all but those of the last SCRY_SIGNALS_LAG_NS, in order. *ret_tsc: none that is older will
 * come. */
struct scry_signals_take {
	void (*give)(void *arg, const struct scry_signal *signal);
	void *arg;
};
void scry_signals_take(struct scry_signals *s, const struct scry_signals_take *how,
		       uint64_t *ret_tsc);
/* Of all processes, that found no room. */
uint64_t scry_signals_lost(const struct scry_signals *s);

#endif
