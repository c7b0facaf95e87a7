/*
 * The only writer into other processes.
 *
 * Two kinds of writing. POKE: into memory that is ours (agent pages, dead stack below a red zone).
 * CHANGE: into the target's own code and slots, by a transaction of five steps: expect the old
 * bytes, journal them in the target, write, read back, and undo later only where our bytes still
 * stand. The journal lies in the agent's mapping, so that any later scry can undo without us.
 */
#ifndef SCRY_SYS_EDIT_H
#define SCRY_SYS_EDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/maps.h"
#include "sys/mem.h"
#include "wire/control.h"

struct scry_edit {
	struct scry_mem *mem; /* opened writable; the address space it pins is the one we edit */
	uint64_t journal;     /* address of struct scry_journal in the target */
	size_t count;	      /* entries in use */
	uint64_t bytes_changed;
};

struct scry_undo_report {
	size_t entries;	 /* that stood APPLIED or PLANNED */
	size_t restored; /* written back and verified, or found original already */
	size_t foreign;	 /* neither ours nor original: left alone */
	size_t failed;	 /* could not be written */
	uint64_t bytes;
};

/* Writes memory that belongs to us. 0, -ESRCH (gone or exec'ed), -EFAULT. */
int scry_edit_poke(int mem_fd, uint64_t addr, const void *buf, size_t size);

/* Binds to the journal at `journal` and reads how far it is filled. 0 or -errno with a sentence. */
int scry_edit_open(struct scry_edit *e, struct scry_mem *mem, uint64_t journal);

/*
 * Changes `size` bytes (1..16, within one page) at `addr` from `old` to `new_`. TEXT wants every
 * thread stopped with no ip in (addr, addr + size); SLOT is one aligned word and needs no stop. 0;
 * -EBUSY: the old bytes are not there; -ENOSPC: journal full; -ERANGE: crosses a page; all with a
 * sentence, nothing changed.
 */
struct scry_change {
	uint64_t addr;
	size_t size;
	enum scry_edit_kind kind;
	const void *old;
	const void *new_;
	const struct scry_map_entry *mapping; /* of addr: its file identity goes into the journal */
};
int scry_edit_change(struct scry_edit *e, const struct scry_change *change);

/*
 * Puts every journalled change back, newest first. Trusts no entry blindly: the current bytes must
 * be ours, and for TEXT the old bytes must be those of the mapped file. Returns 0 when nothing of
 * ours is left.
 */
int scry_edit_undo(struct scry_edit *e, const struct scry_maps *maps, struct scry_undo_report *ret);

/* How many entries still stand in the target. */
size_t scry_edit_standing(const struct scry_edit *e);

/* Reads entry `i` of the journal: for stops that must know every changed window. 0 or -errno. */
int scry_edit_entry(const struct scry_edit *e, size_t i, struct scry_journal_entry *ret);

#endif
