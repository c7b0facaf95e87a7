/*
 * An ELF object out of the memory that it was loaded into: for one whose file is gone, was replaced
 * or never was one (the vDSO).
 *
 * Its loaded segments are copied to where the file had them. There are no section headers, and so
 * no .symtab: notes and symbols are those of program headers and PT_DYNAMIC. Memory is foreign: any
 * bytes give some object, within limits, or a failure. Pages of zeros are holes of the copy. What
 * copies keep is limited in all of this program, what is read for them in each process.
 */
#ifndef SCRY_SYS_ELF_MEMORY_H
#define SCRY_SYS_ELF_MEMORY_H

#include "sys/elf.h"
#include "sys/mem.h"

#define SCRY_ELF_MEMORY_BYTES_MAX (64ull << 20) /* of one object */
#define SCRY_ELF_MEMORY_KEPT_MAX (256ull << 20) /* of all copies, zeros not counted */

/* The copies out of one memory. */
struct scry_elf_copies {
	const struct scry_mem *mem;
	uint64_t left; /* bytes that may still be read: the caller sets it, copies lower it */
	uint64_t kept; /* bytes that they take up */
};

/* The object whose ELF header is at `header`. Pages that are not there are zeros. 0 or -errno with
 * a sentence (-EFBIG: a limit is reached); the caller closes it. *ret_bias: what its link-time
 * addresses lack. Any thread. */
int scry_elf_open_memory(struct scry_elf_copies *copies, uint64_t header, struct scry_elf **ret,
			 uint64_t *ret_bias);
/* All of them are closed: others may take what they took. */
void scry_elf_copies_done(struct scry_elf_copies *copies);

/* Does memory at `bias` have this file's notes, of which the build-id is one, or, without notes,
 * its program headers? SCRY_ELF_UNKNOWN: it has neither, or memory cannot be read. */
enum scry_elf_proof { SCRY_ELF_SAME, SCRY_ELF_OTHER, SCRY_ELF_UNKNOWN };
enum scry_elf_proof scry_elf_prove(struct scry_elf *elf, const struct scry_mem *mem, uint64_t bias);

#endif
