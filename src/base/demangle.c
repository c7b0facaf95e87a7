/* See demangle.h. */
#include "base/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

#define WITH_PARAMETERS (DMGL_PARAMS | DMGL_ANSI)
#define WITHOUT_PARAMETERS DMGL_NO_OPTS
#define COLD ".cold" /* a part of a function that lies elsewhere */

struct made {
	char text[SCRY_DEMANGLE_MAX];
	size_t length;
	jmp_buf too_long; /* the library itself knows no end, and keeps nothing that must be freed
			   */
};

static void take(const char *bytes, size_t length, void *opaque)
{
	struct made *made = opaque;

	if (length >= sizeof(made->text) - made->length)
		longjmp(made->too_long, 1);
	memcpy(made->text + made->length, bytes, length);
	made->length += length;
}

static bool is_mangled(const char *name, size_t length)
{
	return length > 2 && length < SCRY_DEMANGLE_MAX && name[0] == '_' &&
	       (name[1] == 'Z' || name[1] == 'R');
}

/* Rust's older names are C++'s in form, so it is asked first. */
static bool make(const char *name, int options, struct made *made)
{
	made->length = 0;
	if (setjmp(made->too_long))
		return false;
	if (rust_demangle_callback(name, options, take, made))
		return made->length != 0;
	made->length = 0;
	return name[1] == 'Z' && cplus_demangle_v3_callback(name, options, take, made) &&
	       made->length;
}

static bool append(const char *name, size_t length, int options, struct scry_buf *buf)
{
	char copy[SCRY_DEMANGLE_MAX];
	struct made made;

	if (!is_mangled(name, length))
		return false;
	memcpy(copy, name, length);
	copy[length] = '\0';
	return make(copy, options, &made) && scry_buf_append(buf, made.text, made.length) == 0;
}

bool scry_demangle(const char *name, size_t length, struct scry_buf *buf)
{
	return append(name, length, WITH_PARAMETERS, buf);
}

void scry_demangle_put(const char *name, size_t length, struct scry_buf *buf)
{
	if (!scry_demangle(name, length, buf))
		scry_buf_append(buf, name, length);
}

static void show(const char *name, size_t length, int options, struct scry_buf *buf)
{
	struct scry_buf made = {0};

	if (append(name, length, options, &made))
		scry_text_escape(buf, made.data, made.len);
	else
		scry_text_escape(buf, name, length);
	scry_buf_done(&made);
}

void scry_demangle_show(const char *name, size_t length, struct scry_buf *buf)
{
	show(name, length, WITH_PARAMETERS, buf);
}

void scry_demangle_show_bare(const char *name, size_t length, struct scry_buf *buf)
{
	show(name, length, WITHOUT_PARAMETERS, buf);
}

struct scry_shown scry_demangle_shown(const char *name)
{
	struct scry_buf made = {0};
	struct scry_shown shown;

	shown = scry_text_shown(scry_demangle(name, strlen(name), &made) ? made.data : name);
	scry_buf_done(&made);
	return shown;
}

void scry_demangle_key(struct scry_json *json, const char *name, size_t length)
{
	struct scry_buf made = {0};

	if (name && scry_demangle(name, length, &made)) {
		scry_json_key(json, "demangled");
		scry_json_string(json, made.data, made.len);
	}
	scry_buf_done(&made);
}

bool scry_demangle_any(const char *name, bool (*is)(const char *name, const void *arg),
		       const void *arg)
{
	static const int forms[] = {WITH_PARAMETERS, WITHOUT_PARAMETERS};
	struct made made;

	if (is(name, arg))
		return true;
	if (!is_mangled(name, strlen(name)))
		return false;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (!make(name, forms[i], &made) ||
		    (forms[i] == WITHOUT_PARAMETERS && strstr(name, COLD)))
			continue;
		made.text[made.length] = '\0';
		if (is(made.text, arg))
			return true;
	}
	return false;
}
