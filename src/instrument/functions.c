/* See functions.h. */
#include "instrument/functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static bool is_it(const struct scry_patch_function *f, const struct scry_hook *row)
{
	return f->offset == row->address - row->object_start && !strcmp(f->symbol, row->symbol) &&
	       !strcmp(f->module, row->module);
}

int scry_patch_number(struct scry_patch_functions *fs, const struct scry_hook *row, uint32_t max)
{
	struct scry_patch_function *more, *f;
	uint32_t i = 0;

	while (i < fs->count && !is_it(&fs->list[i], row))
		i++;
	if (i < fs->count)
		return (int)i;
	if (fs->count == max)
		return -ENOSPC;
	more = reallocarray(fs->list, fs->count + 1, sizeof(*more));
	if (!more)
		return scry_no_memory("%u functions", fs->count + 1);
	fs->list = more;
	f = &fs->list[fs->count];
	*f = (struct scry_patch_function){.symbol = strdup(row->symbol),
					  .module = strdup(row->module),
					  .offset = row->address - row->object_start,
					  .row = *row};
	f->row.symbol = f->symbol;
	f->row.module = f->module;
	if (!f->symbol || !f->module) {
		free(f->symbol);
		free(f->module);
		return scry_no_memory("%u functions", fs->count + 1);
	}
	return (int)fs->count++;
}

void scry_patch_functions_done(struct scry_patch_functions *fs)
{
	for (uint32_t i = 0; i < fs->count; i++) {
		free(fs->list[i].symbol);
		free(fs->list[i].module);
	}
	free(fs->list);
	*fs = (struct scry_patch_functions){0};
}
