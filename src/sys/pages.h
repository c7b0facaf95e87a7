/*
 * Which pages of a process have memory, and which are guards inside a mapping: of stacks, how deep
 * they ever were and where they end. Live by PAGEMAP_SCAN, or by reading /proc/PID/pagemap
 * (Documentation/admin-guide/mm/pagemap.rst); of a core by what is in it.
 *
 * Nothing is read of the memory itself, so nothing is swapped in, but for kernels 6.13 and 6.14, on
 * which a guard looks like a page that was swapped out: there one byte is tried.
 * In a core a page of zeros is none, and guards inside a mapping are not shown; nor is, by its
 * runs, what it lacks.
 */
#ifndef SCRY_SYS_PAGES_H
#define SCRY_SYS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/mem.h"
#include "sys/space.h"

#define SCRY_PAGE 4096u
#define SCRY_PAGE_THERE 1u   /* in memory, or in the core */
#define SCRY_PAGE_SWAPPED 2u /* it has contents, elsewhere */
#define SCRY_PAGE_GUARD 4u   /* MADV_GUARD_INSTALL (Linux 6.13) */
#define SCRY_PAGE_FILES 8u   /* it is there, and is a file's: a private mapping never wrote to it */

struct scry_page_run { /* [start, end), whose pages are all alike */
	uint64_t start, end;
	unsigned int flags;
};

struct scry_pages {
	const struct scry_core *core;
	const struct scry_mem *mem;
	int fd;		   /* /proc/PID/pagemap; -1 of a core */
	bool has_scan;	   /* the kernel has PAGEMAP_SCAN (6.7) */
	bool scans_guards; /* and shows guards (6.15) */
};

/* 0 or -errno with a sentence. Both are borrowed; `mem` is that of `space`. */
int scry_pages_open(struct scry_pages *p, const struct scry_space *space,
		    const struct scry_mem *mem);
void scry_pages_close(struct scry_pages *p); /* legal for what was never opened but has fd -1 */

/*
 * The runs of [start, end), ascending, at most `room` of them, into `ret`; pages without anything
 * are left out. *ret_next is where to go on, `end` when that was all. Count, or -errno.
 */
ssize_t scry_pages_runs(const struct scry_pages *p, uint64_t start, uint64_t end,
			struct scry_page_run *ret, size_t room, uint64_t *ret_next);

/*
 * Does a core lack memory of [start, end) that the process could write? It was cut off there, or
 * was set to leave it out (core(5), coredump_filter; madvise(2), MADV_DONTDUMP): then no run says
 * nothing. What the kernel leaves out because it was never written to looks the same. Never of a
 * live process.
 */
bool scry_pages_lacks(const struct scry_pages *p, uint64_t start, uint64_t end);

#endif
