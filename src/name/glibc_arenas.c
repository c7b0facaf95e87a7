/* See glibc_arenas.h. */
#include "name/glibc_heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"

#define DATA_MAX (4u << 20) /* of libc's data, bytes */
#define ARENAS_MAX 4096
#define HEAPS_MAX 65536 /* of one arena */
#define HEAP_BYTES (64ull << 20)
#define ADDRESSES (1ull << 47) /* bytes that a process can have */
#define HEAD_OLD 32u	       /* struct heap_info before 2.35 */
#define HEAD_NEW 48u

/* Behind what was read before: more than then. Elsewhere, as between large chunks: a little. */
static size_t bytes_to_read(const struct scry_glibc_window *w, uint64_t address)
{
	const size_t more = 4 * (size_t)(w->end - w->start);

	if (address < w->end || address - w->end > WINDOW_LEAST || more < WINDOW_LEAST)
		return WINDOW_LEAST;
	return more < sizeof(w->words) ? more : sizeof(w->words);
}

int scry_glibc_word(struct scry_glibc_window *w, uint64_t address, uint64_t *ret)
{
	if (address < w->start || address >= w->end) {
		const size_t bytes = bytes_to_read(w, address);
		ssize_t n;

		w->reads++;
		w->start = address & ~4095ull;
		n = scry_mem_read_some(w->mem, w->start, w->words, bytes);
		w->end = w->start + (n > 0 ? (uint64_t)n & ~7ull : 0);
		if (address >= w->end)
			return n < 0 ? (int)n : -EFAULT;
	}
	*ret = w->words[(address - w->start) / 8];
	return 0;
}

bool scry_glibc_in_time(struct scry_glibc_heap *h)
{
	struct timespec ts;

	if (!h->deadline_ns || h->ret->is_late)
		return !h->ret->is_late;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	h->ret->is_late = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec > h->deadline_ns;
	return !h->ret->is_late;
}

int scry_glibc_room(void **list, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? *room * 2 : 64;
	void *grown;

	if (count < *room)
		return 0;
	grown = realloc(*list, more * size);
	if (!grown)
		return scry_no_memory("the heap's chunks");
	*list = grown;
	*room = more;
	return 0;
}

int scry_glibc_add(struct scry_glibc_heap *h, uint64_t address, uint64_t usable, uint64_t link)
{
	struct scry_glibc_arenas *r = h->ret;
	size_t room = r->room;

	if (r->count == SCRY_GLIBC_BLOCKS_MAX)
		return scry_fail(-ENOSPC, "more than %u blocks live", SCRY_GLIBC_BLOCKS_MAX);
	if (scry_glibc_room((void **)&h->links, r->count, &room, sizeof(*h->links)) < 0 ||
	    scry_glibc_room((void **)&r->rows, r->count, &r->room, sizeof(*r->rows)) < 0)
		return -ENOMEM;
	h->links[r->count] = link;
	r->rows[r->count++] = (struct scry_glibc_block){address, usable};
	r->bytes += usable;
	return 0;
}

/* arenas */

/* Do the bins of what may be an arena at `address` hold? At least one is empty, as large ones are.
 */
static bool is_arena(struct scry_glibc_heap *h, const uint64_t *words, uint64_t address)
{
	if (!words[ARENA_TOP] || words[ARENA_TOP] % 16 || !words[ARENA_NEXT] ||
	    words[ARENA_NEXT] % 8)
		return false;
	for (unsigned int i = ARENA_BIN_COUNT; i >= 1; i--) {
		const uint64_t *bin = words + ARENA_BINS + 2 * (i - 1);
		uint64_t self = address + 8 * (ARENA_BINS - 2 + 2 * (i - 1)), back, on;

		if (bin[0] == self && bin[1] == self)
			continue;
		if (!bin[0] || bin[0] % 16 || !bin[1] || bin[1] % 16 ||
		    scry_mem_u64(h->window.mem, bin[0] + 24, &back) < 0 || back != self ||
		    scry_mem_u64(h->window.mem, bin[1] + 16, &on) < 0 || on != self)
			return false;
	}
	return true;
}

/* A chunk that is used, `link` being its first word: a block, a thread's cache, or in one. */
static int use(struct scry_glibc_heap *h, uint64_t chunk, uint64_t size, uint64_t link)
{
	int r = scry_glibc_candidate(h, chunk, size);

	return r ? r : scry_glibc_add(h, chunk + 16, size - 8, link);
}

/*
 * One region of chunks, [at, end): adds what is used. Returns 1 when it was read to the top or to
 * the fence at its end, 0 when it does not fit, -errno.
 */
static int walk_chunks(struct scry_glibc_heap *h, uint64_t at, uint64_t end, uint64_t top)
{
	struct scry_glibc_window *w = &h->window;
	uint64_t reads = UINT64_MAX;

	for (;;) {
		uint64_t word, next_word, before, size, link;
		int r = 0;

		if (w->reads != reads && !scry_glibc_in_time(h))
			return 0;
		reads = w->reads;
		if (at > end - 16 || scry_glibc_word(w, at + 8, &word) < 0)
			return 0;
		size = word & ~(uint64_t)CHUNK_FLAGS;
		h->ret->walked_bytes += size;
		if (at == top || size == CHUNK_FENCE || size == 0)
			return 1;
		if (size < CHUNK_MIN || size % 16 || word & CHUNK_MAPPED || size > end - at ||
		    scry_glibc_word(w, at + 16, &link) < 0 ||
		    scry_glibc_word(w, at + size + 8, &next_word) < 0)
			return 0;
		if (next_word & CHUNK_PREV_USED)
			r = use(h, at, size, link);
		else if (scry_glibc_word(w, at + size, &before) < 0 || before != size)
			return 0;
		if (r < 0)
			return r;
		at += size;
	}
}

static int walk(struct scry_glibc_heap *h, uint64_t at, uint64_t end, uint64_t top)
{
	struct scry_glibc_region region = {.first = h->ret->count};
	int r = walk_chunks(h, at, end, top);

	region.end = h->ret->count;
	if (r >= 0 && scry_glibc_room((void **)&h->regions, h->region_count, &h->region_room,
				      sizeof(region)) < 0)
		return -ENOMEM;
	if (r >= 0)
		h->regions[h->region_count++] = region;
	return r;
}

/* The heap of the main arena: grown by brk. Where something else has moved the break it is in
 * pieces, of which only the first is found, and the last when it has a mapping of its own. */
static int walk_main(struct scry_glibc_heap *h, const uint64_t *arena, uint64_t base)
{
	const struct scry_map_entry *first = scry_maps_at(h->maps, base), *last;
	const uint64_t top = arena[ARENA_TOP], walked = h->ret->walked_bytes;
	uint64_t size, end;
	int r;

	if (scry_glibc_word(&h->window, top + 8, &size) < 0)
		return 0;
	end = top + (size & ~(uint64_t)CHUNK_FLAGS);
	last = scry_maps_at(h->maps, top);
	if (end - arena[ARENA_SYSTEM] == base || first == last)
		r = walk(h, base, end, top);
	else
		r = first ? walk(h, base, first->end, top) : 0;
	if (r >= 0 && last && last != first && last->start > base)
		r = walk(h, last->start, end, top);
	return r < 0 ? r : h->ret->walked_bytes - walked >= arena[ARENA_SYSTEM];
}

/* The first chunk of a heap; 0: it is none of this arena. */
static uint64_t first_chunk(struct scry_glibc_heap *h, uint64_t heap, uint64_t arena)
{
	uint64_t owner, head = arena % HEAP_BYTES;

	if (scry_mem_u64(h->window.mem, heap, &owner) < 0 || owner != arena ||
	    (head != HEAD_OLD && head != HEAD_NEW))
		return 0;
	if (heap != (arena & ~(HEAP_BYTES - 1)))
		return heap + head;
	return (arena + 8 * ARENA_WORDS + 15) & ~15ull;
}

/* An arena of threads: heaps of 64 MiB, the newest holds the top. */
static int walk_heaps(struct scry_glibc_heap *h, const uint64_t *arena, uint64_t address)
{
	uint64_t heap = arena[ARENA_TOP] & ~(HEAP_BYTES - 1);
	int r = 1;

	for (int n = 0; heap && r == 1; n++) {
		uint64_t first = first_chunk(h, heap, address), head[3];

		if (!first || n == HEAPS_MAX ||
		    scry_mem_read(h->window.mem, heap, head, sizeof(head)) < 0 ||
		    head[2] > HEAP_BYTES || head[2] < first - heap)
			return 0;
		h->ret->walked_bytes += first - heap;
		r = walk(h, first, heap + head[2], arena[ARENA_TOP]);
		heap = head[1];
	}
	return r;
}

static int walk_arena(struct scry_glibc_heap *h, uint64_t address, uint64_t base,
		      uint64_t *ret_next)
{
	uint64_t words[ARENA_WORDS];
	int r;

	if (scry_mem_read(h->window.mem, address, words, sizeof(words)) < 0)
		return -EFAULT;
	*ret_next = words[ARENA_NEXT];
	h->ret->arenas++;
	h->ret->system_bytes += words[ARENA_SYSTEM];
	for (unsigned int i = 0; i < ARENA_FASTBIN_COUNT; i++) {
		if (scry_glibc_room((void **)&h->fast, h->fast_count, &h->fast_room,
				    sizeof(*h->fast)) < 0)
			return -ENOMEM;
		if (words[ARENA_FASTBINS + i])
			h->fast[h->fast_count++] = words[ARENA_FASTBINS + i];
	}
	if (!scry_glibc_in_time(h))
		r = 0;
	else if (address == h->main_arena)
		r = walk_main(h, words, base);
	else
		r = is_arena(h, words, address) ? walk_heaps(h, words, address) : 0;
	h->ret->broken += r == 0;
	return r < 0 ? r : 0;
}

/* libc's data */

static bool is_libc(const struct scry_map_entry *m)
{
	const char *name = strrchr(m->path, '/');

	return name && (!strncmp(name, "/libc.so.", 9) || !strncmp(name, "/libc-2.", 8));
}

/* The address of main_arena in libc's data; 0: there is none. */
static uint64_t find_main(struct scry_glibc_heap *h, const uint64_t *data, size_t words,
			  uint64_t start)
{
	uint64_t found = 0;

	for (size_t i = 0; i + ARENA_WORDS <= words; i++) {
		if (!is_arena(h, data + i, start + 8 * i))
			continue;
		if (found)
			return 0;
		found = start + 8 * i;
	}
	return found;
}

static int read_all(struct scry_glibc_heap *h, const uint64_t *data, size_t words)
{
	ptrdiff_t counters = scry_glibc_counters(data, words);
	uint64_t next = h->main_arena;
	int r = 0;

	if (counters < 0)
		return scry_fail(-ENOTSUP, "glibc's counters (mp_) are not where they are known");
	for (int n = 0; n < ARENAS_MAX && r == 0; n++) {
		r = walk_arena(h, next, data[counters], &next);
		if (next == h->main_arena)
			break;
	}
	return r ? r : scry_glibc_mapped(h, data, words);
}

/* Its words, owned, and where main_arena lies; NULL: it does not lie there. */
static uint64_t *libc_data(struct scry_glibc_heap *h, const struct scry_map_entry *m)
{
	size_t bytes = m->end - m->start;
	uint64_t *data = bytes <= DATA_MAX ? malloc(bytes) : NULL;

	if (data && scry_mem_read(h->window.mem, m->start, data, bytes) == 0)
		h->main_arena = find_main(h, data, bytes / 8, m->start);
	if (h->main_arena)
		return data;
	free(data);
	return NULL;
}

/* Data of one mapping: 1 when main_arena lies there, 0 when not, -errno. */
static int read_from(struct scry_glibc_heap *h, const struct scry_map_entry *m)
{
	uint64_t *data = libc_data(h, m);
	int r = data ? read_all(h, data, (m->end - m->start) / 8) : 0;

	r = r == 0 && data ? 1 : r;
	free(data);
	return r;
}

int scry_glibc_arenas_read(const struct scry_mem *mem, const struct scry_maps *maps,
			   uint64_t deadline_ns, struct scry_glibc_arenas *ret)
{
	struct scry_glibc_heap *h = calloc(1, sizeof(*h));
	bool has_libc = false, has_heap = false;
	int r = 0;

	*ret = (struct scry_glibc_arenas){0};
	if (!h)
		return scry_no_memory("reading the heap");
	h->window.mem = mem;
	h->maps = maps;
	h->ret = ret;
	h->deadline_ns = deadline_ns;
	for (size_t i = 0; i < maps->count && r == 0; i++) {
		has_heap |= !strcmp(maps->entries[i].path, "[heap]");
		if (!is_libc(&maps->entries[i]))
			continue;
		has_libc = true;
		if (maps->entries[i].w && !maps->entries[i].shared)
			r = read_from(h, &maps->entries[i]);
	}
	if (r == 0 && !has_libc)
		r = scry_fail(-ENOTSUP, "no glibc is loaded");
	else if (r == 0 && has_heap)
		r = scry_fail(-ENOTSUP, "the heap is not that of a glibc that is known");
	ret->heap = h;
	if (r < 0)
		scry_glibc_arenas_done(ret);
	return r < 0 ? r : 0;
}

static void free_heap(struct scry_glibc_heap *h)
{
	if (!h)
		return;
	free(h->links);
	free(h->fast);
	free(h->candidates);
	free(h->regions);
	free(h);
}

void scry_glibc_arenas_settle(struct scry_glibc_arenas *arenas)
{
	if (arenas->heap)
		scry_glibc_drop_cached(arenas->heap);
	free_heap(arenas->heap);
	arenas->heap = NULL;
}

void scry_glibc_arenas_done(struct scry_glibc_arenas *arenas)
{
	free_heap(arenas->heap);
	free(arenas->rows);
	*arenas = (struct scry_glibc_arenas){0};
}

int scry_glibc_held_find(const struct scry_mem *mem, const struct scry_maps *maps,
			 struct scry_glibc_held *ret)
{
	struct scry_glibc_heap *h = calloc(1, sizeof(*h));

	*ret = (struct scry_glibc_held){0};
	if (!h)
		return -ENOMEM;
	h->window.mem = mem;
	for (size_t i = 0; i < maps->count && !h->main_arena; i++) {
		const struct scry_map_entry *m = &maps->entries[i];
		uint64_t *data = is_libc(m) && m->w && !m->shared ? libc_data(h, m) : NULL;
		ptrdiff_t at = data ? scry_glibc_counters(data, (m->end - m->start) / 8) : -1;

		if (at >= 0)
			*ret = (struct scry_glibc_held){
				h->main_arena, m->start + 8 * (uint64_t)(at + MP_MAPPED_BYTES)};
		free(data);
	}
	free(h);
	return ret->main_arena ? 0 : -ENOTSUP;
}

int scry_glibc_held_read(const struct scry_mem *mem, const struct scry_glibc_held *held,
			 struct scry_glibc_holding *ret)
{
	uint64_t arena = held->main_arena, words[ARENA_SYSTEM - ARENA_NEXT + 1];
	struct scry_glibc_holding is = {0};

	if (scry_mem_u64(mem, held->mapped_bytes, &is.bytes) < 0)
		return -EFAULT;
	while (is.arenas++ < ARENAS_MAX && is.bytes < ADDRESSES) {
		uint64_t bytes;

		if (arena % 8 ||
		    scry_mem_read(mem, arena + 8 * ARENA_NEXT, words, sizeof(words)) < 0 ||
		    words[ARENA_SYSTEM - ARENA_NEXT] > ADDRESSES)
			return -EFAULT;
		bytes = words[ARENA_SYSTEM - ARENA_NEXT];
		is.bytes += bytes;
		is.thread_bytes += arena == held->main_arena ? 0 : bytes;
		arena = words[0];
		if (arena == held->main_arena) {
			*ret = is;
			return 0;
		}
	}
	return -EFAULT;
}
