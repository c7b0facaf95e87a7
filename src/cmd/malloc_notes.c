/* See malloc_notes.h. */
#include "cmd/malloc_notes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

void scry_malloc_note(struct scry_malloc_notes *notes, const char *format, ...)
{
	va_list ap;

	if (notes->count == SCRY_MALLOC_NOTES_MAX)
		return;
	va_start(ap, format);
	vsnprintf(notes->texts[notes->count], sizeof(notes->texts[0]), format, ap);
	va_end(ap);
	notes->list[notes->count] = notes->texts[notes->count];
	notes->count++;
}

int scry_malloc_notes_allocators(struct scry_malloc_notes *notes,
				 const struct scry_opt_strings *with,
				 struct scry_malloc_allocators *ret_list)
{
	int err = scry_malloc_allocators_parse(with, ret_list);

	for (uint32_t i = 0; i < ret_list->missing_count; i++)
		scry_malloc_note(notes, "%s", ret_list->missing[i]);
	if (!err && !ret_list->count)
		err = scry_fail(-ENOENT, "%s", ret_list->missing[0]);
	return err;
}
