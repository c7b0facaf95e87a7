/*
 * A process and its identity: pid + start time, pinned by a pidfd.
 *
 * Everything here is read from /proc and pidfd; nothing stops or changes the process.
 */
#ifndef SCRY_SYS_PROC_H
#define SCRY_SYS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_proc {
	pid_t pid;
	int pidfd;	      /* owned; -1 in tests */
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	uid_t uid, euid;
	gid_t gid, egid;
	pid_t ppid;
	pid_t tracer;	       /* 0: none */
	int seccomp;	       /* 0 none, 1 strict, 2 filter */
	bool has_shadow_stack; /* CET SHSTK is on: returns must go where calls came from */
	char state;	       /* R S D T t Z X; of its first thread: Z, and others may live */
	int threads;
	char comm[32];
	char exe[512]; /* as readlink of /proc/PID/exe says; "" when not readable */
};

/* Opens and pins PID. 0; -ESRCH: no such process; -EINVAL: a thread id, not a process id; both with
 * a sentence. */
int scry_proc_open(struct scry_proc *ret, pid_t pid);
void scry_proc_close(struct scry_proc *proc);

/* -ESRCH, and a sentence why a process has no memory to be looked at: it is gone, a zombie, or a
 * thread of the kernel. For a process that was named by a person: the readings cost some 50 us. */
int scry_proc_fail_gone(pid_t pid);
bool scry_proc_is_kernel(pid_t pid); /* a thread of the kernel: it has no program */

/* Reads /proc again into state, threads, tracer, seccomp, exe. -ESRCH when gone or replaced by
 * another process. */
int scry_proc_refresh(struct scry_proc *proc);

/* True while the very same process lives (a zombie does not). Costs one poll(2). */
bool scry_proc_is_alive(const struct scry_proc *proc);

/* Task ids, ascending, into *ret (malloc'ed, caller frees). Returns the count or -errno. Threads
 * come and go meanwhile. */
ssize_t scry_proc_tasks(pid_t pid, pid_t **ret);
/* How many of them sleep in system call `nr`, as far as that may be seen. */
size_t scry_proc_tasks_in(pid_t pid, long nr);

/* Does its name, which any process may give itself, begin so? */
bool scry_proc_is_named(pid_t pid, const char *prefix);

/* How many there are: the link count of their folder says so, for a tenth of the price of listing
 * it, and misses none, as a listing may while others end. 0: it is gone. */
size_t scry_proc_task_count(pid_t pid);

/* The number of task `tid` in its own pid namespace, as it knows itself; `tid` when it cannot be
 * read. */
pid_t scry_proc_tid_inside(pid_t pid, pid_t tid);

/* The process that `tid` is a thread of; its own number for its first one. 0: there is none. */
pid_t scry_proc_of_thread(pid_t tid);

/* One letter of /proc/PID/task/TID/stat: R S D T t Z X; 0 when gone. */
char scry_proc_task_state(pid_t pid, pid_t tid);

/* How it has ended, as wait(2) says it: before Linux 6.15 only while it has not been waited for.
 * 0 or -ESRCH. */
int scry_proc_exit(const struct scry_proc *proc, uint32_t *ret_status);

/* User + system CPU time of the process so far, ns (clock-tick resolution); 0 when gone. */
uint64_t scry_proc_cpu_ns(pid_t pid);

/* Has the process a handler for the signal? Not when it is gone. */
bool scry_proc_catches(pid_t pid, int signal);
/* For any? Without those of libc's own, which end threads and change users. */
bool scry_proc_has_handlers(pid_t pid);

/* Resident memory in bytes, 0 when it is gone. */
uint64_t scry_proc_rss(pid_t pid);
/* What RLIMIT_AS and RLIMIT_DATA count, bytes: addresses that are mapped, and private memory that
 * may be written. 0 when it is gone. */
uint64_t scry_proc_mapped(pid_t pid);
uint64_t scry_proc_writable(pid_t pid);
/* A row of /proc/PID/limits, its soft limit; UINT64_MAX: none, or it cannot be read. */
uint64_t scry_proc_limit(pid_t pid, const char *row);

/* Memory that it has locked (mlock), in bytes; 0 when it is gone. */
uint64_t scry_proc_locked(pid_t pid);

/* Values of entries (AT_*) of the auxiliary vector, by one look; who is not there stays as it was.
 * 0 or -errno. And of one: -ENOENT when it is not there, or 0. */
struct scry_auxv {
	uint64_t type, value;
};
int scry_proc_auxv_read(pid_t pid, struct scry_auxv *entries, size_t count);
int scry_proc_auxv(pid_t pid, uint64_t type, uint64_t *ret);

/* Does the process of that start time run, and is it no zombie? For identities that came from
 * elsewhere. */
bool scry_proc_is_running(pid_t pid, uint64_t start_ticks);

/* What one line of /proc/PID/stat says. `image` changes with every exec; 0 when not permitted, and
 * on the way into another program. */
struct scry_proc_stat {
	pid_t ppid;
	char state;
	bool has_memory; /* false: it ends */
	uint64_t start_ticks, image;
};
int scry_proc_stat(pid_t pid, struct scry_proc_stat *ret);

/* Private memory that was written to, in memory or swapped out, as the kernel counts it; 0: not
 * known. */
uint64_t scry_proc_anonymous_bytes(pid_t pid);

/* The newest pid of this machine: when it has not changed, no process was made. 0: not known. */
pid_t scry_proc_newest(void);

/* Do both processes have one address space (vfork in flight, CLONE_VM)? False also when the kernel
 * does not say (CONFIG_KCMP). */
bool scry_proc_share_memory(pid_t a, pid_t b);
/* Another process, no thread of `pid`, that has the same memory now (clone with CLONE_VM, vfork);
 * 0: none that may be asked. */
pid_t scry_proc_shares_memory(pid_t pid);
/* Is this thread the kernel's own, which never runs the program's code (io_uring's workers)? */
bool scry_proc_task_is_worker(pid_t pid, pid_t tid);

/* The tracer of thread `tid`; 0: none, or gone. */
pid_t scry_proc_tracer(pid_t pid, pid_t tid);
/* A process of which `tracer` traces a thread; 0: none. Looks at all threads of all. */
pid_t scry_proc_traced_by(pid_t tracer);

/* Have we this capability (CAP_* of linux/capability.h), whatever namespace it holds in? */
bool scry_proc_can(int capability);

/* Start time alone, without opening; 0 when there is no such process. */
uint64_t scry_proc_start_ticks(pid_t pid);

#endif
