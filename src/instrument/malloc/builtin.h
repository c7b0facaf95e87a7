/*
 * Allocators that a program has built in under names of their own (je_malloc, _rjem_malloc of Rust,
 * mi_malloc): which there are beside the one that serves malloc. What they serve is another heap.
 *
 * Found by their symbols, or, where those are gone, by what jemalloc is known to say.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_BUILTIN_H
#define SCRY_INSTRUMENT_MALLOC_BUILTIN_H

#include <stdint.h>

#include "hook/hooks.h"

struct scry_malloc_builtin {
	char prefix[16];  /* "je_"; "": its functions have no symbols */
	char module[512]; /* the file; "": there is none */
};

/* After scry_hooks_open; `serving` is the path of the object whose malloc is called, which does not
 * count. Reads files only. */
void scry_malloc_builtin_find(struct scry_hooks *h, const char *serving,
			      struct scry_malloc_builtin *ret);

/* The function of this name in any object, exported or not: its run-time address, its object, or
 * false. */
bool scry_malloc_builtin_function(struct scry_hooks *h, const char *name, uint64_t *ret,
				  size_t *ret_object);

#endif
