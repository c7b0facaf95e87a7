/*
 * What counts system calls at the instructions that make them, in the process itself: `scry
 * syscalls --exact=site`. Which ones was found out by samples before, and is the option.
 */
#ifndef SCRY_INSTRUMENT_SITES_H
#define SCRY_INSTRUMENT_SITES_H

#include <stddef.h>
#include <stdint.h>

#include "wire/payload.h"

#define SCRY_SITES_MAX 256

/* As it was sampled; its strings, which no recording of the watch has, are here. */
struct scry_sampled_site {
	struct scry_ev_syscall_site at;
	const char *name, *module, *symbol; /* NULL: not known */
	uint64_t ticks;
};

struct scry_sites_opts { /* the instrument's options; of one process */
	struct scry_sampled_site *rows;
	size_t count;
	size_t left_out;		/* that were sampled beyond SCRY_SITES_MAX */
	struct scry_ev_syscalls sample; /* how that went */
};

#endif
