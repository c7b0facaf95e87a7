/* The stack of one thread. See dump.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/dump.h"

#define TRIES 8 /* rejected only if it never holds still */

/* Names into ret[w->count]; those that are not shown have no name. */
static void name_frames(struct scry_dump *d, const struct scry_walk *w,
			const struct scry_named_frame *named, struct scry_dump_frame *ret)
{
	const char *path = "";
	uint32_t line = 0;

	for (size_t i = w->count; i > 0; i--) {
		const struct scry_symbol *s = scry_symbols_get(&d->symbols, named[i - 1].symbol);

		if (!s || named[i - 1].is_hidden)
			continue;
		if (!s->is_c) { /* a C method has the place of the Ruby frame below it */
			path = scry_symbols_text(&d->symbols, s->path);
			line = named[i - 1].line;
		}
		ret[i - 1].path = path;
		ret[i - 1].name = scry_symbols_text(&d->symbols, s->name);
		ret[i - 1].label = scry_symbols_text(&d->symbols, s->label);
		ret[i - 1].line = line;
		ret[i - 1].is_c = s->is_c;
	}
}

static int take_frames(struct scry_dump *d, struct scry_walk *w, struct scry_dump_thread *t)
{
	struct scry_named_frame *named = calloc(w->count + 1, sizeof(*named));
	struct scry_dump_frame *frames = calloc(w->count + 1, sizeof(*frames));
	int err = -ENOMEM;

	if (!named || !frames)
		goto out;
	scry_symbols_turn(&d->symbols);
	t->unnamed = scry_symbols_name(&d->symbols, d->ruby, w, named);
	name_frames(d, w, named, frames);
	for (size_t i = 0; i < w->count; i++)
		if (frames[i].name) {
			t->state = scry_thread_state_named(t->state, frames[i].name);
			break;
		}
	scry_dump_lock_find(d, w, frames, t);
	if (t->native_count) {
		err = scry_dump_mixed_merge(d, w, frames, t);
		goto out;
	}
	for (size_t i = 0; i < w->count; i++)
		if (frames[i].name)
			frames[t->count++] = frames[i];
	t->frames = frames;
	frames = NULL;
	err = 0;
out:
	free(named);
	free(frames);
	return err;
}

int scry_dump_stack(struct scry_dump *d, const struct scry_stw *world, struct scry_walk *w,
		    struct scry_dump_thread *t)
{
	bool is_still = false;

	for (int try = 0; try < TRIES && !is_still; try++) {
		struct scry_dump_look look = {0};

		if (d->native)
			scry_dump_native_walk(d, world, t, &look);
		w->count = 0;
		if (!t->is_other)
			t->verdict = scry_walk_collect(w, d->ruby, &t->ruby, NULL);
		is_still = t->verdict == SCRY_WALK_VALID || t->verdict == SCRY_WALK_EMPTY;
		if (d->native && !scry_dump_native_rests(&look)) {
			t->native_count = 0; /* of another moment than Ruby's */
			t->is_running = true;
			is_still = false;
		}
	}
	t->is_cut = w->is_cut && !t->is_other;
	if (t->verdict > SCRY_WALK_REPAIRED)
		w->count = 0;
	return take_frames(d, w, t);
}
