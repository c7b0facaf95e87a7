/*
 * The allocators of `--with`: names, paths, variants.
 */
#ifndef SCRY_REPLAN_ALLOCATORS_H
#define SCRY_REPLAN_ALLOCATORS_H

#include "base/opt.h"
#include "replan/run.h"

#define SCRY_MALLOC_ALLOCATORS_MAX 16

struct scry_malloc_allocators {
	struct scry_malloc_allocator rows[SCRY_MALLOC_ALLOCATORS_MAX];
	uint32_t count;
	char missing[SCRY_MALLOC_ALLOCATORS_MAX][256]; /* sentences */
	uint32_t missing_count;
	char *owned[SCRY_MALLOC_ALLOCATORS_MAX * 3]; /* memory that rows point into */
	uint32_t owned_count;
};

/*
 * Each word is a list: "glibc,jemalloc,/opt/lib/mine.so,glibc:MALLOC_ARENA_MAX=2". NAME=VALUE after
 * a colon is put into that replay's environment; a comma or colon in a value is written \, or \:.
 * What is not installed is left out, and `missing` says how to get it. 0; -EINVAL, -ENOENT (a path)
 * or -ENOMEM with a sentence. To be freed in either case.
 */
int scry_malloc_allocators_parse(const struct scry_opt_strings *words,
				 struct scry_malloc_allocators *ret_list);
/* Takes LD_PRELOAD and all that known allocators read out of this process's environment. */
void scry_malloc_allocators_unset(void);
void scry_malloc_allocators_done(struct scry_malloc_allocators *list);

#endif
