/*
 * Rows of the objects view. See object_rows.h.
 *
 * Merging sorts by key and sums neighbours: two sorts, no second hash.
 */
#include "view/object_rows.h"

#include "view/view.h"

#include <stdlib.h>
#include <string.h>

static int compare_u32(uint32_t a, uint32_t b)
{
	return (a > b) - (a < b);
}

static int compare_u64_down(uint64_t a, uint64_t b)
{
	return (a < b) - (a > b);
}

static int compare_keys(const void *left, const void *right)
{
	const struct scry_object_row *a = left, *b = right;
	int order = compare_u32(a->pid, b->pid);

	order = order ? order : compare_u32(a->file_str, b->file_str);
	order = order ? order : compare_u32(a->line, b->line);
	order = order ? order : compare_u32(a->class_str, b->class_str);
	order = order ? order : compare_u32(a->is_lost, b->is_lost);
	return order ? order : compare_u32(a->method_str, b->method_str);
}

static int compare_strings(const struct scry_object_row *row, uint32_t a, uint32_t b)
{
	const char *left = scry_reader_string(row->reader, a, NULL);
	const char *right = scry_reader_string(row->reader, b, NULL);

	return a == b ? 0 : strcmp(left ? left : "", right ? right : "");
}

/* Equal counts are ordered by what is printed, so that a report is the same every time. */
static int compare_ties(const struct scry_object_row *a, const struct scry_object_row *b)
{
	int order = compare_u64_down(a->allocated, b->allocated);

	order = order ? order : compare_strings(a, a->file_str, b->file_str);
	order = order ? order : compare_u32(a->line, b->line);
	order = order ? order : compare_strings(a, a->class_str, b->class_str);
	return order ? order : compare_keys(a, b);
}

static int compare_allocated(const void *left, const void *right)
{
	return compare_ties(left, right);
}

static int compare_bytes(const void *left, const void *right)
{
	const struct scry_object_row *a = left, *b = right;
	int order = compare_u64_down(a->bytes, b->bytes);

	return order ? order : compare_ties(a, b);
}

static int compare_live(const void *left, const void *right)
{
	const struct scry_object_row *a = left, *b = right;
	int order = compare_u64_down(a->live, b->live);

	return order ? order : compare_ties(a, b);
}

size_t scry_object_rows_merge(struct scry_object_row *rows, size_t count)
{
	size_t i, kept = 0;

	if (!count)
		return 0;
	qsort(rows, count, sizeof(*rows), compare_keys);
	for (i = 0; i < count; i++) {
		struct scry_object_row *into = kept ? &rows[kept - 1] : NULL;

		if (!into || compare_keys(into, &rows[i])) {
			rows[kept++] = rows[i];
			continue;
		}
		into->allocated += rows[i].allocated;
		into->bytes += rows[i].bytes;
		into->live += rows[i].live;
		into->live_bytes += rows[i].live_bytes;
	}
	return kept;
}

void scry_object_rows_sort(struct scry_object_row *rows, size_t count, int column)
{
	static int (*const orders[])(const void *, const void *) = {
		[SCRY_VIEW_SORT_ALLOCATED] = compare_allocated,
		[SCRY_VIEW_SORT_BYTES] = compare_bytes,
		[SCRY_VIEW_SORT_LIVE] = compare_live,
	};

	if (count)
		qsort(rows, count, sizeof(*rows), orders[column]);
}
