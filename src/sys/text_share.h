/*
 * Code that was read once is given out again: a keeper that enters one short program after the
 * other reads the same libc each time, and decoding it takes as long as the program runs.
 *
 * A file is the same when device, inode, size and the times of its last changes are, and all that
 * it loads is still what was read: times of files that are mapped to be written lag behind. It
 * stays open, so that its inode is no other file's. At most SCRY_TEXT_SHARED files; the one that
 * was not asked for longest goes.
 */
#ifndef SCRY_SYS_TEXT_SHARE_H
#define SCRY_SYS_TEXT_SHARE_H

#include "sys/text.h"

#define SCRY_TEXT_SHARED 32u
#define SCRY_TEXT_SHARED_BYTES (512u << 20) /* of code and what was found in it, together */

/* As scry_text_read; scry_text_free gives it back. In one thread. */
int scry_text_share(struct scry_elf *elf, struct scry_text **ret);

/* Forgets all. */
void scry_text_share_done(void);

#endif
