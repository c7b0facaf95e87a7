/*
 * The table of views. See view.h.
 */
#include "view/view.h"

#include "base/buf.h"
#include "base/err.h"

#include <errno.h>
#include <string.h>

const struct scry_view scry_views[] = {
	{"objects", "which line makes objects of which class, and how many live", 1, false,
	 scry_view_objects},
	{"count", "calls of hooked functions", 1, false, scry_view_count},
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
