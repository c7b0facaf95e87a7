/*
 * The tree of --stacks. See object_tree.h.
 *
 * Places and classes are put into the table of frames too, so the whole tree is that table: ids
 * grow from the root to the leaves, and one loop from the last id to the first sums everything up.
 * A chain of frames with one branch each is not indented: `+` begins a branch.
 */
#include "view/object_tree.h"

#include "base/err.h"
#include "base/text.h"
#include "view/gem.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PRUNE_PERCENT 1
#define INDENT_MAX 120u
#define COLUMNS 6
#define WIDE 120u /* columns of a terminal that has room for all figures */

struct node {
	struct scry_object_counts counts;
	uint32_t first_child, child_count; /* in `order`, biggest first */
};

struct tree {
	const struct scry_object_list *list;
	struct scry_doc *doc;
	int sort;
	uint64_t top, rows, total;
	struct node *nodes; /* by frame id; [0]: the root above all */
	uint32_t *order;    /* frame ids, sorted by parent, then biggest first */
	uint32_t *parents;  /* by frame id */
	struct step *steps; /* what is still to be printed */
	uint32_t step_count;
	size_t count; /* of nodes */
	uint64_t pruned, pruned_branches;
	struct scry_buf line;
};

struct step {
	uint32_t id;
	uint16_t indent;
	bool is_branch;
};

void scry_object_frame_text(const struct scry_object_tables *tables, uint32_t id,
			    struct scry_buf *buf)
{
	struct scry_frame frame = scry_frames_get(&tables->frames, id);
	struct scry_cell file = scry_name_text(&tables->names, frame.file);
	struct scry_cell method = scry_name_text(&tables->names, frame.method);

	if (frame.flags & SCRY_FRAME_CLASS) {
		scry_buf_append(buf, "[", 1);
		if (method.is_unknown)
			scry_buf_printf(buf, "(unknown)");
		else
			scry_buf_append(buf, method.bytes, method.length);
		scry_buf_append(buf, "]", 1);
		return;
	}
	if (frame.flags & SCRY_STACK_C && !method.is_unknown) {
		scry_buf_append(buf, method.bytes, method.length);
		scry_buf_printf(buf, " (C)");
		return;
	}
	if (file.is_unknown)
		scry_buf_printf(buf, frame.line ? "(unknown)" : "(no Ruby frame)");
	else
		scry_gem_put_path(file.bytes, buf);
	if (frame.line)
		scry_buf_printf(buf, ":%d", (int)frame.line);
	if (!method.is_unknown) {
		scry_buf_append(buf, "  ", 2);
		scry_buf_append(buf, method.bytes, method.length);
	}
}

/* The leaf of a row: its stack, then its place, then its class. */
static uint32_t leaf_of(struct scry_object_tables *tables, const struct scry_object_row *row)
{
	struct scry_frame place = {
		.parent = row->stack,
		.file = row->file,
		.line = row->line,
		.method = row->method,
	};
	struct scry_frame class = {.method = row->class, .flags = SCRY_FRAME_CLASS};
	struct scry_cell name = scry_object_class(row);

	if (!class.method)
		scry_intern_put(&tables->names, name.bytes, name.length, &class.method);
	class.parent = scry_frames_put(&tables->frames, &place);
	return scry_frames_put(&tables->frames, &class);
}

static uint64_t figure(const struct tree *t, uint32_t id)
{
	return scry_object_figure(&t->nodes[id].counts, t->sort);
}

static int compare_order(const void *left, const void *right, void *arg)
{
	const struct tree *t = arg;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	uint64_t x = figure(t, a), y = figure(t, b);

	if (t->parents[a] != t->parents[b])
		return t->parents[a] < t->parents[b] ? -1 : 1;
	if (x != y)
		return x < y ? 1 : -1;
	return (a > b) - (a < b);
}

static int build(struct tree *t)
{
	struct scry_object_tables *tables = t->list->tables;
	uint32_t *leaves = calloc(t->list->count + 1, sizeof(*leaves)), id;
	size_t i;

	if (!leaves)
		return -ENOMEM;
	for (i = 0; i < t->list->count; i++)
		leaves[i] = leaf_of(tables, &t->list->rows[i]);
	t->count = (size_t)tables->frames.keys.count + 1;
	t->nodes = calloc(t->count, sizeof(*t->nodes));
	t->order = calloc(t->count, sizeof(*t->order));
	t->parents = calloc(t->count, sizeof(*t->parents));
	t->steps = calloc(t->count, sizeof(*t->steps));
	for (i = 0; t->nodes && i < t->list->count; i++)
		scry_object_counts_add(&t->nodes[leaves[i]].counts, &t->list->rows[i].counts);
	free(leaves);
	if (!t->nodes || !t->order || !t->parents || !t->steps)
		return -ENOMEM;
	for (id = (uint32_t)t->count - 1; id; id--) {
		t->parents[id] = scry_frames_get(&tables->frames, id).parent;
		scry_object_counts_add(&t->nodes[t->parents[id]].counts, &t->nodes[id].counts);
		t->order[id] = id;
	}
	qsort_r(t->order + 1, t->count - 1, sizeof(*t->order), compare_order, t);
	for (i = 1; i < t->count; i++) {
		struct node *parent = &t->nodes[t->parents[t->order[i]]];

		if (!parent->child_count++)
			parent->first_child = (uint32_t)i;
	}
	t->total = figure(t, 0);
	return 0;
}

static uint64_t tenths(const struct tree *t, uint64_t part)
{
	return scry_share(part, t->total, 1000);
}

static struct scry_cell bytes_cell(const struct tree *t, uint64_t bytes, uint64_t unsized)
{
	struct scry_cell cell = scry_cell_number(bytes);

	if (t->list->has_slots && t->list->has_sizes)
		cell.mark = unsized ? '*' : ' ';
	return cell;
}

static struct scry_cell frame_cell(const struct tree *t, const struct step *step,
				   struct scry_buf *buf)
{
	if (step->indent)
		scry_buf_printf(buf, "%*s%s", step->indent - 2, "", step->is_branch ? "+ " : "  ");
	scry_object_frame_text(t->list->tables, step->id, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

#define GET(name, ...) SCRY_GET(name, struct step, struct tree, __VA_ARGS__)
#define OF(member) (view->nodes[row->id].counts.member)

GET(get_percent, scry_cell_number(tenths(view, figure(view, row->id))))
GET(get_allocated, scry_cell_number(OF(allocated)))
GET(get_bytes, bytes_cell(view, OF(bytes), OF(unsized)))
GET(get_live, scry_cell_number(view->list->opts->live ? OF(old_live) : OF(live)))
GET(get_live_bytes, bytes_cell(view, view->list->opts->live ? OF(old_live_bytes) : OF(live_bytes),
			       OF(live_unsized)))
GET(get_frame, frame_cell(view, row, buf))

/* What the percentages are of stands before them. */
static void choose_columns(const struct tree *t, struct scry_column ret_columns[COLUMNS])
{
	static const char *const percents[] = {
		[SCRY_VIEW_SORT_ALLOCATED] = "% allocated",
		[SCRY_VIEW_SORT_BYTES] = "% bytes",
		[SCRY_VIEW_SORT_LIVE] = "% live",
		[SCRY_VIEW_SORT_LIVE_BYTES] = "% live bytes",
		[SCRY_VIEW_SORT_AGE] = NULL, /* ages have no sum: view.c refuses it */
		[SCRY_VIEW_SORT_OLD_LIVE] = "% survived",
		[SCRY_VIEW_SORT_OLD_LIVE_BYTES] = "% survived bytes",
	};
	const bool live = t->list->opts->live, stars = t->list->has_slots && !t->list->has_sizes;
	/* else the frames need the room */
	const bool has_bytes = !t->doc->width || t->doc->width >= WIDE;
	const char *bytes = stars ? "bytes*" : "bytes";
	const char *live_bytes = live	 ? (stars ? "survived bytes*" : "survived bytes")
				 : stars ? "live bytes*"
					 : "live bytes";
	const struct scry_column columns[COLUMNS] = {
		{percents[t->sort], NULL, SCRY_CELL_TENTHS, get_percent, 0},
		{"allocated", NULL, SCRY_CELL_COUNT, get_allocated, 0},
		{has_bytes ? bytes : NULL, NULL, SCRY_CELL_COUNT, get_bytes, 0},
		{live ? "survived" : "live", NULL, SCRY_CELL_COUNT, get_live, 0},
		{has_bytes ? live_bytes : NULL, NULL, SCRY_CELL_COUNT, get_live_bytes, 0},
		{"frame, outermost first", NULL, SCRY_CELL_TEXT, get_frame, SCRY_COLUMN_ELASTIC},
	};

	memcpy(ret_columns, columns, sizeof(columns));
}

/* Puts the children that are big enough on the pile, the biggest on top; the rest is summed. */
static void push_children(struct tree *t, const struct step *step)
{
	const struct node *node = &t->nodes[step->id];
	uint16_t indent = step->indent;
	uint32_t i, shown = 0;

	for (i = 0; i < node->child_count; i++) {
		uint32_t child = t->order[node->first_child + i];

		if (figure(t, child) &&
		    100.0 * (double)figure(t, child) >= PRUNE_PERCENT * (double)t->total) {
			shown++;
			continue;
		}
		if (!t->nodes[child].counts.allocated)
			continue;
		t->pruned += figure(t, child);
		t->pruned_branches++;
	}
	if (shown > 1 && indent < INDENT_MAX)
		indent += 2;
	for (i = shown; i > 0; i--)
		t->steps[t->step_count++] =
			(struct step){t->order[node->first_child + i - 1], indent, shown > 1};
}

static void push_rows(struct tree *t, const struct scry_table *table)
{
	struct step step = {0};

	push_children(t, &step);
	while (t->step_count) {
		if (t->top && t->rows >= t->top) {
			scry_doc_remark(t->doc, "more rows are not shown; --top 0 shows them");
			return;
		}
		step = t->steps[--t->step_count];
		scry_table_push_row(table, &step, t->doc);
		t->rows++;
		push_children(t, &step);
	}
	if (!t->pruned_branches)
		return;
	scry_buf_clear(&t->line);
	scry_text_count(&t->line, t->pruned_branches);
	scry_buf_printf(&t->line, " branches below %d %% are left out, together %llu.%llu %%",
			PRUNE_PERCENT, (unsigned long long)tenths(t, t->pruned) / 10,
			(unsigned long long)tenths(t, t->pruned) % 10);
	scry_doc_remark(t->doc, "%s", scry_buf_str(&t->line));
}

int scry_object_tree_push(const struct scry_object_list *list, int sort, uint64_t top,
			  struct scry_doc *doc)
{
	struct tree t = {.list = list, .doc = doc, .sort = sort, .top = top};
	struct scry_column columns[COLUMNS];
	const struct scry_table table = {SCRY_COLUMNS(columns), .view = &t};
	int err = build(&t);

	if (!err) {
		choose_columns(&t, columns);
		scry_doc_table(doc, columns, COLUMNS);
		push_rows(&t, &table);
	}
	scry_buf_done(&t.line);
	free(t.nodes);
	free(t.order);
	free(t.parents);
	free(t.steps);
	return err ? scry_fail(err, "no memory for the tree of callers") : 0;
}
