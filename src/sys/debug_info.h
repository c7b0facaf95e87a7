/*
 * Debug information of an object, where there is any that may be read.
 *
 * From the file itself or from /usr/lib/debug/.build-id, by libdw, and only from files of root or
 * the caller, since a parser of debug information is a large thing to show hostile bytes.
 */
#ifndef SCRY_SYS_DEBUG_INFO_H
#define SCRY_SYS_DEBUG_INFO_H

#include <elfutils/libdw.h>

#include "sys/elf.h"

struct scry_debug_info {
	int fd;
	Dwarf *dwarf;
};

/* NULL: there is none. */
struct scry_debug_info *scry_debug_info_open(struct scry_elf *elf);
void scry_debug_info_close(struct scry_debug_info *info); /* NULL is legal */

#endif
