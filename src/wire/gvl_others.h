/*
 * Where the agent counts the locks of other ractors than the first: tables like that of
 * wire/gvl.h with less room, behind it and its ring of waits, each with a ring of its own.
 *
 * A table is the agent's to give and to take: a lock gets one with its first event that is seen,
 * and loses it to another one once the keeper has read all of it and says so (`may_go`), and
 * nothing has happened since. Freestanding. What the host reads here is hostile.
 */
#ifndef SCRY_WIRE_GVL_OTHERS_H
#define SCRY_WIRE_GVL_OTHERS_H

#include "wire/gvl_wait.h"

#define SCRY_GVL_OTHERS 16u	   /* locks at a time */
#define SCRY_GVL_OTHER_THREADS 32u /* rows of each; row 0 as in wire/gvl.h */
#define SCRY_GVL_OTHER_RING (1u << 13)

/* The members in front of the arrays are those of struct scry_gvl_table, by which they are used. */
struct scry_gvl_other {
	uint64_t head[offsetof(struct scry_gvl_table, ended) / 8];
	struct scry_gvl_ended ended[SCRY_GVL_OTHER_THREADS];
	uint16_t slots[2 * SCRY_GVL_OTHER_THREADS];
	uint16_t waiting[SCRY_GVL_OTHER_THREADS];
	struct scry_gvl_pair pairs[2][512];
	struct scry_gvl_row row[SCRY_GVL_OTHER_THREADS];
} SCRY_GVL_LINE;

/* Where a table has its arrays, in bytes, and how long they are: powers of two. */
struct scry_gvl_shape {
	uint32_t rows, slots, pairs, ended; /* pairs: of one of the two */
	uint32_t ended_at, slots_at, waiting_at, pairs_at, row_at, bytes;
	uint32_t ring; /* words of the ring of waits */
};

#define SCRY_GVL_SHAPE(type, words)                                                            \
	{                                                                                      \
		.rows = sizeof(((type *)0)->row) / sizeof(struct scry_gvl_row),                \
		.slots = sizeof(((type *)0)->slots) / sizeof(uint16_t),                        \
		.pairs = sizeof(((type *)0)->pairs[0]) / sizeof(struct scry_gvl_pair),         \
		.ended = sizeof(((type *)0)->ended) / sizeof(struct scry_gvl_ended),           \
		.ended_at = offsetof(type, ended), .slots_at = offsetof(type, slots),          \
		.waiting_at = offsetof(type, waiting), .pairs_at = offsetof(type, pairs),      \
		.row_at = offsetof(type, row), .bytes = sizeof(type), .ring = (uint32_t)words, \
	}
static const struct scry_gvl_shape scry_gvl_shape_first =
					   SCRY_GVL_SHAPE(struct scry_gvl_table, SCRY_GVL_RING),
				   scry_gvl_shape_other = SCRY_GVL_SHAPE(struct scry_gvl_other,
									 SCRY_GVL_OTHER_RING);

#define SCRY_GVL_OTHERS_AT (8 * (SCRY_GVL_RING_AT + SCRY_GVL_RING)) /* bytes behind the first */
#define SCRY_GVL_OTHER_RINGS_AT \
	(SCRY_GVL_OTHERS_AT + SCRY_GVL_OTHERS * sizeof(struct scry_gvl_other))
_Static_assert(SCRY_GVL_OTHER_RINGS_AT + SCRY_GVL_OTHERS * 8ull * SCRY_GVL_OTHER_RING <=
		       8ull * SCRY_RING_WORDS,
	       "all lie in the ring");

/* `which` of the others, by the first ractor's table; its ring. */
static inline struct scry_gvl_table *scry_gvl_other_at(struct scry_gvl_table *first, uint32_t which)
{
	return (struct scry_gvl_table *)((uint8_t *)first + SCRY_GVL_OTHERS_AT +
					 which % SCRY_GVL_OTHERS * sizeof(struct scry_gvl_other));
}

static inline uint64_t *scry_gvl_ring_of_other(struct scry_gvl_table *first, uint32_t which)
{
	return (uint64_t *)((uint8_t *)first + SCRY_GVL_OTHER_RINGS_AT) +
	       which % SCRY_GVL_OTHERS * (uint64_t)SCRY_GVL_OTHER_RING;
}

static inline struct scry_gvl_row *scry_gvl_row_at(const struct scry_gvl_shape *s,
						   const struct scry_gvl_table *t, uint32_t row)
{
	return (struct scry_gvl_row *)((uint8_t *)t + s->row_at) + (row & (s->rows - 1));
}

static inline uint16_t *scry_gvl_waiting_at(const struct scry_gvl_shape *s,
					    const struct scry_gvl_table *t, uint32_t place)
{
	return (uint16_t *)((uint8_t *)t + s->waiting_at) + (place & (s->rows - 1));
}

static inline struct scry_gvl_ended *
scry_gvl_ended_at(const struct scry_gvl_shape *s, const struct scry_gvl_table *t, uint32_t place)
{
	return (struct scry_gvl_ended *)((uint8_t *)t + s->ended_at) + (place & (s->ended - 1));
}

static inline struct scry_gvl_pair *
scry_gvl_pairs_at(const struct scry_gvl_shape *s, const struct scry_gvl_table *t, uint32_t which)
{
	return (struct scry_gvl_pair *)((uint8_t *)t + s->pairs_at) + (which & 1) * s->pairs;
}

#endif
