/*
 * What an object is: a digest of what its file puts into memory. A build-id says as much only of
 * files whose author is trusted: any user can write any.
 */
#ifndef SCRY_SYS_ELF_DIGEST_H
#define SCRY_SYS_ELF_DIGEST_H

#include "base/digest.h"
#include "sys/elf.h"

/* Of the loaded segments: where they lie, their rights and bytes. Some 1 ms a MiB, once for a file
 * as long as it stays as it is. 0, or -errno without a sentence: it cannot be read, or is too big.
 */
int scry_elf_digest(const struct scry_elf *elf, uint8_t ret[SCRY_DIGEST_BYTES]);

#endif
