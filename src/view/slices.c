/*
 * The slices of a recording. See slices.h.
 *
 * Processes that are watched together end a slice at about the same time and give it the same
 * number: the latest of these ends stands for all.
 */
#include "view/slices.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "rec/sections.h"

#include <errno.h>
#include <stdlib.h>

#define SLICES_MAX (1u << 20)

struct slices {
	struct slice {
		uint64_t begin_ns, end_ns, rss_bytes, gc_count;
	} * rows;	/* by number; end_ns 0: there is none */
	uint32_t count; /* greatest number + 1 */
	uint64_t beginning_ns, watched_ns;
};

static int on_slice(struct slices *all, const struct scry_ev_slice *event)
{
	struct slice *row;

	if (!event->slice || event->slice >= SLICES_MAX || event->end_ns < event->begin_ns)
		return 0;
	if (event->slice >= all->count) {
		uint32_t count = event->slice + 1, i;

		row = reallocarray(all->rows, count, sizeof(*row));
		if (!row)
			return scry_no_memory("%u slices", count);
		for (i = all->count; i < count; i++)
			row[i] = (struct slice){0};
		all->rows = row;
		all->count = count;
	}
	row = &all->rows[event->slice];
	if (!row->end_ns || event->begin_ns < row->begin_ns)
		row->begin_ns = event->begin_ns;
	if (event->end_ns > row->end_ns)
		row->end_ns = event->end_ns;
	row->rss_bytes += event->rss_bytes;
	row->gc_count += event->gc_count;
	if (!all->beginning_ns || event->begin_ns < all->beginning_ns)
		all->beginning_ns = event->begin_ns;
	return 0;
}

static int read_slices(int fd, struct slices *all)
{
	const struct scry_ev_totals *totals;
	const struct scry_event *event;
	struct scry_reader *reader;
	int got, err = scry_sections_open(fd, "objects", &reader);

	if (err)
		return err;
	while (!err && (got = scry_reader_next(reader, &event)) > 0) {
		totals = (const void *)(event + 1);
		if (event->type == SCRY_EVENT_SLICE)
			err = on_slice(all, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_TOTALS && totals->watched_ns > all->watched_ns)
			all->watched_ns = totals->watched_ns;
	}
	scry_reader_close(reader);
	return err ? err : got;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static int complain(const struct slices *all, uint64_t since_ns)
{
	struct scry_buf buf = {0};
	int err;

	scry_text_duration(&buf, since_ns);
	scry_buf_printf(&buf, " after the beginning is far from all slices; the last one ends at ");
	scry_text_duration(&buf, all->rows[all->count - 1].end_ns - all->beginning_ns);
	err = scry_fail(-ENOENT, "%s", scry_buf_str(&buf));
	scry_buf_done(&buf);
	return err;
}

static int find(const struct slices *all, uint64_t since_ns, struct scry_moment *ret_moment)
{
	struct scry_moment best = {0};
	uint64_t least = UINT64_MAX, longest = 0;
	uint32_t i;

	if (all->count < 2)
		return scry_fail(-ENOENT, "the recording has no slices; fix: record with --every");
	for (i = 1; i < all->count; i++) {
		const struct slice *row = &all->rows[i];
		uint64_t since = row->end_ns - all->beginning_ns;

		if (!row->end_ns)
			continue;
		if (row->end_ns - row->begin_ns > longest)
			longest = row->end_ns - row->begin_ns;
		if (distance(since, since_ns) >= least)
			continue;
		least = distance(since, since_ns);
		best = (struct scry_moment){
			.since_ns = since,
			.until_ns = row->end_ns,
			.slice = i,
			.has_numbers = true,
			.rss_bytes = row->rss_bytes,
			.gc_count = row->gc_count,
		};
	}
	if (all->watched_ns && distance(all->watched_ns, since_ns) < least) {
		least = distance(all->watched_ns, since_ns);
		best = (struct scry_moment){.since_ns = all->watched_ns};
	}
	if (least > longest)
		return complain(all, since_ns);
	*ret_moment = best;
	return 0;
}

int scry_moment_find(int fd, uint64_t since_ns, struct scry_moment *ret_moment)
{
	struct slices all = {0};
	int err = read_slices(fd, &all);

	if (!err && since_ns == SCRY_MOMENT_BEGINNING)
		*ret_moment = (struct scry_moment){.is_beginning = true};
	else if (!err && since_ns == SCRY_MOMENT_END)
		*ret_moment = (struct scry_moment){.since_ns = all.watched_ns};
	else if (!err)
		err = find(&all, since_ns, ret_moment);
	free(all.rows);
	return err;
}
