/*
 * Code that is in every program, and that we run in it: a system call that returns, and where
 * signal handlers return to. It must stay as it is, also for whoever comes after us.
 */
#ifndef SCRY_SYS_GADGETS_H
#define SCRY_SYS_GADGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_mem;
struct scry_maps;

#define SCRY_RESTORER_BYTES 9

struct scry_gadgets {
	uint64_t syscall_ret; /* syscall; ret */
	uint64_t restorer;    /* mov $15, %rax; syscall */
};

/* Finds both in the executable file mappings of a process. 0 or -ENOTSUP with a sentence. */
int scry_gadgets_find(const struct scry_mem *mem, const struct scry_maps *maps,
		      struct scry_gadgets *ret);

/* Are these the first bytes of glibc's restorer, or musl's? */
bool scry_gadgets_is_restorer(const void *bytes, size_t size);

#endif
