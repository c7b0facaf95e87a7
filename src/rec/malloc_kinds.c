/*
 * Kinds of calls. See malloc_kinds.h.
 */
#include "rec/malloc_kinds.h"

#include "rec/malloc_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void scry_malloc_kinds_done(struct scry_malloc_kinds *k)
{
	free(k->rows);
	free(k->slots);
	memset(k, 0, sizeof(*k));
}

void scry_malloc_kinds_forget(struct scry_malloc_kinds *k, struct scry_malloc_blocks *b)
{
	uint32_t i;

	k->count = 0;
	if (k->slots)
		memset(k->slots, 0, (k->slots_mask + 1) * sizeof(*k->slots));
	memset(k->codes, 0, sizeof(k->codes));
	memset(k->refs, 0, sizeof(k->refs));
	for (i = 0; i < SCRY_MALLOC_SLOTS; i++)
		if (b->threads[i])
			memset(b->threads[i]->codes, 0, sizeof(b->threads[i]->codes));
}

static uint64_t kind_hash(const struct scry_malloc_kind *kind)
{
	uint64_t hash = kind->size * 0x9e3779b97f4a7c15u;

	hash = (hash ^ hash >> 29 ^ kind->usable) * 0xbf58476d1ce4e5b9u;
	hash = (hash ^ hash >> 31 ^ kind->align) * 0x94d049bb133111ebu;
	hash = (hash ^ hash >> 29 ^ kind->caller ^ (uint64_t)kind->function << 32 ^
		(uint64_t)kind->flags << 40) *
	       0x9e3779b97f4a7c15u;
	return hash ^ hash >> 32;
}

static bool kinds_equal(const struct scry_malloc_kind *a, const struct scry_malloc_kind *b)
{
	return a->size == b->size && a->usable == b->usable && a->align == b->align &&
	       a->caller == b->caller && a->function == b->function && a->flags == b->flags;
}

uint32_t scry_malloc_kinds_find(const struct scry_malloc_kinds *k,
				const struct scry_malloc_kind *kind)
{
	uint32_t at, code;

	if (!k->slots)
		return 0;
	for (at = (uint32_t)kind_hash(kind) & k->slots_mask; (code = k->slots[at]);
	     at = (at + 1) & k->slots_mask)
		if (kinds_equal(&k->rows[code - 1], kind))
			return code;
	return 0;
}

static void kinds_slot(struct scry_malloc_kinds *k, uint32_t code)
{
	uint32_t at = (uint32_t)kind_hash(&k->rows[code - 1]) & k->slots_mask;

	while (k->slots[at])
		at = (at + 1) & k->slots_mask;
	k->slots[at] = code;
}

static int kinds_grow(struct scry_malloc_kinds *k, bool find)
{
	uint32_t cap = k->cap ? k->cap * 2 : 256, code;
	void *rows = realloc(k->rows, cap * sizeof(*k->rows));

	if (!rows)
		return -ENOMEM;
	k->rows = rows;
	if (find) {
		free(k->slots);
		k->slots = calloc(cap * 2, sizeof(*k->slots));
		k->slots_mask = cap * 2 - 1;
		if (!k->slots)
			return -ENOMEM;
		for (code = 1; code <= k->count; code++)
			kinds_slot(k, code);
	}
	k->cap = cap;
	return 0;
}

int scry_malloc_kinds_put(struct scry_malloc_kinds *k, const struct scry_malloc_kind *kind,
			  bool find, uint32_t *ret_code)
{
	int err;

	if (k->count == SCRY_MALLOC_KINDS_MAX) {
		*ret_code = 0;
		return 0;
	}
	if (k->count == k->cap) {
		err = kinds_grow(k, find);
		if (err)
			return err;
	}
	k->rows[k->count++] = *kind;
	if (find)
		kinds_slot(k, k->count);
	*ret_code = k->count;
	return 0;
}

size_t scry_malloc_kinds_bytes(const struct scry_malloc_kinds *k)
{
	return sizeof(*k) + k->cap * sizeof(*k->rows) +
	       (k->slots ? (k->slots_mask + 1) * sizeof(*k->slots) : 0);
}
