/*
 * Which pages of a process were written to: of a stack of megabytes, or a heap that was
 * mapped ahead, that is a small part. By /proc/PID/pagemap, where our own is believed; else all
 * pages count as written. Where the kernel has PAGEMAP_SCAN (sys/page_scan.h) what was never
 * touched takes no time; else 8 bytes are read for each of its pages. Only for private memory: all
 * else counts as written, too.
 */
#ifndef SCRY_SYS_WRITTEN_H
#define SCRY_SYS_WRITTEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/maps.h"

struct scry_written {
	const struct scry_maps *maps; /* the caller's; must outlive this */
	int pagemap;		      /* -1: all is read */
	uint64_t zeros;		      /* the frame of the kernel's page of zeros; 0: not known */
	bool has_scan;
};

void scry_written_open(struct scry_written *w, pid_t pid, const struct scry_maps *maps);
void scry_written_close(struct scry_written *w);

/* From `at` on, where is the next page that is written; at least `at`; `end`, or less with none
 * before it: asked again from there. */
uint64_t scry_written_next(const struct scry_written *w, uint64_t at, uint64_t end);

/* Not the kernel's own pages ([vvar], [vdso]). */
bool scry_written_is_memory(const struct scry_map_entry *m);

/*
 * Memory of any kind, by what is there now: nothing is read for it, so that no server of memory is
 * asked. *ret_start is the next page from `at` on that is written, or, where it is shared, present
 * or swapped out; *ret_end is where the pages behind it are no more, or as far as one look goes.
 * Both are the same where there is none before. False: it is not known.
 */
bool scry_written_run(const struct scry_written *w, uint64_t at, uint64_t end, uint64_t *ret_start,
		      uint64_t *ret_end);

struct scry_scan_region;
/* Such runs of one mapping in one look, ascending, at most `room` of them, into `ret` (categories
 * aside). *ret_next is where to go on, `end` when that was all. Count; -1: it is not known. */
int scry_written_runs(const struct scry_written *w, uint64_t at, uint64_t end,
		      struct scry_scan_region *ret, int room, uint64_t *ret_next);

#endif
