/*
 * What a comparison of allocators says beside its table: notes, in the order in which they came.
 */
#ifndef SCRY_CMD_MALLOC_NOTES_H
#define SCRY_CMD_MALLOC_NOTES_H

#include <stdint.h>

#include "base/opt.h"
#include "replan/allocators.h"

#define SCRY_MALLOC_NOTES_MAX (SCRY_MALLOC_ALLOCATORS_MAX * 4 + 12)

struct scry_malloc_notes { /* zeros at first */
	char texts[SCRY_MALLOC_NOTES_MAX][1024];
	const char *list[SCRY_MALLOC_NOTES_MAX]; /* of these */
	uint32_t count;
};

/* More than there is room for are dropped; a longer one is cut. */
void scry_malloc_note(struct scry_malloc_notes *notes, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The allocators of --with; those that are not installed become notes. 0, or -errno with a
 * sentence: also when there are none. The caller releases `ret_list` in each case. */
int scry_malloc_notes_allocators(struct scry_malloc_notes *notes,
				 const struct scry_opt_strings *with,
				 struct scry_malloc_allocators *ret_list);

#endif
