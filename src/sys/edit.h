/*
 * The only writer into other processes.
 *
 * Two kinds of writing. POKE: into memory that is ours (agent pages, dead stack below a red zone).
 * CHANGE: into the target's own code and slots, by a transaction of five steps: expect the old
 * bytes, journal them in the target, write, read back, and undo later only where our bytes still
 * are. The journal lies in the agent's mapping, so that any later scry can undo without us.
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
	struct scry_journal_entry *entries; /* what is there, owned: read once, when opened */
	size_t count, capacity;
	uint64_t bytes_changed;
	struct scry_edit_known *known; /* scry_edit_recall; owned */
	size_t known_first, known_count;
	uint8_t set;	 /* the caller's: whose changes are planned now */
	bool is_stopped; /* the caller's: all threads are stopped, so no file is asked */
};

struct scry_undo_report {
	size_t entries;	 /* that stood APPLIED or PLANNED */
	size_t restored; /* written back and verified, found original already, or unmapped */
	size_t foreign;	 /* neither ours nor original: left alone */
	size_t failed;	 /* could not be written */
	uint64_t bytes;
};
/* Adds the numbers of `from` to those of `to`. */
void scry_undo_add(struct scry_undo_report *to, const struct scry_undo_report *from);

/* Writes memory that belongs to us. 0, -ESRCH (gone or exec'ed), -EFAULT. */
int scry_edit_poke(int mem_fd, uint64_t addr, const void *buf, size_t size);

/* Binds to the journal at `journal` and copies it. 0 or -errno with a sentence. */
int scry_edit_open(struct scry_edit *e, struct scry_mem *mem, uint64_t journal);
void scry_edit_close(struct scry_edit *e);

/*
 * `size` bytes (1..16, within one page) at `addr`, from `old` to `new_`. TEXT is applied with every
 * thread stopped and no ip in (addr, addr + size), PAD as TEXT, but only undone with none at addr
 * either; SLOT is one aligned word and needs no stop.
 */
struct scry_change {
	uint64_t addr;
	size_t size;
	enum scry_edit_kind kind;
	const void *old;
	const void *new_;
	const struct scry_map_entry *mapping; /* of addr: its file identity goes into the journal */
	bool is_over; /* `old` is what a change put there that is still there */
};
/* May it be made? 0; -EBUSY: the old bytes are not there; -ERANGE: crosses a page; with a sentence.
 */
int scry_edit_check(const struct scry_edit *e, const struct scry_change *change);
/*
 * Two steps, so that the long one is taken while all run. Plan: checks and journals `n` changes,
 * all or none. Apply: looks once more for the old bytes of the entries [first, first + n), writes,
 * reads back. 0; as scry_edit_check; -ENOSPC: journal full. What was applied before a failure
 * stays, and is journalled.
 */
int scry_edit_plan(struct scry_edit *e, const struct scry_change *changes, size_t n);
int scry_edit_apply(struct scry_edit *e, size_t first, size_t n);
/* Both for one change. */
int scry_edit_change(struct scry_edit *e, const struct scry_change *change);

/*
 * Puts journalled changes back, newest first: all, or those of entries [first, first + n). Trusts
 * no entry blindly: the current bytes must be ours, and for TEXT the old bytes must be those of the
 * mapped file, or what an earlier entry has put there. One that a later one covers, which is not
 * among them, is left for then. Returns 0 when nothing else of ours is left in them; -EAGAIN: for
 * some a file would have to be asked, and e->is_stopped: they are as they were, and not counted,
 * and there is no sentence.
 */
int scry_edit_undo(struct scry_edit *e, const struct scry_maps *maps, struct scry_undo_report *ret);
int scry_edit_undo_some(struct scry_edit *e, const struct scry_maps *maps, size_t first, size_t n,
			struct scry_undo_report *ret);
/*
 * What an undo of entries [first, first + n) has to know of files, while all run: a file's server
 * may be the very program that is stopped then. Without it, and where something else is mapped
 * there by then, the undo itself asks them, unless all are stopped.
 */
void scry_edit_recall(struct scry_edit *e, const struct scry_maps *maps, size_t first, size_t n);
/* The newest entry of another set that is there and touches [start, end), or NULL. */
const struct scry_journal_entry *scry_edit_under(const struct scry_edit *e, uint64_t start,
						 uint64_t end);
/* Are the old bytes there in all of these entries? Then an undo of them writes nothing, and needs
 * no stop. */
bool scry_edit_is_unwritten(const struct scry_edit *e, size_t first, size_t n);
/* The object at [start, end) is unmapped: its entries are over, nothing is written there. */
int scry_edit_forget(struct scry_edit *e, uint64_t start, uint64_t end);

/*
 * Entry `entry`, one byte of text that is applied: the old byte for now (`on` false), ours again.
 * No stop is needed; the journal stays as it is, as an undo is content with either. 0; -EBUSY:
 * neither byte is there; -EFAULT, -ESRCH: nothing is. No sentence.
 */
int scry_edit_switch(struct scry_edit *e, size_t entry, bool on);

/* Are changes in [start, end) applied, and still there? False also when there are none: ret_any
 * says. A loader that mapped the object anew has wiped them; what wrote over a part of one, as a
 * uprobe does, has not. */
bool scry_edit_is_there(const struct scry_edit *e, uint64_t start, uint64_t end, bool *ret_any);

/* Entries that are over are dropped, from entry `from` on; those behind move down. Safe to be
 * killed in: each one that is applied is in the journal at all times. 0 or -errno with a sentence.
 */
int scry_edit_compact(struct scry_edit *e, size_t from);

/* How many entries are still applied in the target. */
size_t scry_edit_standing(const struct scry_edit *e);

#endif
