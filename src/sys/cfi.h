/*
 * The unwind table of an ELF object (wire/unwind.h), made of the CFA programs in its .eh_frame
 * (DWARF 5, 6.4; LSB 10.6). What a rule cannot say becomes "unknown", and is counted.
 *
 * 6 bytes a row, two rows or so for each push: libc 0.2 MB, libruby 0.5 MB.
 */
#ifndef SCRY_SYS_CFI_H
#define SCRY_SYS_CFI_H

#include <stddef.h>
#include <stdint.h>

#include "sys/image.h"
#include "wire/unwind.h"

#define SCRY_CFI_ROWS_MAX (8u << 20)

struct scry_cfi {
	uint64_t base;		      /* link-time address of pc 0 */
	struct scry_unwind_rows rows; /* owned */
	size_t functions;	      /* FDEs that are in it */
	size_t unknown;		      /* of these, with rows that no rule can say */
	size_t bad;		      /* FDEs that make no sense */
};

/* 0; -ENOENT: the object has none; -EFBIG: more than SCRY_CFI_ROWS_MAX rows; -ENOMEM; with a
 * sentence. Any bytes are legal. */
int scry_cfi_compile(struct scry_elf *elf, const struct scry_image *image, struct scry_cfi *ret);
void scry_cfi_done(struct scry_cfi *cfi);

/* The rule at a link-time address; 0: unknown. */
uint64_t scry_cfi_rule(const struct scry_cfi *cfi, uint64_t address);

#endif
