/*
 * The calls-tree view: which traced functions called which, summed over all threads. A call is
 * below the one that was open in its thread when it began; functions between them that are not
 * traced are not seen. What is still open above a call that ends was left, or is of a coroutine:
 * nothing is put below it any more, but a return of it that comes late counts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/text.h"
#include "view/calls_line.h"
#include "view/functions.h"
#include "view/data_quality.h"
#include "view/table.h"
#include "view/verdict.h"

#define NODES_MAX (1u << 20)
#define OPEN_MAX (1u << 20)
#define THREADS_MAX (1u << 20)
#define DEPTH_SHOWN 60u

struct node {
	uint32_t symbol, module;
	uint32_t parent;	 /* index + 1; 0: none */
	uint32_t child, sibling; /* the same, in order of total time, once linked */
	uint64_t calls, returned, total_ns, below_ns;
	uint64_t known_ns; /* its own, or those below it where it was left */
};

struct open_call {
	uint64_t thread;
	uint32_t node, below; /* node + 1; open call + 1 that it is in, or next free */
	bool is_stacked;      /* among those that the thread is in */
};

struct tree {
	const struct scry_view_opts *opts;
	struct scry_reader *reader;
	struct scry_call_functions functions;
	struct scry_map by_name; /* symbol and module -> number */
	struct scry_map by_path; /* parent << 32 | that -> node + 1 */
	struct scry_map by_call; /* key of an open call -> it + 1 */
	struct scry_map tops;	 /* thread -> its innermost open call + 1 */
	struct node *nodes;
	uint32_t count, room;
	struct open_call *open;
	uint32_t open_count, open_room, first_free;
	uint64_t calls, returned, alone, total_ns;
	uint64_t left_out; /* calls for which a table had no room */
};

/* Index + 1; 0: no room. */
static uint32_t node_of(struct tree *t, uint32_t parent, const struct scry_ev_function *f)
{
	uint64_t *name = scry_map_ref(&t->by_name, (uint64_t)f->symbol_str << 32 | f->module_str);
	uint64_t *at;

	if (name && !*name)
		*name = t->by_name.count;
	at = name ? scry_map_ref(&t->by_path, (uint64_t)parent << 32 | *name) : NULL;
	if (!at || *at)
		return at ? (uint32_t)*at : 0;
	if (t->count == t->room) {
		uint32_t room = t->room ? 2 * t->room : 256;
		struct node *more = reallocarray(t->nodes, room, sizeof(*more));

		if (!more)
			return 0;
		t->nodes = more;
		t->room = room;
	}
	t->nodes[t->count++] =
		(struct node){.symbol = f->symbol_str, .module = f->module_str, .parent = parent};
	*at = t->count;
	return t->count;
}

static uint32_t new_open(struct tree *t)
{
	uint32_t i = t->first_free;

	if (i) {
		t->first_free = t->open[i - 1].below;
		return i;
	}
	if (t->open_count == t->open_room) {
		uint32_t room = t->open_room ? 2 * t->open_room : 256;
		struct open_call *more =
			room <= OPEN_MAX ? reallocarray(t->open, room, sizeof(*more)) : NULL;

		if (!more)
			return 0;
		t->open = more;
		t->open_room = room;
	}
	return ++t->open_count;
}

static void free_open(struct tree *t, uint32_t i)
{
	t->open[i - 1].below = t->first_free;
	t->first_free = i;
}

static uint64_t thread_key(uint32_t pid, uint32_t tid)
{
	return (uint64_t)pid << 32 | tid;
}

static void on_call(struct tree *t, const struct scry_event *event)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_call_function *f =
		scry_call_functions_find(&t->functions, call->pid, call->function);
	uint64_t *top;
	uint64_t *at;
	uint32_t node, i;

	if (!f || (t->opts->pid && t->opts->pid != call->pid))
		return;
	top = scry_map_ref(&t->tops, thread_key(call->pid, event->tid));
	node = top ? node_of(t, *top ? t->open[*top - 1].node : 0, &f->ev) : 0;
	i = node ? new_open(t) : 0;
	at = i ? scry_map_ref(&t->by_call, scry_call_key(call->pid, call->call)) : NULL;
	if (!at) {
		if (i)
			free_open(t, i);
		t->left_out++;
		return;
	}
	*at = i;
	t->calls++;
	t->nodes[node - 1].calls++;
	t->open[i - 1] = (struct open_call){.thread = thread_key(call->pid, event->tid),
					    .node = node,
					    .below = (uint32_t)*top,
					    .is_stacked = true};
	*top = i;
}

/* Takes a call, and those above it, from the stack of its thread. */
static void unstack(struct tree *t, uint32_t i)
{
	uint64_t *top = scry_map_ref(&t->tops, t->open[i - 1].thread);

	while (top && t->open[i - 1].is_stacked) {
		struct open_call *o = &t->open[*top - 1];

		o->is_stacked = false;
		*top = o->below;
	}
	if (top && !*top) /* it may have ended */
		scry_map_remove(&t->tops, t->open[i - 1].thread, NULL);
}

static void on_return(struct tree *t, const struct scry_event *event)
{
	const struct scry_ev_return *ret = (const void *)(event + 1);
	uint64_t i;
	struct node *n;

	if (!scry_map_remove(&t->by_call, scry_call_key(ret->pid, ret->call), &i))
		return;
	unstack(t, (uint32_t)i);
	n = &t->nodes[t->open[i - 1].node - 1];
	if (ret->how == SCRY_RETURN_DONE) {
		t->returned++;
		n->returned++;
		n->total_ns += ret->duration_ns;
		if (n->parent)
			t->nodes[n->parent - 1].below_ns += ret->duration_ns;
	}
	t->alone += ret->how != SCRY_RETURN_DONE && ret->how != SCRY_RETURN_LEFT;
	free_open(t, (uint32_t)i);
}

/* A node comes behind its parent. */
static void sum_up(struct tree *t)
{
	for (uint32_t i = t->count; i-- > 0;) {
		struct node *n = &t->nodes[i];

		n->known_ns = n->known_ns > n->total_ns ? n->known_ns : n->total_ns;
		*(n->parent ? &t->nodes[n->parent - 1].known_ns : &t->total_ns) += n->known_ns;
	}
}

struct order {
	uint64_t total_ns;
	uint32_t node;
};

static int by_total(const void *left, const void *right, void *tree)
{
	const struct tree *t = tree;
	const struct order *a = left, *b = right;
	const struct node *x = &t->nodes[a->node], *y = &t->nodes[b->node];
	int order = scry_functions_compare(a->total_ns, b->total_ns);

	order = order ? order : scry_functions_compare(x->calls, y->calls);
	order = order ? order : scry_functions_compare_strings(t->reader, y->symbol, x->symbol);
	order = order ? order : scry_functions_compare_strings(t->reader, y->module, x->module);
	return order ? order : scry_functions_compare(b->node, a->node);
}

/* Children before each other by their time: they are put in front, the shortest first. Returns the
 * first root + 1, or 0. */
static uint32_t link_nodes(struct tree *t)
{
	struct order *all = calloc(t->count + 1, sizeof(*all));
	uint32_t root = 0;

	if (!all)
		return 0;
	for (uint32_t i = 0; i < t->count; i++)
		all[i] = (struct order){t->nodes[i].total_ns, i};
	qsort_r(all, t->count, sizeof(*all), by_total, t);
	for (uint32_t i = 0; i < t->count; i++) {
		struct node *n = &t->nodes[all[i].node];
		uint32_t *first = n->parent ? &t->nodes[n->parent - 1].child : &root;

		n->sibling = *first;
		*first = all[i].node + 1;
	}
	free(all);
	return root;
}

struct line { /* of the table */
	const struct node *of;
	uint32_t depth;
};

static struct scry_cell tree_cell(const struct tree *t, const struct line *line,
				  struct scry_buf *buf)
{
	const char *name = scry_reader_string(t->reader, line->of->symbol, NULL);
	const uint32_t depth = line->depth < DEPTH_SHOWN ? line->depth : DEPTH_SHOWN;

	scry_buf_printf(buf, "%*s", (int)(2 * depth), "");
	scry_demangle_put(name ? name : "?", name ? strlen(name) : 1, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static uint64_t own_ns(const struct node *n)
{
	return n->total_ns > n->below_ns ? n->total_ns - n->below_ns : 0;
}

#define GET(name, ...) SCRY_GET(name, struct line, const struct tree, __VA_ARGS__)
GET(get_share, scry_cell_known(scry_share(row->of->total_ns, view->total_ns, 1000),
			       row->of->returned && view->total_ns))
GET(get_total, scry_cell_known(row->of->total_ns, row->of->returned != 0))
GET(get_own, scry_cell_known(own_ns(row->of), row->of->returned != 0))
GET(get_calls, scry_cell_number(row->of->calls))
GET(get_returned, scry_cell_number(row->of->returned))
GET(get_function, scry_functions_string(view->reader, row->of->symbol))
GET(get_library, scry_functions_string(view->reader, row->of->module))
GET(get_tree, tree_cell(view, row, buf))
#undef GET

static void push(struct tree *t, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"% time", NULL, SCRY_CELL_TENTHS, get_share, 0},
		{"total ns", "total_ns", SCRY_CELL_COUNT, get_total, 0},
		{"own ns", "own_ns", SCRY_CELL_COUNT, get_own, 0},
		{"calls", "calls", SCRY_CELL_COUNT, get_calls, 0},
		{NULL, "returned", SCRY_CELL_NUMBER, get_returned, 0},
		{NULL, "depth", SCRY_CELL_NUMBER, SCRY_AT(struct line, depth)},
		{NULL, "function", SCRY_CELL_SYMBOL, get_function, 0},
		{NULL, "library", SCRY_CELL_TEXT, get_library, 0},
		{"call tree", NULL, SCRY_CELL_TEXT, get_tree, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), .view = t};
	uint32_t depth = 0, i = link_nodes(t);

	scry_doc_table(doc, columns, table.column_count);
	while (i) {
		const struct node *n = &t->nodes[i - 1];

		scry_table_push_row(&table, &(struct line){n, depth}, doc);
		if (n->child) {
			i = n->child;
			depth++;
			continue;
		}
		while (!n->sibling && n->parent) {
			n = &t->nodes[n->parent - 1];
			depth--;
		}
		i = n->sibling;
	}
	if (!t->count)
		scry_doc_remark(doc, "no call was seen");
	scry_call_remark_alone(doc, t->alone, "", ": it counts as their callers' own");
	if (t->left_out)
		scry_doc_remark(doc,
				"%llu more %s left out: the tree has room for a million paths, and "
				"a million calls that have not returned",
				(unsigned long long)t->left_out,
				t->left_out == 1 ? "call is" : "calls are");
}

static void judge(const struct tree *t, struct scry_doc *doc)
{
	const struct node *most = NULL;
	struct scry_buf buf = {0};
	uint64_t self = 0;

	for (uint32_t i = 0; i < t->count; i++) {
		const struct node *n = &t->nodes[i];
		const uint64_t own = own_ns(n);

		if (n->returned &&
		    (!most || own > self ||
		     (own == self &&
		      scry_functions_compare_strings(t->reader, n->symbol, most->symbol) < 0))) {
			most = n;
			self = own;
		}
	}
	if (!t->count) {
		scry_buf_printf(&buf, "nothing was seen: no call was made");
	} else if (!most) {
		scry_text_things(&buf, t->calls, "calls");
		scry_buf_printf(&buf, t->alone ? ", and no time of any is known"
					       : ", of which none has returned");
	} else {
		const char *name = scry_reader_string(t->reader, most->symbol, NULL);

		scry_verdict_percent(&buf, self, t->total_ns);
		scry_buf_printf(&buf, " of the time of ");
		scry_text_things(&buf, t->returned, "calls");
		scry_buf_printf(&buf, " (");
		scry_text_duration(&buf, t->total_ns);
		scry_buf_printf(&buf, ") is in ");
		scry_demangle_put(name ? name : "?", name ? strlen(name) : 1, &buf);
		scry_buf_printf(&buf, " itself");
	}
	scry_verdict(doc, &buf);
	scry_buf_done(&buf);
}

static int read_all(struct tree *t, struct scry_data_quality *quality)
{
	const struct scry_event *event;
	int got, r = 0;

	while ((got = scry_reader_next(t->reader, &event)) > 0 && r == 0) {
		scry_data_quality_event(quality, event);
		if (event->type == SCRY_EVENT_FUNCTION)
			r = scry_call_functions_add(&t->functions, t->reader,
						    (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALL)
			on_call(t, event);
		if (event->type == SCRY_EVENT_RETURN)
			on_return(t, event);
	}
	return got < 0 ? got : r;
}

int scry_view_calls_tree(struct scry_reader *reader, const struct scry_view_opts *opts,
			 struct scry_doc *doc)
{
	struct tree t = {.opts = opts, .reader = reader};
	struct scry_data_quality quality;
	int r;

	scry_map_init(&t.by_name, NODES_MAX);
	scry_map_init(&t.by_path, NODES_MAX);
	scry_map_init(&t.by_call, 2 * OPEN_MAX);
	scry_map_init(&t.tops, THREADS_MAX);
	scry_call_functions_init(&t.functions);
	scry_data_quality_init(&quality, reader);
	r = read_all(&t, &quality);
	if (r == 0) {
		scry_data_quality_close(&quality);
		quality.noun = "calls";
		quality.shown = t.calls;
		scry_data_quality_push(&quality, doc);
		sum_up(&t);
		judge(&t, doc);
		push(&t, doc);
	}
	free(t.nodes);
	free(t.open);
	scry_map_done(&t.by_name);
	scry_map_done(&t.by_path);
	scry_map_done(&t.by_call);
	scry_map_done(&t.tops);
	scry_call_functions_done(&t.functions);
	return r;
}
