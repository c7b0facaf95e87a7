/*
 * A lasting patch: memory of its own in a process, which stays when scry has gone. Its first page
 * says what it is, so that later scrys, of other builds too, list it and take it out. Freestanding.
 * What the host reads of it is hostile input.
 *
 *   head | journal | text        r-x  private
 *   constants                    r--  private
 *   data | stack for calls       rw-  private: counters, and what the patch's code writes; the
 * stack is for scry's own calls when it takes the patch out
 *
 * A fork child has its parent's, and its own from then on.
 */
#ifndef SCRY_WIRE_PATCH_H
#define SCRY_WIRE_PATCH_H

#include <stdint.h>

#define SCRY_PATCH_MAGIC 0x3168637461707363ull /* "cspatch1" */
#define SCRY_PATCH_VERSION 1u /* fields are only added, behind those that are there */
#define SCRY_PATCH_NAME 64
#define SCRY_PATCH_COUNTERS 64 /* as many as an object has entries */
#define SCRY_PATCH_BYTES_MAX (64u << 20)

enum scry_patch_stage {
	SCRY_PATCH_MAPPING = 1, /* no code leads here */
	SCRY_PATCH_ON,		/* the journal says what leads here */
	SCRY_PATCH_OUT,		/* all is put back; here only while a thread may still be inside */
};
enum scry_patch_kind { SCRY_PATCH_UCONTEXT = 1, SCRY_PATCH_OBJECT };

struct scry_patch_counter { /* a word of data, or a log (include/scry/patch.h) */
	char name[56];
	uint64_t at;	 /* its address */
	uint64_t is_log; /* 1 */
};

struct scry_patch_head {
	uint64_t magic;
	uint32_t version, stage, kind, uid; /* uid: whose scry made it */
	uint64_t size;			    /* of all, bytes, from this page on */
	uint64_t nonce;			    /* the journal has it too */
	uint64_t journal, journal_room;	    /* address; entries */
	uint64_t text, text_size;
	uint64_t constants, constants_size;
	uint64_t data, data_size; /* the stack included */
	uint64_t stack;		  /* its end, which is that of data */
	uint64_t since_ns;	  /* CLOCK_REALTIME */
	uint64_t start; /* ticks from boot to the start of the process it was applied to */
	char name[SCRY_PATCH_NAME];
	uint64_t counter_count;
	struct scry_patch_counter counters[SCRY_PATCH_COUNTERS];
};
_Static_assert(sizeof(struct scry_patch_head) <= 8192, "two pages");

#endif
