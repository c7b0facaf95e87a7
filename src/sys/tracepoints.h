/*
 * What readers of the kernel's tracepoints by perf (perf_event_open(2)) have in common: tracefs,
 * rings, and stamps, which are CLOCK_MONOTONIC_RAW and become ticks of the TSC.
 */
#ifndef SCRY_SYS_TRACEPOINTS_H
#define SCRY_SYS_TRACEPOINTS_H

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* A descriptor of tracefs, mounted or not; -1: it cannot be had. */
int scry_tracefs_open(void);
/* The text of a file there, cut at `room`; NULL: it cannot be read. */
const char *scry_tracefs_text(int tracefs, const char *path, char *ret, size_t room);
/* Of a tracepoint, as "raw_syscalls/sys_enter"; 0: not known. */
uint64_t scry_tracefs_id(int tracefs, const char *event);

struct scry_stamp { /* both clocks, at one moment */
	uint64_t tsc, ns;
};
uint64_t scry_stamp_ns(void);
struct scry_stamp scry_stamp_read(clockid_t clock); /* of CLOCK_MONOTONIC_RAW, or another clock */
/* The TSC's tick at `ns`, by two readings around it. */
uint64_t scry_stamp_tsc(const struct scry_stamp *a, const struct scry_stamp *b, uint64_t ns);

struct scry_event_ring { /* zeros: none yet */
	struct perf_event_mmap_page *head;
	size_t bytes; /* behind it: a power of two */
	int fd;	      /* whose it is: stays open, and the caller's */
};
/* The event `fd` writes into the ring, which is made for the first one. 0 or -errno. */
int scry_event_ring_join(struct scry_event_ring *ring, int fd, size_t bytes);
void scry_event_ring_done(struct scry_event_ring *ring);
/* Gives each record that is there, copied to `record` and cut at `room`; stops where `each` does
 * not return 0, and returns that. */
int scry_event_ring_read(struct scry_event_ring *ring, struct perf_event_header *record,
			 size_t room, int (*each)(void *arg), void *arg);

#endif
