/*
 * The objects view: which line makes objects of which class, and how many of them live.
 *
 * object_list reads and sums; here is what is shown of it: totals, a table, one more for each
 * of the biggest processes where there are several, and why a page is empty. Bounded by scry_sites.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "view/object_list.h"
#include "view/object_table.h"
#include "view/object_tree.h"
#include "view/table.h"
#include "view/verdict.h"
#include "view/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct objects {
	struct scry_object_list list;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	int sort;
	struct scry_object_table table;
	struct scry_object_row *by_pid; /* the rows of each process, processes in order */
	size_t by_pid_count;
};

#define PROCESSES_SHOWN 6 /* tables of their own, for people */
#define PROCESS_ROWS 8

/* What the living are: all processes that are summed must have made the forced collection. */
static const char *live_text(const struct scry_data_quality *h, struct scry_buf *buf)
{
	if (!h->uncollected)
		return h->forced_gc_ns ? "live after a forced collection"
				       : "not freed yet (may be garbage; --force-gc tells)";
	scry_buf_printf(buf, "not freed yet (may be garbage: no collection could be forced");
	if (h->process_count > 1 || h->uncollected > 1) {
		scry_buf_printf(buf, " in ");
		scry_text_count(buf, h->uncollected);
		scry_buf_printf(buf, h->uncollected == 1 ? " process" : " processes");
	}
	scry_buf_append(buf, ")", 1);
	return scry_buf_str(buf);
}

static void push_totals(const struct objects *o)
{
	const struct scry_object_list *l = &o->list;
	const struct scry_object_counts *all = &l->all;
	const bool is_data = o->doc->is_data;
	struct scry_buf live = {0};
	const struct {
		bool is_shown;
		struct scry_pair pair;
	} rows[] = {
#define TOTAL(shown, key, unit, ...)                               \
	{                                                          \
		shown,                                             \
		{                                                  \
			key, unit, SCRY_CELL_COUNT, 0, __VA_ARGS__ \
		}                                                  \
	}
		TOTAL(true, "allocated", "objects allocated", scry_cell_number(all->allocated)),
		TOTAL(is_data || all->is_scaled, "allocated_error",
		      "of these more or less (95 % interval)",
		      scry_object_error_cell(all, all->allocated_variance, all->samples)),
		TOTAL(true, "bytes", all->is_slots ? "bytes* allocated" : "bytes allocated",
		      scry_cell_number(all->bytes)),
		TOTAL(is_data || all->unsized, "unsized", "objects whose bytes are not all counted",
		      scry_cell_number(all->unsized)),
		TOTAL(true, "live", live_text(&l->quality, &live), scry_cell_number(all->live)),
		TOTAL(is_data || all->is_scaled, "live_error",
		      all->is_least ? "so many live: some samples were not followed"
				    : "of these more or less (95 % interval)",
		      scry_object_live_error_cell(all)),
		TOTAL(true, "live_bytes",
		      all->live_unsized ? "bytes* of the live" : "bytes of the live",
		      scry_cell_number(all->live_bytes)),
		TOTAL(is_data || all->live_unsized, "live_unsized", "of these not all counted",
		      scry_cell_number(all->live_unsized)),
		TOTAL(is_data || o->table.has_full, "old_live",
		      "of the live survived the last full mark",
		      scry_cell_known(all->old_live, o->table.has_full)),
		TOTAL(is_data || o->opts->live, "old_live_bytes", "bytes of these",
		      scry_cell_known(all->old_live_bytes, o->table.has_full)),
		TOTAL(true, "freed", "freed", scry_cell_number(l->freed)),
		TOTAL(is_data || l->unfollowed, "unfollowed", "not followed to their end",
		      scry_cell_number(l->unfollowed)),
		TOTAL(true, "frees_older", "freed that were made before the watch",
		      scry_cell_known(l->frees_older,
				      !l->is_one && (l->quality.has_totals || l->frees_older))),
		TOTAL(true, "internal",
		      o->opts->internal ? "internal to the VM" : "internal to the VM, not listed",
		      scry_cell_number(l->internal)),
		TOTAL(true, "unnamed", "unnamed: gone before they could be named",
		      scry_cell_number(l->unnamed)),
		TOTAL(is_data, "left_out", "",
		      scry_cell_number(l->grepped + l->filtered + l->died)),
		TOTAL(is_data, "left_out_live", "", scry_cell_number(l->left_out_live)),
#undef TOTAL
	};
	struct scry_pair pairs[sizeof(rows) / sizeof(rows[0])];
	size_t i, count = 0;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].is_shown)
			pairs[count++] = rows[i].pair;
	o->doc->ops->totals(o->doc, pairs, count);
	scry_buf_done(&live);
}

static void note(const struct objects *o, const char *text)
{
	o->doc->ops->note(o->doc, text, strlen(text));
}

/* What the figures do not say of themselves. */
static void push_notes(const struct objects *o)
{
	const struct scry_object_list *l = &o->list;
	struct scry_buf buf = {0};

	if (l->all.is_slots)
		note(o, o->doc->is_folded ? "some bytes are of heap slots: buffers outside the "
					    "slot are not counted there, or not all"
			: o->doc->is_data
				? "of `unsized` objects `bytes` has the heap slot only, or not all "
				  "that is outside it"
				: "* marks bytes that are too low: of the objects that 'unsized' "
				  "counts, only the heap slot is included, or not all memory "
				  "outside it");
	if (l->slice_end_ns) {
		scry_buf_printf(&buf, "the end is missing: the figures are from ");
		scry_text_duration(&buf, l->slice_end_ns - l->quality.first_slice_ns);
		scry_buf_printf(&buf, " after the beginning, when the last slice was written");
		note(o, scry_buf_str(&buf));
	}
	scry_buf_done(&buf);
}

/* The largest row by what the table is sorted by, as people have it: of all processes and methods.
 * Out of memory: that of a process. */
static struct scry_object_row largest(const struct objects *o)
{
	const struct scry_object_list *l = &o->list;
	struct scry_object_row *rows = calloc(l->count, sizeof(*rows)), most = l->rows[0];
	size_t count = l->count;

	if (!rows)
		return most;
	memcpy(rows, l->rows, count * sizeof(*rows));
	for (size_t i = 0; i < count; i++) {
		rows[i].pid = 0;
		if (o->opts->by == SCRY_VIEW_BY_LINE)
			rows[i].method = 0;
	}
	count = scry_object_rows_merge(rows, count);
	scry_object_rows_sort(rows, count, o->sort, &l->tables->frames);
	most = rows[0];
	free(rows);
	return most;
}

static void put_largest(const struct objects *o, struct scry_buf *buf)
{
	const struct scry_object_counts *all = &o->list.all;
	const struct scry_object_row row = largest(o);
	const uint64_t part = scry_object_figure(&row.counts, o->sort),
		       whole = scry_object_figure(all, o->sort);
	/* bytes of slots only are too few: of the objects that were counted */
	const char *things[] = {
		[SCRY_VIEW_SORT_ALLOCATED] = "objects allocated",
		[SCRY_VIEW_SORT_BYTES] = all->is_slots ? "bytes counted" : "bytes allocated",
		[SCRY_VIEW_SORT_LIVE] = "objects that lived at the end",
		[SCRY_VIEW_SORT_LIVE_BYTES] = all->live_unsized
						      ? "bytes counted that lived at the end"
						      : "bytes that lived at the end",
		[SCRY_VIEW_SORT_OLD_LIVE] = "objects that survived the last full mark",
		[SCRY_VIEW_SORT_OLD_LIVE_BYTES] = "bytes that survived the last full mark",
		[SCRY_VIEW_SORT_AGE] = "garbage collections that an object survived",
	};

	if (!part) {
		scry_buf_printf(buf, "no %s, of ", things[o->sort]);
		scry_text_things(buf, all->allocated, "objects allocated");
		return;
	}
	scry_object_subject(&row, o->opts->by, buf);
	if (o->sort == SCRY_VIEW_SORT_AGE) {
		scry_buf_printf(buf, " has lived longest: through ");
		scry_text_things(buf, part, "garbage collections");
		return;
	}
	if (o->opts->stacks)
		scry_buf_printf(buf, ", called from one stack,");
	scry_buf_printf(buf, " is %s", all->is_scaled ? "about " : "");
	scry_verdict_share(buf, part, whole, things[o->sort]);
}

static void put_empty(const struct objects *o, struct scry_buf *buf)
{
	const struct scry_object_list *l = &o->list;

	if (!l->events && !l->quality.has_totals)
		scry_buf_printf(buf, "no counters: scry was ended before it could write them");
	else if (!l->all.allocated)
		scry_buf_printf(buf, "no object was made while watching");
	else if (o->opts->live && !o->table.has_full && l->died)
		scry_buf_printf(buf, "no full mark of the garbage collector was seen, so nothing "
				     "is known to have survived one; fix: watch longer");
	else if (l->died)
		scry_buf_printf(buf,
				"nothing that could be listed has survived the last full mark");
	else if (l->grepped && !l->filtered)
		scry_buf_printf(buf, "no row contains '%s'", o->opts->grep);
	else if (l->grepped || l->filtered)
		scry_verdict_filtered(buf, l->grepped != 0);
	else
		scry_buf_printf(buf, "all objects made were internal to the VM; --internal lists "
				     "them");
}

/* The largest share, or why the page is empty. */
static void judge(const struct objects *o)
{
	struct scry_buf buf = {0};

	if (o->list.count)
		put_largest(o, &buf);
	else
		put_empty(o, &buf);
	if (o->doc->is_folded && !o->list.count) /* has no place for a verdict */
		scry_doc_remark(o->doc, "%s", scry_buf_str(&buf));
	scry_verdict(o->doc, &buf);
	scry_buf_done(&buf);
}

static void push_left_out(const struct objects *o, size_t shown, uint64_t shown_objects)
{
	const struct scry_object_list *l = &o->list;
	struct scry_left_out left_out = {
		.by_top = l->count - shown,
		.things = "objects",
		.by_grep = l->grepped,
		.by_filter = l->filtered,
		.by_live = l->died,
	};

	for (size_t i = 0; left_out.by_top && i < l->count; i++)
		left_out.top_weight += l->rows[i].counts.allocated;
	left_out.top_weight -= left_out.by_top ? shown_objects : 0;
	scry_left_out_push(&left_out, o->doc);
}

static void push_table(struct objects *o)
{
	struct scry_object_list *l = &o->list;
	uint64_t top = scry_view_top(o->opts, o->doc), objects;

	if (!top || top > l->count)
		top = l->count;
	scry_object_rows_sort(l->rows, l->count, o->sort, &l->tables->frames);
	objects = scry_object_table_push(&o->table, top);
	if (l->count)
		push_left_out(o, top, objects);
}

struct process { /* its rows, in objects.by_pid */
	size_t first, count;
	uint64_t allocated, live;
};

static int compare_processes(const void *left, const void *right)
{
	const struct process *a = left, *b = right;

	if (a->allocated != b->allocated)
		return a->allocated < b->allocated ? 1 : -1;
	return (a->first > b->first) - (a->first < b->first);
}

/* One entry a process into *ret (caller frees), biggest first. How many; 0 also without memory. */
static size_t list_processes(const struct objects *o, struct process **ret)
{
	struct process *list = calloc(o->by_pid_count + 1, sizeof(*list));
	size_t i, count = 0;

	*ret = list;
	for (i = 0; list && i < o->by_pid_count; i++) {
		const struct scry_object_row *row = &o->by_pid[i];

		if (!i || row->pid != row[-1].pid)
			list[count++].first = i;
		list[count - 1].count++;
		list[count - 1].allocated += row->counts.allocated;
		list[count - 1].live += row->counts.live;
	}
	if (count)
		qsort(list, count, sizeof(*list), compare_processes);
	return count;
}

static void push_process(const struct objects *o, const struct process *process)
{
	struct scry_object_list list = o->list;
	struct scry_object_table table;
	struct scry_buf title = {0};
	uint32_t pid;

	list.rows = o->by_pid + process->first;
	list.count = process->count;
	pid = list.rows[0].pid;
	if (pid)
		scry_buf_printf(&title, "process %u: ", pid);
	else
		scry_buf_printf(&title, "other processes, summed: ");
	scry_text_things(&title, process->allocated, "objects");
	scry_buf_printf(&title, " listed, ");
	scry_text_count(&title, process->live);
	scry_buf_printf(&title, " of them live");
	scry_object_list_settle(&list, false);
	scry_object_rows_sort(list.rows, list.count, o->sort, &list.tables->frames);
	table = scry_object_table_of(&list, o->doc);
	o->doc->title = scry_buf_str(&title);
	scry_object_table_push(&table, list.count < PROCESS_ROWS ? list.count : PROCESS_ROWS);
	o->doc->title = NULL;
	scry_object_table_done(&table);
	scry_buf_done(&title);
}

/* Several were watched: after the sum, a table for each of the biggest. */
static void push_processes(const struct objects *o)
{
	struct process *list;
	size_t i, count = list_processes(o, &list);

	for (i = 0; count > 1 && i < count && i < PROCESSES_SHOWN; i++)
		push_process(o, &list[i]);
	if (count > PROCESSES_SHOWN)
		scry_doc_remark(o->doc,
				"%zu more processes are not shown; scry report FILE --pid N shows "
				"one, --json has all",
				count - PROCESSES_SHOWN);
	free(list);
}

static int push_tree(struct objects *o)
{
	uint64_t top = o->opts->top == SCRY_VIEW_TOP_DEFAULT ? 0 : o->opts->top, all = 0;
	size_t i;
	int err = scry_object_tree_push(&o->list, o->sort, top, o->doc);

	if (err)
		return err;
	for (i = 0; i < o->list.count; i++)
		all += o->list.rows[i].counts.allocated;
	if (o->list.count)
		push_left_out(o, o->list.count, all);
	return 0;
}

/* Bytes that are unknown of most objects put those last that may be the biggest: by count then. */
static void choose_order(struct objects *o)
{
	const bool is_all = o->sort == SCRY_VIEW_SORT_BYTES;
	struct scry_object_counts sum = {0};
	struct scry_buf buf = {0};
	uint64_t unsized, objects;

	for (size_t i = 0; i < o->list.count; i++)
		scry_object_counts_add(&sum, &o->list.rows[i].counts);
	unsized = is_all ? sum.unsized : sum.live_unsized;
	objects = is_all ? sum.allocated : sum.live;
	if (unsized <= objects / 2)
		return;
	if (is_all)
		o->sort = SCRY_VIEW_SORT_ALLOCATED;
	else if (o->sort == SCRY_VIEW_SORT_LIVE_BYTES)
		o->sort = SCRY_VIEW_SORT_LIVE;
	else if (o->sort == SCRY_VIEW_SORT_OLD_LIVE_BYTES)
		o->sort = SCRY_VIEW_SORT_OLD_LIVE;
	else
		return;
	scry_buf_printf(&buf, "rows are sorted by count, not by bytes: the bytes of ");
	scry_text_count(&buf, unsized);
	scry_buf_printf(&buf, " of ");
	scry_text_things(&buf, objects, "objects");
	scry_buf_printf(&buf, " are not known, or not all");
	note(o, scry_buf_str(&buf));
	scry_buf_done(&buf);
}

static int push(struct objects *o)
{
	struct scry_object_list *l = &o->list;
	const char *weights[] = {
		[SCRY_VIEW_SORT_ALLOCATED] = "allocated",
		[SCRY_VIEW_SORT_BYTES] = "bytes",
		[SCRY_VIEW_SORT_LIVE] = "live",
		[SCRY_VIEW_SORT_LIVE_BYTES] = "live_bytes",
		[SCRY_VIEW_SORT_OLD_LIVE] = "old_live",
		[SCRY_VIEW_SORT_OLD_LIVE_BYTES] = "old_live_bytes",
		[SCRY_VIEW_SORT_AGE] = "allocated",
	};

	o->sort = scry_view_sort_of(o->opts);
	o->doc->weight = weights[o->sort];
	o->table = scry_object_table_of(l, o->doc);
	l->quality.noun = "objects";
	l->quality.shown = l->all.allocated;
	scry_data_quality_push(&l->quality, o->doc);
	push_notes(o);
	if (!o->doc->is_folded && (o->doc->is_data || !o->opts->stacks))
		choose_order(o);
	if (o->opts->stacks && l->count && !l->has_stacks)
		note(o, "the recording holds no stacks; fix: record with --stacks");
	judge(o);
	push_totals(o);
	if (o->opts->stacks && !o->doc->is_data)
		return push_tree(o);
	push_table(o);
	push_processes(o);
	return 0;
}

/* For people processes are summed; what each of them did is kept for tables of its own. */
static int sum_up(struct objects *o)
{
	struct scry_object_list *l = &o->list;

	if (!o->doc->is_data && !o->opts->stacks && !l->is_one && l->count) {
		o->by_pid = malloc(l->count * sizeof(*o->by_pid));
		if (!o->by_pid)
			return scry_no_memory("%zu rows", l->count);
		memcpy(o->by_pid, l->rows, l->count * sizeof(*o->by_pid));
		o->by_pid_count = l->count;
	}
	scry_object_list_settle(l, !o->doc->is_data);
	return 0;
}

int scry_view_objects(struct scry_reader *reader, const struct scry_view_opts *opts,
		      struct scry_doc *doc)
{
	struct scry_object_tables tables;
	struct objects o = {
		.list = {.tables = &tables,
			 .opts = opts,
			 .keeps_pids = true,
			 .is_one = opts->pid != 0,
			 .only_pid = (uint32_t)opts->pid,
			 .keeps_methods = doc->is_data || opts->stacks},
		.opts = opts,
		.doc = doc,
	};
	int err;

	scry_object_tables_init(&tables);
	err = scry_object_list_read(&o.list, reader);
	if (!err)
		err = sum_up(&o);
	if (!err)
		err = push(&o);
	scry_object_table_done(&o.table);
	free(o.by_pid);
	scry_object_list_done(&o.list);
	scry_object_tables_done(&tables);
	return err;
}
