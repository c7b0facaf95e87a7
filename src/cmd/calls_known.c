/* See calls_known.h. */
#include "cmd/calls_known.h"

#include <fnmatch.h>
#include <string.h>

#define DEFAULT true
#define NAMED false

const struct scry_known scry_known[] = {
#define SCRY_KNOWN(symbol, library, form, text, use) \
	{symbol, library, form, SCRY_CALLS_##text, use},
#include "cmd/calls_known.def"
#undef SCRY_KNOWN
	{NULL, NULL, NULL, SCRY_CALLS_OTHER, false},
};

const struct scry_known *scry_known_find(const char *symbol, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *file = slash ? slash + 1 : path;

	for (const struct scry_known *k = scry_known; k->symbol; k++)
		if (!strcmp(k->symbol, symbol) && fnmatch(k->library, file, 0) == 0)
			return k;
	return NULL;
}

struct scry_known_shape scry_known_shape(const char *form)
{
	struct scry_known_shape shape = {.args = (uint32_t)strlen(form) - 1};
	const char *text = strpbrk(form + 1, "sS");

	if (!text)
		return shape;
	shape.text_arg = (uint32_t)(text - form);
	if (*text == 'S')
		shape.text = text[1] == 'i' ? SCRY_CALL_TEXT_BOTH : SCRY_CALL_TEXT_LENGTH;
	return shape;
}
