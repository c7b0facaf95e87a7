/* Which views show a recording. `fd` is one, and is read from its beginning. 0, or -errno with a
 * sentence. */
#ifndef SCRY_VIEW_RECORDED_H
#define SCRY_VIEW_RECORDED_H

#include "view/view.h"

/* The view with the name of the instrument that recorded; events, where it does not say who did. */
int scry_view_recorded(int fd, const struct scry_view **ret_view);

/* -EINVAL for a view of what is not in the recording: it would say that there were 0. */
int scry_view_refuse_foreign(int fd, const struct scry_view *view);

/* -EINVAL, which says who is there, where no event is of process `pid`. */
int scry_view_refuse_absent(int fd, uint32_t pid);

#endif
