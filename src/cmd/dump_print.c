/* Prints a dump. See dump.h. */
#include "cmd/dump.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/demangle.h"
#include "base/json.h"
#include "base/text.h"
#include "view/doc.h"
#include "view/gem.h"

static const char *verdict_word(enum scry_walk_verdict verdict)
{
	static const char *const words[] = {"valid", "repaired", "rejected", "empty"};

	return words[verdict];
}

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

static void put_head(const struct scry_dump *d, size_t at, struct scry_buf *buf)
{
	const struct scry_dump_thread *t = &d->threads[at];

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

static void put_thread(const struct scry_dump *d, size_t at, uint64_t depth, struct scry_buf *buf)
{
	const struct scry_dump_thread *t = &d->threads[at];

	put_head(d, at, buf);
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

static void json_frame(struct scry_json *j, const struct scry_dump_frame *f)
{
	const struct scry_doc_frame frame = {
		.file = f->path[0] ? f->path : NULL,
		.file_length = strlen(f->path),
		.method = f->name[0] ? f->name : NULL,
		.method_length = strlen(f->name),
		.line = f->line,
		.is_c = f->is_c,
		.is_native = f->is_native,
		.offset = f->offset,
		.label = f->is_native ? NULL : f->label,
		.address = f->is_native ? f->address : 0,
	};

	scry_json_break(j);
	scry_out_json_frame(j, &frame);
}

static void put_fibers(const struct scry_dump *d, uint64_t depth, struct scry_buf *buf)
{
	for (size_t i = 0; i < d->place_count; i++) {
		const struct scry_dump_place *p = &d->places[i];

		scry_buf_printf(buf, "\n");
		scry_text_things(buf, p->fibers, "suspended fibers");
		scry_buf_printf(buf, ":\n");
		put_frames(p->thread, depth, buf);
		if (p->thread->is_cut)
			scry_buf_printf(buf, "    ... there are older frames\n");
	}
}

/* null: they were not looked for. */
static void json_fibers(struct scry_json *j, const struct scry_dump *d)
{
	scry_json_key(j, "fibers");
	if (!d->has_fibers) {
		scry_json_text(j, NULL);
		return;
	}
	scry_json_array_begin(j);
	for (size_t i = 0; i < d->place_count; i++) {
		const struct scry_dump_thread *t = d->places[i].thread;

		scry_json_break(j);
		scry_json_object_begin(j);
		scry_json_key(j, "count");
		scry_json_u64(j, d->places[i].fibers);
		scry_json_key(j, "is_cut");
		scry_json_bool(j, t->is_cut);
		scry_json_key(j, "frames");
		scry_json_array_begin(j);
		for (size_t k = 0; k < t->count; k++)
			json_frame(j, &t->frames[k]);
		scry_json_array_end(j);
		scry_json_object_end(j);
	}
	scry_json_array_end(j);
}

/* What is not as in a process that lives. */
static void put_core(const struct scry_dump *d, struct scry_buf *buf)
{
	const char *name = sigabbrev_np(d->core->signal);
	size_t unchecked = 0;

	scry_buf_printf(buf, "its core: ");
	scry_text_escape(buf, d->core_path, strlen(d->core_path));
	if (d->core->signal && name)
		scry_buf_printf(buf, ", ended by SIG%s", name);
	else if (d->core->signal)
		scry_buf_printf(buf, ", ended by signal %d", d->core->signal);
	scry_buf_printf(buf, "\n");
	if (d->core->cut) {
		scry_buf_printf(buf, "note: the core was cut off, it lacks ");
		scry_text_size(buf, d->core->cut);
		scry_buf_printf(buf, "; look at ulimit -c and the disk's room\n");
	}
	for (size_t i = 0; i < d->core->file_count; i++)
		unchecked +=
			d->core->files[i].path && d->core->files[i].check == SCRY_CORE_UNCHECKED;
	if (unchecked)
		scry_buf_printf(buf, "note: the core does not say whether %zu file%s that it ran\n",
				unchecked, unchecked == 1 ? " is the one" : "s are the ones");
	if (d->is_odd)
		scry_buf_printf(
			buf, "note: not all of the VM's state is there or whole: a thread may have "
			     "been in the midst of a call\n");
}

/* Whatever its threads would do: they do nothing before somebody lets them. */
static void put_stopped(const struct scry_dump *d, struct scry_buf *buf)
{
	if (d->proc.state == 'T')
		scry_buf_printf(buf,
				"note: the process is stopped by a signal (as ^Z is): none of its "
				"threads runs; fix: kill -CONT %d\n",
				(int)d->proc.pid);
	else if (d->proc.state == 't')
		scry_buf_printf(buf,
				"note: process %d traces this one and holds it: its threads may be "
				"stopped\n",
				(int)d->proc.tracer);
}

void scry_dump_text(const struct scry_dump *d, uint64_t depth, FILE *out)
{
	struct scry_buf buf = {0};
	struct tm tm = {0};
	time_t now = (time_t)d->wall_s;
	char when[32] = "";
	size_t rubies = d->count - (d->native ? d->others : 0);

	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	scry_buf_printf(&buf, "process %d (", (int)d->proc.pid);
	scry_text_escape(&buf, d->proc.comm, strlen(d->proc.comm));
	scry_buf_printf(&buf, "), ");
	scry_text_escape(&buf, d->ruby->description, strcspn(d->ruby->description, "("));
	scry_buf_printf(&buf, "at %s: %zu Ruby thread%s", when, rubies, scry_text_s(rubies));
	if (d->others)
		scry_buf_printf(&buf, ", %zu that run%s no Ruby", d->others,
				d->others == 1 ? "s" : "");
	if (d->suspended) {
		scry_buf_printf(&buf, ", ");
		scry_text_things(&buf, d->suspended, "suspended fibers");
	}
	if (d->pause_ns) {
		scry_buf_printf(&buf, "; stopped for ");
		scry_text_duration(&buf, d->pause_ns);
	}
	scry_buf_printf(&buf, "\n");
	if (d->left_out)
		scry_buf_printf(&buf,
				"incomplete: the frames of %zu thread%s, and what %s, are left "
				"out: those of the others fill 64 MiB\n",
				d->left_out, scry_text_s(d->left_out),
				d->left_out == 1 ? "it waits for" : "these wait for");
	if (d->core)
		put_core(d, &buf);
	else
		put_stopped(d, &buf);
	scry_dump_put_cycles(d, &buf);
	for (size_t i = 0; i < d->count; i++) {
		if (d->threads[i].same_as != i || d->threads[i].is_left_out)
			continue;
		scry_buf_printf(&buf, "\n");
		put_thread(d, i, depth, &buf);
	}
	put_fibers(d, depth, &buf);
	fputs(scry_buf_str(&buf), out);
	scry_buf_done(&buf);
}

/* null, or what put_core says. */
static void json_core(struct scry_json *j, const struct scry_dump *d)
{
	scry_json_key(j, "core");
	if (!d->core) {
		scry_json_text(j, NULL);
		return;
	}
	scry_json_object_begin(j);
	scry_json_key(j, "file");
	scry_json_text(j, d->core_path);
	scry_json_key(j, "signal");
	scry_json_u64(j, (uint64_t)d->core->signal);
	scry_json_key(j, "cut_bytes");
	scry_json_u64(j, d->core->cut);
	scry_json_key(j, "is_odd");
	scry_json_bool(j, d->is_odd);
	scry_json_object_end(j);
}

static void json_thread(struct scry_json *j, const struct scry_dump *d,
			const struct scry_dump_thread *t)
{
	static const char *const ends[] = {
		[SCRY_NATIVE_WHOLE] = "whole",
		[SCRY_NATIVE_NO_RULE] = "no rule",
		[SCRY_NATIVE_NO_REGISTER] = "no register",
		[SCRY_NATIVE_UNREADABLE] = "unreadable",
		[SCRY_NATIVE_TOO_DEEP] = "too deep",
	};

	scry_json_break(j);
	scry_json_object_begin(j);
	scry_json_key(j, "tid");
	scry_json_u64(j, (uint64_t)t->ruby.tid);
	scry_json_key(j, "name");
	scry_json_text(j, t->name);
	scry_json_key(j, "state");
	scry_json_text(j, scry_thread_state_words(t->state));
	scry_json_key(j, "wait");
	scry_json_text(j, t->wait[0] ? t->wait : NULL);
	scry_dump_json_lock(j, d, t);
	scry_json_key(j, "has_signal");
	scry_json_bool(j, t->has_signal);
	scry_json_key(j, "verdict");
	scry_json_text(j, verdict_word(t->verdict));
	scry_json_key(j, "unnamed");
	scry_json_u64(j, t->unnamed);
	scry_json_key(j, "is_cut");
	scry_json_bool(j, t->is_cut);
	scry_json_key(j, "is_left_out");
	scry_json_bool(j, t->is_left_out);
	if (d->native) {
		scry_json_key(j, "native_end");
		scry_json_text(j, t->is_running	    ? "running"
				  : t->native_count ? ends[t->end]
						    : "unknown");
		scry_json_key(j, "is_woven");
		scry_json_bool(j, t->native_count && !t->is_apart);
	}
	scry_json_key(j, "frames");
	scry_json_array_begin(j);
	for (size_t i = 0; i < t->count; i++)
		json_frame(j, &t->frames[i]);
	scry_json_array_end(j);
	scry_json_object_end(j);
}

int scry_dump_json(const struct scry_dump *d, FILE *out)
{
	struct scry_json j;

	scry_json_init(&j, out);
	scry_json_object_begin(&j);
	scry_json_key(&j, "schema");
	scry_json_text(&j, "scry.dump/2");
	scry_json_key(&j, "pid");
	scry_json_u64(&j, (uint64_t)d->proc.pid);
	scry_json_key(&j, "runtime");
	scry_json_text(&j, d->ruby->description);
	scry_json_key(&j, "time_s");
	scry_json_i64(&j, d->wall_s);
	scry_json_key(&j, "pause_ns");
	scry_json_u64(&j, d->pause_ns);
	scry_json_key(&j, "is_stopped");
	scry_json_bool(&j, !d->core && (d->proc.state == 'T' || d->proc.state == 't'));
	json_core(&j, d);
	scry_json_key(&j, "other_threads");
	scry_json_u64(&j, d->others);
	scry_json_key(&j, "left_out");
	scry_json_u64(&j, d->left_out);
	scry_dump_json_cycles(&j, d);
	json_fibers(&j, d);
	scry_json_key(&j, "threads");
	scry_json_array_begin(&j);
	for (size_t i = 0; i < d->count; i++)
		if (!d->threads[i].is_other)
			json_thread(&j, d, &d->threads[i]);
	scry_json_array_end(&j);
	if (d->native) {
		scry_json_key(&j, "others");
		scry_json_array_begin(&j);
		for (size_t i = 0; i < d->count; i++)
			if (d->threads[i].is_other)
				json_thread(&j, d, &d->threads[i]);
		scry_json_array_end(&j);
	}
	scry_json_object_end(&j);
	return scry_json_done(&j);
}
