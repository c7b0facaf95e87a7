/*
 * A core file: the memory, mappings and threads that a process had (core(5); elf(5), ET_CORE).
 *
 * Of the kernel or of gcore, whole or cut off. What was not dumped because it is as in a file that
 * was mapped (code, mostly) is taken from that file, if it is the same: its first page, which has
 * the build-id, must be the core's, but for where its sections are. Any bytes are legal; nothing is
 * run, nothing but the core and regular files is opened.
 */
#ifndef SCRY_SYS_CORE_H
#define SCRY_SYS_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "sys/elf.h"
#include "sys/maps.h"
#include "sys/mem.h"

struct scry_core_thread {
	pid_t tid; /* as the dumping thread's namespace counts */
	struct user_regs_struct regs;
};

enum scry_core_check {
	SCRY_CORE_SAME,	     /* the file's first page is the core's */
	SCRY_CORE_UNCHECKED, /* the core has no first page of it */
	SCRY_CORE_OTHER,     /* the file was replaced since: nothing is taken from it */
	SCRY_CORE_GONE,	     /* it cannot be opened, or is not an ELF file */
};

struct scry_core_file { /* that the process had mapped as code */
	char *path;	/* in our file system; owned */
	enum scry_core_check check;
	struct scry_elf *elf; /* SAME, UNCHECKED; owned */
};

struct scry_core_segment { /* [start, end); the first `filed` bytes are in the core */
	uint64_t start, end, filed, offset;
	uint32_t flags; /* PF_R, PF_W, PF_X */
	bool is_cut;	/* more of it was dumped than the core has */
};

struct scry_core {
	int fd;
	uint64_t size; /* of the core file */
	uint64_t cut;  /* bytes that it should have and has not: it was cut off */
	pid_t pid;     /* 0: not known */
	char comm[17];
	int signal;			  /* that ended it; 0: none did, or not known */
	struct scry_core_thread *threads; /* the one that got the signal first */
	size_t thread_count;
	struct scry_core_segment *segments; /* ascending */
	size_t segment_count;
	struct scry_maps maps; /* an inode is the number of a file, from 1 */
	struct scry_core_file *files;
	size_t file_count;
	uint64_t auxv[2 * 64]; /* type, value */
	size_t auxv_count;     /* of pairs */
};

/* Opens it. `program`: the file of its program, where that is not where it was; NULL. 0 or -errno
 * with a sentence. */
int scry_core_open(const char *path, const char *program, struct scry_core **ret);
void scry_core_close(struct scry_core *core); /* NULL is legal */

/* Its memory, to be read as a process's; lives as long as the core. */
struct scry_mem scry_core_mem(const struct scry_core *core);
/* The file that was mapped at `m` of core->maps; NULL: none that is code. */
const struct scry_core_file *scry_core_file(const struct scry_core *core,
					    const struct scry_map_entry *m);
/* Opens that file anew, for the caller to close. 0 or -errno with a sentence. */
int scry_core_elf(const struct scry_core *core, const struct scry_map_entry *m,
		  struct scry_elf **ret);
/* Value of entry `type` (AT_*) of the auxiliary vector. 0 or -ENOENT. */
int scry_core_auxv(const struct scry_core *core, uint64_t type, uint64_t *ret);
/* The program's mapping, NULL when it is not known. */
const struct scry_map_entry *scry_core_program(const struct scry_core *core);

#endif
