/*
 * The tree of --stacks. See object_tree.h.
 *
 * Places and classes are put into the table of frames too, so the whole tree is that table: ids
 * grow from the root to the leaves, and one loop from the last id to the first sums everything up.
 */
#include "view/object_tree.h"

#include "base/err.h"
#include "base/text.h"
#include "view/frame_tree.h"
#include "view/gem.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 6
#define WIDE 120u /* columns of a terminal that has room for all figures */

struct tree {
	const struct scry_object_list *list;
	struct scry_doc *doc;
	int sort;
	uint64_t total;
	struct scry_object_counts *nodes; /* by frame id; [0]: the root above all */
	size_t count;			  /* of nodes */
	struct scry_table table;
};

/* A row, and what comes before its frame. */
struct step {
	uint32_t id;
	struct scry_buf *line;
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

static uint64_t figure(const void *tree, uint32_t id)
{
	const struct tree *t = tree;

	return scry_object_figure(&t->nodes[id], t->sort);
}

static bool is_there(const void *tree, uint32_t id)
{
	const struct tree *t = tree;

	return t->nodes[id].allocated != 0;
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
	for (i = 0; t->nodes && i < t->list->count; i++)
		scry_object_counts_add(&t->nodes[leaves[i]], &t->list->rows[i].counts);
	free(leaves);
	if (!t->nodes)
		return -ENOMEM;
	for (id = (uint32_t)t->count - 1; id; id--)
		scry_object_counts_add(&t->nodes[scry_frames_get(&tables->frames, id).parent],
				       &t->nodes[id]);
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

static struct scry_cell frame_cell(const struct tree *t, const struct step *step)
{
	scry_object_frame_text(t->list->tables, step->id, step->line);
	return scry_cell_text(scry_buf_str(step->line), step->line->len);
}

#define GET(name, ...) SCRY_GET(name, struct step, struct tree, __VA_ARGS__)
#define OF(member) (view->nodes[row->id].member)

GET(get_percent, scry_cell_number(tenths(view, figure(view, row->id))))
GET(get_allocated, scry_cell_number(OF(allocated)))
GET(get_bytes, bytes_cell(view, OF(bytes), OF(unsized)))
GET(get_live, scry_cell_number(view->list->opts->live ? OF(old_live) : OF(live)))
GET(get_live_bytes, bytes_cell(view, view->list->opts->live ? OF(old_live_bytes) : OF(live_bytes),
			       OF(live_unsized)))
GET(get_frame, frame_cell(view, row))

/* What the percentages are of comes before them. */
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

static void push_row(void *tree, uint32_t id, struct scry_buf *line)
{
	struct tree *t = tree;

	scry_table_push_row(&t->table, &(struct step){id, line}, t->doc);
}

int scry_object_tree_push(const struct scry_object_list *list, int sort, uint64_t top,
			  struct scry_doc *doc)
{
	struct tree t = {.list = list, .doc = doc, .sort = sort};
	const struct scry_frame_tree tree = {
		.frames = &list->tables->frames,
		.names = &list->tables->names,
		.doc = doc,
		.top = top,
		.figure = figure,
		.is_there = is_there,
		.push = push_row,
		.arg = &t,
	};
	struct scry_column columns[COLUMNS];
	int err = build(&t);

	if (err) {
		scry_no_memory("the tree of callers");
	} else {
		choose_columns(&t, columns);
		t.table = (struct scry_table){SCRY_COLUMNS(columns), .view = &t};
		scry_doc_table(doc, columns, COLUMNS);
		err = scry_frame_tree_push(&tree);
	}
	free(t.nodes);
	return err;
}
