/*
 * Has a process forbidden itself system calls? Filters hold for threads, not for processes: one may
 * have put one on for itself alone. Read from /proc; nothing is stopped or changed.
 */
#ifndef SCRY_SYS_SECCOMP_H
#define SCRY_SYS_SECCOMP_H

#include <stdbool.h>
#include <sys/types.h>

/* Runs this thread under seccomp (strict, or a filter)? Not when it is gone, nor when the filter is
 * scry's own (sys/jail). Some 20 us. */
bool scry_seccomp_has(pid_t pid, pid_t tid);

/* Does any thread of the process? Threads that begin meanwhile have what the thread has that made
 * them. */
bool scry_seccomp_any(pid_t pid);

#endif
