/*
 * The blocks that live. See malloc_blocks.h.
 */
#include "rec/malloc_blocks.h"

#include "rec/malloc_format.h"
#include "wire/payload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE SCRY_MALLOC_NO_BLOCK
#define PLACE_BITS 20u
#define PLACE_MASK ((1u << PLACE_BITS) - 1)
#define STACK_MASK (SCRY_MALLOC_STACK - 1)
_Static_assert(SCRY_MALLOC_SLOTS <= 1u << (32 - PLACE_BITS), "a slot fits beside a place");

int scry_malloc_blocks_init(struct scry_malloc_blocks *b, bool has_births)
{
	*b = (struct scry_malloc_blocks){.has_births = has_births, .free = NONE, .newest = NONE};
	b->threads = calloc(SCRY_MALLOC_SLOTS, sizeof(struct scry_malloc_thread *));
	return b->threads ? 0 : -ENOMEM;
}

void scry_malloc_blocks_done(struct scry_malloc_blocks *b)
{
	uint32_t i;

	for (i = 0; b->threads && i < SCRY_MALLOC_SLOTS; i++)
		free(b->threads[i]);
	free(b->threads);
	free(b->links);
	free(b->births);
	*b = (struct scry_malloc_blocks){0};
}

static int blocks_grow(struct scry_malloc_blocks *b, uint32_t cap)
{
	void *links = realloc(b->links, cap * sizeof(*b->links));
	void *births;

	if (!links)
		return -ENOMEM;
	b->links = links;
	if (b->has_births) {
		births = realloc(b->births, cap * sizeof(*b->births));
		if (!births)
			return -ENOMEM;
		b->births = births;
	}
	b->cap = cap;
	return 0;
}

int scry_malloc_blocks_copy(struct scry_malloc_blocks *to, const struct scry_malloc_blocks *from)
{
	int err = scry_malloc_blocks_init(to, from->has_births);
	uint32_t i;

	if (!err && from->count)
		err = blocks_grow(to, from->count);
	if (err)
		return err;
	if (from->count)
		memcpy(to->links, from->links, from->count * sizeof(*to->links));
	if (from->count && from->has_births)
		memcpy(to->births, from->births, from->count * sizeof(*to->births));
	for (i = 0; i < SCRY_MALLOC_SLOTS; i++) {
		if (!from->threads[i])
			continue;
		to->threads[i] = malloc(sizeof(*to->threads[i]));
		if (!to->threads[i])
			return -ENOMEM;
		*to->threads[i] = *from->threads[i];
		to->thread_count++;
	}
	to->count = from->count;
	to->free = from->free;
	to->newest = from->newest;
	to->living = from->living;
	return 0;
}

size_t scry_malloc_blocks_bytes(const struct scry_malloc_blocks *b)
{
	return b->cap * (sizeof(*b->links) + (b->has_births ? sizeof(*b->births) : 0)) +
	       b->thread_count * sizeof(struct scry_malloc_thread) +
	       SCRY_MALLOC_SLOTS * sizeof(*b->threads);
}

struct scry_malloc_thread *scry_malloc_thread_new(struct scry_malloc_blocks *b, uint32_t thread)
{
	struct scry_malloc_thread *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->next = t->prev = NONE;
	b->thread_count++;
	b->threads[thread % SCRY_MALLOC_SLOTS] = t;
	return t;
}

/* Found again by the packer: which thread's stack, and where. */
static void blocks_push(struct scry_malloc_blocks *b, struct scry_malloc_thread *t, uint32_t block)
{
	t->stack[t->top++ & STACK_MASK] = block;
}

int scry_malloc_blocks_begin(struct scry_malloc_blocks *b, struct scry_malloc_thread *t,
			     uint32_t *ret_block)
{
	uint32_t block = b->free;
	int err;

	if (block != NONE) {
		b->free = b->links[block].next;
	} else {
		if (b->count == SCRY_MALLOC_BLOCKS_MAX)
			return -ENOSPC;
		if (b->count == b->cap) {
			err = blocks_grow(b, b->cap ? b->cap * 2 : 1024);
			if (err)
				return err;
		}
		block = b->count++;
	}
	b->links[block] = (struct scry_malloc_links){.prev = b->newest, .next = NONE};
	if (b->newest != NONE)
		b->links[b->newest].next = block;
	b->newest = block;
	b->living++;
	if (b->has_births)
		b->births[block] = t->top & PLACE_MASK;
	blocks_push(b, t, block);
	*ret_block = block;
	return 0;
}

void scry_malloc_blocks_again(struct scry_malloc_blocks *b, struct scry_malloc_thread *t,
			      uint32_t block)
{
	if (t->top && t->stack[(t->top - 1) & STACK_MASK] == block)
		return;
	if (b->has_births)
		b->births[block] = t->top & PLACE_MASK;
	blocks_push(b, t, block);
}

void scry_malloc_blocks_end(struct scry_malloc_blocks *b, struct scry_malloc_thread *t,
			    uint32_t block)
{
	struct scry_malloc_links *links = &b->links[block];

	t->ended = block;
	t->next = links->next;
	t->prev = links->prev;
	if (links->prev != NONE)
		b->links[links->prev].next = links->next;
	if (links->next != NONE)
		b->links[links->next].prev = links->prev;
	else
		b->newest = links->prev;
	*links = (struct scry_malloc_links){.prev = SCRY_MALLOC_DEAD, .next = b->free};
	b->free = block;
	b->living--;
	while (t->top && b->links[t->stack[(t->top - 1) & STACK_MASK]].prev == SCRY_MALLOC_DEAD)
		t->top--;
}

static uint32_t walk_next(const struct scry_malloc_blocks *b, uint32_t block, uint32_t skips)
{
	if (!scry_malloc_block_lives(b, block))
		return NONE;
	while (skips-- && block != NONE)
		block = b->links[block].next;
	return block;
}

static uint32_t walk_prev(const struct scry_malloc_blocks *b, uint32_t block, uint32_t skips)
{
	if (!scry_malloc_block_lives(b, block))
		return NONE;
	while (skips-- && block != NONE)
		block = b->links[block].prev;
	return block;
}

uint32_t scry_malloc_ref_find(const struct scry_malloc_blocks *b,
			      const struct scry_malloc_thread *t, uint32_t ref)
{
	uint32_t block, zigzag;

	if (ref < SCRY_MALLOC_REF_NEXT)
		return NONE;
	if (ref < SCRY_MALLOC_REF_PREV)
		return walk_next(b, t->next, ref - SCRY_MALLOC_REF_NEXT);
	if (ref < SCRY_MALLOC_REF_STACK)
		return walk_prev(b, t->prev, ref - SCRY_MALLOC_REF_PREV);
	if (ref < SCRY_MALLOC_REF_NUMBER) {
		ref -= SCRY_MALLOC_REF_STACK;
		if (ref >= t->top)
			return NONE;
		block = t->stack[(t->top - 1 - ref) & STACK_MASK];
	} else {
		zigzag = ref - SCRY_MALLOC_REF_NUMBER;
		block = t->ended + (zigzag >> 1 ^ -(zigzag & 1));
	}
	return scry_malloc_block_lives(b, block) ? block : NONE;
}

uint32_t scry_malloc_ref_of(const struct scry_malloc_blocks *b, const struct scry_malloc_thread *t,
			    uint32_t block)
{
	uint32_t depth = (t->top - 1 - b->births[block]) & PLACE_MASK, i, next, prev, delta;
	bool is_stacked = depth < SCRY_MALLOC_STACK && depth < t->top &&
			  t->stack[(t->top - 1 - depth) & STACK_MASK] == block;

	if (is_stacked && depth == 0)
		return SCRY_MALLOC_REF_STACK;
	next = walk_next(b, t->next, 0);
	prev = walk_prev(b, t->prev, 0);
	for (i = 0; i < SCRY_MALLOC_SKIPS; i++) {
		if (next == block)
			return SCRY_MALLOC_REF_NEXT + i;
		if (prev == block)
			return SCRY_MALLOC_REF_PREV + i;
		next = next == NONE ? NONE : b->links[next].next;
		prev = prev == NONE ? NONE : b->links[prev].prev;
	}
	if (is_stacked)
		return SCRY_MALLOC_REF_STACK + depth;
	delta = block - t->ended;
	return SCRY_MALLOC_REF_NUMBER + (delta << 1 ^ -(delta >> 31));
}
