/* See recorded.h. */
#include "view/recorded.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "rec/fields.h"
#include "rec/reader.h"
#include "wire/event.h"

#define NAMED_MOST 8	  /* processes that an error lists */
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

/* What the event says of a process: its number; 0: nothing. */
static uint32_t pid_of(const struct scry_event *event)
{
	const struct scry_event_kind *kind = scry_event_kind(event->type);

	for (size_t i = 0; kind && i < kind->field_count; i++)
		if (!strcmp(kind->fields[i].name, "pid"))
			return (uint32_t)scry_field_value(&kind->fields[i], event);
	return 0;
}

/* "4711 (/srv/app), 4712 (/srv/app)": each program of a process that the recording names. */
static void put_process(struct scry_buf *buf, struct scry_reader *r, const struct scry_event *event)
{
	const struct scry_ev_process *p = (const void *)(event + 1);
	const char *exe = scry_reader_string(r, p->exe_str, NULL);

	scry_buf_printf(buf, "%s%u (", buf->len ? ", " : "", p->pid);
	scry_text_escape(buf, exe ? exe : "a program", strlen(exe ? exe : "a program"));
	scry_buf_printf(buf, ")");
}

int scry_view_refuse_absent(int fd, uint32_t pid)
{
	const struct scry_event *event;
	struct scry_buf names = {0};
	struct scry_reader *r;
	size_t named = 0;
	bool is_there = false;
	int err = scry_reader_open(fd, &r);

	if (err)
		return err;
	while (!is_there && scry_reader_next(r, &event) > 0) {
		is_there = pid_of(event) == pid;
		if (event->type == SCRY_EVENT_PROCESS && ++named <= NAMED_MOST)
			put_process(&names, r, event);
	}
	scry_reader_close(r);
	scry_error_clear();
	if (!is_there)
		err = scry_fail(-EINVAL,
				"process %u is not in this recording; fix: --pid PID, of %s%s", pid,
				names.len ? scry_buf_str(&names) : "none",
				named > NAMED_MOST ? ", ... (--view info has all)" : "");
	scry_buf_done(&names);
	return err;
}
