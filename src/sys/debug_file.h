/*
 * The separate file with a binary's debug information and full symbols, as distributions install
 * it: found by build-id, in our own file system.
 */
#ifndef SCRY_SYS_DEBUG_FILE_H
#define SCRY_SYS_DEBUG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "sys/elf.h"

/* Is this open file a regular one of root or the caller? What others wrote is not believed. */
bool scry_debug_file_is_trusted(int fd);
/* A descriptor of it, trusted, which the caller closes; -1: there is none. */
int scry_debug_file_open(struct scry_elf *elf);
/* Its symbols, as of a file of their own: link-time addresses are the binary's. 0, or -ENOENT:
 * there is none, no sentence. The caller closes it. */
int scry_debug_file_elf(struct scry_elf *elf, struct scry_elf **ret);

#endif
