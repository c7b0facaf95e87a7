/*
 * Symbols of a stripped object out of its separate debug file: where distributions put it by its
 * build-id, and where .gnu_debuglink says (gdb's manual, "Separate Debug Files").
 *
 * Looked for in our own root. Taken is a file of root or of the caller with the object's build-id,
 * and nothing else.
 */
#ifndef SCRY_SYS_DEBUG_FILE_H
#define SCRY_SYS_DEBUG_FILE_H

#include "sys/elf.h"

/* Lends `elf`, the object at `path`, the .symtab of its debug file if it has none of its own: from
 * then on scry_elf_symtab_next tells it. Looks once; without a sentence. */
void scry_debug_file_lend(struct scry_elf *elf, const char *path);

#endif
