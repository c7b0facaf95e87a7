/*
 * Files and lines of native callers of malloc, by the builds that the recording names.
 */
#ifndef SCRY_VIEW_MALLOC_LINES_H
#define SCRY_VIEW_MALLOC_LINES_H

#include "base/map.h"
#include "rec/reader.h"
#include "view/native_line.h"

struct scry_malloc_lines {
	const struct scry_reader *reader;
	const struct scry_view_lines *by; /* NULL: lines are not known */
	struct scry_map builds;		  /* module -> build; 0: of several */
	struct scry_ev_caller last;	  /* that was asked for; offset 0: none */
	uint32_t last_line;
	struct scry_buf file; /* of that */
};

void scry_malloc_lines_init(struct scry_malloc_lines *lines, const struct scry_reader *reader,
			    const struct scry_view_lines *by);
void scry_malloc_lines_done(struct scry_malloc_lines *lines);

/* Takes an OBJECT_FILE event. */
void scry_malloc_lines_event(struct scry_malloc_lines *lines,
			     const struct scry_ev_object_file *object);

/* The line of a native caller, its path in `file`; 0: not known, `file` is empty. */
uint32_t scry_malloc_lines_find(struct scry_malloc_lines *lines,
				const struct scry_ev_caller *caller);

#endif
