/*
 * Breakpoints in a process whose threads are traced: int3 at an address, and beside it a copy of
 * the instruction that is there (sys/x86_move), in a slab within reach. A thread that has hit one
 * goes on in the copy, so the int3 stays where it is and no other thread can pass it unseen.
 *
 * Only the first byte of one instruction is changed, so nothing has to be stopped for it. The
 * changes are journalled as all others are (sys/edit): whoever comes after us can undo them. A
 * breakpoint that is not needed for a while is lifted: the old byte is there, and a thread that has
 * hit it just before goes on there.
 *
 * Whose: the keeper's thread that traces (trace/ptrace_stops). Life: init, calls, done; it is the
 * caller that lifts all before the threads are released.
 */
#ifndef SCRY_TRACE_BREAKS_H
#define SCRY_TRACE_BREAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "hook/inject.h"
#include "sys/linkmap.h"

#define SCRY_BREAKS_MAX 100000

struct scry_break {
	uint64_t at;	 /* where the int3 is */
	uint64_t copy;	 /* where a thread that has hit it goes on; 0: refused */
	const char *why; /* it is refused */
	size_t entry;	 /* of the journal */
	bool is_changed; /* the journal has it */
	bool is_on;
	bool is_gone; /* its object was unloaded */
	/* the caller's */
	uint32_t function; /* that begins here, from 1; 0: none */
	uint32_t waiting;  /* calls that will return to here */
	uint32_t idle;	   /* times it was hit for nothing, in a row */
};

struct scry_breaks {
	struct scry_inject *inj;      /* NULL: nothing is changed yet */
	const struct scry_mem *mem;   /* the caller's */
	struct scry_linkmap *objects; /* the caller's; the newest list */
	struct scry_break *rows;
	size_t count, room;
	struct scry_map by_address; /* asked for, and of the int3 -> index */
	uint32_t slabs;		    /* bits: those that hold our copies */
	uint32_t used[SCRY_SLABS_MAX];
};

void scry_breaks_init(struct scry_breaks *b, const struct scry_mem *mem,
		      struct scry_linkmap *objects);
void scry_breaks_done(struct scry_breaks *b);

/* May a breakpoint be at the instruction at `address`? NULL, or why not. Reads only. */
const char *scry_breaks_why(const struct scry_breaks *b, uint64_t address);

/* The index of the breakpoint that was asked for at `address`, or whose int3 is there; -ENOENT.
 */
ssize_t scry_breaks_at(const struct scry_breaks *b, uint64_t address);

/*
 * From here on after scry_inject_enter, `inj` set.
 *
 * A breakpoint at the instruction at `address`, behind an endbr64 that is there; not on yet. It
 * must lie in code of a loaded object that is as in its file. `held` is a stopped thread of ours in
 * which memory can be mapped, or NULL: one is held for it. `more` is how many others are to come
 * near it. Returns its index, also of one that is there, or of one that is refused (`why`);
 * -errno with a sentence, -EAGAIN when `held` is on a small stack.
 */
ssize_t scry_breaks_add(struct scry_breaks *b, uint64_t address, struct scry_tracee *held,
			size_t more);

/* Puts all on that are not, from index `first` on, refused and lifted ones excepted. 0 or -errno
 * with a sentence: some may be on. */
int scry_breaks_on(struct scry_breaks *b, size_t first);
/* One that was lifted, or is new. 0 or -errno. */
int scry_breaks_set(struct scry_breaks *b, struct scry_break *k);
void scry_breaks_lift(struct scry_breaks *b, struct scry_break *k);
void scry_breaks_lift_all(struct scry_breaks *b);

/* Where a thread that has hit `k` goes on. */
static inline uint64_t scry_break_next(const struct scry_break *k)
{
	return k->is_on ? k->copy : k->at;
}

/* What lay in [start, end) is unmapped. */
int scry_breaks_forget(struct scry_breaks *b, uint64_t start, uint64_t end);

/* Takes them out of a fork child's copy of the memory, `mem_fd` its /proc/PID/mem, while it is
 * stopped. Returns how many could not be. */
size_t scry_breaks_clean(const struct scry_breaks *b, const struct scry_mem *mem);

/* The function that is called by the instruction that ends at `address`, also through a PLT entry
 * or slot, as they are now; 0: not known. */
uint64_t scry_breaks_callee(const struct scry_breaks *b, uint64_t address);

#endif
