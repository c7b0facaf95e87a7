/* See recorded.h. */
#include "view/recorded.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "rec/reader.h"
#include "wire/event.h"

#define SESSION_WITHIN 64 /* events from the beginning: the session is the first thing told */

/* The view that shows what was recorded; NULL: it does not say what that is. */
static int recorded(int fd, const struct scry_view **ret_view)
{
	const struct scry_event *event;
	const struct scry_ev_session *session;
	const char *name = NULL;
	struct scry_reader *r;
	int i, err = scry_reader_open(fd, &r);

	if (err)
		return err;
	*ret_view = NULL;
	for (i = 0; !*ret_view && i < SESSION_WITHIN && scry_reader_next(r, &event) > 0; i++) {
		if (event->type != SCRY_EVENT_SESSION)
			continue;
		session = (const void *)(event + 1);
		name = scry_reader_string(r, session->instrument_str, NULL);
		*ret_view = name ? scry_view_find(name) : NULL;
		break;
	}
	scry_reader_close(r);
	scry_error_clear();
	return 0;
}

int scry_view_recorded(int fd, const struct scry_view **ret_view)
{
	int err = recorded(fd, ret_view);

	if (!err && !*ret_view)
		*ret_view = scry_view_find("events");
	return err;
}

int scry_view_refuse_foreign(int fd, const struct scry_view *view)
{
	const struct scry_view *of = NULL;
	int err = view->of ? recorded(fd, &of) : 0;

	if (err || !of || !strcmp(view->of, of->name))
		return err;
	return scry_fail(
		-EINVAL,
		"view '%s' shows recordings of %s, and this is one of %s; fix: --view %s, or "
		"events",
		view->name, view->of, of->name, of->name);
}
