/* See older.h. */
#include "instrument/malloc/older.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "name/glibc_arenas.h"
#include "sys/stop_the_world.h"
#include "watch/ask.h"

#define TRIES 4 /* a thread held in the midst of a call may hold a heap that does not fit */

static void note_none(struct scry_watch *w, const char *why)
{
	scry_watch_note(w,
			"blocks older than the recording were not found, and are unknown when they "
			"are freed: %s",
			why);
}

void scry_malloc_older_foreign(struct scry_watch *w)
{
	note_none(w, "only the heap of libc.so.6 is read for them, not another allocator's or a "
		     "static program's");
}

/* Holds, reads; switches on when it was read, or when `is_last`. 1: that was done. */
static int hold_and_read(struct scry_watch *w, int (*on)(struct scry_watch *w), bool is_last,
			 bool is_glibc, struct scry_glibc_arenas *ret)
{
	struct scry_stw world;
	struct scry_maps maps = {0};
	int r = scry_maps_read(w->proc.pid, &maps), e;

	if (r == 0)
		r = scry_inject_stop(w->inj, &world);
	if (r < 0) {
		scry_maps_done(&maps);
		note_none(w, scry_error());
		r = on(w);
		return r < 0 ? r : 1;
	}
	r = scry_glibc_arenas_read(&w->inj->mem, &maps, world.deadline_ns, ret);
	is_last |= ret->is_late || (r < 0 && r != -ENOTSUP);
	e = is_last || (r == 0 && !ret->broken) ? on(w) : -EAGAIN;
	scry_inject_go(w->inj, &world);
	scry_maps_done(&maps);
	if (r == 0)
		scry_glibc_arenas_settle(ret);
	if (e == -EAGAIN)
		scry_glibc_arenas_done(ret);
	else if (e == 0 && !is_glibc && !ret->count)
		scry_malloc_older_foreign(w);
	else if (e == 0 && r < 0)
		note_none(w, scry_error());
	return e < 0 ? e : 1;
}

/* What is unknown by it, and which --max-pause would do: half as much again as is to be expected.
 */
static void note_late(struct scry_watch *w, const struct scry_glibc_arenas *a)
{
	const double mib = 1 << 20, pause_ms = (double)w->opts->max_pause_ns / 1e6;
	const double share = (double)a->walked_bytes / ((double)a->system_bytes + 1);
	const double need_ms = 1.5 * pause_ms / (share > 0.001 ? share : 0.001);
	char text[256];

	snprintf(text, sizeof(text),
		 "process %d: its heap is too large to be read within --max-pause: %zu blocks in "
		 "%.1f of %.1f MiB were found, the others are unknown when they are freed; fix: "
		 "--max-pause %.0fms",
		 w->proc.pid, a->count, (double)a->walked_bytes / mib,
		 (double)a->system_bytes / mib, need_ms > 2 * pause_ms ? need_ms : 2 * pause_ms);
	scry_watch_say(w, "%s", text);
	scry_watch_note(w, "%s", strchr(text, ':') + 2);
}

static int report(struct scry_watch *w, struct scry_malloc *m, const struct scry_glibc_arenas *a,
		  struct scry_malloc_older *ret)
{
	int r = 0;

	for (size_t i = 0; i < a->count && r == 0; i++)
		r = scry_malloc_older(m, a->rows[i].address, a->rows[i].usable);
	*ret = (struct scry_malloc_older){.blocks = a->count,
					  .bytes = a->bytes,
					  .is_partial = !a->arenas || a->broken || a->is_late ||
							a->mapped_found < a->mapped};
	if (a->is_late)
		note_late(w, a);
	else if (a->broken)
		scry_watch_note(w,
				"a part of the heap could not be read (%u of %u arenas, %.1f of "
				"%.1f MiB): blocks there are unknown when they are freed",
				a->broken, a->arenas, (double)a->walked_bytes / (1 << 20),
				(double)a->system_bytes / (1 << 20));
	if (a->mapped_found < a->mapped && !a->is_late)
		scry_watch_note(
			w,
			"%llu of %llu large blocks, which are mappings, were not found: when "
			"they are freed, they count as unknown",
			(unsigned long long)(a->mapped - a->mapped_found),
			(unsigned long long)a->mapped);
	return r;
}

int scry_malloc_older_find(struct scry_watch *w, struct scry_malloc *m,
			   int (*on)(struct scry_watch *w), bool is_glibc,
			   struct scry_malloc_older *ret)
{
	struct scry_glibc_arenas arenas = {0};
	int r = -EAGAIN;

	*ret = (struct scry_malloc_older){0};
	for (int i = 1; i <= TRIES && r == -EAGAIN; i++)
		r = hold_and_read(w, on, i == TRIES, is_glibc, &arenas);
	scry_error_clear();
	if (r > 0)
		r = report(w, m, &arenas, ret);
	scry_glibc_arenas_done(&arenas);
	return r;
}
