/*
 * The file behind an address of this process: its functions, and how its frames are laid out.
 * Async-signal-safe, as it is read where a stack overflowed: system calls only, no locks, no memory
 * but the caller's and a mapping of the file.
 *
 * Life cycle: open for an address, ask for addresses of the same module, close. A file that was
 * replaced since it was loaded (another inode) is not believed: then only the module and the offset
 * are known.
 */
#ifndef SCRY_FIBER_MAPPED_FILE_H
#define SCRY_FIBER_MAPPED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_mapped_file {
	const unsigned char *bytes; /* the file; NULL: it cannot be read */
	size_t size;
	uintptr_t low, high;   /* of the mapping that the address is in */
	uintptr_t bias;	       /* an address here less the file's own */
	uintptr_t file_offset; /* of low */
	char path[256];
};

struct scry_mapped_section {
	const unsigned char *bytes;
	size_t size;
	uint64_t address; /* as the file has it */
};

/* Registers of a frame, by their DWARF numbers; 16 is the instruction pointer. */
struct scry_registers {
	uint64_t value[17];
};

/* -ENOENT: nothing is mapped there. When 0, close it. */
int scry_mapped_file_open(uintptr_t address, struct scry_mapped_file *ret_image);
void scry_mapped_file_close(struct scry_mapped_file *image);

/* The last part of the path. */
const char *scry_mapped_file_name(const struct scry_mapped_file *image);

/* The function that an address lies in, as the symbol tables say, and how far in. NULL: they say
 * nothing. Valid until close. */
const char *scry_mapped_file_function(const struct scry_mapped_file *image, uintptr_t address,
				      uintptr_t *ret_offset);

/* False: the file has no section of that name, or no sections. image->bytes is not NULL. */
bool scry_mapped_file_section(const struct scry_mapped_file *image, const char *name,
			      struct scry_mapped_section *ret_section);

/*
 * From a frame to its caller's, by .eh_frame. `low` and `high` bound the stack that may be read.
 * *ret_cfa is the caller's stack pointer. -ENODATA: no unwind information; -EINVAL: one that is not
 * understood; -ENOMSG: the outermost frame.
 */
int scry_mapped_file_caller(const struct scry_mapped_file *image, struct scry_registers *registers,
			    uintptr_t low, uintptr_t high, uint64_t *ret_cfa);

#endif
