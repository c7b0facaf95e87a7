/*
 * Rows of the objects view: equal keys summed, then sorted by a column.
 */
#ifndef SCRY_VIEW_OBJECT_ROWS_H
#define SCRY_VIEW_OBJECT_ROWS_H

#include "rec/reader.h"

struct scry_object_row {
	const struct scry_reader *reader;
	uint32_t pid, file_str, line, class_str, method_str; /* 0 where summed over */
	uint32_t is_lost; /* 1: its code died before it could be named */
	uint64_t allocated, bytes, live, live_bytes;
};

/* Sums rows with equal keys (pid, file, line, class, method), in place; returns how many are left.
 */
size_t scry_object_rows_merge(struct scry_object_row *rows, size_t count);

/* Biggest first by `column` (enum scry_view_sort); ties in an order that is the same every time. */
void scry_object_rows_sort(struct scry_object_row *rows, size_t count, int column);

#endif
