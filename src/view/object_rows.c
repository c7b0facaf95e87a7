/*
 * Rows of the objects view. See object_rows.h.
 *
 * Merging sorts by key and sums neighbours: two sorts, no second hash.
 */
#include "view/object_rows.h"

#include "view/view.h"

#include <math.h>
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

/* n samples that stand for `figure`: n w (w - 1) with w = figure / n. */
static double variance_of(uint64_t figure, uint64_t samples)
{
	double weight = samples ? (double)figure / (double)samples : 1;

	return weight > 1 ? (double)samples * weight * (weight - 1) : 0;
}

struct scry_object_counts scry_object_counts_of(const struct scry_ev_objects *objects)
{
	uint64_t live = objects->allocated - objects->freed - objects->unfollowed;
	struct scry_object_counts counts = {
		.allocated = objects->allocated,
		.bytes = objects->bytes,
		.live = live,
		.live_bytes = objects->live_bytes,
		.old_live = objects->old_live,
		.old_live_bytes = objects->old_live_bytes,
		.max_age = objects->max_age,
		.unsized = objects->unsized,
		.live_unsized = objects->live_unsized,
		.is_slots = objects->flags & SCRY_OBJECTS_SLOTS,
		.is_scaled = objects->flags & SCRY_OBJECTS_SCALED,
		.is_least = objects->unfollowed != 0,
	};

	if (counts.is_scaled) {
		counts.samples = objects->samples;
		counts.live_samples = objects->live_samples;
		counts.allocated_variance = variance_of(objects->allocated, objects->samples);
		counts.live_variance = variance_of(live, objects->live_samples);
	}
	return counts;
}

void scry_object_counts_add(struct scry_object_counts *into, const struct scry_object_counts *more)
{
	into->allocated += more->allocated;
	into->bytes += more->bytes;
	into->live += more->live;
	into->live_bytes += more->live_bytes;
	into->old_live += more->old_live;
	into->old_live_bytes += more->old_live_bytes;
	into->max_age = more->max_age > into->max_age ? more->max_age : into->max_age;
	into->unsized += more->unsized;
	into->live_unsized += more->live_unsized;
	into->samples += more->samples;
	into->live_samples += more->live_samples;
	into->allocated_variance += more->allocated_variance;
	into->live_variance += more->live_variance;
	into->is_slots |= more->is_slots;
	into->is_scaled |= more->is_scaled;
	into->is_least |= more->is_least;
}

bool scry_object_interval(double variance, uint64_t samples, uint64_t *ret_half)
{
	double half;

	if (samples < SCRY_FEW_SAMPLES)
		return false;
	half = 1.96 * sqrt(variance) + 0.5;
	*ret_half = half < 0x1p64 ? (uint64_t)half : UINT64_MAX; /* or no number */
	return true;
}

int scry_object_keys_compare(const struct scry_object_row *a, const struct scry_object_row *b)
{
	int order = compare_u32(a->pid, b->pid);

	order = order ? order : compare_u32(a->file, b->file);
	order = order ? order : compare_u32(a->line, b->line);
	order = order ? order : compare_u32(a->class, b->class);
	order = order ? order : compare_u32(a->method, b->method);
	order = order ? order : compare_u32(a->gem, b->gem);
	order = order ? order : compare_u32(a->stack, b->stack);
	order = order ? order : compare_u32(a->is_lost, b->is_lost);
	return order ? order : compare_u32(a->is_internal, b->is_internal);
}

static int compare_names(const struct scry_object_row *row, uint32_t a, uint32_t b)
{
	const char *left = scry_intern_get(row->names, a, NULL);
	const char *right = scry_intern_get(row->names, b, NULL);

	return a == b ? 0 : strcmp(left ? left : "", right ? right : "");
}

int scry_object_texts_compare(const struct scry_frames *frames, const struct scry_object_row *a,
			      const struct scry_object_row *b)
{
	int order = compare_names(a, a->file, b->file);

	order = order ? order : compare_u32(a->line, b->line);
	order = order ? order : compare_names(a, a->class, b->class);
	order = order ? order : compare_names(a, a->method, b->method);
	order = order ? order : compare_names(a, a->gem, b->gem);
	order = order ? order : scry_frames_compare(frames, a->names, a->stack, b->stack);
	return order ? order : scry_object_keys_compare(a, b);
}

static int compare_keys(const void *left, const void *right)
{
	return scry_object_keys_compare(left, right);
}

size_t scry_object_rows_merge(struct scry_object_row *rows, size_t count)
{
	size_t i, kept = 0;

	if (!count)
		return 0;
	qsort(rows, count, sizeof(*rows), compare_keys);
	for (i = 0; i < count; i++) {
		struct scry_object_row *into = kept ? &rows[kept - 1] : NULL;

		if (into && !compare_keys(into, &rows[i]))
			scry_object_counts_add(&into->counts, &rows[i].counts);
		else
			rows[kept++] = rows[i];
	}
	return kept;
}

uint64_t scry_object_figure(const struct scry_object_counts *counts, int column)
{
	switch (column) {
	case SCRY_VIEW_SORT_BYTES:
		return counts->bytes;
	case SCRY_VIEW_SORT_LIVE:
		return counts->live;
	case SCRY_VIEW_SORT_LIVE_BYTES:
		return counts->live_bytes;
	case SCRY_VIEW_SORT_OLD_LIVE:
		return counts->old_live;
	case SCRY_VIEW_SORT_OLD_LIVE_BYTES:
		return counts->old_live_bytes;
	case SCRY_VIEW_SORT_AGE:
		return counts->max_age;
	default:
		return counts->allocated;
	}
}

struct sorting {
	int column;
	const struct scry_frames *frames;
};

static int compare_rows(const void *left, const void *right, void *arg)
{
	const struct sorting *by = arg;
	const struct scry_object_row *a = left, *b = right;
	int order = compare_u64_down(scry_object_figure(&a->counts, by->column),
				     scry_object_figure(&b->counts, by->column));

	order = order ? order : compare_u64_down(a->counts.allocated, b->counts.allocated);
	return order ? order : scry_object_texts_compare(by->frames, a, b);
}

void scry_object_rows_sort(struct scry_object_row *rows, size_t count, int column,
			   const struct scry_frames *frames)
{
	struct sorting by = {column, frames};

	if (count)
		qsort_r(rows, count, sizeof(*rows), compare_rows, &by);
}
