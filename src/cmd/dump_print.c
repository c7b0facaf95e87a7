/* Prints a dump. See dump.h. */
#include "cmd/dump.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"

static const char *verdict_word(enum scry_walk_verdict verdict)
{
	static const char *const words[] = {"valid", "repaired", "rejected", "empty"};

	return words[verdict];
}

static void put_state(const struct scry_dump_thread *t, struct scry_buf *buf)
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

	scry_buf_printf(buf, "%s",
			t->ruby.tid ? words[t->state] : "has no native thread of its own now");
	if (t->wait[0]) {
		scry_buf_printf(buf, ": ");
		scry_text_escape(buf, t->wait, strlen(t->wait));
	}
}

static void put_head(const struct scry_dump *d, size_t at, struct scry_buf *buf)
{
	const struct scry_dump_thread *t = &d->threads[at];
	size_t same = 0;

	for (size_t i = at; i < d->count; i++)
		same += d->threads[i].same_as == at;
	if (same > 1)
		scry_buf_printf(buf, "%zu threads alike: ", same);
	else
		scry_buf_printf(buf, "thread ");
	for (size_t i = at, shown = 0; i < d->count; i++) {
		if (d->threads[i].same_as != at)
			continue;
		if (shown++)
			scry_buf_printf(buf, ", ");
		scry_buf_printf(buf, "%d", (int)d->threads[i].ruby.tid);
		if (d->threads[i].name[0]) {
			scry_buf_printf(buf, " ");
			scry_text_quote(buf, d->threads[i].name, strlen(d->threads[i].name));
		}
	}
	scry_buf_printf(buf, ": ");
	put_state(t, buf);
	scry_buf_printf(buf, "\n");
}

static void put_frame(const struct scry_dump_frame *f, struct scry_buf *buf)
{
	scry_buf_printf(buf, "    ");
	scry_text_escape(buf, f->path, strlen(f->path));
	if (f->line)
		scry_buf_printf(buf, ":%" PRIu32, f->line);
	scry_buf_printf(buf, "%s", f->path[0] ? "  " : "");
	scry_text_escape(buf, f->name, strlen(f->name));
	scry_buf_printf(buf, f->is_c ? " (C)\n" : "\n");
}

static void put_thread(const struct scry_dump *d, size_t at, uint64_t depth, struct scry_buf *buf)
{
	const struct scry_dump_thread *t = &d->threads[at];

	put_head(d, at, buf);
	for (size_t i = 0; i < t->count && (!depth || i < depth); i++)
		put_frame(&t->frames[i], buf);
	if (depth && t->count > depth)
		scry_buf_printf(buf, "    ... %zu more; --depth 0 shows them\n",
				t->count - (size_t)depth);
	if (t->is_cut)
		scry_buf_printf(buf, "    ... deeper than %u frames\n", SCRY_WALK_FRAMES_MAX);
	if (t->verdict == SCRY_WALK_REPAIRED)
		scry_buf_printf(buf, "    note: it ran while it was read: what was above this is "
				     "not known; --pause is exact\n");
	if (t->verdict == SCRY_WALK_REJECTED)
		scry_buf_printf(buf, "    note: its stack could not be read; --pause is exact\n");
	if (t->unnamed)
		scry_buf_printf(buf, "    note: %zu frames could not be named\n", t->unnamed);
}

void scry_dump_text(const struct scry_dump *d, uint64_t depth, FILE *out)
{
	struct scry_buf buf = {0};
	struct tm tm = {0};
	time_t now = (time_t)d->wall_s;
	char when[32] = "";

	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	scry_buf_printf(&buf, "process %d (", (int)d->proc.pid);
	scry_text_escape(&buf, d->proc.comm, strlen(d->proc.comm));
	scry_buf_printf(&buf, "), ");
	scry_text_escape(&buf, d->ruby->description, strcspn(d->ruby->description, "("));
	scry_buf_printf(&buf, "at %s: %zu Ruby thread%s", when, d->count, d->count == 1 ? "" : "s");
	if (d->others)
		scry_buf_printf(&buf, ", %zu that run%s no Ruby", d->others,
				d->others == 1 ? "s" : "");
	if (d->pause_ns) {
		scry_buf_printf(&buf, "; stopped for ");
		scry_text_duration(&buf, d->pause_ns);
	}
	scry_buf_printf(&buf, "\n");
	for (size_t i = 0; i < d->count; i++) {
		if (d->threads[i].same_as != i)
			continue;
		scry_buf_printf(&buf, "\n");
		put_thread(d, i, depth, &buf);
	}
	fputs(scry_buf_str(&buf), out);
	scry_buf_done(&buf);
}

static void json_frame(struct scry_json *j, const struct scry_dump_frame *f)
{
	scry_json_break(j);
	scry_json_object_begin(j);
	scry_json_key(j, "file");
	scry_json_text(j, f->path[0] ? f->path : NULL);
	scry_json_key(j, "line");
	scry_json_u64(j, f->line);
	scry_json_key(j, "method");
	scry_json_text(j, f->name);
	scry_json_key(j, "label");
	scry_json_text(j, f->label);
	scry_json_key(j, "is_c");
	scry_json_bool(j, f->is_c);
	scry_json_object_end(j);
}

static void json_thread(struct scry_json *j, const struct scry_dump_thread *t)
{
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
	scry_json_key(j, "verdict");
	scry_json_text(j, verdict_word(t->verdict));
	scry_json_key(j, "unnamed");
	scry_json_u64(j, t->unnamed);
	scry_json_key(j, "is_cut");
	scry_json_bool(j, t->is_cut);
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
	scry_json_text(&j, "scry.dump/1");
	scry_json_key(&j, "pid");
	scry_json_u64(&j, (uint64_t)d->proc.pid);
	scry_json_key(&j, "runtime");
	scry_json_text(&j, d->ruby->description);
	scry_json_key(&j, "time_s");
	scry_json_i64(&j, d->wall_s);
	scry_json_key(&j, "pause_ns");
	scry_json_u64(&j, d->pause_ns);
	scry_json_key(&j, "other_threads");
	scry_json_u64(&j, d->others);
	scry_json_key(&j, "threads");
	scry_json_array_begin(&j);
	for (size_t i = 0; i < d->count; i++)
		json_thread(&j, &d->threads[i]);
	scry_json_array_end(&j);
	scry_json_object_end(&j);
	return scry_json_done(&j);
}
