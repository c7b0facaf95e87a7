/*
 * The tree of callers. See malloc_tree.h.
 *
 * Frames that read alike are one, as in the rows by stack: a function with a name, whatever it
 * called from where in it.
 */
#include "view/malloc_tree.h"

#include "base/err.h"
#include "base/text.h"
#include "view/frame_tree.h"
#include "view/grep.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (1u << 22)
#define NAME_BYTES_MAX (1u << 30)

enum figure {
	FIGURE_AT_BYTES,
	FIGURE_AT_BLOCKS,
	FIGURE_ALLOCATED,
	FIGURE_BYTES,
	FIGURE_TEMPORARY,
	FIGURE_PEAK_BYTES,
	FIGURE_PEAK_BLOCKS,
	FIGURE_END_BYTES,
	FIGURE_END_BLOCKS,
	FIGURES
};

struct node {
	uint64_t figures[FIGURES];
};

struct tree {
	const struct scry_malloc_tree *what;
	struct scry_doc *doc;
	struct scry_intern names;
	struct scry_frames frames;
	struct node *nodes; /* by frame id, branches included; [0]: all */
	uint32_t count;	    /* of nodes */
	enum figure by;
	struct scry_left_out left_out;
	struct scry_table table;
	bool has_stacks;
};

static enum figure figure_of(int sort)
{
	switch (sort) {
	case SCRY_VIEW_SORT_ALLOCATED:
		return FIGURE_ALLOCATED;
	case SCRY_VIEW_SORT_BYTES:
		return FIGURE_BYTES;
	case SCRY_VIEW_SORT_LIVE:
		return FIGURE_AT_BLOCKS;
	case SCRY_VIEW_SORT_TEMPORARY:
		return FIGURE_TEMPORARY;
	default:
		return FIGURE_AT_BYTES;
	}
}

static uint32_t name_id(struct tree *t, const char *bytes, size_t length)
{
	uint32_t id = 0;

	if (bytes && scry_intern_put(&t->names, bytes, length, &id))
		return 0;
	return id;
}

static uint32_t put_frame(struct tree *t, uint32_t parent, const struct scry_doc_frame *from)
{
	struct scry_frame frame = {
		.parent = parent,
		.file = name_id(t, from->file, from->file_length),
		.method = name_id(t, from->method, from->method_length),
		.line = from->is_native ? 0 : from->line,
		.flags = from->is_native ? SCRY_STACK_NATIVE : 0,
	};

	if (from->is_native && !from->method)
		frame.line = (uint32_t)from->offset;
	return scry_frames_put(&t->frames, &frame);
}

/* Without a stack the caller alone, by whatever is known of it. */
static uint32_t leaf_alone(struct tree *t, const struct scry_malloc_caller_sum *c,
			   const struct scry_buf *place)
{
	const struct scry_reader *reader = t->what->places->reader;
	struct scry_doc_frame f = {.is_native = true, .offset = c->name.offset};

	f.file = scry_reader_string(reader, c->name.module_str, &f.file_length);
	f.method = scry_reader_string(reader, c->name.symbol_str, &f.method_length);
	if (!f.file && !f.method) {
		f.method = place->data;
		f.method_length = place->len;
	}
	return put_frame(t, 0, &f);
}

static uint32_t leaf_of(struct tree *t, const struct scry_malloc_caller_sum *c,
			const struct scry_buf *place)
{
	const struct scry_malloc_places *p = t->what->places;
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	uint32_t id = 0,
		 depth = scry_native_frames_all(p->stacks, p->reader, c->name.stack, frames);

	t->has_stacks |= depth != 0;
	for (uint32_t i = 0; i < depth; i++)
		id = put_frame(t, id, &frames[i]);
	return depth ? id : leaf_alone(t, c, place);
}

static void add_caller(struct node *n, const struct scry_malloc_caller_sum *c)
{
	const uint64_t figures[FIGURES] = {
		[FIGURE_AT_BYTES] = c->at.bytes,       [FIGURE_AT_BLOCKS] = c->at.blocks,
		[FIGURE_ALLOCATED] = c->allocated,     [FIGURE_BYTES] = c->bytes,
		[FIGURE_TEMPORARY] = c->temporary,     [FIGURE_PEAK_BYTES] = c->peak.bytes,
		[FIGURE_PEAK_BLOCKS] = c->peak.blocks, [FIGURE_END_BYTES] = c->live.bytes,
		[FIGURE_END_BLOCKS] = c->live.blocks,
	};

	for (int i = 0; i < FIGURES; i++)
		n->figures[i] += figures[i];
}

/* The leaf of each caller; 0: it has none, or --grep leaves it out. */
static int put_leaves(struct tree *t, uint32_t *leaves)
{
	const struct scry_malloc_places *p = t->what->places;
	struct scry_buf place = {0};
	struct scry_grep grep;
	int err = scry_grep_init(&grep, t->what->opts->grep);

	if (err)
		return err;
	for (uint32_t i = 0; i < p->process->caller_count; i++) {
		const struct scry_malloc_caller_sum *c = &p->process->callers[i];

		if (!c->allocated)
			continue;
		scry_buf_clear(&place);
		scry_malloc_places_put(p, c, &place);
		if (scry_grep_matches(&grep, scry_buf_str(&place)))
			leaves[i] = leaf_of(t, c, &place);
		else
			t->left_out.by_grep++;
	}
	scry_grep_done(&grep);
	scry_buf_done(&place);
	return 0;
}

static int build(struct tree *t)
{
	const struct scry_malloc_process *p = t->what->places->process;
	uint32_t *leaves = calloc(p->caller_count + 1ul, sizeof(*leaves));
	int err = leaves ? put_leaves(t, leaves) : -ENOMEM;

	if (!err) {
		t->count = t->frames.keys.count + 1;
		t->nodes = calloc(t->count, sizeof(*t->nodes));
		err = t->nodes ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; i < p->caller_count && !err; i++)
		if (leaves[i])
			add_caller(&t->nodes[leaves[i]], &p->callers[i]);
	for (uint32_t id = t->count; id-- > 1 && !err;) {
		struct node *parent = &t->nodes[scry_frames_get(&t->frames, id).parent];

		for (int i = 0; i < FIGURES; i++)
			parent->figures[i] += t->nodes[id].figures[i];
	}
	free(leaves);
	return err == -ENOMEM ? scry_no_memory("the tree of callers") : err;
}

static uint64_t figure(const void *tree, uint32_t id)
{
	const struct tree *t = tree;

	return t->nodes[id].figures[t->by];
}

static bool is_there(const void *tree, uint32_t id)
{
	const struct tree *t = tree;

	return t->nodes[id].figures[FIGURE_ALLOCATED] != 0;
}

/* "parse (libfoo.so)": the object where it is another one than its caller's. */
static void put_name(const struct tree *t, const struct scry_frame *frame, struct scry_buf *buf)
{
	struct scry_cell file = scry_name_text(&t->names, frame->file);
	struct scry_cell method = scry_name_text(&t->names, frame->method);
	const struct scry_doc_frame f = {
		.file = file.bytes,
		.file_length = file.length,
		.method = method.bytes,
		.method_length = method.length,
		.offset = frame->line,
	};
	const char *slash = file.bytes ? memrchr(file.bytes, '/', file.length) : NULL;

	scry_native_frame_name(&f, buf);
	if (file.bytes && method.bytes &&
	    scry_frames_get(&t->frames, frame->parent).file != frame->file)
		scry_buf_printf(buf, " (%s)", slash ? slash + 1 : file.bytes);
}

struct step { /* a row of the table */
	uint32_t id;
	struct scry_buf *line; /* text: what it is indented by */
};

static struct scry_cell frame_cell(const struct tree *t, const struct step *step)
{
	const struct scry_frame frame = scry_frames_get(&t->frames, step->id);

	put_name(t, &frame, step->line);
	return scry_cell_text(scry_buf_str(step->line), step->line->len);
}

#define GET(name, ...) SCRY_GET(name, struct step, const struct tree, __VA_ARGS__)
#define FIGURE(at) GET(get_##at, scry_cell_number(view->nodes[row->id].figures[FIGURE_##at]))
#define FRAME scry_frames_get(&view->frames, row->id)
GET(get_percent, scry_cell_number(scry_share(figure(view, row->id), figure(view, 0), 1000)))
FIGURE(AT_BYTES)
FIGURE(AT_BLOCKS)
FIGURE(ALLOCATED)
FIGURE(BYTES)
FIGURE(TEMPORARY)
FIGURE(PEAK_BYTES)
FIGURE(PEAK_BLOCKS)
FIGURE(END_BYTES)
FIGURE(END_BLOCKS)
GET(get_frame, frame_cell(view, row))
GET(get_parent, scry_cell_known(FRAME.parent, FRAME.parent != 0))
GET(get_module, scry_name_text(&view->names, FRAME.file))
GET(get_symbol, scry_name_text(&view->names, FRAME.method))
GET(get_offset, scry_cell_known(FRAME.line, FRAME.line != 0))
#undef GET
#undef FIGURE
#undef FRAME

static void push_row(void *tree, uint32_t id, struct scry_buf *line)
{
	struct tree *t = tree;

	scry_table_push_row(&t->table, &(struct step){id, line}, t->doc);
}

static int push_text(struct tree *t)
{
	static const char *const percents[FIGURES] = {
		[FIGURE_AT_BYTES] = "% bytes",	    [FIGURE_AT_BLOCKS] = "% blocks",
		[FIGURE_ALLOCATED] = "% allocated", [FIGURE_BYTES] = "% asked for",
		[FIGURE_TEMPORARY] = "% temporary",
	};
	const struct scry_frame_tree tree = {
		.frames = &t->frames,
		.names = &t->names,
		.doc = t->doc,
		.top = scry_view_top(t->what->opts, t->doc),
		.figure = figure,
		.is_there = is_there,
		.push = push_row,
		.arg = t,
	};
	const struct scry_column columns[] = {
		{percents[t->by], NULL, SCRY_CELL_TENTHS, get_percent, 0},
		{t->what->at_title, NULL, SCRY_CELL_COUNT, get_AT_BYTES, 0},
		{"blocks", NULL, SCRY_CELL_COUNT, get_AT_BLOCKS, 0},
		{"allocated", NULL, SCRY_CELL_COUNT, get_ALLOCATED, 0},
		{"bytes", NULL, SCRY_CELL_COUNT, get_BYTES, 0},
		{"temporary", NULL, SCRY_CELL_COUNT, get_TEMPORARY, 0},
		{"function, outermost first", NULL, SCRY_CELL_TEXT, get_frame,
		 SCRY_COLUMN_CUT_AT_END},
	};
	int err;

	t->table = (struct scry_table){SCRY_COLUMNS(columns), .view = t};
	scry_doc_table(t->doc, columns, t->table.column_count);
	err = scry_frame_tree_push(&tree);
	if (!err)
		scry_left_out_push(&t->left_out, t->doc);
	if (!err && !t->has_stacks)
		scry_doc_remark(t->doc, "no stacks were recorded: each caller is alone; fix: "
					"record with --stack");
	return err;
}

/* All of it, a caller before what it calls. */
static void push_data(struct tree *t)
{
	static const struct scry_column columns[] = {
		{NULL, "id", SCRY_CELL_NUMBER, SCRY_AT(struct step, id)},
		{NULL, "parent", SCRY_CELL_NUMBER, get_parent, 0},
		{NULL, "at_bytes", SCRY_CELL_COUNT, get_AT_BYTES, 0},
		{NULL, "at_blocks", SCRY_CELL_COUNT, get_AT_BLOCKS, 0},
		{NULL, "allocated", SCRY_CELL_COUNT, get_ALLOCATED, 0},
		{NULL, "bytes", SCRY_CELL_COUNT, get_BYTES, 0},
		{NULL, "temporary", SCRY_CELL_COUNT, get_TEMPORARY, 0},
		{NULL, "peak_bytes", SCRY_CELL_COUNT, get_PEAK_BYTES, 0},
		{NULL, "peak_blocks", SCRY_CELL_COUNT, get_PEAK_BLOCKS, 0},
		{NULL, "end_bytes", SCRY_CELL_COUNT, get_END_BYTES, 0},
		{NULL, "end_blocks", SCRY_CELL_COUNT, get_END_BLOCKS, 0},
		{NULL, "module", SCRY_CELL_TEXT, get_module, 0},
		{NULL, "symbol", SCRY_CELL_SYMBOL, get_symbol, 0},
		{NULL, "offset", SCRY_CELL_NUMBER, get_offset, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), .view = t};

	t->doc->section = "tree";
	scry_doc_table(t->doc, columns, table.column_count);
	for (uint32_t id = 1; id < t->count; id++)
		scry_table_push_row(&table, &(struct step){.id = id}, t->doc);
}

int scry_malloc_tree_push(const struct scry_malloc_tree *what, struct scry_doc *doc)
{
	struct tree t = {.what = what,
			 .doc = doc,
			 .by = figure_of(what->opts->sort),
			 .left_out = {.noun = "stacks"}};
	int err;

	scry_intern_init(&t.names, NAMES_MAX, NAME_BYTES_MAX);
	scry_frames_init(&t.frames);
	err = build(&t);
	if (!err && doc->is_data)
		push_data(&t);
	else if (!err)
		err = push_text(&t);
	free(t.nodes);
	scry_frames_done(&t.frames);
	scry_intern_done(&t.names);
	return err;
}
