/*
 * The journal of changed bytes. It lies in the target, in the agent's private mapping, so that any
 * later scry can put everything back without the one that died. The host writes it; the agent never
 * looks at it.
 */
#ifndef SCRY_WIRE_JOURNAL_H
#define SCRY_WIRE_JOURNAL_H

#include <stdint.h>

/* One changed place. Written before the first byte is changed: state goes PLANNED, APPLIED, UNDONE.
 */
#define SCRY_EDIT_MAX 16u
enum scry_edit_state { SCRY_EDIT_NONE, SCRY_EDIT_PLANNED, SCRY_EDIT_APPLIED, SCRY_EDIT_UNDONE };
/* PAD: text that only a changed entry leads to, so no thread may be at its first byte either. */
enum scry_edit_kind { SCRY_EDIT_TEXT = 1, SCRY_EDIT_SLOT, SCRY_EDIT_PAD };
struct scry_journal_entry {
	uint64_t address;
	uint16_t size;
	uint8_t is_over; /* 1: `old` is what an earlier entry put there, which goes back after it */
	uint8_t set;	 /* of several instruments, whose it is */
	uint16_t state;
	uint16_t kind;
	uint8_t old[SCRY_EDIT_MAX];
	uint8_t new_[SCRY_EDIT_MAX];
	uint64_t inode,
		file_offset; /* of the mapping, for TEXT: a later undo compares with the file */
};
_Static_assert(sizeof(struct scry_journal_entry) == 64, "64 entries a page");
struct scry_journal {
	uint64_t count; /* entries in use; a crash may leave the last one PLANNED */
	uint64_t nonce; /* the header's: by it the memory here is known to be the agent's */
	uint64_t reserved[6];
	struct scry_journal_entry entries[];
};
#define SCRY_JOURNAL_BYTES (2048 * 4096u) /* what is not used costs no memory */
#define SCRY_JOURNAL_MAX ((SCRY_JOURNAL_BYTES - 64) / 64)

#endif
