/*
 * Which objects a process has loaded: the dynamic loader's own list, read from outside.
 *
 * DT_DEBUG of the main program leads to struct r_debug and its chain of struct link_map (SVR4;
 * link.h of glibc, dynlink.c of musl). glibc >= 2.35 has an r_debug for each dlmopen namespace,
 * chained by r_next when r_version >= 2. A static program has no list: then its own file is the
 * list, and is_static says so. Nothing is stopped: a list that changes while it is read is read
 * again, and what still does not fit is cut off and said (is_cut, is_changing).
 *
 * Life: scry_linkmap_read, calls, scry_linkmap_done. A snapshot: the target goes on.
 */
#ifndef SCRY_SYS_LINKMAP_H
#define SCRY_SYS_LINKMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/dynamic.h"
#include "sys/elf.h"
#include "sys/maps.h"
#include "sys/mem.h"

#define SCRY_LINKMAP_OBJECTS_MAX 8192
#define SCRY_LINKMAP_SPACES_MAX 64

struct scry_object {
	uint64_t bias;	  /* l_addr: run-time minus link-time address */
	uint64_t dynamic; /* l_ld: run-time address of PT_DYNAMIC; 0 in a static program without one
			   */
	uint64_t link_map; /* address of its struct link_map; 0 in a static program */
	uint32_t space;	   /* index into spaces */
	uint64_t r_debug;  /* of its namespace; 0 in a static program */
	bool is_main, is_loader;
	bool is_vdso;			      /* has no file */
	const struct scry_map_entry *mapping; /* of its file; NULL: it has none */
	uint64_t start, end;		      /* of the mappings of its file, adjacent ones */
	const char *name;		      /* l_name, or the mapped file's path; never NULL */
	/* of scry_linkmap_open_all: loaded with the namespace's first object, not dlopen'ed later
	 */
	bool at_startup;
	/* of scry_linkmap_open: */
	struct scry_elf *elf;
	struct scry_dynamic tables;
	int open_error; /* -errno; not tried again */
};

struct scry_link_space {   /* a namespace */
	uint64_t r_debug;  /* address of its struct r_debug */
	uint32_t state;	   /* r_state: RT_CONSISTENT, RT_ADD, RT_DELETE */
	size_t first, end; /* its objects: [first, end), in the loader's order */
};

struct scry_linkmap {
	pid_t pid;
	struct scry_object *objects;
	size_t count;
	struct scry_link_space spaces[SCRY_LINKMAP_SPACES_MAX];
	size_t space_count;
	bool is_static; /* no loader: the main program is all there is */
	bool is_cut; /* a chain led nowhere, in a circle, or beyond the limits: there may be more */
	bool is_changing;      /* some r_state is not RT_CONSISTENT */
	uint32_t version;      /* r_version; 0 in a static program */
	uint64_t brk;	       /* r_brk: the function the loader calls at each change; 0: none */
	struct scry_maps maps; /* taken after the list was read */
	char *names;
	bool is_opened; /* all of them */
};

/*
 * Reads the list of process `pid` through `mem`. 0; -EAGAIN: the loader has not made its list yet
 * (a program in its start); -ESRCH; -ENOEXEC, -EFAULT: what is there is no list; all with a
 * sentence.
 */
int scry_linkmap_read(pid_t pid, const struct scry_mem *mem, struct scry_linkmap *ret);
void scry_linkmap_done(struct scry_linkmap *lm);

/* Opens the file and the tables of object `i`, once; owned by the list. 0 or -errno with a sentence
 * (-ENOENT: the vdso, and what is mapped from no file; -ESTALE: another file lies there). */
int scry_linkmap_open(struct scry_linkmap *lm, size_t i);

/* Opens all and finds out which are at_startup. Returns how many, besides the vdso, cannot be read.
 * About 0.1 ms an object, once. */
size_t scry_linkmap_open_all(struct scry_linkmap *lm);

/*
 * The same object in another snapshot of the same process, or NULL: by base, dynamic segment,
 * namespace and file, not by link_map's address, which is given out again after dlclose. An object
 * that was closed and opened again at the same place in between is the same; its slots are not.
 * What is in `now` and not in `before` appeared, what is only in `before` went away.
 */
const struct scry_object *scry_linkmap_find(const struct scry_linkmap *lm,
					    const struct scry_object *object);

/* Moves what is open in `from`, an older snapshot, to the same objects of `to`, index by index:
 * ret_was[i] is the index in `from` or -1. `from` is then of use only to be done with. */
void scry_linkmap_inherit(struct scry_linkmap *to, struct scry_linkmap *from, ssize_t *ret_was);

/* Index of the object whose file is mapped at `addr`, or -ENOENT. */
ssize_t scry_linkmap_at(const struct scry_linkmap *lm, uint64_t addr);

/* Is it listed before at the same place? The loader itself is listed in each namespace. */
bool scry_linkmap_is_repeated(const struct scry_linkmap *lm, size_t i);

/* Does `text` name the object: its soname or the last part of its path? */
bool scry_linkmap_is_named(const struct scry_object *object, const char *text);

/*
 * What is at r_brk (glibc: _dl_debug_state; an empty function): *ret_code gets 16 bytes. Returns
 * how many of them may be overwritten: `ret`, with endbr64 before it or not, and the no-ops after
 * it; 0 when it is something else; or -errno.
 */
ssize_t scry_linkmap_brk_code(const struct scry_linkmap *lm, const struct scry_mem *mem,
			      uint8_t ret_code[16]);

/* Can anything in the process unwind its code: C++ in any of its ways, or C with clean-ups for
 * exceptions and cancellation (-fexceptions)? By the tables of its objects, as names may be
 * stripped; where one has no table of sections it may. libc's own are left out, which are above
 * others but by a callback. */
bool scry_linkmap_may_unwind(struct scry_linkmap *lm);

#endif
