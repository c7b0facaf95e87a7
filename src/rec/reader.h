/*
 * The one reader of recordings.
 *
 * A recording comes from a stranger: nothing in it is believed. Sizes are bounded by the file, a
 * chunk counts only if its checksum holds, string ids and sites must have been defined before their
 * use. An id that was not is yielded as 0 (unknown) and counted in `errors`; an event that cannot
 * be read is left out and counted. The first chunk that does not hold ends the recording: a torn
 * tail is a shorter recording, not an error. Payloads shorter than this version's structs (an older
 * file) are yielded with zeros at their end, so a payload may always be read as its whole struct.
 *
 * Packed chunks are yielded as ALLOC and FREE events, or as MALLOC events (their process is in the
 * payload). Their blocks begin and end in order, and numbers are dense. A malloc chunk that is
 * damaged counts as one error and ends what can be read of its process; what is beyond a bound is
 * not an error and counted apart. Memory: one chunk (64 MiB at most), the strings (512 MiB at
 * most), 4 MiB, and for malloc chunks what rec/malloc_chunks.h says. One pass, forward; read by
 * pread, so the fd's offset does not matter and a file that is still being written may be read. One
 * thread. The fd stays the caller's.
 */
#ifndef SCRY_REC_READER_H
#define SCRY_REC_READER_H

#include "wire/event.h"
#include "wire/file.h"

#include <stdbool.h>
#include <stddef.h>

#define SCRY_READER_KINDS 5 /* chunk kinds counted one by one; [0] holds all unknown ones */

struct scry_reader;

struct scry_reader_kind {
	uint64_t chunks;
	uint64_t bytes; /* heads included */
	uint64_t events;
};

struct scry_reader_stats {				  /* of what was read until now */
	struct scry_reader_kind kinds[SCRY_READER_KINDS]; /* [enum scry_chunk_kind] */
	uint64_t file_bytes;
	uint64_t left_out; /* bytes after the last whole chunk; known at the end */
	uint64_t errors;   /* events left out or mended */
	uint64_t beyond;   /* calls of malloc left out: beyond the bounds of rec/malloc_chunks.h */
	uint32_t strings;
};

/*
 * Reads the head. 0; -EINVAL when it is not a recording, -ENOTSUP when a newer scry wrote it,
 * -ESPIPE when it is not a regular file, else -errno; each with a sentence. Free with
 * scry_reader_close.
 */
int scry_reader_open(int fd, struct scry_reader **ret_reader);

/*
 * A recording of several instruments has a section for each (wire/file.h). Which one is read:
 * before the first event; else the first. How many there are, as the beginning of the file says: at
 * least 1, at most SCRY_SECTIONS_MAX. Which instrument's each is: rec/sections.h.
 */
void scry_reader_section(struct scry_reader *r, uint32_t section);
uint32_t scry_reader_sections(const struct scry_reader *r);

/*
 * The recording is still being written: before each chunk, and where what is written ends (is_end:
 * then it may wait), `wait` is asked whether more may come; `offset`: bytes before it are not read
 * again. 0: all is written. What is read is then what a reader of the whole file would have read.
 */
void scry_reader_follow(struct scry_reader *r, int (*wait)(void *arg, uint64_t offset, bool is_end),
			void *arg);

/* Frees; NULL is legal. */
void scry_reader_close(struct scry_reader *r);

/*
 * The next event: 1 and *ret_event, valid until the next call; 0 at the end; -errno with a sentence
 * when the file cannot be read (EIO, no memory).
 */
int scry_reader_next(struct scry_reader *r, const struct scry_event **ret_event);

/*
 * Goes to the next whole chunk, of any kind, and yields its head; events of the current one that
 * were not read are passed over, strings included (calls of malloc are read, as later chunks rest
 * on them, and then all events, as they say whose calls have ended). 1, 0 or -errno as above.
 */
int scry_reader_next_chunk(struct scry_reader *r, const struct scry_chunk **ret_chunk);

/* The head of the chunk that the last event came from: its producer and times. NULL before the
 * first. */
const struct scry_chunk *scry_reader_chunk(const struct scry_reader *r);

/* The file's head. */
const struct scry_file_head *scry_reader_head(const struct scry_reader *r);

/*
 * The bytes of a string defined until now, NUL terminated, and its length (ret_len may be NULL).
 * NULL for 0 and for ids that were not defined. Valid until scry_reader_close.
 */
const char *scry_reader_string(const struct scry_reader *r, uint32_t id, size_t *ret_len);

/* At the end: true when bytes after the last whole chunk were left out. */
bool scry_reader_is_torn(const struct scry_reader *r);

void scry_reader_stats(const struct scry_reader *r, struct scry_reader_stats *ret_stats);

#endif
