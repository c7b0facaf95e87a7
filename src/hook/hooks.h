/*
 * Functions that a process calls, and the places changed so that scry sees the calls.
 *
 * A set of hooks: wanted by name or address (sys/symbols), each with the ways by which it is
 * reached, chosen or forced, or the reason why it is not:
 *   entry   the function's first instructions become a jump: all calls are seen. Where there is
 *           room for a short jump only, to a longer one in filler nearby (sys/short_jump)
 *   site    the calls and tail jumps in its own object are aimed at the stub
 *   got     the slots through which objects call it are pointed at the stub (sys/slots)
 * Chosen is the entry, else site and got together: then calls through pointers are not seen. With
 * CALLS wanted the request says which code calls what (scry_symbols_find_called): got, of these
 * only. Life: open, want..., plan (all of it reads only); on and off, any number of times, after
 * scry_inject_enter; close. Two steps each: stubs, journal and checks while all run, then one stop
 * for the writes. On and off are legal in the keeper only.
 */
#ifndef SCRY_HOOK_HOOKS_H
#define SCRY_HOOK_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/inject.h"
#include "hook/stub.h"
#include "sys/linkmap.h"
#include "sys/slots.h"
#include "sys/short_jump.h"
#include "sys/symbols.h"
#include "sys/text.h"

#define SCRY_HOOK_HANDLERS_MAX 31

/* Bits. Wanted: one, or AUTO; chosen: ENTRY, or SITE and GOT, or none. */
enum scry_hook_way { SCRY_WAY_AUTO, SCRY_WAY_ENTRY, SCRY_WAY_SITE, SCRY_WAY_GOT = 4 };
#define SCRY_WAY_CALLS 8 /* wanted only */

/* What calls shall lead to. */
struct scry_hook_to {
	enum scry_hook_kind kind;
	uint32_t way, cookie; /* cookie: CALL */
	const char *handler;  /* CALL: exported thunk of the agent; REPLACE: exported function */
	/* exported only; hook/calling.h; also beside a user's row; found once; a row per caller */
	bool is_exported, is_guard, is_beside, is_found, by_caller;
	bool (*leaves_out)(const char *symbol, const char *request); /* NULL: nothing */
};

struct scry_hook {
	uint64_t address, resolver;	  /* of the function; of the IFUNC that chose it, or 0 */
	char *symbol, *version, *aliases; /* "": none; hook/aliases.h, NULL: not known */
	char *module, *caller;		  /* paths: of its object; by_caller: of what calls, NULL */
	uint64_t object_start, object_end;
	struct scry_hook_to to;
	uint32_t request; /* that asked for it */
	uint32_t way;	  /* chosen bits; 0: none */
	const char *why;  /* not, or not by its entry; NULL */
	/* entry */
	struct scry_x86_window window;
	uint8_t code[64]; /* the function's first bytes */
	size_t size, avail;
	bool spares_red_zone, frees_rax, is_ifunc, is_alone; /* hook/stub.h; scry_shadow_refuse */
	uint8_t jump; /* bytes of the jump at the entry: 5, or 2 that lead to `pad` */
	uint64_t pad; /* 5 bytes of filler */
	uint8_t pad_old[5];
	/* site and got: the set's places [first_place, first_place + place_count) */
	size_t first_place, place_count;
	uint64_t target;     /* where these went, and the stub goes on to */
	size_t unseen, kept; /* ways that are not covered; slots that code takes its address from */
	uint64_t over;	     /* the stub of another set that is there (hook/chain.h); 0: none */
	uint8_t over_old[5]; /* an entry's: the jump to it */
	/* on */
	bool has_stub, is_gone; /* gone: its object was unloaded */
	uint64_t stub, copy;	/* addresses; copy: of the displaced instructions */
	uint64_t calls_before;	/* counted by stubs that it had before, see loads.h */
	size_t stub_size;
	uint16_t copied[SCRY_X86_COUNT_MAX + 1];
	uint32_t slab, counter;
	uint32_t handler; /* index into the set's handlers */
};

struct scry_hook_place { /* that leads to a function, other than its entry */
	uint64_t at;	 /* of a slot, 8 bytes; of a displacement in code, 4 bytes */
	uint64_t old;
	bool is_slot;
};

struct scry_hook_room {
	uint64_t near, bytes, counters;
};

struct scry_hooks {
	const struct scry_proc *proc;
	struct scry_mem mem;
	struct scry_linkmap objects;
	struct scry_slots slots;
	struct scry_hook_place *places;
	size_t place_count, place_room;
	struct scry_functions functions;
	struct scry_text **texts; /* by object; NULL: not read */
	struct scry_hook *rows;	  /* by address, once planned */
	size_t count, room, request_count, refused;
	char **requests;
	struct scry_hook_to *request_to;
	size_t first_edit, edit_count; /* in the journal, while on */
	bool is_on;
	bool waits;	    /* set by the caller: SYMBOL@LIB may name what is loaded later */
	bool takes_entries; /* the same: scry_shadow_refuse marks is_alone */
	bool is_unused;	    /* no thread runs the code to be changed: no stop is needed */
	bool is_strict;	    /* slots are changed in the stop too */
	/* or NULL: `fresh` was loaded and planned; may fill in and refuse. 0: on */
	int (*renewed)(struct scry_hooks *fresh, void *arg);
	void *renewed_arg;
	struct scry_loads *loads;		      /* hook/loads.h; NULL: not followed */
	uint32_t slabs;				      /* bits: those with this set's literals */
	const char *handlers[SCRY_HOOK_HANDLERS_MAX]; /* in the order of each slab's literals */
	size_t handler_count;
	uint64_t doubt_at; /* of a word that kept what lasts from being changed; 0 */
	size_t moved;	   /* threads that stood in a window and were moved, in all */
};

/* Reads the list of loaded objects. 0 or -errno with a sentence. */
int scry_hooks_open(struct scry_hooks *h, const struct scry_proc *proc);
void scry_hooks_close(struct scry_hooks *h);

/* SYMBOL[@LIB], globs, 0xADDRESS[@LIB], or a filter expression with its sign. 0;
 * -ENOENT: no such function; with a sentence. With `waits` SYMBOL@LIB need not be there yet. */
int scry_hooks_want(struct scry_hooks *h, const char *request, const struct scry_hook_to *to);
/* hook/plan.c: chooses a way for each, by code and unwind tables of the objects concerned. 0, or
 * -ENOTSUP with the reason when none can be reached; rows without a way (`refused`) say why. */
int scry_hooks_plan(struct scry_hooks *h);
/* Rows in order of their addresses, as a plan leaves them. */
void scry_hooks_sort(struct scry_hooks *h);
/* After a plan: had an object gone since its list was read? Then begin anew. */
bool scry_hooks_are_stale(const struct scry_hooks *h);
/* How many of a row's places are slots. */
size_t scry_hook_slots(const struct scry_hooks *h, const struct scry_hook *row);
/* Changes all places in one stop; `held` is the stopped thread of a program being started, or NULL.
 * 0 or -errno with a sentence: what had been changed is put back, and counts as off. */
int scry_hooks_on(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held);
/* In one stop. */
int scry_hooks_off(struct scry_hooks *h, struct scry_inject *inj);
/* Calls counted by a COUNT hook so far, in all threads. */
uint64_t scry_hook_calls(const struct scry_hook *hook, const struct scry_inject *inj);

/* A slab in reach of `near` with room for so much, as scry_inject_slab: its number or -errno. */
int scry_hooks_slab(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held,
		    const struct scry_hook_room *room);
/* "entry", "site", ... */
const char *scry_hook_way_name(uint32_t way);

#endif
