/* See sections.h. */
#include "rec/sections.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

#define SESSION_WITHIN 64 /* events from the beginning: the session is the first event */

static int name_of(int fd, uint32_t section, char *ret)
{
	const struct scry_event *event;
	const struct scry_ev_session *session;
	const char *name;
	struct scry_reader *r;
	int err = scry_reader_open(fd, &r);

	if (err)
		return err;
	scry_reader_section(r, section);
	for (int i = 0; i < SESSION_WITHIN && scry_reader_next(r, &event) > 0; i++) {
		if (event->type != SCRY_EVENT_SESSION)
			continue;
		session = (const void *)(event + 1);
		name = scry_reader_string(r, session->instrument_str, NULL);
		snprintf(ret, SCRY_SECTION_NAME_MAX, "%s", name ? name : "");
		break;
	}
	scry_reader_close(r);
	scry_error_clear();
	return 0;
}

int scry_sections_read(int fd, struct scry_sections *ret)
{
	struct scry_reader *r;
	int err = scry_reader_open(fd, &r);

	*ret = (struct scry_sections){0};
	if (err)
		return err;
	ret->count = scry_reader_sections(r);
	scry_reader_close(r);
	for (uint32_t i = 0; i < ret->count && !err; i++)
		err = name_of(fd, i, ret->names[i]);
	return err;
}

int scry_sections_find(const struct scry_sections *s, const char *name)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (!strcmp(s->names[i], name))
			return (int)i;
	return -1;
}

int scry_sections_open(int fd, const char *name, struct scry_reader **ret_reader)
{
	struct scry_sections sections;
	int err = scry_sections_read(fd, &sections), at;

	if (!err)
		err = scry_reader_open(fd, ret_reader);
	at = err ? -1 : scry_sections_find(&sections, name);
	if (at > 0)
		scry_reader_section(*ret_reader, (uint32_t)at);
	return err;
}
