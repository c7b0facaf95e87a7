/*
 * The memory of a process that sits still, read through a cache of pages.
 *
 * Learning looks at the same few thousand words again and again; a page is fetched once. Right only
 * while the process does not change, that is, for the calibration child after it said "ready".
 * Presented as a scry_mem, so that all readers of a live Ruby work on the child too.
 */
#ifndef SCRY_VM_RUBY_STILL_H
#define SCRY_VM_RUBY_STILL_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/mem.h"

struct scry_still;

/* Wraps `source`, which must outlive it. NULL without memory. */
struct scry_still *scry_still_new(const struct scry_mem *source);
void scry_still_free(struct scry_still *still);

/* A scry_mem that reads through the cache; valid while the still lives, needs no close. */
struct scry_mem scry_still_mem(struct scry_still *still);

/* Calls `fn` for each page of which something was read, in no order; what was not is zero. What a
 * saved image needs. */
void scry_still_each(const struct scry_still *still,
		     void (*fn)(void *arg, uint64_t addr, const uint8_t *bytes), void *arg);

/* One word; false when it is not there or `addr` is not 8-aligned. */
bool scry_still_word(struct scry_still *still, uint64_t addr, uint64_t *ret);

#endif
