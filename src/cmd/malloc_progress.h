/*
 * How far runs under several allocators are: a line on a terminal, wiped when it ends.
 */
#ifndef SCRY_CMD_MALLOC_PROGRESS_H
#define SCRY_CMD_MALLOC_PROGRESS_H

#include <stdint.h>

struct scry_malloc_progress { /* zeros at first: nothing is shown */
	uint64_t all, begun;  /* runs */
	uint64_t begun_ns;    /* the first of them */
};

/* `all` runs follow. */
void scry_malloc_progress_begin(struct scry_malloc_progress *p, uint64_t all);
/* One of them begins. */
void scry_malloc_progress_run(struct scry_malloc_progress *p, const char *label);
void scry_malloc_progress_end(struct scry_malloc_progress *p);

#endif
