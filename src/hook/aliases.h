/*
 * The other names of functions that are hooked where all calls of them come by: at their entry, at
 * sites, or by slots whatever name these have. Calls by any name are then calls of the one row, and
 * whoever shows its number says so. Rows of SCRY_WAY_CALLS have calls of one name.
 */
#ifndef SCRY_HOOK_ALIASES_H
#define SCRY_HOOK_ALIASES_H

#include "hook/hooks.h"

#define SCRY_ALIASES_MAX 16

/* Fills in `aliases` of the planned rows that have none yet: "" or names at the same address, as
 * their object has them, each with "\n" behind; beyond SCRY_ALIASES_MAX "..." stands for the
 * others. Not what begins with more underscores than the row's symbol (__close of close), what is
 * demangled the same (constructors), or what a compiler made of the symbol (f.localalias); and of
 * exported functions exported names only. 0 or -ENOMEM with a sentence. */
int scry_aliases_find(struct scry_hooks *h);

#endif
