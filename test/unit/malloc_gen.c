/* See malloc_gen.h. */
#include "malloc_gen.h"

#include <string.h>

static uint64_t draw(struct malloc_gen *g, uint64_t below)
{
	g->random ^= g->random << 13;
	g->random ^= g->random >> 7;
	g->random ^= g->random << 17;
	return (g->random >> 11) % below;
}

/* Half below 64 bytes, few big ones. */
static uint64_t draw_size(struct malloc_gen *g)
{
	uint64_t top = 64;

	while (top < g->size_max && draw(g, 2))
		top *= 2;
	return draw(g, top < g->size_max ? top : g->size_max) + 1;
}

static int rewind_it(struct scry_malloc_source *s)
{
	struct malloc_gen *g = (struct malloc_gen *)s;

	g->who = 0;
	g->is_end = false;
	g->made = g->count = g->fresh = g->free_count = 0;
	g->live_bytes = 0;
	g->random = g->seed * 2654435761u + 88172645463325252u;
	g->next_thread = 1;
	for (uint32_t i = 0; i < g->threads; i++)
		g->thread[i] = g->next_thread++;
	return 0;
}

static void begin(struct malloc_gen *g)
{
	static const uint32_t some[] = {
		SCRY_MALLOC_MALLOC,	   SCRY_MALLOC_MALLOC,	  SCRY_MALLOC_MALLOC,
		SCRY_MALLOC_CALLOC,	   SCRY_MALLOC_CALLOC,	  SCRY_MALLOC_REALLOC,
		SCRY_MALLOC_NEW,	   SCRY_MALLOC_NEW_ARRAY, SCRY_MALLOC_POSIX_MEMALIGN,
		SCRY_MALLOC_ALIGNED_ALLOC, SCRY_MALLOC_MEMALIGN,  SCRY_MALLOC_MALLOC,
		SCRY_MALLOC_MALLOC,	   SCRY_MALLOC_MALLOC,	  SCRY_MALLOC_VALLOC,
		SCRY_MALLOC_PVALLOC,
	};
	struct scry_ev_malloc *c = &g->call;

	c->function = g->is_plain ? SCRY_MALLOC_MALLOC : some[draw(g, 16)];
	c->flags = c->function == SCRY_MALLOC_REALLOC ? SCRY_MALLOC_NULL : 0;
	c->block = g->free_count ? g->free[--g->free_count] : g->fresh++;
	c->size = draw_size(g);
	c->align = 0;
	if (c->function >= SCRY_MALLOC_POSIX_MEMALIGN && c->function <= SCRY_MALLOC_MEMALIGN) {
		/* No more: mimalloc 2.0.9 gives 256 bytes aligned to 128. */
		c->align = 16u << draw(g, 4);
		c->size = (c->size + c->align - 1) / c->align * c->align;
	}
	g->blocks[g->count].block = c->block;
	g->blocks[g->count].thread = c->thread;
	g->blocks[g->count++].size = c->size;
	g->live_bytes += c->size;
}

static void finish(struct malloc_gen *g, uint32_t at)
{
	struct scry_ev_malloc *c = &g->call;

	c->function = SCRY_MALLOC_FREE;
	c->block = g->blocks[at].block;
	g->live_bytes -= g->blocks[at].size;
	g->free[g->free_count++] = c->block;
	g->blocks[at] = g->blocks[--g->count];
}

static void other(struct malloc_gen *g, uint32_t at)
{
	struct scry_ev_malloc *c = &g->call;

	c->block = g->blocks[at].block;
	if (draw(g, 3) == 0) {
		c->function = SCRY_MALLOC_USABLE_SIZE;
		return;
	}
	c->function = draw(g, 4) ? SCRY_MALLOC_REALLOC : SCRY_MALLOC_REALLOCARRAY;
	c->size = draw_size(g);
	g->live_bytes += c->size - g->blocks[at].size;
	g->blocks[at].size = c->size;
}

static int next(struct scry_malloc_source *s, const struct scry_ev_malloc **ret_call)
{
	struct malloc_gen *g = (struct malloc_gen *)s;
	uint32_t who, at;
	struct scry_ev_malloc *c = &g->call;

	if (g->made++ == g->calls)
		return 0;
	if (!g->burst || g->made % g->burst == 0) {
		g->who = (uint32_t)draw(g, g->threads);
		g->is_end = draw(g, 2);
	}
	who = g->who;
	*ret_call = c;
	*c = (struct scry_ev_malloc){.thread = g->thread[who]};
	if (g->churn && who && g->made % g->churn == 0) {
		c->function = SCRY_MALLOC_THREAD_END;
		g->thread[who] = g->next_thread++;
		return 1;
	}
	if (g->count < g->live && (g->count < g->live / 2 || !g->is_end)) {
		begin(g);
		return 1;
	}
	at = (uint32_t)draw(g, g->count);
	/* Mostly the thread that has it: only blocks near by are looked at. */
	for (uint32_t i = 0; i < 64 && draw(g, 100) >= g->cross; i++) {
		at = (at + 1) % g->count;
		if (g->blocks[at].thread == c->thread)
			break;
	}
	if (!g->is_plain && draw(g, 4) == 0)
		other(g, at);
	else
		finish(g, at);
	return 1;
}

void malloc_gen_init(struct malloc_gen *g)
{
	g->source =
		(struct scry_malloc_source){.rewind = rewind_it, .next = next, .main_thread = 1};
	rewind_it(&g->source);
}
