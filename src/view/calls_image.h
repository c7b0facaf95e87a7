/*
 * What is known of a call's registers and memory, by the parts of its events (wire/call_ring.h).
 * Events are hostile: their parts are checked as they are gone through.
 */
#ifndef SCRY_VIEW_CALLS_IMAGE_H
#define SCRY_VIEW_CALLS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/place.h"
#include "wire/call_ring.h"
#include "wire/event.h"

struct scry_call_image {
	const struct scry_event *call; /* a CALL */
	const struct scry_event *ret;  /* its RETURN; NULL: none yet */
};

/* The next part behind `at`, or the first for NULL, of the bytes that follow an event; NULL: none.
 */
const struct scry_call_part *scry_call_part_next(const struct scry_event *event,
						 const struct scry_call_part *at);
/* The flags of all parts, or'ed. */
uint32_t scry_call_part_flags(const struct scry_call_image *image);

/* The word at a place (SCRY_AT_*), of the entry or, for those of a result, of the return. False: it
 * was not recorded. */
bool scry_call_word(const struct scry_call_image *image, bool is_back, uint8_t at, uint64_t *ret);

/* errno, as it was when the call had failed. False: it was not recorded. */
bool scry_call_errno(const struct scry_call_image *image, uint64_t *ret);

/* The part that was read as a format, at `address`: others may hold the same bytes. NULL: none. */
const struct scry_call_part *scry_call_format(const struct scry_call_image *image,
					      uint64_t address);

struct scry_call_memory {
	const uint8_t *bytes; /* NULL: not recorded */
	uint64_t have;	      /* of them */
	uint32_t flags;	      /* SCRY_PART_* */
};
/* From `address` on; as it was at the return, where that is wanted and known, else at the entry,
 * and the other way round. */
struct scry_call_memory scry_call_memory(const struct scry_call_image *image, uint64_t address,
					 bool is_back);

#endif
