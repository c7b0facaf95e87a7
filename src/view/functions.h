/*
 * What the views of hooked functions have in common: one row for each function of a process, from
 * one kind of event; --grep on symbol and module, --top.
 */
#ifndef SCRY_VIEW_FUNCTIONS_H
#define SCRY_VIEW_FUNCTIONS_H

#include "base/buf.h"
#include "view/table.h"
#include "view/view.h"

struct scry_function_row {
	union {
		struct scry_ev_count count;
		struct scry_ev_time time;
	};
	size_t order; /* of arrival */
};

struct scry_functions_view {
	uint16_t type;			   /* of its events: SCRY_EVENT_COUNT or SCRY_EVENT_TIME */
	const struct scry_column *columns; /* of struct scry_function_row and struct scry_reader */
	size_t column_count;
	/* Sorts the rows, and may drop some; returns how many are left. */
	size_t (*settle)(struct scry_function_row *rows, size_t count);
	/* Appends what the verdict says of the first row, whose function is `name`; NULL: none is
	 * shown. `calls`: of all. */
	void (*judge)(const struct scry_function_row *row, const char *name, uint64_t calls,
		      struct scry_buf *buf);
	int (*order)(const void *left, const void *right); /* as of scry_table */
};

/* The whole view. 0 or -errno with a sentence. */
int scry_functions_show(const struct scry_functions_view *view, struct scry_reader *reader,
			const struct scry_view_opts *opts, struct scry_doc *doc);

/* A cell with a string of the recording; unknown when it has none. */
struct scry_cell scry_functions_string(const struct scry_reader *reader, uint32_t id);

/* -1, 0, 1 */
int scry_functions_compare(uint64_t a, uint64_t b);
/* The same of two strings of the recording; one that it has not is last. */
int scry_functions_compare_strings(const struct scry_reader *reader, uint32_t a, uint32_t b);

#endif
