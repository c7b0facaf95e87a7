/* See malloc_lines.h. */
#include "view/malloc_lines.h"

#define OBJECTS_MAX 65536u

void scry_malloc_lines_init(struct scry_malloc_lines *lines, const struct scry_reader *reader,
			    const struct scry_view_lines *by)
{
	*lines = (struct scry_malloc_lines){.reader = reader, .by = by};
	scry_map_init(&lines->builds, OBJECTS_MAX);
}

void scry_malloc_lines_done(struct scry_malloc_lines *lines)
{
	scry_map_done(&lines->builds);
	scry_buf_done(&lines->file);
}

/* Two builds under one path, of processes in two containers or one after the other: which of them a
 * caller is in is not known. */
void scry_malloc_lines_event(struct scry_malloc_lines *lines,
			     const struct scry_ev_object_file *object)
{
	uint64_t build = object->build_str, known;

	if (scry_map_get(&lines->builds, object->module_str, &known) && known != build)
		build = 0;
	scry_map_put(&lines->builds, object->module_str, build);
}

uint32_t scry_malloc_lines_find(struct scry_malloc_lines *lines,
				const struct scry_ev_caller *caller)
{
	struct scry_view_code code = {.offset = caller->offset};
	uint64_t build = 0;

	if (caller->offset && lines->last.offset == caller->offset &&
	    lines->last.module_str == caller->module_str &&
	    lines->last.symbol_str == caller->symbol_str &&
	    lines->last.file_str == caller->file_str)
		return lines->last_line; /* a row has both the file and the line */
	lines->last = *caller;
	lines->last_line = 0;
	scry_buf_clear(&lines->file);
	if (!lines->by || caller->file_str || !caller->offset || !caller->module_str ||
	    !scry_map_get(&lines->builds, caller->module_str, &build) || !build)
		return 0;
	code.module = scry_reader_string(lines->reader, caller->module_str, NULL);
	code.build_id = scry_reader_string(lines->reader, (uint32_t)build, NULL);
	code.symbol = scry_reader_string(lines->reader, caller->symbol_str, NULL);
	if (!code.module || !code.build_id || (caller->symbol_str && !code.symbol))
		return 0;
	lines->last_line = lines->by->find(lines->by->arg, &code, &lines->file);
	return lines->last_line;
}
