/*
 * What one task (kernel thread) of a process does now, as the kernel says: /proc/PID/task/TID.
 *
 * Reading stops no thread. `syscall` needs the right to trace; where it is refused, only the letter
 * is known.
 */
#ifndef SCRY_SYS_TASK_H
#define SCRY_SYS_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct perf_event_mmap_page;
struct scry_task {
	pid_t pid, tid;
	int syscall_fd, schedstat_fd;	    /* -1: not readable */
	struct perf_event_mmap_page *turns; /* NULL: not watched */
	int clock_fd;			    /* of what it runs, to the moment; valid with turns */
};

struct scry_task_now {
	bool is_gone;
	bool is_running; /* on a processor, or ready to be */
	bool is_ready;	 /* of these, for sure, as was found out */
	int64_t nr;	 /* system call in which it waits; -1: waits outside one (page fault); -2:
			    not known, or running */
	uint64_t args[6];
	uint64_t sp, pc;	  /* of its user space, where it waits; 0: not known */
	uint64_t run_ns, wait_ns; /* so far: on a processor; ready, but on none */
	uint64_t switches;	  /* how often it was put on a processor */
	uint32_t turn;		  /* the same by `turns`, in the kernel's steps */
};

/* Opens the files; never fails: a task that is gone reads as such. */
void scry_task_open(struct scry_task *task, pid_t pid, pid_t tid);
/* For one that is asked often whether it rests: asks the kernel to note each turn on a processor in
 * a page that it shares with us. Nothing changes where it may not be (perf_event_paranoid). */
void scry_task_watch(struct scry_task *task);
void scry_task_unwatch(struct scry_task *task);
void scry_task_close(struct scry_task *task);
void scry_task_read(const struct scry_task *task, struct scry_task_now *ret);

/* The same, when it was not running at `before` and has not run since: then everything of it is as
 * it was. False: something may have changed, and nothing was stored. One small read. */
bool scry_task_rests(const struct scry_task *task, const struct scry_task_now *before);
/* The same of one that is watched, without a system call. False also when it is not watched. */
bool scry_task_is_still(const struct scry_task *task, const struct scry_task_now *before);

/* Was it put on no processor since it waited at `before`, and is to run at `now`? Then it is ready
 * only. */
bool scry_task_is_ready(const struct scry_task_now *before, const struct scry_task_now *now);
/* Is it on a processor at this moment? Of one that is watched; else true, as may be. Interrupts it
 * for some microseconds where it is. */
bool scry_task_is_on_processor(const struct scry_task *task);
/* How long it has run since it is watched, to the moment; false: it is not watched. As above, it is
 * interrupted. */
bool scry_task_ran(const struct scry_task *task, uint64_t *ret_ns);
/* Has it been put on a processor since `before`? One that was on one has not. */
bool scry_task_has_switched(const struct scry_task *task, const struct scry_task_now *before);

/* Its name (/proc/PID/task/TID/comm), "" when it is gone. */
void scry_task_name(pid_t pid, pid_t tid, char *buf, size_t size);

/* A system call, and what its arguments say about waiting. */
struct scry_task_syscall {
	int nr;
	const char *name;
	int8_t fd_arg;	    /* -1: none */
	int8_t timeout_arg; /* -1: none */
	enum {
		SCRY_TIMEOUT_NONE,
		SCRY_TIMEOUT_MS,       /* a number */
		SCRY_TIMEOUT_TIMESPEC, /* relative */
		SCRY_TIMEOUT_TIMEVAL,
		SCRY_TIMEOUT_NANOSLEEP, /* clock, flags: relative, or absolute with flag 1 */
		SCRY_TIMEOUT_FUTEX,	/* absolute for FUTEX_WAIT_BITSET */
	} timeout;
};
/* The row of system call `nr`, NULL when it is none of those in which programs wait. */
const struct scry_task_syscall *scry_syscall_find(int64_t nr);

#endif
