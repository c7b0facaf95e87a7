/*
 * Where a dynamic loader can be caught after it has relocated new objects and before it runs their
 * constructors.
 *
 * r_brk is not it in glibc before 2.41: there RT_CONSISTENT is reported before relocation
 * (elf/dl-open.c, dl_open_worker_begin), and what is written into a slot then is overwritten. Two
 * places are, in every namespace, both with the loader's lock held:
 *
 *   init   _dl_init(struct link_map *, argc, argv, env), a hidden function: the loader's entry code
 * calls it for the program, dlopen for what it opened. catch  the loader's own GOT slot of
 * _dl_catch_exception(exception, operate, args) (glibc 2.31 and later): with exception NULL it is
 * called around the constructors of what dlopen loaded, and around the destructors of what dlclose
 * unloads. One word, which needs no stop to be changed.
 *
 * musl reports RT_CONSISTENT through r_brk after relocation and before constructors
 * (ldso/dynlink.c, dlopen): there neither is needed, nor there.
 */
#ifndef SCRY_SYS_LOADER_H
#define SCRY_SYS_LOADER_H

#include <stdint.h>

#include "sys/linkmap.h"
#include "sys/mem.h"

struct scry_loader {
	size_t object;	      /* the loader's index in the link map */
	uint64_t init;	      /* run-time address of _dl_init; 0: not known */
	uint64_t catch_slot;  /* run-time address of the slot; 0: has none */
	uint64_t catch_value; /* what it held: a bound function */
};

/* Looks both up. Reads only. 0; -ENOENT with a sentence: the process has no loader (static), or
 * its file cannot be read. */
int scry_loader_find(struct scry_linkmap *lm, const struct scry_mem *mem, struct scry_loader *ret);

#endif
