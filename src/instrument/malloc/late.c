/* See late.h. */
#include "instrument/malloc/late.h"

#include <elf.h>
#include <string.h>

#include "base/err.h"
#include "watch/ask.h"

#define FIRST_NS 10000000ull
#define EVERY_NS 1000000000ull /* at least; between two looks */
#define REPORTED_MAX (sizeof(((struct scry_malloc_late *)0)->reported) / sizeof(uint64_t))

static bool is_reported(const struct scry_malloc_late *l, uint64_t link_map)
{
	for (uint32_t i = 0; i < l->reported_count; i++)
		if (l->reported[i] == link_map)
			return true;
	return l->reported_count == REPORTED_MAX;
}

static bool has_malloc(struct scry_linkmap *lm, size_t i)
{
	struct scry_dynsym sym;

	return !lm->objects[i].is_vdso && scry_linkmap_open(lm, i) == 0 &&
	       scry_dynamic_find(&lm->objects[i].tables, "malloc", "", &sym) == 0 && sym.value &&
	       sym.type == STT_FUNC;
}

static void look(struct scry_malloc_late *l, struct scry_watch *w, struct scry_linkmap *lm,
		 const struct scry_linkmap *before)
{
	const char *serving = l->serving;

	for (size_t i = 0; i < lm->count; i++) {
		const struct scry_object *o = &lm->objects[i];
		const char *path = o->mapping ? o->mapping->path : o->name;

		if (scry_linkmap_find(before, o) || is_reported(l, o->link_map) ||
		    !strcmp(path, serving) || !has_malloc(lm, i))
			continue;
		l->reported[l->reported_count++] = o->link_map;
		scry_watch_note(
			w,
			"%s was loaded later and has its own malloc: the blocks of that malloc "
			"are not in this recording",
			path);
	}
}

void scry_malloc_late_look(struct scry_malloc_late *l, struct scry_watch *w,
			   const struct scry_hooks *hooks, const char *serving)
{
	const uint64_t now = scry_now_ns();
	struct scry_linkmap lm;
	uint64_t last;

	if (now < l->next_ns || hooks->objects.is_static)
		return;
	l->every_ns = !l->every_ns ? FIRST_NS : l->every_ns * 2;
	if (l->every_ns > EVERY_NS)
		l->every_ns = EVERY_NS;
	l->next_ns = now + l->every_ns;
	l->serving = serving;
	if (scry_linkmap_read(w->proc.pid, &hooks->mem, &lm) == 0) {
		last = lm.count ? lm.objects[lm.count - 1].link_map + lm.count : 0;
		if (last != l->last)
			look(l, w, &lm, &hooks->objects);
		l->last = last;
		scry_linkmap_done(&lm);
	}
	scry_error_clear();
}
