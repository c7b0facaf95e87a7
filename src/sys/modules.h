/*
 * The modules of a process or a core: ELF objects that it has mapped, and for code at an address
 * its object, unwind rules, function and name. One table for all that ask about one process.
 *
 * A module is what is mapped. Its file is used where memory has the file's notes (the build-id is
 * one), else a copy made out of memory (sys/elf_memory): so for a file that was replaced, deleted
 * where we may not reach it any more, or never there, as the vDSO. Device, inode, size and time of
 * change only say which file is known already; each is read once, however often it is mapped.
 *
 * Files are opened when seen and kept, for a target that ends soon. Of a process that has ended the
 * last look stays. Nothing is looked up twice: what an address meant is as long as the look.
 */
#ifndef SCRY_SYS_MODULES_H
#define SCRY_SYS_MODULES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/cfi.h"
#include "sys/elf.h"
#include "sys/fde.h"
#include "sys/space.h"

struct scry_modules;
struct scry_module; /* lives as long as its table */

/* Looks at what is mapped in process `pid` (0: all is unknown). NULL: no memory. */
struct scry_modules *scry_modules_new(pid_t pid);
/* The same of a process or a core. */
struct scry_modules *scry_modules_of(const struct scry_space *space);
void scry_modules_free(struct scry_modules *t); /* NULL is legal */
/* The same for one more, which frees it, too. */
struct scry_modules *scry_modules_share(struct scry_modules *t);

/* What was mapped at the newest look; entries are as long as that. */
const struct scry_maps *scry_modules_maps(const struct scry_modules *t);
/* Does it still run what `parent` runs, whose fork it is? Not when it has ended, or by exec. */
bool scry_modules_is_fork(const struct scry_modules *t, const struct scry_modules *parent);

/* Looks again. Costs a read of /proc/PID/maps; of a core nothing changes. */
void scry_modules_see(struct scry_modules *t);
/* The same while it runs the program that it ran: what it has by exec is not seen. */
void scry_modules_see_on(struct scry_modules *t);
/* Code of no module was found: looks again (on), ever more seldom while that is in vain. False: it
 * has not looked. */
bool scry_modules_missed(struct scry_modules *t);
/* A number that differs where other files are mapped as code, or elsewhere. */
uint64_t scry_modules_hash(const struct scry_modules *t);

/* The module that has mapped `address`, and what its link-time addresses lack; NULL: none. */
struct scry_module *scry_modules_at(struct scry_modules *t, uint64_t address, uint64_t *ret_bias);

struct scry_elf *scry_module_elf(const struct scry_module *m);
/* Made at the first question; empty: it has none that make sense. */
const struct scry_cfi *scry_module_cfi(struct scry_module *m);
const struct scry_fdes *scry_module_fdes(struct scry_module *m);

/* Where code of a file is mapped there, by the file's device, inode and offset; 0: it is not. */
struct scry_module_place {
	uint32_t dev_major, dev_minor;
	uint64_t inode, offset;
};
uint64_t scry_modules_address(const struct scry_modules *t, const struct scry_module_place *place);

struct scry_code_name {
	char *module;		/* path, "[anon]" or "[unmapped]"; to be freed by the caller */
	const char *symbol;	/* NULL: none; as long as the table */
	uint64_t offset;	/* of the address: from the symbol, else from the object */
	uint64_t object_offset; /* from the object, where that is known */
};

/* What covers the byte before `address`, a return address. */
void scry_modules_name(struct scry_modules *t, uint64_t address, struct scry_code_name *ret);

/* The object that it lies in, and the address in that; NULL: in none that can be read. */
struct scry_elf *scry_modules_elf(struct scry_modules *t, uint64_t address, uint64_t *ret_address);

#endif
