/*
 * The table of views. See view.h.
 */
#include "view/calls_where.h"
#include "view/view.h"

#include "base/buf.h"
#include "base/err.h"
#include "view/filter.h"
#include "view/grep.h"
#include "view/malloc.h"
#include "view/sort.h"
#include "view/takes.h"

#include <errno.h>
#include <string.h>

#define TOP_ROWS 30 /* view.h says so, too */

#define OBJECTS                                                                                   \
	(SCRY_VIEW_TAKES_BY | SCRY_VIEW_TAKES_SORT | SCRY_VIEW_TAKES_TOP | SCRY_VIEW_TAKES_GREP | \
	 SCRY_VIEW_TAKES_FILTER | SCRY_VIEW_TAKES_LIVE | SCRY_VIEW_TAKES_INTERNAL |               \
	 SCRY_VIEW_TAKES_STACKS | SCRY_VIEW_TAKES_PID)
#define LOG (SCRY_VIEW_TAKES_TOP | SCRY_VIEW_TAKES_GREP | SCRY_VIEW_TAKES_PID)
#define FUNCTIONS (LOG | SCRY_VIEW_TAKES_SORT | SCRY_VIEW_TAKES_FILTER)
#define MALLOC                                                                                    \
	(SCRY_VIEW_TAKES_BY | SCRY_VIEW_TAKES_SORT | SCRY_VIEW_TAKES_TOP | SCRY_VIEW_TAKES_GREP | \
	 SCRY_VIEW_TAKES_FILTER | SCRY_VIEW_TAKES_STACKS | SCRY_VIEW_TAKES_PID |                  \
	 SCRY_VIEW_TAKES_AT)
#define CALLS \
	(SCRY_VIEW_TAKES_GREP | SCRY_VIEW_TAKES_PID | SCRY_VIEW_TAKES_STYLE | SCRY_VIEW_TAKES_WHERE)
#define STACKS                                                                                     \
	(SCRY_VIEW_TAKES_TOP | SCRY_VIEW_TAKES_GREP | SCRY_VIEW_TAKES_STACKS |                     \
	 SCRY_VIEW_TAKES_PID | SCRY_VIEW_TAKES_TIMES | SCRY_VIEW_TAKES_BY | SCRY_VIEW_TAKES_SORT | \
	 SCRY_VIEW_TAKES_FILTER)

const struct scry_view scry_views[] = {
	{"objects", "objects", "which line makes objects of which class, and how many live", 3,
	 false, scry_view_objects, OBJECTS, SCRY_SORT_OBJECTS, SCRY_FILTER_OBJECTS},
	{"count", "count", "calls of hooked functions", 2, false, scry_view_count, FUNCTIONS,
	 SCRY_SORT_COUNT, SCRY_FILTER_FUNCTIONS},
	{"time", "time", "how long calls of hooked functions took", 2, false, scry_view_time,
	 FUNCTIONS, SCRY_SORT_TIME, SCRY_FILTER_FUNCTIONS},
	{"log", "log", "each entry of a hooked function, one a line", 2, true, scry_view_log, LOG,
	 NULL, NULL},
	{"greenlets", "log", "how much of their stacks greenlets copy at switches", 2, false,
	 scry_view_greenlets,
	 SCRY_VIEW_TAKES_TOP | SCRY_VIEW_TAKES_PID | SCRY_VIEW_TAKES_SORT | SCRY_VIEW_TAKES_FILTER,
	 SCRY_SORT_GREENLETS, SCRY_FILTER_GREENLETS},
	{"malloc", "malloc", "which callers hold the memory of malloc, and whether it grows", 3,
	 false, scry_view_malloc, MALLOC, SCRY_SORT_MALLOC, SCRY_FILTER_MALLOC},
	{"calls", "calls", "each call of a traced function, one a line", 3, true, scry_view_calls,
	 CALLS, NULL, NULL},
	{"calls-sums", "calls", "calls and times of each traced function", 2, false,
	 scry_view_calls_sums, FUNCTIONS | SCRY_VIEW_TAKES_WHERE, SCRY_SORT_CALLS,
	 SCRY_FILTER_CALLS},
	{"calls-hist", "calls", "how many calls of each traced function took how long", 2, false,
	 scry_view_calls_hist, SCRY_VIEW_TAKES_GREP | SCRY_VIEW_TAKES_PID | SCRY_VIEW_TAKES_FILTER,
	 NULL, SCRY_FILTER_HIST},
	{"calls-tree", "calls", "which traced functions called which", 2, false,
	 scry_view_calls_tree, SCRY_VIEW_TAKES_PID, NULL, NULL},
	{"gvl", "gvl", "which threads held a Ruby's VM lock (GVL), and which waited", 5, false,
	 scry_view_gvl, FUNCTIONS | SCRY_VIEW_TAKES_BY | SCRY_VIEW_TAKES_STACKS, SCRY_SORT_GVL,
	 SCRY_FILTER_GVL},
	{"locks", "locks", "which mutexes and conditions threads waited for, and where", 3, false,
	 scry_view_locks, FUNCTIONS, SCRY_SORT_LOCKS, SCRY_FILTER_LOCKS},
	{"stacks", "stacks", "which lines take the time of a Ruby program", 3, false,
	 scry_view_stacks, STACKS, SCRY_SORT_STACKS, SCRY_FILTER_STACKS},
	{"syscalls", "syscalls", "which code makes system calls, and which are in vain", 3, false,
	 scry_view_syscalls, FUNCTIONS | SCRY_VIEW_TAKES_BY, SCRY_SORT_SYSCALLS,
	 SCRY_FILTER_SYSCALLS},
	{"events", NULL, "every event of the recording, one a line", 2, true, scry_view_events, 0,
	 NULL, NULL},
	{"info", NULL, "what the recording is made of", 2, false, scry_view_info, 0, NULL, NULL},
	{NULL, NULL, NULL, 0, false, NULL, 0, NULL, NULL},
};

const struct scry_view *scry_view_find(const char *name)
{
	struct scry_buf names = {0};
	const struct scry_view *view;

	for (view = scry_views; view->name; view++)
		if (!strcmp(view->name, name))
			return view;
	for (view = scry_views; view->name; view++)
		scry_buf_printf(&names, "%s%s", names.len ? ", " : "", view->name);
	scry_fail(-EINVAL, "unknown view '%s'; fix: one of %s", name, scry_buf_str(&names));
	scry_buf_done(&names);
	return NULL;
}

int scry_view_opts_check(const struct scry_view_opts *opts)
{
	struct scry_row_filter filter;
	struct scry_grep grep;
	struct scry_call_where *where;
	int err = scry_grep_init(&grep, opts->grep);

	if (err)
		return err;
	scry_grep_done(&grep);
	err = scry_call_where_parse(opts->calls.where, &where);
	scry_call_where_free(where);
	if (err)
		return err;
	err = scry_view_malloc_check(opts);
	if (err)
		return err;
	if (opts->times.wall + opts->times.cpu + opts->times.gvl > 1)
		return scry_fail(-EINVAL, "--wall, --cpu and --gvl are three weights; fix: one");
	err = scry_row_filter_init(&filter, &opts->filter);
	if (err)
		return err;
	if (opts->stacks && opts->by != SCRY_VIEW_BY_LINE)
		return scry_fail(-EINVAL, "--stacks is by line; fix: without --by");
	if (opts->stacks && (opts->sort == SCRY_VIEW_SORT_AGE ||
			     (opts->sort_key && (!strcmp(opts->sort_key, "age") ||
						 !strcmp(opts->sort_key, "max_age_gcs")))))
		return scry_fail(-EINVAL, "ages of many stacks have no sum; fix: --sort live");
	return 0;
}

static unsigned int given(const struct scry_view_opts *o)
{
	const struct scry_view_call_style *c = &o->calls;
	unsigned int bits = 0;

	bits |= o->by != SCRY_VIEW_BY_LINE ? SCRY_VIEW_TAKES_BY : 0;
	bits |= o->sort != SCRY_VIEW_SORT_DEFAULT || o->sort_key ? SCRY_VIEW_TAKES_SORT : 0;
	bits |= o->top != SCRY_VIEW_TOP_DEFAULT ? SCRY_VIEW_TAKES_TOP : 0;
	bits |= o->grep ? SCRY_VIEW_TAKES_GREP : 0;
	bits |= o->filter.count ? SCRY_VIEW_TAKES_FILTER : 0;
	bits |= o->live ? SCRY_VIEW_TAKES_LIVE : 0;
	bits |= o->internal ? SCRY_VIEW_TAKES_INTERNAL : 0;
	bits |= o->stacks ? SCRY_VIEW_TAKES_STACKS : 0;
	bits |= o->at ? SCRY_VIEW_TAKES_AT : 0;
	bits |= o->pid ? SCRY_VIEW_TAKES_PID : 0;
	bits |= c->clock || c->relative || c->durations || c->indent || c->slow_ns || c->objects ||
				c->pointer || c->elements
			? SCRY_VIEW_TAKES_STYLE
			: 0;
	bits |= c->where ? SCRY_VIEW_TAKES_WHERE : 0;
	bits |= o->times.wall || o->times.cpu || o->times.gvl ? SCRY_VIEW_TAKES_TIMES : 0;
	return bits;
}

static void add_name(struct scry_buf *names, const char *name)
{
	scry_buf_printf(names, "%s%s", names->len ? ", " : "", name);
}

/* Of options that share a bit, those that were given. */
static void list_shared(const struct scry_view_opts *o, unsigned int bits, struct scry_buf *names)
{
	const struct scry_view_call_style *c = &o->calls;
	const struct {
		unsigned int bit;
		bool is_given;
		const char *name;
	} all[] = {
		{SCRY_VIEW_TAKES_STYLE, c->clock, "-t"},
		{SCRY_VIEW_TAKES_STYLE, c->relative, "-r"},
		{SCRY_VIEW_TAKES_STYLE, c->durations, "-T"},
		{SCRY_VIEW_TAKES_STYLE, c->indent, "-n"},
		{SCRY_VIEW_TAKES_STYLE, c->pointer, "-i"},
		{SCRY_VIEW_TAKES_STYLE, c->elements, "-A"},
		{SCRY_VIEW_TAKES_STYLE, c->objects, "--objects"},
		{SCRY_VIEW_TAKES_STYLE, c->slow_ns, "--slow"},
		{SCRY_VIEW_TAKES_TIMES, o->times.wall, "--wall"},
		{SCRY_VIEW_TAKES_TIMES, o->times.cpu, "--cpu"},
		{SCRY_VIEW_TAKES_TIMES, o->times.gvl, "--gvl"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (bits & all[i].bit && all[i].is_given)
			add_name(names, all[i].name);
}

/* The options' names, by their bits; with `opts` only those that were given. */
static void list_names(unsigned int bits, const struct scry_view_opts *opts, struct scry_buf *names)
{
	const unsigned int shared = SCRY_VIEW_TAKES_STYLE | SCRY_VIEW_TAKES_TIMES;
	static const char *const all[] = {"--by",
					  "--sort",
					  "--top",
					  "--grep",
					  "--filter",
					  "--live",
					  "--internal",
					  "--stacks",
					  "--at",
					  "--pid",
					  "-t, -r, -T, -n, -i, -A, --objects, --slow",
					  "--wall, --cpu, --gvl",
					  "--where"};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (bits >> i & 1 && !(opts && shared >> i & 1))
			add_name(names, all[i]);
	if (opts)
		list_shared(opts, bits, names);
}

int scry_view_refuse(const struct scry_view *view, const struct scry_view_opts *opts)
{
	struct scry_buf beyond = {0}, takes = {0};
	unsigned int bits = given(opts) & ~view->takes;

	if (!bits)
		return 0;
	list_names(bits, opts, &beyond);
	list_names(view->takes, NULL, &takes);
	scry_fail(-EINVAL, "the %s view has no %s; fix: %s%s", view->name, scry_buf_str(&beyond),
		  view->takes ? "without, or one of " : "without, as it has none at all",
		  scry_buf_str(&takes));
	scry_buf_done(&beyond);
	scry_buf_done(&takes);
	return -EINVAL;
}

void scry_view_strip(const struct scry_view *view, struct scry_view_opts *opts,
		     struct scry_buf *ret_names)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	unsigned int bits = given(opts) & ~view->takes;
	const char *where = bits & SCRY_VIEW_TAKES_WHERE ? NULL : opts->calls.where;

	if (opts->sort_key && !scry_view_has_sort(view, opts->sort_key))
		bits |= SCRY_VIEW_TAKES_SORT;
	if (opts->filter.count && !scry_view_has_filters(view, &opts->filter))
		bits |= SCRY_VIEW_TAKES_FILTER;
	list_names(bits, opts, ret_names);
	opts->by = bits & SCRY_VIEW_TAKES_BY ? SCRY_VIEW_BY_LINE : opts->by;
	opts->sort = bits & SCRY_VIEW_TAKES_SORT ? plain.sort : opts->sort;
	opts->sort_key = bits & SCRY_VIEW_TAKES_SORT ? NULL : opts->sort_key;
	opts->top = bits & SCRY_VIEW_TAKES_TOP ? plain.top : opts->top;
	opts->grep = bits & SCRY_VIEW_TAKES_GREP ? NULL : opts->grep;
	opts->filter = bits & SCRY_VIEW_TAKES_FILTER ? plain.filter : opts->filter;
	opts->live &= !(bits & SCRY_VIEW_TAKES_LIVE);
	opts->internal &= !(bits & SCRY_VIEW_TAKES_INTERNAL);
	opts->stacks &= !(bits & SCRY_VIEW_TAKES_STACKS);
	opts->at = bits & SCRY_VIEW_TAKES_AT ? NULL : opts->at;
	opts->pid = bits & SCRY_VIEW_TAKES_PID ? 0 : opts->pid;
	opts->calls = bits & SCRY_VIEW_TAKES_STYLE ? plain.calls : opts->calls;
	opts->calls.where = where;
	opts->times = bits & SCRY_VIEW_TAKES_TIMES ? plain.times : opts->times;
}

bool scry_view_has_opts(const struct scry_view_opts *opts)
{
	return (given(opts) & ~(unsigned int)SCRY_VIEW_TAKES_PID) != 0;
}

uint64_t scry_view_top(const struct scry_view_opts *opts, const struct scry_doc *doc)
{
	if (opts->top != SCRY_VIEW_TOP_DEFAULT)
		return opts->top;
	return doc->is_data ? 0 : TOP_ROWS;
}

int scry_view_sort_of(const struct scry_view_opts *opts)
{
	if (opts->sort == SCRY_VIEW_SORT_DEFAULT)
		return opts->live ? SCRY_VIEW_SORT_OLD_LIVE : SCRY_VIEW_SORT_ALLOCATED;
	if (opts->live && opts->sort == SCRY_VIEW_SORT_LIVE)
		return SCRY_VIEW_SORT_OLD_LIVE;
	if (opts->live && opts->sort == SCRY_VIEW_SORT_LIVE_BYTES)
		return SCRY_VIEW_SORT_OLD_LIVE_BYTES;
	return opts->sort;
}
