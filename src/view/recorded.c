/* See recorded.h. */
#include "view/recorded.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "rec/fields.h"
#include "rec/reader.h"
#include "wire/event.h"

#define NAMED_MOST 8 /* processes that an error lists */

/* The view that shows what was recorded; NULL: it does not say what that is. */
static const struct scry_view *recorded(const char *name)
{
	const struct scry_view *view = *name ? scry_view_find(name) : NULL;

	scry_error_clear();
	return view;
}

int scry_view_recorded(int fd, const struct scry_view **ret_view)
{
	struct scry_sections sections;
	int err = scry_sections_read(fd, &sections);

	if (!err)
		*ret_view = recorded(sections.names[0]);
	if (!err && !*ret_view)
		*ret_view = scry_view_find("events");
	return err;
}

/* "malloc and calls" */
static void list(const struct scry_sections *s, char *ret, size_t size)
{
	size_t n = 0;

	*ret = 0;
	for (uint32_t i = 0; i < s->count && n < size; i++)
		n += (size_t)snprintf(ret + n, size - n, "%s%s",
				      !i		  ? ""
				      : i + 1 == s->count ? " and "
							  : ", ",
				      s->names[i]);
}

/* The view is of another instrument's recordings. One that does not say whose it is may be any. */
static bool is_foreign(const struct scry_view *view, const char *recorder)
{
	const struct scry_view *own = view->of ? recorded(recorder) : NULL;

	return own && strcmp(view->of, own->name) != 0;
}

static int refuse(const struct scry_view_choice *c, const struct scry_sections *s)
{
	const struct scry_view *view = c->view ? scry_view_find(c->view) : NULL;
	const struct scry_view *own = recorded(s->names[0]);
	char names[256];

	list(s, names, sizeof(names));
	if (!view || !view->of)
		return scry_fail(-EINVAL, "'%s' was not recorded: this is a recording of %s",
				 c->section, names);
	return scry_fail(-EINVAL,
			 "view '%s' shows recordings of %s, and this is one of %s; fix: --view %s, "
			 "or events",
			 view->name, view->of, names, own ? own->name : "info");
}

/* Beside others a stream of lines is shown as its sums, where there is such a view. */
static const struct scry_view *beside(const struct scry_view *own)
{
	char name[SCRY_SECTION_NAME_MAX + 8];
	const struct scry_view *sums = NULL;

	if (own && own->is_stream) {
		snprintf(name, sizeof(name), "%s-sums", own->name);
		sums = scry_view_find(name);
		scry_error_clear();
	}
	return sums ? sums : own;
}

int scry_view_choose(int fd, struct scry_view_choice *c)
{
	const struct scry_view *view = c->view ? scry_view_find(c->view) : NULL;
	struct scry_sections s;
	int err = c->view && !view ? -EINVAL : scry_sections_read(fd, &s);

	if (err)
		return err;
	c->count = 0;
	for (uint32_t i = 0; i < s.count; i++) {
		const struct scry_view *own = view ? view : recorded(s.names[i]);

		if ((c->section && strcmp(c->section, s.names[i]) != 0) ||
		    (view && is_foreign(view, s.names[i])))
			continue;
		if (!view && !c->section && s.count > 1)
			own = beside(own);
		c->parts[c->count++] =
			(struct scry_view_part){own ? own : scry_view_find("events"), i};
	}
	return c->count ? 0 : refuse(c, &s);
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

int scry_view_refuse_absent(int fd, uint32_t section, uint32_t pid)
{
	const struct scry_event *event;
	struct scry_buf names = {0};
	struct scry_reader *r;
	size_t named = 0;
	bool is_there = false;
	int err = scry_reader_open(fd, &r);

	if (err)
		return err;
	scry_reader_section(r, section);
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
