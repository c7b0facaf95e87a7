/*
 * How deep stacks were used. The trick is to ask the kernel which pages are there (mincore), from
 * the low end up: the first that is marks the deepest use, unless the stack was used before. The
 * pool knows how far that one may have come.
 */
#include "fiber/stack.h"

#include <errno.h>
#include <sys/mman.h>

#define PAGE 4096u
#define CHUNK 1024 /* pages asked at once */

/* Pages from the end of the stack down to the lowest that is there. */
static int deepest_page(const char *low, size_t size, size_t *ret_pages)
{
	unsigned char there[CHUNK];
	size_t pages = size / PAGE;

	for (size_t first = 0; first < pages; first += CHUNK) {
		size_t count = pages - first < CHUNK ? pages - first : CHUNK;

		if (mincore((void *)(low + first * PAGE), count * PAGE, there) != 0)
			return -errno;
		for (size_t i = 0; i < count; i++) {
			if (there[i] & 1) {
				*ret_pages = pages - first - i;
				return 0;
			}
		}
	}
	*ret_pages = 0;
	return 0;
}

int scry_stack_measure(struct scry_stack_pool *pool, const struct scry_stack *stack,
		       struct scry_stack_use *ret_use)
{
	uint32_t dirty = scry_slot_of(pool, stack->id)->dirty_pages;
	size_t pages;
	int error = deepest_page(stack->low, pool->size, &pages);

	if (error != 0)
		return error;
	ret_use->bytes = pages * PAGE;
	ret_use->is_at_most = dirty != 0 && pages <= dirty;
	return 0;
}

static struct scry_advice *advice_of(struct scry_stack_pool *pool, const void *entry)
{
	size_t place = ((uintptr_t)entry >> 4) % SCRY_ENTRIES;

	for (size_t i = 0; i < SCRY_ENTRIES; i++) {
		struct scry_advice *advice = &pool->advice[(place + i) % SCRY_ENTRIES];

		if (advice->count == 0)
			advice->entry = entry;
		if (advice->entry == entry)
			return advice;
	}
	return NULL;
}

void scry_use_note(struct scry_stack_pool *pool, const struct scry_stack *stack)
{
	struct scry_stack_slot *slot = scry_slot_of(pool, stack->id);
	struct scry_advice *advice = advice_of(pool, slot->entry);
	struct scry_stack_use use;

	if (scry_stack_measure(pool, stack, &use) != 0 || use.is_at_most || advice == NULL) {
		pool->advice_lost++;
	} else {
		advice->count++;
		if (use.bytes > advice->most_bytes)
			advice->most_bytes = use.bytes;
	}
	/* its next user begins on a clean one; locked memory stays as it is */
	slot->dirty_pages =
		madvise(stack->low, pool->size, MADV_DONTNEED) == 0 ? 0 : SCRY_DIRTY_UNKNOWN;
}

int scry_stack_advise(struct scry_stack_pool *pool, FILE *out)
{
	int error = -ENODATA, cancelled;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled); /* the pool is locked */
	if (pool->attr.is_shared)
		pthread_mutex_lock(&pool->lock);
	for (size_t i = 0; i < SCRY_ENTRIES; i++) {
		const struct scry_advice *advice = &pool->advice[i];
		size_t safe = 16 << 10;

		if (advice->count == 0)
			continue;
		while (safe < advice->most_bytes + advice->most_bytes / 2)
			safe <<= 1;
		if (error != 0)
			fprintf(out, "%-18s %10s %14s %14s\n", "entry", "stacks", "deepest, KiB",
				"advised, KiB");
		fprintf(out, "%#-18lx %10lu %14zu %14zu\n", (unsigned long)(uintptr_t)advice->entry,
			(unsigned long)advice->count, advice->most_bytes >> 10, safe >> 10);
		error = 0;
	}
	if (pool->advice_lost > 0)
		fprintf(out, "%lu stacks could not be measured\n",
			(unsigned long)pool->advice_lost);
	if (pool->attr.is_shared)
		pthread_mutex_unlock(&pool->lock);
	pthread_setcancelstate(cancelled, NULL);
	return error;
}
