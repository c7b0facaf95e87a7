/*
 * Which functions of the malloc family a program called, and how long its blocks lived: tables.
 */
#ifndef SCRY_VIEW_MALLOC_LIVES_H
#define SCRY_VIEW_MALLOC_LIVES_H

#include "view/doc.h"
#include "view/malloc_sum.h"

void scry_malloc_functions_push(const struct scry_malloc_process *p, struct scry_doc *doc);
void scry_malloc_lives_push(const struct scry_malloc_process *p, struct scry_doc *doc);

#endif
