/*
 * The words in memory through which loaded objects reach functions: GOT slots and pointers in data.
 *
 * A slot counts for a function when it *holds* the function's address, whatever name its relocation
 * carries (aliases, versions, hidden calls to exported functions); that name is given. Where a slot
 * does not hold it yet (lazy), or holds what an IFUNC's resolver chose, the relocation's name is
 * followed to the definition as the loader would: by namespace, search order and version. All
 * relocations of all objects are gone through once for any number of functions. Reads only; needs
 * no stop: a slot may be bound while we read, so the writer expects `value` and learns when it has
 * changed.
 *
 * Not found here: calls within an object that go through no slot, pointers in packed relative
 * relocations (DT_RELR), and pointers that the program stored at run time. A non-PIE program's own
 * PLT stub can stand for a function in other objects' slots; what goes that way comes through the
 * program's slot. x86-64 has no REL relocations.
 */
#ifndef SCRY_SYS_SLOTS_H
#define SCRY_SYS_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/linkmap.h"
#include "sys/mem.h"
#include "sys/symbols.h"
#include "sys/text.h"

enum scry_slot_kind {
	SCRY_SLOT_JUMP,	   /* R_X86_64_JUMP_SLOT: calls through .plt, .plt.sec */
	SCRY_SLOT_GOT,	   /* R_X86_64_GLOB_DAT: -fno-plt, .plt.got; may also serve `&function` */
	SCRY_SLOT_POINTER, /* R_X86_64_64, RELATIVE: an address taken in data; not a call by itself
			    */
	SCRY_SLOT_IRELATIVE, /* R_X86_64_IRELATIVE: an object's own IFUNC */
};

struct scry_slot {
	uint64_t address;    /* of the word, run-time, 8-byte aligned */
	uint64_t value;	     /* what it held */
	uint64_t definition; /* what calls through it reach, 0: not known. Bound: `value`. Lazy: the
				definition that the loader will find; an IFUNC's implementation if a
				bound slot, or sys/own_ifunc, shows it */
	const char *name; /* of its relocation's symbol, by which its object calls; "": it has none;
			     owned by the link map's files */
	const char *version; /* of that name, "" without; owned as it is */
	uint32_t function;   /* index into the functions asked for */
	uint32_t object;     /* whose slot */
	enum scry_slot_kind kind;
	bool is_lazy; /* unbound: holds the way to the object's own PLT entry; the loader will write
			 it at the first call */
	bool is_sure; /* false: lazy, and the loader may find another definition: leave it alone */
	bool is_loaded; /* of scry_slots_mark_loaded: code of its object also takes the address from
			   it, as of `&function` */
	bool is_relro;	/* read-only after relocation: /proc/PID/mem writes it all the same */
};

struct scry_slots { /* zeroed: empty */
	struct scry_slot *rows;
	size_t count, room;
	uint64_t *implementations; /* by function: what an IFUNC's slots hold, or will; 0: not
				      known, or not one; for others their address */
	size_t function_count;
	size_t relocations; /* looked at */
	size_t elsewhere;   /* slots of a wanted name that are bound to something else */
	size_t unread;	    /* slots whose memory cannot be read */
	size_t unopened;    /* objects whose file cannot be read: their slots are not known */
};

#define SCRY_SLOTS_MAX 2000000

/* Finds the slots of all functions. 0; -ENOMEM, -ENOSPC, -ESRCH with a sentence. */
int scry_slots_find(struct scry_linkmap *lm, const struct scry_mem *mem,
		    const struct scry_functions *functions, struct scry_slots *ret);
void scry_slots_done(struct scry_slots *slots);

/* May code read it by other instructions than call and jmp? Linkers keep those of the PLT apart. */
static inline bool scry_slot_serves_loads(const struct scry_slot *slot)
{
	return slot->kind == SCRY_SLOT_GOT || slot->kind == SCRY_SLOT_IRELATIVE;
}

/* Which such slots of object `object` serve for more than calls: its code, `text`, reads them by
 * other instructions than call and jmp. 0 or -ENOMEM with a sentence. */
int scry_slots_mark_loaded(struct scry_slots *slots, const struct scry_linkmap *lm, size_t object,
			   const struct scry_text *text);

/* The word of a kind: "jump slot", "got", "pointer", "irelative". */
const char *scry_slot_kind_name(enum scry_slot_kind kind);

#endif
