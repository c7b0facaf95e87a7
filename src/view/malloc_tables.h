/*
 * The malloc view's tables below that of callers: calls of each function, the curve, sizes, how
 * long blocks lived, and processes.
 */
#ifndef SCRY_VIEW_MALLOC_TABLES_H
#define SCRY_VIEW_MALLOC_TABLES_H

#include "view/malloc_places.h"

/* Pushes them, of the process of `places`, whose callers are merged; sets doc->section and title.
 */
void scry_malloc_tables_push(const struct scry_malloc_sum *sum,
			     const struct scry_malloc_places *places, struct scry_doc *doc);

#endif
