/*
 * The recording on disk: one head, then self-describing chunks, append only.
 *
 * A torn tail (SIGKILL, full disk) is a shorter recording, not an error: the reader stops at the
 * first chunk whose head or checksum does not hold. Unknown chunk kinds are skipped. The trick: a
 * chunk is only ever written whole, after its payload is complete, so no byte is revised later.
 */
#ifndef SCRY_WIRE_FILE_H
#define SCRY_WIRE_FILE_H

#include <stdint.h>

#define SCRY_FILE_MAGIC "scry\r\n\x1a\n" /* 8 bytes, as png's: shows text-mode damage */
#define SCRY_FILE_VERSION 1u

struct scry_file_head {
	char magic[8];
	uint32_t version;   /* a reader refuses a greater one */
	uint32_t head_size; /* bytes; chunks begin here */
	uint64_t wall_ns;   /* CLOCK_REALTIME when the file was opened */
	uint64_t mono_ns;   /* CLOCK_MONOTONIC at the same moment */
};
_Static_assert(sizeof(struct scry_file_head) == 32, "the file head is part of the format");

enum scry_chunk_kind {
	SCRY_CHUNK_EVENTS = 1,	/* a run of struct scry_event */
	SCRY_CHUNK_OBJECTS = 2, /* packed ALLOC/FREE stream: u64 words, see below */
	SCRY_CHUNK_MALLOC = 4,	/* packed MALLOC events: rec/malloc_pack.h (3: an older form) */
};
/*
 * In the upper half of a chunk's kind: its section, 0 where one instrument has recorded. What each
 * of several has recorded is a section: read alone it is a whole recording, with a SESSION, strings
 * and ids of its own. An older scry shows the first one and skips the others as unknown kinds. The
 * first chunks of the file are one of each section, in order.
 */
#define SCRY_CHUNK_SECTION_AT 16
#define SCRY_CHUNK_KIND_MASK ((1u << SCRY_CHUNK_SECTION_AT) - 1)
#define SCRY_SECTIONS_MAX 8u

struct scry_chunk {
	uint32_t magic; /* SCRY_CHUNK_MAGIC */
	uint32_t kind;	/* enum scry_chunk_kind; above it the section */
	uint32_t producer_pid;
	uint32_t producer_ring;
	uint64_t producer_start; /* start ticks of that process */
	uint64_t bytes;		 /* of payload, a multiple of 8, at most SCRY_CHUNK_MAX */
	uint64_t count;		 /* of events in it */
	uint64_t first_ns;
	uint64_t last_ns;
	uint64_t check; /* XXH3 64 of the payload, seeded with XXH3 64 of the 56 bytes above */
};
_Static_assert(sizeof(struct scry_chunk) == 64, "the chunk head is part of the format");

#define SCRY_CHUNK_MAGIC 0x6b6e6863u /* "chnk" */
#define SCRY_CHUNK_MAX (64u << 20)

/*
 * SCRY_CHUNK_OBJECTS: one u64 word per event. Object addresses are multiples of 8 below 2^47, so
 *   word = (address >> 3) << 20 | code      code 0: freed; else: allocated at site `code`
 * Sites are those of SITE events that came before. Times inside a chunk are not known; each event
 * yielded carries the chunk's first_ns.
 */
#define SCRY_OBJ_CODE_BITS 20
#define SCRY_OBJ_CODE_MASK ((1u << SCRY_OBJ_CODE_BITS) - 1)

#endif
