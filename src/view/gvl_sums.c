/*
 * What is summed for people. Threads that have ended, by their names: a server that makes a thread
 * for each request has hundreds of rows, none of which makes others wait for long, and all together
 * do. Rows of one line of the program, whichever methods were called there.
 *
 * Rows that several threads had one after the other are among the first, whether the last one has
 * ended or not. Quantiles of several rows cannot be had of the quantiles of each, so a sum has
 * none.
 *
 * And how much of what samples say may be chance.
 */
#include "view/gvl.h"
#include "view/gvl_chance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "view/functions.h"

static bool is_ended(const struct scry_ev_gvl_thread *t)
{
	return t->name_str && (t->has_ended || t->threads > 1);
}

static uint64_t name_of(const struct scry_ev_gvl_thread *t)
{
	return (uint64_t)t->pid << 32 | t->name_str;
}

static uint64_t number_of(uint32_t pid, uint32_t thread)
{
	return (uint64_t)pid << 32 | thread;
}

static uint64_t more_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void add(struct scry_ev_gvl_thread *sum, const struct scry_ev_gvl_thread *t)
{
	sum->threads += t->threads > 1 ? t->threads : 1;
	sum->has_ended &= t->has_ended;
	sum->held_ns += t->held_ns;
	sum->wanted_ns += t->wanted_ns;
	sum->granted_ns += t->granted_ns;
	sum->without_ns += t->without_ns;
	sum->unknown_ns += t->unknown_ns;
	sum->takes += t->takes;
	sum->yields += t->yields;
	sum->taken_back += t->taken_back;
	sum->waits += t->waits;
	sum->max_ns = more_of(sum->max_ns, t->max_ns);
	sum->lost_ns += t->lost_ns;
	sum->older_ns = more_of(sum->older_ns, t->older_ns);
	sum->open_ns = more_of(sum->open_ns, t->open_ns);
	sum->passes += t->passes;
	sum->forced += t->forced;
	sum->overtakes += t->overtakes;
	sum->runs += t->runs;
	sum->runs_ns += t->runs_ns;
	sum->run_max_ns = more_of(sum->run_max_ns, t->run_max_ns);
	sum->run_most = more_of(sum->run_most, t->run_most);
	sum->looks += t->looks;
	sum->contradicted += t->contradicted;
}

struct sums {
	struct scry_map counts;	 /* of rows by name; from the second pass on: place + 1 */
	struct scry_map numbers; /* of threads -> those of their sums */
};

/* Rows of one name become one, where they are several. */
static int sum_threads(struct scry_gvl_view *g, struct sums *s)
{
	uint32_t kept = 0;
	uint64_t rows, *at;

	for (uint32_t i = 0; i < g->thread_count; i++) {
		if (!is_ended(&g->threads[i]))
			continue;
		at = scry_map_ref(&s->counts, name_of(&g->threads[i]));
		if (!at)
			return scry_no_memory("%u threads", g->thread_count);
		*at += 1ull << 32;
	}
	for (uint32_t i = 0; i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread t = g->threads[i];

		at = is_ended(&t) ? scry_map_ref(&s->counts, name_of(&t)) : NULL;
		rows = at ? *at >> 32 : 0;
		if (rows < 2) {
			g->threads[kept++] = t;
			continue;
		}
		if (!(uint32_t)*at) {
			g->threads[kept] = (struct scry_ev_gvl_thread){
				.pid = t.pid,
				.thread = SCRY_GVL_SUMS_FROM + kept,
				.name_str = t.name_str,
				.has_ended = 1,
			};
			*at |= ++kept;
		}
		add(&g->threads[(uint32_t)*at - 1], &t);
		if (scry_map_put(&s->numbers, number_of(t.pid, t.thread),
				 g->threads[(uint32_t)*at - 1].thread) < 0)
			return scry_no_memory("%u threads", g->thread_count);
	}
	g->thread_count = kept;
	return 0;
}

static uint32_t sum_of(const struct sums *s, uint32_t pid, uint32_t thread)
{
	uint64_t sum;

	return scry_map_get(&s->numbers, number_of(pid, thread), &sum) ? (uint32_t)sum : thread;
}

static int by_threads(const void *left, const void *right)
{
	const struct scry_ev_gvl_pair *a = left, *b = right;
	int order = scry_functions_compare(a->pid, b->pid);

	order = order ? order : scry_functions_compare(a->waiter, b->waiter);
	return order ? order : scry_functions_compare(a->holder, b->holder);
}

static void add_pair(struct scry_ev_gvl_pair *sum, const struct scry_ev_gvl_pair *p)
{
	sum->lost_ns += p->lost_ns;
	sum->waits = p->waits < UINT32_MAX - sum->waits ? sum->waits + p->waits : UINT32_MAX;
}

static void sum_pairs(struct scry_gvl_view *g, const struct sums *s)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < g->pair_count; i++) {
		struct scry_ev_gvl_pair *p = &g->pairs[i];

		p->waiter = sum_of(s, p->pid, p->waiter);
		p->holder = sum_of(s, p->pid, p->holder);
	}
	if (g->pair_count)
		qsort(g->pairs, g->pair_count, sizeof(*g->pairs), by_threads);
	for (uint32_t i = 0; i < g->pair_count; i++) {
		if (kept && !by_threads(&g->pairs[kept - 1], &g->pairs[i]))
			add_pair(&g->pairs[kept - 1], &g->pairs[i]);
		else
			g->pairs[kept++] = g->pairs[i];
	}
	g->pair_count = kept;
}

/* ---- lines ---- */

/* Of rows that are sorted: the one that has lost most stands for all of its line. */
static void sum_lines(struct scry_gvl_view *g, struct scry_gvl_lines *l)
{
	struct scry_map places;
	uint32_t kept = 0;

	scry_map_init(&places, SCRY_GVL_ROWS_MAX);
	for (uint32_t i = 0; i < l->count; i++) {
		const struct scry_gvl_line row = l->rows[i];
		const struct scry_frame at = scry_gvl_place_of(g, row.what);
		uint64_t *place = at.file && at.line
					  ? scry_map_ref(&places, (uint64_t)at.file << 32 | at.line)
					  : NULL;
		struct scry_gvl_line *sum;

		if (!place || !*place) {
			l->rows[kept++] = row;
			if (place)
				*place = kept;
			continue;
		}
		sum = &l->rows[*place - 1];
		sum->has_others |= scry_gvl_place_of(g, sum->what).method != at.method;
		sum->samples += row.samples;
		sum->lost_ns += row.lost_ns;
		sum->waits += row.waits;
		sum->max_ns = more_of(sum->max_ns, row.max_ns);
	}
	l->count = kept;
	scry_map_done(&places);
}

/* ---- chance ---- */

uint64_t scry_gvl_all_turns(const struct scry_gvl_view *g, const struct scry_gvl_lines *l)
{
	uint64_t turns = 0;

	for (uint32_t i = 0; i < g->thread_count; i++)
		turns += l == &g->held ? g->threads[i].takes : g->threads[i].waits;
	return turns;
}

uint64_t scry_gvl_turns(const struct scry_gvl_lines *l, const struct scry_gvl_line *row,
			uint64_t turns)
{
	const double own =
		l->lost_ns ? (double)turns * (double)row->lost_ns / (double)l->lost_ns : 0;
	const uint64_t slices = row->lost_ns / SCRY_GVL_SLICE_NS;
	const uint64_t most = own > (double)slices ? (uint64_t)own : slices;

	return most < row->samples ? most : row->samples;
}

/* That of so many turns, each of which may be another line's; of one turn at least, as a line that
 * has all may not have had the next. */
uint64_t scry_gvl_error_ns(const struct scry_gvl_lines *l, const struct scry_gvl_line *row,
			   uint64_t turns)
{
	const double own = (double)scry_gvl_turns(l, row, turns), least = own > 1 ? own : 1,
		     others = l->lost_ns ? 1 - (double)row->lost_ns / (double)l->lost_ns : 0,
		     spread = least * others > 1 ? least * others : 1;

	return row->samples ? (uint64_t)((double)row->lost_ns / least * sqrt(spread)) : 0;
}

/* ---- and back ---- */

static void *copy_of(const void *rows, size_t count, size_t size)
{
	void *copy = malloc(count * size + 1);

	if (copy && count)
		memcpy(copy, rows, count * size);
	return copy;
}

static void put_back(void *to, const void *from, size_t size)
{
	if (size)
		memcpy(to, from, size);
}

int scry_gvl_view_sum(struct scry_gvl_view *g, struct scry_gvl_each *ret)
{
	struct scry_gvl_each each = {
		copy_of(g->threads, g->thread_count, sizeof(*g->threads)),
		copy_of(g->pairs, g->pair_count, sizeof(*g->pairs)),
		copy_of(g->held.rows, g->held.count, sizeof(*g->held.rows)),
		copy_of(g->waited.rows, g->waited.count, sizeof(*g->waited.rows)),
		g->thread_count,
		g->pair_count,
		g->held.count,
		g->waited.count,
	};
	struct sums s;
	int r = each.threads && each.pairs && each.held && each.waited
			? 0
			: scry_no_memory("%u threads", g->thread_count);

	scry_map_init(&s.counts, SCRY_GVL_ROWS_MAX);
	scry_map_init(&s.numbers, SCRY_GVL_ROWS_MAX);
	if (r == 0)
		r = sum_threads(g, &s);
	if (r == 0)
		sum_pairs(g, &s);
	scry_gvl_view_sort(g);
	if (r == 0 && g->opts->by == SCRY_VIEW_BY_LINE && !g->doc->is_folded) {
		sum_lines(g, &g->held);
		sum_lines(g, &g->waited);
		scry_gvl_view_sort(g);
	}
	scry_map_done(&s.counts);
	scry_map_done(&s.numbers);
	*ret = each;
	return r;
}

void scry_gvl_view_each_again(struct scry_gvl_view *g, const struct scry_gvl_each *each)
{
	g->thread_count = each->thread_count;
	g->pair_count = each->pair_count;
	g->held.count = each->held_count;
	g->waited.count = each->waited_count;
	put_back(g->threads, each->threads, each->thread_count * sizeof(*g->threads));
	put_back(g->pairs, each->pairs, each->pair_count * sizeof(*g->pairs));
	put_back(g->held.rows, each->held, each->held_count * sizeof(*g->held.rows));
	put_back(g->waited.rows, each->waited, each->waited_count * sizeof(*g->waited.rows));
	scry_gvl_view_sort(g);
}

void scry_gvl_each_free(struct scry_gvl_each *each)
{
	free(each->threads);
	free(each->pairs);
	free(each->held);
	free(each->waited);
}
