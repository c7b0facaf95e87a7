/*
 * The loaded bytes of an ELF file in our own memory, by link-time address.
 *
 * A copy and not a mapping: a file that shrinks while it is read must not end us by SIGBUS. Bytes
 * that a segment has in memory only (.bss) are not there.
 */
#ifndef SCRY_SYS_IMAGE_H
#define SCRY_SYS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/elf.h"

#define SCRY_IMAGE_PARTS_MAX 64
#define SCRY_IMAGE_BYTES_MAX (1ull << 30)

struct scry_image {
	struct scry_image_part {
		uint64_t start, end; /* [start, end) link-time */
		uint32_t flags;	     /* PF_R, PF_W, PF_X */
		uint8_t *bytes;	     /* owned */
	} parts[SCRY_IMAGE_PARTS_MAX];
	size_t count;
};

/* Reads all PT_LOAD segments. 0; -EFBIG: more than SCRY_IMAGE_BYTES_MAX or scry_elf_room; -EIO: the
 * file is shorter than it says; -ENOMEM; all with a sentence. */
int scry_image_open(struct scry_elf *elf, struct scry_image *ret);
void scry_image_close(struct scry_image *image);

/* Does the file still load these bytes? */
bool scry_image_is_same(const struct scry_image *image, struct scry_elf *elf);

/* The segment that holds `addr`, or NULL. */
const struct scry_image_part *scry_image_part(const struct scry_image *image, uint64_t addr);
/* The bytes at `addr` and how many there are up to the segment's end; NULL when not there. */
const uint8_t *scry_image_at(const struct scry_image *image, uint64_t addr, size_t *ret_avail);

#endif
