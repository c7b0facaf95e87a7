/*
 * Places: what DEF records of the agent describe, by content. The same code defined again (after an
 * eviction, another eval) is the same place, so memory follows the program's size and not its age.
 */
#ifndef SCRY_NAME_PLACES_H
#define SCRY_NAME_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/intern.h"
#include "base/map.h"
#include "vm/ruby.h"
#include "wire/ruby_ring.h"

#define SCRY_PLACES_MAX ((1u << 20) - 2) /* a packed word and a live entry have 20 bits for it */

struct scry_place_key { /* hashed as bytes: no padding */
	uint32_t path, label, klass;
	uint32_t line_at, line_before, first_line;
	uint32_t position;
	uint32_t stack; /* frame that called it, see stacks.h; 0 not recorded */
	uint16_t depth;
	uint8_t top, type;
	uint16_t leaf;	/* index + 1 in layout.leaf of the instruction at pc */
	uint16_t after; /* index + 1 in layout.after of the one before it, if it makes this type */
	uint8_t after_takes_none;
	uint8_t internal; /* no Ruby code can see such an object, when it is made */
	uint16_t reserved;
};

struct scry_places {
	const struct scry_ruby *ruby; /* borrowed; NULL: instructions are unknown */
	struct scry_intern names;     /* paths, labels, classes */
	struct scry_intern keys;      /* struct scry_place_key -> number, from 1 */
	struct scry_map depths;	      /* of code: least depth seen << 16 | greatest */
};

void scry_places_init(struct scry_places *p, const struct scry_ruby *ruby);
void scry_places_done(struct scry_places *p);

/* The id of a name, 0: none, or at the limit. */
uint32_t scry_places_name(struct scry_places *p, const char *bytes, size_t size);

/*
 * The number of the place that a DEF record describes, its text following it in `words`. 0: the
 * record is damaged, or the limit of one million places is reached.
 */
uint32_t scry_places_define(struct scry_places *p, const uint64_t *words, size_t count,
			    uint32_t *ret_code);

/* A place without path, line and class, which counts as unnamed. */
uint32_t scry_places_nowhere(struct scry_places *p);

/* The number of the place that `key` describes, its names being ids of this table. 0 at the limit.
 */
uint32_t scry_places_add(struct scry_places *p, const struct scry_place_key *key);

/* The same place, called by stack frame `stack`. 0 at the limit. */
uint32_t scry_places_with_stack(struct scry_places *p, uint32_t place, uint32_t stack);

/* The instruction whose word this is, when it allocates while pc still points at it: its index + 1
 * in layout.leaf; 0: it is none. */
uint16_t scry_places_leaf(const struct scry_ruby *ruby, uint64_t word);

/* The line of what called a function at `pc` of a DEF record: the instruction that runs is the one
 * before pc, but for instructions that pc is still at. */
uint32_t scry_places_calling_line(const struct scry_ruby *ruby, const struct scry_ring_def *def);

/* All zero when there is no such place. */
void scry_places_key(const struct scry_places *p, uint32_t place, struct scry_place_key *ret);

/*
 * The place of objects made at `place`, an internal one, that the VM has given a class and so to
 * the program since: String#encode and Array#sort make their answers so. Where it is not the core
 * class of their type they have the type's name, "T_STRING", as it is not known which class it is.
 * 0: they are not internal, or are for ever, or the limit is reached.
 */
uint32_t scry_places_revealed(struct scry_places *p, uint32_t place, bool is_core);

/* The line of a place, as far as is known by now. 0: none. */
uint32_t scry_places_line(const struct scry_places *p, const struct scry_place_key *key);

#endif
