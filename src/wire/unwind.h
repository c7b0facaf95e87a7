/*
 * Unwind tables: how to get from any pc of an object to its frame's caller (wire/unwind_step.h).
 *
 * An object's table is rows ascending by pc, each with the number of its rule, which holds up to
 * the next row. A rule is what System V ABI code comes to (sys/cfi.c makes it of .eh_frame):
 *
 *   base : 4 | cfa : 28, bytes from the base | bp : 16 | bx : 16
 *
 * The CFA is where the caller's rsp was before its call; the return address lies right below it.
 * `bp` and `bx` say where rbp and rbx of the caller are: words from the CFA (BP_DEREF: from rbp),
 * SCRY_UNWIND_SAME: as they are, SCRY_UNWIND_LOST: not known.
 *
 * Freestanding. Tables are made of foreign bytes: any content gives some state, never a fault.
 *
 * A target that walks its own stack has the tables in a mapping that it shares with the keeper
 * (struct scry_unwind_map): written once, and listed before they are used. The list is of the
 * process that was entered: a fork child believes what was listed before it was forked.
 */
#ifndef SCRY_WIRE_UNWIND_H
#define SCRY_WIRE_UNWIND_H

#include <stdint.h>

enum scry_unwind_base {
	SCRY_UNWIND_UNKNOWN, /* nothing is known of this pc, or more than a rule can say */
	SCRY_UNWIND_TOP,     /* the outermost frame: it has no caller */
	SCRY_UNWIND_SP,
	SCRY_UNWIND_BP,
	SCRY_UNWIND_BX,
	SCRY_UNWIND_BP_DEREF, /* the CFA is the word at rbp + cfa: a realigned stack */
	SCRY_UNWIND_PLT,      /* rsp + 8, + 8 more behind the push: what linkers write */
	SCRY_UNWIND_SIGNAL,   /* the restorer: rsp is a ucontext, the kernel's */
	/* rbp + cfa, of code that a signal handler has gone on to: where the frame above it is lies
	 * below that one's red zone */
	SCRY_UNWIND_RED_ZONE,
};
#define SCRY_UNWIND_RED_ZONE_BYTES 128
#define SCRY_UNWIND_LOST INT16_MIN
#define SCRY_UNWIND_SAME INT16_MAX
#define SCRY_UNWIND_CFA_MAX ((1 << 27) - 1)

static inline uint64_t scry_unwind_pack(enum scry_unwind_base base, int32_t cfa, int16_t bp,
					int16_t bx)
{
	return (uint64_t)base | ((uint64_t)(uint32_t)cfa & 0xfffffff) << 4 |
	       (uint64_t)(uint16_t)bp << 32 | (uint64_t)(uint16_t)bx << 48;
}
static inline enum scry_unwind_base scry_unwind_base(uint64_t rule)
{
	return (enum scry_unwind_base)(rule & 15);
}
static inline int64_t scry_unwind_cfa(uint64_t rule)
{
	return (int64_t)(int32_t)(uint32_t)rule >> 4;
}
static inline int16_t scry_unwind_bp(uint64_t rule)
{
	return (int16_t)(rule >> 32 & 0xffff);
}
static inline int16_t scry_unwind_bx(uint64_t rule)
{
	return (int16_t)(rule >> 48);
}

/* In a list of return addresses: this one is none, but where a signal interrupted. */
#define SCRY_UNWIND_EXACT (1ull << 63)

struct scry_unwind_rows {      /* of one object */
	const uint32_t *pcs;   /* from its base */
	const uint16_t *which; /* of the same row: number of its rule */
	const uint64_t *rules;
	uint32_t count, rule_count;
};

/* The rule at `pc`, bytes from the object's base; 0 (unknown): none. Others may write the tables
 * meanwhile. */
static inline uint64_t scry_unwind_find(const struct scry_unwind_rows *t, uint32_t pc)
{
	uint32_t low = 0, high = t->count, which;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (t->pcs[middle] <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return 0;
	which = *(const volatile uint16_t *)&t->which[low - 1];
	return which < t->rule_count ? t->rules[which] : 0;
}

/* The mapping. `at`: u64 words from its beginning; there lie rules, then pcs, then `which`. */
struct scry_unwind_object {
	uint64_t start, end; /* [start, end), run-time, of its code */
	uint64_t base;	     /* run-time address of pc 0 */
	uint32_t at, rows, rules;
	uint32_t since; /* low half of the generation in which it was first listed so */
};
#define SCRY_UNWIND_OBJECTS 1024u
struct scry_unwind_index {
	uint64_t count;
	struct scry_unwind_object objects[SCRY_UNWIND_OBJECTS]; /* ascending */
};
/*
 * index[generation & 1] holds while `generation` stays: the keeper fills the other one, then counts
 * up; a reader looks at it before and after.
 */
struct scry_unwind_map {
	uint64_t generation; /* 0: nothing is there yet */
	uint64_t watch;	     /* a number that no other watch has */
	uint64_t reserved[6];
	struct scry_unwind_index index[2];
};

#endif
