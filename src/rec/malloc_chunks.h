/*
 * Chunks of kind SCRY_CHUNK_MALLOC, of all processes of a recording, to events: for the reader.
 *
 * Each process has an unpacker of its own until it ends; a fork child's begins as a copy of its
 * parent's. Bounds: SCRY_MALLOC_PROCESSES that have not ended, and SCRY_MALLOC_BYTES of memory for
 * all together; chunks beyond are left out.
 */
#ifndef SCRY_REC_MALLOC_CHUNKS_H
#define SCRY_REC_MALLOC_CHUNKS_H

#include "rec/malloc_pack.h"

#define SCRY_MALLOC_PROCESSES 4096u
#define SCRY_MALLOC_BYTES (8ull << 30)

struct scry_malloc_state {
	struct scry_producer producer;
	struct scry_malloc_unpack *unpack;
	size_t bytes;
	bool is_beyond; /* the bounds: nothing of it is read any more */
};

struct scry_malloc_chunks { /* zeros are its beginning */
	struct scry_malloc_state *states;
	size_t count, cap;
	size_t bytes;		       /* of all */
	struct scry_malloc_state *now; /* whose chunk was opened last; NULL */
};

void scry_malloc_chunks_done(struct scry_malloc_chunks *m);

/* Opens a chunk: its calls follow. 0; -EINVAL: it is damaged and left out, and so will be all that
 * follow of its process; -E2BIG, the same: it is beyond the bounds; -ENOMEM with a sentence. */
int scry_malloc_chunks_open(struct scry_malloc_chunks *m, const struct scry_chunk *chunk,
			    const void *payload);

/* No more chunks of that part come: what is kept for them is freed. */
void scry_malloc_chunks_end(struct scry_malloc_chunks *m, uint32_t pid, uint32_t ring);

/* Its next call, or, before the first of a fork child, OLDER of a block that it has of its parent:
 * 1, 0 at its end, -EINVAL: the rest is left out. */
int scry_malloc_chunks_next(struct scry_malloc_chunks *m, uint64_t *ret_time_ns,
			    struct scry_ev_malloc *ret_call);

#endif
