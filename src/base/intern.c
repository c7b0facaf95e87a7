/*
 * Byte strings to dense ids. See intern.h.
 *
 * Bytes live in blocks that are never moved; the slots hold ids only, so growing them touches no
 * string.
 */
#include "base/intern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define INTERN_BLOCK_BYTES (64u << 10)
#define INTERN_FIRST_SLOTS 64u

struct scry_intern_block {
	struct scry_intern_block *older;
	size_t used, size;
	char bytes[];
};

void scry_intern_init(struct scry_intern *in, uint32_t limit, size_t bytes_limit)
{
	*in = (struct scry_intern){.limit = limit, .bytes_limit = bytes_limit};
	/* Without entropy the seed stays 0: slower under attack, still right. */
	if (getrandom(&in->seed, sizeof(in->seed), GRND_NONBLOCK) != sizeof(in->seed))
		in->seed = 0;
}

void scry_intern_done(struct scry_intern *in)
{
	struct scry_intern_block *block = in->block;

	while (block) {
		struct scry_intern_block *older = block->older;

		free(block);
		block = older;
	}
	free(in->entries);
	free(in->slots);
	scry_intern_init(in, in->limit, in->bytes_limit);
}

/* Folds 8 bytes at a time through a 64x64 multiplication, both halves kept. */
static uint64_t intern_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ b) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint64_t)product ^ (uint64_t)(product >> 64) ^ b;
}

static uint32_t intern_hash(const struct scry_intern *in, const char *bytes, size_t len)
{
	uint64_t hash = intern_mix(in->seed, len), word;

	for (; len >= 8; bytes += 8, len -= 8) {
		memcpy(&word, bytes, 8);
		hash = intern_mix(hash, word);
	}
	word = 0;
	if (len)
		memcpy(&word, bytes, len);
	hash = intern_mix(hash, word);
	return (uint32_t)(hash ^ (hash >> 32));
}

/* The slot that holds the string, or the empty one where it belongs. */
static uint32_t intern_slot(const struct scry_intern *in, const struct scry_intern_entry *want)
{
	uint32_t i = want->hash & in->slots_mask;

	while (in->slots[i]) {
		const struct scry_intern_entry *entry = &in->entries[in->slots[i] - 1];

		if (entry->hash == want->hash && entry->length == want->length &&
		    !memcmp(entry->bytes, want->bytes, want->length))
			break;
		i = (i + 1) & in->slots_mask;
	}
	return i;
}

static int intern_grow_slots(struct scry_intern *in)
{
	uint32_t count = in->slots ? (in->slots_mask + 1) * 2 : INTERN_FIRST_SLOTS;
	uint32_t *slots = calloc(count, sizeof(*slots));
	uint32_t id, i;

	if (!slots)
		return -ENOMEM;
	for (id = 1; id <= in->count; id++) {
		i = in->entries[id - 1].hash & (count - 1);
		while (slots[i])
			i = (i + 1) & (count - 1);
		slots[i] = id;
	}
	free(in->slots);
	in->slots = slots;
	in->slots_mask = count - 1;
	return 0;
}

static int intern_grow_entries(struct scry_intern *in)
{
	uint32_t cap = in->entries_cap ? in->entries_cap * 2 : INTERN_FIRST_SLOTS;
	struct scry_intern_entry *entries = reallocarray(in->entries, cap, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	in->entries = entries;
	in->entries_cap = cap;
	return 0;
}

/* `len` bytes of lasting memory, NULL when there is none. */
static char *intern_room(struct scry_intern *in, size_t len)
{
	struct scry_intern_block *block = in->block;
	size_t size = len > INTERN_BLOCK_BYTES ? len : INTERN_BLOCK_BYTES;

	if (!block || block->size - block->used < len) {
		block = malloc(sizeof(*block) + size);
		if (!block)
			return NULL;
		*block = (struct scry_intern_block){.older = in->block, .size = size};
		in->block = block;
	}
	block->used += len;
	return block->bytes + block->used - len;
}

static int intern_make_room(struct scry_intern *in)
{
	if (in->count == in->entries_cap && intern_grow_entries(in))
		return -ENOMEM;
	if (!in->slots || in->count + 1 > in->slots_mask / 2)
		return intern_grow_slots(in);
	return 0;
}

int scry_intern_put(struct scry_intern *in, const char *bytes, size_t len, uint32_t *ret_id)
{
	struct scry_intern_entry entry = {.bytes = bytes, .length = (uint32_t)len};
	char *copy;
	uint32_t i;
	int err;

	if (len > UINT32_MAX)
		return -ENOSPC;
	entry.hash = intern_hash(in, bytes, len);
	if (in->slots) {
		i = intern_slot(in, &entry);
		if (in->slots[i]) {
			*ret_id = in->slots[i];
			return 0;
		}
	}
	if (in->count >= in->limit || len >= in->bytes_limit - in->bytes)
		return -ENOSPC;
	err = intern_make_room(in);
	if (err)
		return err;
	copy = intern_room(in, len + 1);
	if (!copy)
		return -ENOMEM;
	if (len)
		memcpy(copy, bytes, len);
	copy[len] = '\0';
	entry.bytes = copy;
	in->bytes += len + 1;
	in->entries[in->count] = entry;
	i = intern_slot(in, &entry);
	in->slots[i] = ++in->count;
	*ret_id = in->count;
	return 0;
}

uint32_t scry_intern_find(const struct scry_intern *in, const char *bytes, size_t len)
{
	struct scry_intern_entry entry = {.bytes = bytes, .length = (uint32_t)len};

	if (!in->slots || len > UINT32_MAX)
		return 0;
	entry.hash = intern_hash(in, bytes, len);
	return in->slots[intern_slot(in, &entry)];
}

const char *scry_intern_get(const struct scry_intern *in, uint32_t id, size_t *ret_len)
{
	if (!id || id > in->count)
		return NULL;
	if (ret_len)
		*ret_len = in->entries[id - 1].length;
	return in->entries[id - 1].bytes;
}
