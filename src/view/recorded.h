/* Which views show a recording. `fd` is one, and is read from its beginning. 0, or -errno with a
 * sentence. */
#ifndef SCRY_VIEW_RECORDED_H
#define SCRY_VIEW_RECORDED_H

#include "rec/sections.h"
#include "view/view.h"

/* What of a recording is shown by what: several, where several instruments have recorded. */
struct scry_view_part {
	const struct scry_view *view;
	uint32_t section;
};
struct scry_view_choice {
	const char *view;    /* its name; NULL: each instrument's own */
	const char *section; /* an instrument's name; NULL: all that the view can show */
	struct scry_view_part parts[SCRY_SECTIONS_MAX];
	size_t count;
};
/* Fills in the parts, one at least. 0; -EINVAL with a sentence: the view is of what is not in the
 * recording, and would say that there were 0, or no such section was recorded. */
int scry_view_choose(int fd, struct scry_view_choice *choice);

/* The view with the name of the instrument that recorded; events, where it does not say which did.
 */
int scry_view_recorded(int fd, const struct scry_view **ret_view);

/* -EINVAL, which says which there are, where no event of that section is of process `pid`. */
int scry_view_refuse_absent(int fd, uint32_t section, uint32_t pid);

#endif
