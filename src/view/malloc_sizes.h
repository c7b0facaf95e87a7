/*
 * Sizes that a program asks malloc for: a table of them, with the caller that asks for most of
 * each, and the sizes of one caller.
 */
#ifndef SCRY_VIEW_MALLOC_SIZES_H
#define SCRY_VIEW_MALLOC_SIZES_H

#include "view/malloc_places.h"

/* Pushes the table. Callers of the process are merged to places. */
void scry_malloc_sizes_push(const struct scry_malloc_places *places, struct scry_doc *doc);

/* [[up_to_bytes, blocks], ...] of a caller, for a cell: how many values. */
#define SCRY_MALLOC_SIZE_VALUES (4 * SCRY_MALLOC_SIZE_ROWS)
uint32_t scry_malloc_sizes_values(const struct scry_malloc_caller_sum *caller,
				  struct scry_doc_value ret_values[SCRY_MALLOC_SIZE_VALUES]);

#endif
