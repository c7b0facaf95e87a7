/*
 * The separate file with a binary's debug information and full symbols, as distributions install
 * it: found by build-id, and where .gnu_debuglink says (gdb's manual, "Separate Debug Files"), in
 * our own file system. Taken is a file of root or of the caller with the binary's build-id, and
 * nothing else.
 */
#ifndef SCRY_SYS_DEBUG_FILE_H
#define SCRY_SYS_DEBUG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "sys/elf.h"

/* Is this open file a regular one of root or the caller? What others wrote is not believed. */
bool scry_debug_file_is_trusted(int fd);
/* A descriptor of that under its build-id, trusted, which the caller closes; -1: there is none. */
int scry_debug_file_open(struct scry_elf *elf);
/* Lends `elf`, the object at `path`, the .symtab of its debug file if it has none of its own: from
 * then on scry_elf_each_symbol and scry_elf_symtab_next have it. Looks once; without a sentence. */
void scry_debug_file_lend(struct scry_elf *elf, const char *path);

#endif
