/*
 * The code ranges of an ELF object, as its unwind tables say: the FDEs of .eh_frame.
 *
 * They survive strip, and cover nearly all compiled code: functions, their cold parts, the PLT.
 * (System V ABI for x86-64, 3.7 and 4.2.4; LSB 10.6 for the encodings.)
 */
#ifndef SCRY_SYS_FDE_H
#define SCRY_SYS_FDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/image.h"

#define SCRY_FDE_MAX (4u << 20)

struct scry_fde {
	uint64_t start, end; /* [start, end) link-time */
	bool is_entry;	     /* unwinding begins as at a function's entry; false: in its middle */
	bool is_signal;	     /* a signal trampoline, which no code calls */
};

struct scry_fdes {
	struct scry_fde *rows; /* ascending by start; owned */
	size_t count;
	size_t bad; /* could not be read, or name bytes that are not in the file */
};

/*
 * Reads all FDEs. 0; -ENOENT: the object has none; -EFBIG: more than SCRY_FDE_MAX; -ENOMEM;
 * all with a sentence.
 */
int scry_fde_read(struct scry_elf *elf, const struct scry_image *image, struct scry_fdes *ret);

void scry_fde_done(struct scry_fdes *fdes);

/* What an FDE says of its range: two runs of DW_CFA instructions, the CIE's and its own. */
struct scry_fde_program {
	uint64_t start, end; /* [start, end) link-time */
	bool is_signal;
	uint64_t code_align;
	int64_t data_align;
	uint64_t return_register;
	const uint8_t *initial, *initial_end;
	const uint8_t *own, *own_end;
};

/*
 * Calls `fn` for each FDE, in the file's order, until it returns other than 0, which is returned.
 * What cannot be read is counted in *ret_bad. -ENOENT with a sentence: the object has none.
 */
int scry_fde_each(struct scry_elf *elf, const struct scry_image *image,
		  int (*fn)(const struct scry_fde_program *, void *), void *arg, size_t *ret_bad);

#endif
