/*
 * Callers of the malloc functions as a tree: from the outermost function of their stacks inwards,
 * with what each function and all that it called asked for.
 */
#ifndef SCRY_VIEW_MALLOC_TREE_H
#define SCRY_VIEW_MALLOC_TREE_H

#include "view/malloc_places.h"

struct scry_malloc_tree {
	const struct scry_malloc_places *places; /* by stack; merged; `at` is what --at asks for */
	const struct scry_view_opts *opts;	 /* sort, top, grep: of whole stacks */
	const char *at_title;			 /* "bytes at peak" */
};

/* Pushes the table: rows for people, the table `tree` of all functions for programs. 0 or -errno
 * with a sentence. */
int scry_malloc_tree_push(const struct scry_malloc_tree *tree, struct scry_doc *doc);

#endif
