/*
 * What lies in another program's memory may have to be given by a third one: a page of
 * userfaultfd(2), or of a file whose server (FUSE, NFS) is slow, gone, or the very program that we
 * hold. A read of it ends when that one likes, and nothing but SIGKILL ends it before. So a thread
 * of this process looks on, and where one that reads has not come back it says so and kills this
 * process: the kernel lets go of all that it held, and what it has changed does no harm without it
 * (doc/AGENT.md).
 *
 * It counts turns of its own, half a second each, not time: a process that was stopped, or had no
 * processor, is not one that waits.
 */
#ifndef SCRY_SYS_GUARD_H
#define SCRY_SYS_GUARD_H

#include <stdint.h>
#include <sys/types.h>

/* Looks on the calling thread from now on, once a process. Without a thread to spare none does.
 */
void scry_guard_start(void);

/* Threads of `pid` (0: of several processes) are held from now on, for `longest_ns` at most. One
 * at a time: within another it is without effect, and so is its end. */
void scry_guard_hold(pid_t pid, uint64_t longest_ns);
void scry_guard_let_go(void);

/* Around each system call that touches the memory of `pid` (0: of the one before) at `address`: ten
 * seconds at most. */
void scry_guard_touch(pid_t pid, uint64_t address);
void scry_guard_touched(void);

#endif
