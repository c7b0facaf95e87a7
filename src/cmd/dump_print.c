/* What a dump says to people: the process, its threads, its fibers. See dump_print.h. */
#include "cmd/dump_print.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/demangle.h"
#include "base/text.h"
#include "view/gem.h"

static void put_state(const struct scry_dump *d, const struct scry_dump_thread *t,
		      struct scry_buf *buf)
{
	static const char *const words[] = {
		[SCRY_STATE_UNKNOWN] = "state unknown",
		[SCRY_STATE_CPU] = "on CPU",
		[SCRY_STATE_RUNNABLE] = "runnable, on no CPU",
		[SCRY_STATE_GVL] = "waits for the GVL",
		[SCRY_STATE_BLOCKED] = "blocked",
		[SCRY_STATE_SLEEPING] = "sleeps",
		[SCRY_STATE_GC] = "collects garbage",
	};

	if (t->is_other)
		scry_buf_printf(buf, "runs no Ruby; ");
	if (t->ruby.tid)
		scry_buf_printf(buf, "%s", words[t->state]);
	else
		scry_buf_printf(buf, d->ruby->layout.th_tid == SCRY_RUBY_NONE
					     ? "its native thread is not known"
					     : "has no native thread of its own now");
	if (t->wait[0]) {
		scry_buf_printf(buf, ": ");
		scry_text_escape(buf, t->wait, strlen(t->wait));
	}
	if (t->has_signal)
		scry_buf_printf(buf, "; the signal hit this thread");
}

static void put_head(const struct scry_dump *d, const struct scry_dump_thread *t,
		     struct scry_buf *buf)
{
	if (t->alike > 1)
		scry_buf_printf(buf, "%zu threads alike: ", t->alike);
	else
		scry_buf_printf(buf, "thread ");
	scry_dump_put_thread(t, buf);
	for (size_t i = t->next_alike; i; i = d->threads[i].next_alike) {
		scry_buf_printf(buf, ", ");
		scry_dump_put_thread(&d->threads[i], buf);
	}
	scry_buf_printf(buf, ": ");
	put_state(d, t, buf);
	scry_buf_printf(buf, "\n");
}

static void put_frame(const struct scry_dump_frame *f, struct scry_buf *buf)
{
	const char *path;

	scry_buf_printf(buf, "    ");
	path = scry_gem_path(f->path);
	scry_text_escape(buf, path, strlen(path));
	if (f->line)
		scry_buf_printf(buf, ":%" PRIu32, f->line);
	scry_buf_printf(buf, "%s", f->path[0] ? "  " : "");
	scry_text_escape(buf, f->name, strlen(f->name));
	scry_buf_printf(buf, f->is_c ? " (C)\n" : "\n");
}

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* A native frame; those in a row that have no name and are of one object are one line. Returns how
 * many it was. */
static size_t put_native(const struct scry_dump_frame *f, size_t left, struct scry_buf *buf)
{
	const char *object = file_name(f->path);
	size_t same = 1;

	while (!f->name[0] && same < left && f[same].is_native && !f[same].name[0] &&
	       f[same].path == f->path)
		same++;
	scry_buf_printf(buf, "        ");
	scry_demangle_show(f->name, strlen(f->name), buf);
	if (same > 1)
		scry_buf_printf(buf, "%zu functions without a symbol", same);
	else
		scry_buf_printf(buf, "+0x%" PRIx64, f->offset);
	scry_buf_printf(buf, " in ");
	scry_text_escape(buf, object, strlen(object));
	scry_buf_printf(buf, "\n");
	return same;
}

static void put_frames(const struct scry_dump_thread *t, uint64_t depth, struct scry_buf *buf)
{
	size_t end = depth && depth < t->count ? (size_t)depth : t->count;

	for (size_t i = 0; i < end;) {
		if (t->frames[i].is_native)
			i += put_native(&t->frames[i], t->count - i, buf);
		else
			put_frame(&t->frames[i++], buf);
	}
	if (depth && t->count > depth)
		scry_buf_printf(buf, "    ... %zu more; --depth 0 shows them\n",
				t->count - (size_t)depth);
}

/* What is not known of its native frames. */
static void put_native_notes(const struct scry_dump *d, const struct scry_dump_thread *t,
			     struct scry_buf *buf)
{
	static const char *const ends[] = {
		[SCRY_NATIVE_NO_RULE] = "code there has no unwind tables",
		[SCRY_NATIVE_NO_REGISTER] = "a register is needed that only --pause reads",
		[SCRY_NATIVE_UNREADABLE] = "the stack cannot be read there",
		[SCRY_NATIVE_TOO_DEEP] = "there are too many",
	};

	if (!d->native)
		return;
	if (t->is_running)
		scry_buf_printf(buf, "    note: it runs: only --pause knows its native frames\n");
	else if (!t->native_count && t->ruby.tid)
		scry_buf_printf(buf, "    note: its native frames are not known\n");
	else if (t->native_count && t->end != SCRY_NATIVE_WHOLE)
		scry_buf_printf(buf, "    note: older native frames are not known: %s\n",
				ends[t->end]);
	if (t->is_apart)
		scry_buf_printf(buf, "    note: native frames could not be merged with Ruby's: "
				     "they are all above\n");
}

void scry_dump_put_threads(const struct scry_dump *d, const struct scry_dump_thread *t,
			   uint64_t depth, struct scry_buf *buf)
{
	put_head(d, t, buf);
	scry_dump_put_lock(d, t, buf);
	put_frames(t, depth, buf);
	if (t->is_cut)
		scry_buf_printf(buf, "    ... deeper than %u frames\n", SCRY_WALK_FRAMES_MAX);
	if (d->core && t->verdict == SCRY_WALK_REJECTED)
		scry_buf_printf(buf, "    note: its stack is not whole in the core\n");
	else if (t->verdict == SCRY_WALK_REPAIRED)
		scry_buf_printf(buf, "    note: it ran while it was read: what was above this is "
				     "not known; --pause is exact\n");
	else if (t->verdict == SCRY_WALK_REJECTED)
		scry_buf_printf(buf, "    note: its stack could not be read; --pause is exact\n");
	put_native_notes(d, t, buf);
	if (t->unnamed)
		scry_buf_printf(buf, "    note: %zu frame%s could not be named\n", t->unnamed,
				scry_text_s(t->unnamed));
}

void scry_dump_put_place(const struct scry_dump_place *place, uint64_t depth, struct scry_buf *buf)
{
	scry_text_things(buf, place->fibers, "suspended fibers");
	scry_buf_printf(buf, ":\n");
	put_frames(place->thread, depth, buf);
	if (place->thread->is_cut)
		scry_buf_printf(buf, "    ... there are older frames\n");
}

/* ", core FILE, ended by SIGABRT" */
static void put_core(const struct scry_dump *d, struct scry_buf *buf)
{
	const char *name = sigabbrev_np(d->core->signal);

	scry_buf_printf(buf, ", core ");
	scry_text_escape(buf, d->core_path, strlen(d->core_path));
	if (d->core->signal && name)
		scry_buf_printf(buf, ", ended by SIG%s", name);
	else if (d->core->signal)
		scry_buf_printf(buf, ", ended by signal %d", d->core->signal);
}

void scry_dump_put_process(const struct scry_dump *d, struct scry_buf *buf)
{
	struct tm tm = {0};
	time_t now = (time_t)d->wall_s;
	char when[32] = "";
	size_t rubies = d->count - (d->native ? d->others : 0);

	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	scry_buf_printf(buf, "process %d (", (int)d->proc.pid);
	scry_text_escape(buf, d->proc.comm, strlen(d->proc.comm));
	scry_buf_printf(buf, ")");
	if (d->core)
		put_core(d, buf);
	scry_buf_printf(buf, ", ");
	scry_text_escape(buf, d->ruby->description, strcspn(d->ruby->description, "("));
	scry_buf_printf(buf, "at %s: %zu Ruby thread%s", when, rubies, scry_text_s(rubies));
	if (d->others)
		scry_buf_printf(buf, ", %zu that run%s no Ruby", d->others,
				d->others == 1 ? "s" : "");
	if (d->suspended) {
		scry_buf_printf(buf, ", ");
		scry_text_things(buf, d->suspended, "suspended fibers");
	}
	if (d->pause_ns) {
		scry_buf_printf(buf, "; stopped for ");
		scry_text_duration(buf, d->pause_ns);
	}
}
