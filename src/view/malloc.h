/*
 * The malloc view: see malloc.c and doc/JSON.md.
 */
#ifndef SCRY_VIEW_MALLOC_H
#define SCRY_VIEW_MALLOC_H

#include "view/view.h"

/* As the other views of view.h. */
int scry_view_malloc(struct scry_reader *reader, const struct scry_view_opts *opts,
		     struct scry_doc *doc);

/* What opts->at cannot mean: 0, or -EINVAL with a sentence. */
int scry_view_malloc_check(const struct scry_view_opts *opts);

#endif
