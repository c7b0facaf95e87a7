/* See patch_children.h. */
#include "cmd/patch_children.h"

#include <stdio.h>

#include "base/err.h"
#include "cmd/undo.h"
#include "hook/lasting.h"

#define SHOWN 8 /* pids in a sentence */

/* 1: it has it; 0: it has not; -1: it may not be looked at, or has ended. */
static int has_patch(pid_t pid, const char *name)
{
	struct scry_patch_head head;
	struct scry_maps maps = {0};
	struct scry_mem mem = {.fd = -1};
	int has = -1;

	if (scry_mem_open(&mem, pid, 0) == 0 && scry_maps_read(pid, &maps) == 0)
		has = scry_lasting_find(&mem, &maps, name, &head) == 0 &&
		      head.stage == SCRY_PATCH_ON;
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	return has;
}

void scry_patch_children_find(pid_t pid, const char *name, bool has,
			      struct scry_patch_children *ret)
{
	size_t n = scry_undo_descendants(pid, ret->pids, SCRY_PATCH_CHILDREN_MAX);
	struct scry_proc_stat own, stat;

	ret->count = 0;
	if (scry_proc_stat(pid, &own) < 0)
		return;
	for (size_t i = 1; i < n; i++)
		if (scry_proc_stat(ret->pids[i], &stat) == 0 && stat.has_memory &&
		    stat.image == own.image && has_patch(ret->pids[i], name) == has)
			ret->pids[ret->count++] = ret->pids[i];
	scry_error_clear();
}

void scry_patch_children_words(const struct scry_patch_children *c, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < c->count && i < SHOWN && used < size; i++)
		used += (size_t)snprintf(ret + used, size - used, "%s%d", i ? ", " : "",
					 (int)c->pids[i]);
	if (c->count > SHOWN && used < size)
		snprintf(ret + used, size - used, " and %zu more", c->count - SHOWN);
}
