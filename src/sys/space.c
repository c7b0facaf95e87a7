/* See space.h. */
#include "sys/space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/proc.h"

/* Paths stay those of the core, which lives longer. */
static int copy_maps(const struct scry_maps *from, struct scry_maps *ret)
{
	struct scry_maps maps = {.count = from->count};

	maps.entries = calloc(from->count + 1, sizeof(*maps.entries));
	if (!maps.entries)
		return scry_no_memory("%zu mappings", from->count);
	memcpy(maps.entries, from->entries, from->count * sizeof(*maps.entries));
	*ret = maps;
	return 0;
}

int scry_space_maps(const struct scry_space *space, struct scry_maps *ret)
{
	return space->core ? copy_maps(&space->core->maps, ret) : scry_maps_read(space->pid, ret);
}

int scry_space_elf(const struct scry_space *space, const struct scry_map_entry *m,
		   struct scry_elf **ret)
{
	return space->core ? scry_core_elf(space->core, m, ret)
			   : scry_elf_open_mapped(space->pid, m, ret);
}

int scry_space_mem(const struct scry_space *space, struct scry_mem *ret)
{
	if (space->no_memory)
		return scry_fail(-EACCES, "the memory of process %d is not opened",
				 (int)space->pid);
	if (!space->core)
		return scry_mem_open(ret, space->pid, 0);
	*ret = scry_core_mem(space->core);
	return 0;
}

int scry_space_auxv(const struct scry_space *space, uint64_t type, uint64_t *ret)
{
	return space->core ? scry_core_auxv(space->core, type, ret)
			   : scry_proc_auxv(space->pid, type, ret);
}
