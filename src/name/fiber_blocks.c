/* See fiber_blocks.h. */
#include "name/fiber_blocks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bisect.h"
#include "base/err.h"
#include "name/fiber_finders.h"
#include "name/glibc_arenas.h"

#define ARENA (64u << 20) /* other heaps than the first begin at multiples of it */
#define READ_NS 2000000000u

static int by_address(const void *left, const void *right)
{
	const struct scry_glibc_block *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

/* Not where a chain does not end as it should: a thread was in the midst of a call. */
static void read_heaps(struct scry_fibers *f)
{
	struct scry_fiber_blocks *b = &f->blocks;
	struct scry_glibc_arenas *arenas = calloc(1, sizeof(*arenas));
	struct timespec t = {0};

	b->is_read = true;
	clock_gettime(CLOCK_MONOTONIC, &t);
	if (!arenas ||
	    scry_glibc_arenas_read(&f->mem, &f->maps,
				   (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + READ_NS,
				   arenas) < 0) {
		scry_error_clear();
		free(arenas);
		return;
	}
	scry_glibc_arenas_settle(arenas);
	if (arenas->count)
		qsort(arenas->rows, arenas->count, sizeof(*arenas->rows), by_address);
	b->arenas = arenas;
	b->is_whole = arenas->arenas && !arenas->broken && !arenas->is_late;
}

/* The last block that begins at `address` or before; NULL. */
static const struct scry_glibc_block *block_before(const struct scry_glibc_arenas *a,
						   uint64_t address)
{
	const size_t behind = scry_bisect(a->count, i, a->rows[i].address <= address);

	return behind ? &a->rows[behind - 1] : NULL;
}

enum scry_fiber_block scry_fiber_block_at(struct scry_fibers *f, uint64_t address)
{
	const struct scry_map_entry *m = scry_maps_at(&f->maps, address);
	const struct scry_glibc_block *at;
	const bool is_first = m && strcmp(m->path, "[heap]") == 0;

	if (!m || m->inode || (!is_first && m->start % ARENA))
		return SCRY_FIBER_BLOCK_OTHER;
	if (!f->blocks.is_read)
		read_heaps(f);
	if (!f->blocks.is_whole || scry_fibers_has_run(f))
		return is_first ? SCRY_FIBER_BLOCK_UNKNOWN : SCRY_FIBER_BLOCK_OTHER;
	at = block_before(f->blocks.arenas, address);
	if (at && address - at->address < at->usable)
		return SCRY_FIBER_BLOCK_LIVES;
	/* an arena has blocks; memory that happens to begin at such a place has none */
	return is_first || (at && at->address > m->start) ? SCRY_FIBER_BLOCK_FREE
							  : SCRY_FIBER_BLOCK_OTHER;
}

void scry_fiber_blocks_done(struct scry_fiber_blocks *b)
{
	if (b->arenas)
		scry_glibc_arenas_done(b->arenas);
	free(b->arenas);
	*b = (struct scry_fiber_blocks){0};
}
