/*
 * A process whose first thread has ended before the others. /proc/PID shows no memory of it, and
 * that thread cannot be traced: one that lives stands for it.
 */
#ifndef SCRY_SYS_LIVING_H
#define SCRY_SYS_LIVING_H

#include <sys/types.h>

/* The thread that stands for process `pid`: its first one, or, where that has ended, the first in
 * the kernel's list that has not. `pid` also where there is none. */
pid_t scry_living_thread(pid_t pid);

#endif
