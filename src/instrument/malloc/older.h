/*
 * Blocks that are older than a recording of malloc, when it begins in mid-life.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_OLDER_H
#define SCRY_INSTRUMENT_MALLOC_OLDER_H

#include "name/malloc.h"
#include "watch/watch.h"

struct scry_malloc_older {
	uint64_t blocks, bytes; /* usable: those found */
	bool is_partial;	/* a part of the heap does not fit or is not glibc's way: said */
};

/*
 * Switches recording on by `on`, and finds what lives at that moment: hooks must be there already
 * and let everything pass. All threads are held while glibc's heap is read, no longer than
 * opts->max_pause_ns in all, and `on` is called before they are released, so that no call is
 * counted twice and none is missed but the one a held thread is in. Then each block is given to
 * `m`, before its first merge. `is_glibc`: it is known to serve the calls; else, behind a preloaded
 * malloc, it may all the same.
 *
 * What cannot be read (another allocator, an unknown layout, the rest of too large a heap) is a
 * note; then its blocks are unknown when they are freed. Returns what `on` returned, or what
 * scry_malloc_older did.
 */
int scry_malloc_older_find(struct scry_watch *w, struct scry_malloc *m,
			   int (*on)(struct scry_watch *w), bool is_glibc,
			   struct scry_malloc_older *ret);
/* Notes that there are none because another allocator, or a static glibc, serves the calls. */
void scry_malloc_older_foreign(struct scry_watch *w);

#endif
