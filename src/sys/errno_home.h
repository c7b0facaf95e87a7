/*
 * Where a C library keeps errno: how far from the thread pointer (fs), the same in all threads. It
 * is read from the code of its __errno_location, which returns the address:
 *
 *   mov %fs:0,%rax; add $0x34,%rax; ret               musl, static programs
 *   mov 0x1ab(%rip),%rax; add %fs:0,%rax; ret         glibc: by a word that the loader has filled
 */
#ifndef SCRY_SYS_ERRNO_HOME_H
#define SCRY_SYS_ERRNO_HOME_H

#include "sys/mem.h"

/* By the function's code in the process, when its object has been relocated. False: it is written
 * in another way. */
bool scry_errno_home(const struct scry_mem *mem, uint64_t errno_location, int64_t *ret);

#endif
