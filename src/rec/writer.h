/*
 * The one writer of recordings.
 *
 * Events are gathered in memory and written as whole, checksummed chunks, each by one writev, so a
 * writer killed at any moment leaves a shorter recording. Nothing written is ever revised. The
 * caller flushes at least once a second; the writer itself flushes at SCRY_WRITER_BUFFER bytes.
 *
 * Packed chunks end first, when little room is left below max_size or on the disk.
 * When the disk is full or broken (ENOSPC, EDQUOT, EFBIG, EIO...) the file is cut back to its last
 * whole chunk, the failing call returns the error with a sentence, and from then on everything is
 * counted as lost and calls return 0: watching and undoing go on. scry_writer_close then tries to
 * leave the TOTALS and a LOST event in the room that is left. The process must ignore SIGXFSZ.
 *
 * One thread. The fd stays the caller's: empty, at offset 0, opened for writing; a pipe works too.
 */
#ifndef SCRY_REC_WRITER_H
#define SCRY_REC_WRITER_H

#include "wire/event.h"
#include "wire/file.h"

#include <stdbool.h>
#include <stddef.h>

#define SCRY_WRITER_BUFFER (256u << 10) /* bytes of events held back at most */
#define SCRY_WRITER_TAIL_MAX \
	(16u << 20) /* an eighth of the room, at most this, is for events only */

struct scry_writer;

struct scry_producer { /* which thread made the events of a packed chunk */
	uint32_t pid;
	uint32_t ring;
	uint64_t start_ticks; /* of the process */
};

struct scry_objects_run { /* packed ALLOC/FREE words, see wire/file.h */
	struct scry_producer producer;
	const uint64_t *words;
	size_t count;
	uint64_t first_ns;
	uint64_t last_ns;
};

struct scry_packed_run { /* one chunk of a packed kind, as it is written */
	uint32_t kind;	 /* enum scry_chunk_kind */
	struct scry_producer producer;
	const void *payload;
	size_t bytes;	/* a multiple of 8, at most SCRY_CHUNK_MAX */
	uint64_t count; /* of events in it */
	uint64_t first_ns;
	uint64_t last_ns;
};

struct scry_writer_stats {
	uint64_t size;		  /* bytes written, whole chunks */
	uint64_t events;	  /* written, packed ones included, STRING excluded */
	uint64_t lost;		  /* given to the writer and not written, STRING excluded */
	uint64_t mono_ns;	  /* of the head: CLOCK_MONOTONIC when it was opened */
	uint64_t strings_refused; /* beyond the limits of the string table: id 0 was given */
	bool is_full;		  /* packed chunks are not written any more */
	int error; /* why: -EFBIG max_size, or the limit of file sizes; -ENOSPC...; 0 */
};

/*
 * Writes the file's head. `max_size` in bytes, 0: no limit. 0 or -errno with a sentence. Free with
 * scry_writer_close.
 */
int scry_writer_open(int fd, uint64_t max_size, struct scry_writer **ret_writer);

/*
 * One more section of the recording, for another instrument: events, strings and stacks of its own,
 * in chunks that say whose they are. The file, its limits and its end are those of `first`, which
 * is closed last. So that a reader finds it, the first chunks of the file are one of each section,
 * in order. 0 or -ENOMEM with a sentence.
 */
int scry_writer_section(struct scry_writer *first, uint32_t section,
			struct scry_writer **ret_writer);

/*
 * Adds one event, copied; size and type must be valid (asserted). 0, or the error of a write, once.
 */
int scry_writer_event(struct scry_writer *w, const struct scry_event *event);

/*
 * The same from a head (time_ns, tid, type; size is ignored) and `bytes` of payload, which is
 * padded. At most SCRY_EVENT_MAX - 24 bytes.
 */
int scry_writer_payload(struct scry_writer *w, const struct scry_event *head, const void *payload,
			size_t bytes);

/*
 * The id of a string, which is recorded when it is new; cut at SCRY_EVENT_MAX. *ret_id is 0
 * (unknown) when the table is full (4 Mi strings or 512 MiB), which is counted. 0, or the error of
 * a write, once.
 */
int scry_writer_string(struct scry_writer *w, const char *bytes, size_t len, uint32_t *ret_id);

/* An id for a STACK event: from 1. */
uint32_t scry_writer_stack(struct scry_writer *w);

/*
 * Writes packed events at once, after what is buffered, so that sites come before their use. Words
 * are not checked here: the reader does. 0, or the error of a write, once.
 */
int scry_writer_objects(struct scry_writer *w, const struct scry_objects_run *run);

/* The same for a chunk of any packed kind. After one that found no room no other is written: their
 * events are counted as lost. */
int scry_writer_packed(struct scry_writer *w, const struct scry_packed_run *run);

/* So many bytes the payload of a packed chunk may have now, for all that is known of max_size and
 * the disk. 0: none is written any more. */
uint64_t scry_writer_packed_room(const struct scry_writer *w);

/* Writes what is buffered. 0, or the error of a write, once. */
int scry_writer_flush(struct scry_writer *w);

/* Numbers so far. */
void scry_writer_stats(const struct scry_writer *w, struct scry_writer_stats *ret_stats);

/* Flushes and frees; NULL is legal. 0, or the error of this last write. Does not fsync, nor close.
 */
int scry_writer_close(struct scry_writer *w);

#endif
