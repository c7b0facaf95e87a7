/*
 * The table of views. See view.h.
 */
#include "view/view.h"

#include "base/buf.h"
#include "base/err.h"
#include "view/filter.h"
#include "view/grep.h"
#include "view/malloc.h"

#include <errno.h>
#include <string.h>

const struct scry_view scry_views[] = {
	{"objects", "which line makes objects of which class, and how many live", 1, false,
	 scry_view_objects},
	{"count", "calls of hooked functions", 1, false, scry_view_count},
	{"time", "how long calls of hooked functions took", 1, false, scry_view_time},
	{"log", "each entry of a hooked function, one a line", 1, true, scry_view_log},
	{"malloc", "who holds the memory of malloc, and whether it grows", 1, false,
	 scry_view_malloc},
	{"calls", "each call of a traced function, one a line", 1, true, scry_view_calls},
	{"calls-sums", "calls and times of each traced function", 1, false, scry_view_calls_sums},
	{"stacks", "which lines take the time of a Ruby program", 1, false, scry_view_stacks},
	{"events", "every event of the recording, one a line", 1, true, scry_view_events},
	{"info", "what the recording is made of", 1, false, scry_view_info},
	{NULL, NULL, 0, false, NULL},
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
	struct scry_filter filter;
	struct scry_grep grep;
	int err = scry_grep_init(&grep, opts->grep);

	if (err)
		return err;
	scry_grep_done(&grep);
	err = scry_view_malloc_check(opts);
	if (err)
		return err;
	if (opts->times.wall + opts->times.cpu + opts->times.gvl > 1)
		return scry_fail(-EINVAL, "--wall, --cpu and --gvl are three weights; fix: one");
	if (opts->stacks && opts->by != SCRY_VIEW_BY_LINE)
		return scry_fail(-EINVAL, "--stacks is by line; fix: without --by");
	if (opts->stacks && opts->sort == SCRY_VIEW_SORT_AGE)
		return scry_fail(-EINVAL, "ages of many stacks have no sum; fix: --sort live");
	return scry_filter_init(&filter, &opts->filter);
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
