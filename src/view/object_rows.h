/*
 * Rows of the objects view: equal keys summed, then sorted by a column.
 */
#ifndef SCRY_VIEW_OBJECT_ROWS_H
#define SCRY_VIEW_OBJECT_ROWS_H

#include "view/frames.h"
#include "wire/event.h"

#include <stdbool.h>

#define SCRY_FEW_SAMPLES 10 /* fewer give no interval */

struct scry_object_counts {
	uint64_t allocated, bytes, live, live_bytes;
	uint64_t old_live, old_live_bytes;
	uint64_t max_age;
	uint64_t unsized, live_unsized; /* objects whose bytes are not known, or not all */
	uint64_t samples, live_samples;
	double allocated_variance, live_variance; /* of the scaled figures; 0: exact */
	bool is_slots;				  /* some are unsized */
	bool is_scaled;				  /* from samples, some at least */
	bool is_least;				  /* the living: some were not followed */
};

struct scry_object_row {
	const struct scry_intern *names;	      /* the texts that the ids mean */
	uint32_t pid, file, line, class, method, gem; /* 0 where summed over, or unknown */
	uint32_t stack;				      /* id of the caller's frame; 0 none */
	uint32_t is_lost;     /* 1: its code died before it could be named */
	uint32_t is_internal; /* 1: the VM's own */
	struct scry_object_counts counts;
};

/* What one site's counters say; they were settled by scry_sites_close. */
struct scry_object_counts scry_object_counts_of(const struct scry_ev_objects *objects);

void scry_object_counts_add(struct scry_object_counts *into, const struct scry_object_counts *more);

/*
 * Half the width of the 95 % interval of a figure scaled up from `samples`: what was sampled with
 * weight w has the variance n w (w - 1), binomial thinning. False when it is unknown: few samples.
 */
bool scry_object_interval(double variance, uint64_t samples, uint64_t *ret_half);

/* The order of keys: pid, file, line, class, method, gem, stack, lost, internal. */
int scry_object_keys_compare(const struct scry_object_row *a, const struct scry_object_row *b);

/* Equal sums are ordered by what is printed, so that a report is the same every time. */
int scry_object_texts_compare(const struct scry_frames *frames, const struct scry_object_row *a,
			      const struct scry_object_row *b);

/* Sums rows with equal keys, in place; returns how many are left. */
size_t scry_object_rows_merge(struct scry_object_row *rows, size_t count);

/* The figure that a column (enum scry_view_sort) shows. */
uint64_t scry_object_figure(const struct scry_object_counts *counts, int column);

/* Biggest first by `column` (enum scry_view_sort); ties in an order that is the same every time. */
void scry_object_rows_sort(struct scry_object_row *rows, size_t count, int column,
			   const struct scry_frames *frames);

#endif
