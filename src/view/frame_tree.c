/*
 * A tree of frames as text rows. See frame_tree.h.
 *
 * Ids grow from the root to the leaves. What is still to be printed is a pile of steps, so that a
 * deep tree needs no recursion.
 */
#include "view/frame_tree.h"

#include "base/err.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>

#define PRUNE_PERCENT 1
#define INDENT_MAX 120u

struct children {
	uint32_t first, count; /* in `order`, biggest first */
};

struct step {
	uint32_t id;
	uint16_t indent;
	bool is_branch;
};

struct state {
	const struct scry_frame_tree *tree;
	uint32_t count;	   /* of frames, and the root above all */
	uint32_t *parents; /* by frame id */
	uint32_t *order;   /* frame ids, sorted by parent, then biggest first */
	struct children *children;
	struct step *steps; /* what is still to be printed */
	uint32_t step_count;
	uint64_t total, rows, pruned, pruned_branches;
	struct scry_buf line;
};

static uint64_t figure(const struct state *s, uint32_t id)
{
	return s->tree->figure(s->tree->arg, id);
}

static int compare_order(const void *left, const void *right, void *arg)
{
	const struct state *s = arg;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	uint64_t x = figure(s, a), y = figure(s, b);

	if (s->parents[a] != s->parents[b])
		return s->parents[a] < s->parents[b] ? -1 : 1;
	if (x != y)
		return x < y ? 1 : -1;
	return scry_frames_compare(s->tree->frames, s->tree->names, a, b);
}

static int sort(struct state *s)
{
	s->count = s->tree->frames->keys.count + 1;
	s->parents = calloc(s->count, sizeof(*s->parents));
	s->order = calloc(s->count, sizeof(*s->order));
	s->children = calloc(s->count, sizeof(*s->children));
	s->steps = calloc(s->count, sizeof(*s->steps));
	if (!s->parents || !s->order || !s->children || !s->steps)
		return -ENOMEM;
	for (uint32_t id = 1; id < s->count; id++) {
		s->parents[id] = scry_frames_get(s->tree->frames, id).parent;
		s->order[id] = id;
	}
	qsort_r(s->order + 1, s->count - 1, sizeof(*s->order), compare_order, s);
	for (uint32_t i = 1; i < s->count; i++) {
		struct children *c = &s->children[s->parents[s->order[i]]];

		if (!c->count++)
			c->first = i;
	}
	s->total = figure(s, 0);
	return 0;
}

/* Puts the children that are big enough on the pile, the biggest on top; the rest is summed. */
static void push_children(struct state *s, const struct step *step)
{
	const struct children *c = &s->children[step->id];
	uint16_t indent = step->indent;
	uint32_t shown = 0;

	for (uint32_t i = 0; i < c->count; i++) {
		uint32_t child = s->order[c->first + i];
		uint64_t part = figure(s, child);

		if (part && 100.0 * (double)part >= PRUNE_PERCENT * (double)s->total) {
			shown++;
			continue;
		}
		if (!s->tree->is_there(s->tree->arg, child))
			continue;
		s->pruned += part;
		s->pruned_branches++;
	}
	if (shown > 1 && indent < INDENT_MAX)
		indent += 2;
	for (uint32_t i = shown; i > 0; i--)
		s->steps[s->step_count++] =
			(struct step){s->order[c->first + i - 1], indent, shown > 1};
}

static void push_row(struct state *s, const struct step *step)
{
	scry_buf_clear(&s->line);
	if (step->indent)
		scry_buf_printf(&s->line, "%*s%s", step->indent - 2, "",
				step->is_branch ? "+ " : "  ");
	s->tree->push(s->tree->arg, step->id, &s->line);
	s->rows++;
}

static void remark_pruned(struct state *s)
{
	const unsigned long long tenths = scry_share(s->pruned, s->total, 1000);
	const bool is_one = s->pruned_branches == 1;

	if (!s->pruned_branches)
		return;
	scry_buf_clear(&s->line);
	scry_text_count(&s->line, s->pruned_branches);
	scry_buf_printf(&s->line, " branch%s below %d %% %s left out, %s%llu.%llu %%",
			is_one ? "" : "es", PRUNE_PERCENT, is_one ? "is" : "are",
			is_one ? "" : "together ", tenths / 10, tenths % 10);
	scry_doc_remark(s->tree->doc, "%s", scry_buf_str(&s->line));
}

static void push_rows(struct state *s)
{
	struct step step = {0};

	push_children(s, &step);
	while (s->step_count) {
		if (s->tree->top && s->rows >= s->tree->top) {
			scry_doc_remark(s->tree->doc,
					"more rows are not shown; --top 0 shows them");
			return;
		}
		step = s->steps[--s->step_count];
		push_row(s, &step);
		push_children(s, &step);
	}
	remark_pruned(s);
}

int scry_frame_tree_push(const struct scry_frame_tree *tree)
{
	struct state s = {.tree = tree};
	int err = sort(&s);

	if (!err)
		push_rows(&s);
	scry_buf_done(&s.line);
	free(s.parents);
	free(s.order);
	free(s.children);
	free(s.steps);
	return err ? scry_no_memory("the tree of callers") : 0;
}
