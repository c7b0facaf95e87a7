/* The notes of a core file: threads, mapped files, auxiliary vector. Part of sys/core. */
#ifndef SCRY_SYS_CORE_NOTES_H
#define SCRY_SYS_CORE_NOTES_H

#include <gelf.h>

#include "sys/core.h"

struct scry_core_named { /* a row of NT_FILE */
	uint64_t start, end, offset;
	const char *path; /* in the note */
};

struct scry_core_names {
	struct scry_core_named *rows; /* ascending, none overlaps; owned */
	size_t count;
};

/* Reads the notes in `data`, which lives as long as `names`. 0 or -ENOMEM. */
int scry_core_notes(struct scry_core *core, Elf_Data *data, struct scry_core_names *names);

#endif
