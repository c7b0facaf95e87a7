/*
 * Which options a view has: those that it has not are refused, and not passed by in silence.
 */
#ifndef SCRY_VIEW_TAKES_H
#define SCRY_VIEW_TAKES_H

#include "base/buf.h"
#include "view/view.h"

/* What of struct scry_view_opts a view heeds. */
enum {
	SCRY_VIEW_TAKES_BY = 1 << 0,
	SCRY_VIEW_TAKES_SORT = 1 << 1,
	SCRY_VIEW_TAKES_TOP = 1 << 2,
	SCRY_VIEW_TAKES_GREP = 1 << 3,
	SCRY_VIEW_TAKES_FILTER = 1 << 4,
	SCRY_VIEW_TAKES_LIVE = 1 << 5,
	SCRY_VIEW_TAKES_INTERNAL = 1 << 6,
	SCRY_VIEW_TAKES_STACKS = 1 << 7,
	SCRY_VIEW_TAKES_AT = 1 << 8,
	SCRY_VIEW_TAKES_PID = 1 << 9,
	SCRY_VIEW_TAKES_STYLE = 1 << 10, /* of lines of calls */
	SCRY_VIEW_TAKES_TIMES = 1 << 11, /* --wall, --cpu, --gvl */
	SCRY_VIEW_TAKES_WHERE = 1 << 12,
};

/* Options that this view would pass by in silence: -EINVAL with a sentence that names them and what
 * the view has instead. 0: there are none. */
int scry_view_refuse(const struct scry_view *view, const struct scry_view_opts *opts);

/* Sets those to what they are by default, and names them in `ret_names` ("--by, --top"; "": there
 * are none). */
void scry_view_strip(const struct scry_view *view, struct scry_view_opts *opts,
		     struct scry_buf *ret_names);

/* Is any given but --pid? */
bool scry_view_has_opts(const struct scry_view_opts *opts);

#endif
