/*
 * Anonymous memory of a process, seen from outside: what an allocator has taken.
 *
 * Life: open once the process is there; close. Figures are bytes, 0 when it is gone.
 */
#ifndef SCRY_REPLAN_RSS_H
#define SCRY_REPLAN_RSS_H

#include <stdint.h>
#include <sys/types.h>

struct scry_malloc_rss {
	int statm, status; /* of /proc/PID; -1: none */
};

void scry_malloc_rss_open(struct scry_malloc_rss *rss, pid_t pid);
void scry_malloc_rss_close(struct scry_malloc_rss *rss);

/* Now: what is resident less what is of files and shared memory. Cheap. */
uint64_t scry_malloc_rss_now(const struct scry_malloc_rss *rss);

/*
 * Looking now and then misses a peak, and so does a machine that is busy elsewhere. The kernel
 * keeps the greatest resident memory itself (VmHWM, since exec): less what is of files and shared
 * memory now, it is a figure that the anonymous memory once had at least where those only grow.
 */
uint64_t scry_malloc_rss_kept(const struct scry_malloc_rss *rss);

/* What all processes can still have; a GiB where the kernel does not say. */
uint64_t scry_malloc_rss_available(void);

#endif
