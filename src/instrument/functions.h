/*
 * The functions of a watch, by number: one keeps its number, and so what was counted or said of it,
 * when its library goes and comes back, or hooks are planned anew.
 */
#ifndef SCRY_INSTRUMENT_FUNCTIONS_H
#define SCRY_INSTRUMENT_FUNCTIONS_H

#include "hook/hooks.h"

struct scry_patch_function {
	char *symbol, *module;
	uint64_t offset;      /* in its object */
	struct scry_hook row; /* as it was put on first: its names are those above */
};

struct scry_patch_functions { /* all 0: none */
	struct scry_patch_function *list;
	uint32_t count;
};

/* The number of a row's function, below `max`; -ENOSPC: there is no more; -ENOMEM with a sentence.
 */
int scry_patch_number(struct scry_patch_functions *fs, const struct scry_hook *row, uint32_t max);
void scry_patch_functions_done(struct scry_patch_functions *fs);

#endif
