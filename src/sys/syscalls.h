/*
 * The system calls of a process, as the kernel's tracepoints raw_syscalls report them to perf
 * (perf_event_open(2)): nothing is stopped, nothing in the process is changed. Of its threads and
 * those that they start, and, when asked for, of the children that it makes from then on, and
 * theirs, each until it runs another program. Arguments are registers; no memory is read.
 *
 * Life: open (off), switch on, take each few ms, close. The process should be held, or a thread
 * that is started just while it is opened may be missing. One reader.
 */
#ifndef SCRY_SYS_SYSCALLS_H
#define SCRY_SYS_SYSCALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SCRY_SYSCALL_ARGS 6

struct scry_syscall {
	uint64_t tsc; /* of the TSC's clock, by readings of both around it: some 50 ns are uncertain
		       */
	uint32_t pid, tid; /* ours, not those of the process's own namespace */
	uint32_t number;
	bool is_exit;
	uint64_t args[SCRY_SYSCALL_ARGS]; /* of an exit the first one is the result */
};

struct scry_syscalls;

/* 0; -EPERM, -EACCES, -ENOTSUP with a sentence that says how it can be mended; -ENOMEM, -ESRCH. */
int scry_syscalls_open(pid_t pid, bool with_children, struct scry_syscalls **ret);
void scry_syscalls_close(struct scry_syscalls *s); /* NULL is legal */
void scry_syscalls_switch(struct scry_syscalls *s, bool on);

/*
 * Gives all that are there, in order, but the very newest, which come with the next take;
 * `is_last`: these too. *ret_tsc: none that is older will come. Stops at the first call that does
 * not return 0 and returns that.
 */
struct scry_syscalls_take {
	int (*give)(void *arg, const struct scry_syscall *call);
	void (*born)(void *arg, uint32_t pid); /* a child, that may not have run yet; or NULL */
	void *arg;
	bool is_last;
};
int scry_syscalls_take(struct scry_syscalls *s, const struct scry_syscalls_take *how,
		       uint64_t *ret_tsc);
/* Only reads what is there, to be given later, and reports children: processes that have ended
 * none is missing then. */
int scry_syscalls_look(struct scry_syscalls *s, const struct scry_syscalls_take *how);

/* That found no room. */
uint64_t scry_syscalls_lost(const struct scry_syscalls *s);

/* "write", of the kernel's headers that scry was built with; NULL: unknown. */
const char *scry_syscall_name(uint32_t number);
/* What its result and its arguments are, a letter each, as the running kernel declares them: "lipz"
 * for write. l long, z unsigned long, i int, u unsigned int, p an address, x a number that may be
 * one. Where it does not: the result and six of x. */
void scry_syscall_form(const struct scry_syscalls *s, uint32_t number, char ret[8]);

#endif
