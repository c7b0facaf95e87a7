/*
 * The log view: each entry of a hooked function, as it came: when, in which thread, with what.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "view/functions.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/table.h"
#include "view/view.h"

#define ARGS_MAX 6

/* Functions by process and number: few, and mostly the one before. */
struct log {
	struct scry_ev_function *functions;
	size_t count, room, last;
	struct scry_grep grep;
	struct scry_left_out left_out;
	const struct scry_view_opts *opts;
};

static int add_function(struct log *l, const struct scry_ev_function *f)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct scry_ev_function *more =
			reallocarray(l->functions, room, sizeof(*l->functions));

		if (!more)
			return scry_no_memory("%zu functions", room);
		l->functions = more;
		l->room = room;
	}
	l->functions[l->count++] = *f;
	return 0;
}

static const struct scry_ev_function *find(struct log *l, const struct scry_ev_entry *e)
{
	for (size_t i = 0; i < l->count; i++) {
		size_t at = (l->last + i) % l->count;

		if (l->functions[at].function == e->function && l->functions[at].pid == e->pid) {
			l->last = at;
			return &l->functions[at];
		}
	}
	return NULL;
}

static bool is_wanted(struct log *l, struct scry_reader *reader, const struct scry_ev_entry *e,
		      const struct scry_ev_function *f)
{
	const char *symbol = f ? scry_reader_string(reader, f->symbol_str, NULL) : NULL;

	if (l->opts->pid && l->opts->pid != e->pid)
		return false;
	if (!l->opts->grep || (symbol && scry_grep_matches_symbol(&l->grep, symbol)))
		return true;
	l->left_out.by_grep++;
	return false;
}

static void push(struct scry_reader *reader, const struct scry_event *event,
		 const struct scry_ev_function *f, struct scry_doc *doc)
{
	static const char *const keys[ARGS_MAX] = {"arg1", "arg2", "arg3", "arg4", "arg5", "arg6"};
	const struct scry_ev_entry *e = (const void *)(event + 1);
	const uint64_t args[ARGS_MAX] = {e->arg1, e->arg2, e->arg3, e->arg4, e->arg5, e->arg6};
	uint64_t start = scry_reader_head(reader)->mono_ns;
	struct scry_pair pairs[5 + ARGS_MAX] = {
		{"time_ns", NULL, SCRY_CELL_TIME, 12,
		 scry_cell_number(event->time_ns > start ? event->time_ns - start : 0)},
		{"tid", NULL, SCRY_CELL_NUMBER, 7, scry_cell_number(event->tid)},
		{"function", NULL, SCRY_CELL_SYMBOL, 1,
		 f ? scry_functions_string(reader, f->symbol_str) : scry_cell_unknown()},
	};
	size_t count = 3;

	for (uint32_t i = 0; i < e->args && i < ARGS_MAX; i++)
		pairs[count++] = (struct scry_pair){keys[i], NULL, SCRY_CELL_HEX, 0,
						    scry_cell_number(args[i])};
	doc->ops->record(doc, pairs, count);
}

static int show(struct log *l, struct scry_reader *reader, struct scry_doc *doc)
{
	const struct scry_event *event;
	struct scry_data_quality quality;
	uint64_t top = l->opts->top == SCRY_VIEW_TOP_DEFAULT ? 0 : l->opts->top;
	int got, r = 0;

	scry_data_quality_init(&quality, reader);
	while ((got = scry_reader_next(reader, &event)) > 0 && r == 0 && !ferror(doc->out)) {
		const void *payload = event + 1;

		scry_data_quality_event(&quality, event);
		if (event->type == SCRY_EVENT_FUNCTION)
			r = add_function(l, payload);
		if (event->type == SCRY_EVENT_ENTRY) {
			const struct scry_ev_function *f = find(l, payload);

			if (!is_wanted(l, reader, payload, f))
				continue;
			if (top && quality.shown == top) {
				l->left_out.by_top++;
				continue;
			}
			push(reader, event, f, doc);
			quality.shown++;
		}
	}
	if (got < 0 || r < 0)
		return got < 0 ? got : r;
	scry_data_quality_close(&quality);
	quality.noun = "calls";
	scry_data_quality_push(&quality, doc);
	scry_left_out_push(&l->left_out, doc);
	return 0;
}

int scry_view_log(struct scry_reader *reader, const struct scry_view_opts *opts,
		  struct scry_doc *doc)
{
	struct log l = {.opts = opts, .left_out.noun = "calls"};
	int r = scry_grep_init(&l.grep, opts->grep);

	if (r < 0)
		return r;
	r = show(&l, reader, doc);
	scry_grep_done(&l.grep);
	free(l.functions);
	return r;
}
