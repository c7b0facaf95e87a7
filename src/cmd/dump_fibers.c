/*
 * The fibers of a Ruby that do not run now, with their Ruby frames. See dump.h.
 *
 * The VM keeps no list of them, so they are looked for in memory (name/fibers), as scry fibers
 * does: by itself where that takes no time that is felt. Those that wait in one place are one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "cmd/dump.h"
#include "name/fibers.h"

#define MEMORY_MAX (256ull << 20) /* searched without being asked */
#define MOST_NS 2000000000ull
#define ASKED_NS 120000000000ull /* as long as scry fibers takes */
#define PLACES_MAX 1000u

/* The Ruby frames of a group, the newest first; what a method in C has of a file is its caller's.
 */
static size_t name_frames(const struct scry_fibers *f, const struct scry_fiber_group *group,
			  struct scry_dump_frame *ret)
{
	uint64_t frames[SCRY_FIBER_FRAMES_MAX];
	size_t count = scry_fibers_frames(f, group->stack, frames), kept = 0;
	const char *path = "";
	uint32_t line = 0;

	for (size_t i = 0; i < count; i++)
		if (frames[i] & SCRY_FIBER_FRAME_RUBY)
			frames[kept++] = frames[i];
	for (size_t i = kept; i > 0; i--) {
		const struct scry_symbol *s =
			scry_symbols_get(&f->symbols, (uint32_t)(frames[i - 1] >> 32) & 0x3fffffff);

		ret[i - 1] = (struct scry_dump_frame){.path = "", .name = "", .label = ""};
		if (!s)
			continue;
		if (!s->is_c) {
			path = scry_symbols_text(&f->symbols, s->path);
			line = (uint32_t)frames[i - 1];
		}
		ret[i - 1] = (struct scry_dump_frame){
			.path = path,
			.name = scry_symbols_text(&f->symbols, s->name),
			.label = scry_symbols_text(&f->symbols, s->label),
			.line = line,
			.is_c = s->is_c,
		};
	}
	return kept;
}

static int add(struct scry_dump *d, const struct scry_fiber_group *group)
{
	struct scry_dump_thread *t = calloc(1, sizeof(*t));
	struct scry_dump_frame *frames = calloc(SCRY_FIBER_FRAMES_MAX, sizeof(*frames));
	size_t count, i = 0;

	if (!t || !frames) {
		free(t);
		free(frames);
		return -ENOMEM;
	}
	count = name_frames(d->found, group, frames);
	while (i < d->place_count &&
	       (d->places[i].thread->count != count ||
		memcmp(d->places[i].thread->frames, frames, count * sizeof(*frames)) != 0))
		i++;
	if (i < d->place_count || i == PLACES_MAX) { /* beyond it, the head has the sum */
		if (i < d->place_count)
			d->places[i].fibers += group->count;
		free(t);
		free(frames);
		return 0;
	}
	t->frames = frames;
	t->count = count;
	t->is_cut = group->is_cut;
	d->places[d->place_count++] = (struct scry_dump_place){t, group->count};
	return 0;
}

/* Bytes that are too many to be searched without being asked; 0. */
static uint64_t too_many(const struct scry_dump *d)
{
	uint64_t bytes = d->core ? d->core->size : scry_proc_rss(d->proc.pid);

	return bytes > MEMORY_MAX ? bytes : 0;
}

int scry_dump_fibers_take(struct scry_dump *d, bool is_asked)
{
	const struct scry_space space = {.pid = d->proc.pid, .core = d->core};
	int err;

	d->unsearched = is_asked ? 0 : too_many(d);
	if (d->unsearched)
		return 0;
	err = scry_fibers_open(&space, is_asked ? ASKED_NS : MOST_NS, &d->found);
	if (!err && !(d->places = calloc(PLACES_MAX, sizeof(*d->places))))
		err = scry_no_memory("%u places where fibers wait", PLACES_MAX);
	if (err && is_asked)
		return err;
	if (err) {
		snprintf(d->fibers_error, sizeof(d->fibers_error), "%s", scry_error());
		scry_error_clear();
		return 0;
	}
	d->has_fibers = true;
	d->is_late = d->found->budget.is_over || d->found->budget.is_look_over;
	for (size_t i = 0; i < d->found->group_keys.count && !err; i++) {
		const struct scry_fiber_group *g = &d->found->groups[i];

		if (g->kind != SCRY_FIBER_RUBY || g->state != SCRY_FIBER_SUSPENDED)
			continue;
		d->suspended += g->count;
		err = add(d, g);
	}
	return err;
}

void scry_dump_fibers_done(struct scry_dump *d)
{
	for (size_t i = 0; i < d->place_count; i++) {
		free(d->places[i].thread->frames);
		free(d->places[i].thread);
	}
	free(d->places);
	scry_fibers_close(d->found);
}
