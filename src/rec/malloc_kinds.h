/*
 * Kinds of calls, and the guess which comes next: packer and unpacker keep the same.
 *
 * A kind is all of a call but its block, thread and time. Programs repeat themselves, so a table
 * remembers what came last after each three kinds of a thread, and another which ref (see
 * malloc_blocks.h) came last with a kind after each two: a right guess costs nothing to write.
 */
#ifndef SCRY_REC_MALLOC_KINDS_H
#define SCRY_REC_MALLOC_KINDS_H

#include "rec/malloc_blocks.h"
#include "rec/malloc_effect.h"

#define SCRY_MALLOC_GUESSES (1u << 14)

struct scry_malloc_kind {
	uint64_t size, usable, align;
	uint32_t caller;
	uint8_t function, flags, effect;
};

struct scry_malloc_kinds {
	struct scry_malloc_kind *rows; /* code of a kind: its index + 1 */
	uint32_t count, cap;
	uint32_t *slots; /* packer only: hash to codes; NULL */
	uint32_t slots_mask;
	uint32_t codes[SCRY_MALLOC_GUESSES], refs[SCRY_MALLOC_GUESSES]; /* 0: no guess */
};

static inline uint32_t *scry_malloc_guess_code(struct scry_malloc_kinds *k,
					       const struct scry_malloc_thread *t)
{
	uint64_t hash = t->codes[0] * 0x9e3779b97f4a7c15u ^ t->codes[1] * 0xc2b2ae3d27d4eb4fu ^
			t->codes[2] * 0x165667b19e3779f9u;

	return &k->codes[hash >> 50];
}

static inline uint32_t *scry_malloc_guess_ref(struct scry_malloc_kinds *k,
					      const struct scry_malloc_thread *t, uint32_t code)
{
	uint64_t hash = code * 0x9e3779b97f4a7c15u ^ t->codes[0] * 0xc2b2ae3d27d4eb4fu ^
			t->codes[1] * 0x165667b19e3779f9u;

	return &k->refs[hash >> 50];
}
_Static_assert(SCRY_MALLOC_GUESSES == 1u << (64 - 50), "hashes are shifted by this");

/* The thread has made a call of that code; 0: of a kind that is not kept. */
static inline void scry_malloc_thread_saw(struct scry_malloc_thread *t, uint32_t code)
{
	t->codes[2] = t->codes[1];
	t->codes[1] = t->codes[0];
	t->codes[0] = code;
}

/* What usable size a size has most often: that of glibc. */
static inline uint64_t scry_malloc_usable_guess(uint64_t size)
{
	return size <= 24 ? 24 : ((size + 23) & ~(uint64_t)15) - 8;
}

/* Zeros are an empty table. Frees; the table is then empty. */
void scry_malloc_kinds_done(struct scry_malloc_kinds *k);

/* Forgets kinds and guesses, keeps the memory. The threads' codes are forgotten too. */
void scry_malloc_kinds_forget(struct scry_malloc_kinds *k, struct scry_malloc_blocks *b);

/* The code of a kind put before; 0: it was not. Only where scry_malloc_kinds_put was asked to
 * `find`. */
uint32_t scry_malloc_kinds_find(const struct scry_malloc_kinds *k,
				const struct scry_malloc_kind *kind);

/* Keeps a new kind: its code; 0 when the table is full. 0 or -ENOMEM. */
int scry_malloc_kinds_put(struct scry_malloc_kinds *k, const struct scry_malloc_kind *kind,
			  bool find, uint32_t *ret_code);

size_t scry_malloc_kinds_bytes(const struct scry_malloc_kinds *k);

#endif
