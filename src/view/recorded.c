/* See recorded.h. */
#include "view/recorded.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

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
		return scry_fail(-EINVAL, "nobody has recorded '%s': this is a recording of %s",
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
