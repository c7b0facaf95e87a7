/* Where memory, mappings and files are read from: a live process, or a core. */
#ifndef SCRY_SYS_SPACE_H
#define SCRY_SYS_SPACE_H

#include "sys/core.h"
#include "sys/elf.h"
#include "sys/maps.h"

struct scry_space {
	pid_t pid;		      /* a live process's, or what the core says */
	const struct scry_core *core; /* NULL: it lives; borrowed */
	bool no_memory;		      /* its memory is not opened, as if that were not permitted */
};

/* As scry_maps_read; of a core a copy of its own. */
int scry_space_maps(const struct scry_space *space, struct scry_maps *ret);
/* As scry_elf_open_mapped; the caller closes it. */
int scry_space_elf(const struct scry_space *space, const struct scry_map_entry *m,
		   struct scry_elf **ret);
/* As scry_mem_open, for reading; the caller closes it. -EACCES with no_memory. */
int scry_space_mem(const struct scry_space *space, struct scry_mem *ret);
/* As scry_proc_auxv. */
int scry_space_auxv(const struct scry_space *space, uint64_t type, uint64_t *ret);

#endif
