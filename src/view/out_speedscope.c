/*
 * The renderer for speedscope, a viewer of stacks that runs in a browser: its file format, with a
 * profile of each thread. https://www.speedscope.app/file-format-schema.json
 *
 * Sums of stacks have no order in time, so a profile is one sample of each stack, with its weight:
 * what the viewer calls "left heavy" and "sandwich" are right, its order of time means nothing.
 * Frames come first in the file, so profiles are kept until the end.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/intern.h"
#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "view/doc.h"
#include "view/data_quality.h"
#include "view/native_frames.h"

#define FRAMES_MAX (1u << 20)
#define FRAMES_BYTES (256u << 20)
#define THREADS_MAX (1u << 20)

enum { STACK, WEIGHT, NEEDED, THREAD = NEEDED, PARTS };

struct profile {
	struct scry_buf samples; /* uint32_t each: the length of a stack, its frames */
	struct scry_buf weights; /* uint64_t each */
	uint64_t total;
};

struct speedscope {
	struct scry_intern frames;  /* name, NUL, file, NUL, line */
	struct scry_intern threads; /* id - 1: index in profiles */
	struct profile *profiles;
	size_t room;
	struct scry_buf key, note;
	size_t columns[PARTS];
	bool is_short;
};

static void speedscope_quality(struct scry_doc *doc, const struct scry_data_quality *quality)
{
	struct speedscope *s = doc->renderer;

	scry_data_quality_line(quality, doc->view, &s->note);
}

/* What is missing is in the name of the file's contents; the rest the viewer has no place for. */
static void speedscope_note(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct speedscope *s = doc->renderer;

	scry_buf_clear(&s->key);
	scry_text_escape(&s->key, bytes, length);
	if (doc->talk)
		fprintf(doc->talk, "note: %s\n", scry_buf_str(&s->key));
}

static void speedscope_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
}

static void speedscope_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
}

static void speedscope_remark(struct scry_doc *doc, const char *remark)
{
}

static void speedscope_table(struct scry_doc *doc)
{
	struct speedscope *s = doc->renderer;
	const char *keys[PARTS] = {"frames", doc->weight, "thread"};

	for (size_t part = 0; part < PARTS; part++) {
		s->columns[part] = doc->column_count;
		for (size_t i = 0; i < doc->column_count; i++)
			if (doc->columns[i].key && !strcmp(doc->columns[i].key, keys[part]))
				s->columns[part] = i;
		assert(part >= NEEDED || s->columns[part] < doc->column_count);
	}
}

/* The number of a frame, from 0. */
static uint32_t frame_of(struct speedscope *s, const struct scry_doc_frame *f)
{
	uint32_t id = 0;

	scry_buf_clear(&s->key);
	if (f->is_native)
		scry_native_frame_name(f, &s->key);
	else if (f->method)
		scry_buf_append(&s->key, f->method, f->method_length);
	else
		scry_buf_printf(&s->key, "(no frame known)");
	scry_buf_append(&s->key, "", 1);
	scry_buf_append(&s->key, f->file, f->file ? f->file_length : 0);
	scry_buf_append(&s->key, "", 1);
	scry_buf_printf(&s->key, "%" PRIu32, f->is_native ? 0 : f->line);
	if (s->key.failed || scry_intern_put(&s->frames, s->key.data, s->key.len, &id))
		s->is_short = true;
	return id ? id - 1 : 0;
}

static struct profile *profile_of(struct speedscope *s, const struct scry_cell *thread)
{
	uint32_t id = 0;

	if (scry_intern_put(&s->threads, thread && thread->bytes ? thread->bytes : "-",
			    thread && thread->bytes ? thread->length : 1, &id))
		return NULL;
	if (id > s->room) {
		size_t room = s->room ? 2 * s->room : 16;
		struct profile *more = reallocarray(s->profiles, room, sizeof(*more));

		if (!more)
			return NULL;
		memset(more + s->room, 0, (room - s->room) * sizeof(*more));
		s->profiles = more;
		s->room = room;
	}
	return &s->profiles[id - 1];
}

static void speedscope_row(struct scry_doc *doc, const struct scry_cell *cells)
{
	struct speedscope *s = doc->renderer;
	const struct scry_cell *stack = &cells[s->columns[STACK]];
	const struct scry_cell *weight = &cells[s->columns[WEIGHT]];
	struct profile *p;
	uint32_t depth;

	if (weight->is_unknown || !weight->number)
		return;
	p = profile_of(s,
		       s->columns[THREAD] < doc->column_count ? &cells[s->columns[THREAD]] : NULL);
	if (!p) {
		s->is_short = true;
		return;
	}
	depth = stack->is_unknown ? 0 : (uint32_t)stack->number;
	scry_buf_append(&p->samples, (const char *)&depth, sizeof(depth));
	for (uint32_t i = 0; i < depth; i++) {
		uint32_t frame = frame_of(s, &stack->frames[i]);

		scry_buf_append(&p->samples, (const char *)&frame, sizeof(frame));
	}
	scry_buf_append(&p->weights, (const char *)&weight->number, sizeof(weight->number));
	p->total += weight->number;
	s->is_short |= p->samples.failed || p->weights.failed;
}

static void speedscope_abandon(struct scry_doc *doc)
{
	struct speedscope *s = doc->renderer;

	for (size_t i = 0; i < s->room; i++) {
		scry_buf_done(&s->profiles[i].samples);
		scry_buf_done(&s->profiles[i].weights);
	}
	free(s->profiles);
	scry_intern_done(&s->frames);
	scry_intern_done(&s->threads);
	scry_buf_done(&s->key);
	scry_buf_done(&s->note);
	free(s);
	doc->renderer = NULL;
}

static void put_frames(const struct speedscope *s, struct scry_json *j)
{
	scry_json_key(j, "shared");
	scry_json_object_begin(j);
	scry_json_key(j, "frames");
	scry_json_array_begin(j);
	for (uint32_t i = 1; i <= s->frames.count; i++) {
		const char *name = scry_intern_get(&s->frames, i, NULL);
		const char *file = name + strlen(name) + 1, *line = file + strlen(file) + 1;

		scry_json_break(j);
		scry_json_object_begin(j);
		scry_json_key(j, "name");
		scry_json_text(j, name);
		if (file[0]) {
			scry_json_key(j, "file");
			scry_json_text(j, file);
		}
		if (strcmp(line, "0")) {
			scry_json_key(j, "line");
			scry_json_u64(j, strtoul(line, NULL, 10));
		}
		scry_json_object_end(j);
	}
	scry_json_array_end(j);
	scry_json_object_end(j);
}

static void put_samples(const struct profile *p, struct scry_json *j)
{
	const uint32_t *word = (const uint32_t *)(const void *)p->samples.data;
	const uint32_t *end = word + p->samples.len / sizeof(*word);

	scry_json_array_begin(j);
	while (word < end) {
		uint32_t depth = *word++;

		scry_json_break(j);
		scry_json_array_begin(j);
		while (depth-- > 0)
			scry_json_u64(j, *word++);
		scry_json_array_end(j);
	}
	scry_json_array_end(j);
}

static void put_weights(const struct profile *p, struct scry_json *j)
{
	const uint64_t *word = (const uint64_t *)(const void *)p->weights.data;

	scry_json_array_begin(j);
	for (size_t i = 0; i < p->weights.len / sizeof(*word); i++)
		scry_json_u64(j, word[i]);
	scry_json_array_end(j);
}

static void put_profile(const struct speedscope *s, uint32_t id, struct scry_json *j)
{
	const struct profile *p = &s->profiles[id - 1];

	scry_json_break(j);
	scry_json_object_begin(j);
	scry_json_key(j, "type");
	scry_json_text(j, "sampled");
	scry_json_key(j, "name");
	scry_json_text(j, scry_intern_get(&s->threads, id, NULL));
	scry_json_key(j, "unit");
	scry_json_text(j, "nanoseconds");
	scry_json_key(j, "startValue");
	scry_json_u64(j, 0);
	scry_json_key(j, "endValue");
	scry_json_u64(j, p->total);
	scry_json_key(j, "samples");
	put_samples(p, j);
	scry_json_key(j, "weights");
	put_weights(p, j);
	scry_json_object_end(j);
}

static int speedscope_end(struct scry_doc *doc)
{
	struct speedscope *s = doc->renderer;
	struct scry_json j;
	int err;

	if (s->is_short ||
	    s->note.failed) { /* a stack may have fewer frames than its length says */
		speedscope_abandon(doc);
		return scry_no_memory("the picture");
	}
	scry_json_init(&j, doc->out);
	scry_json_object_begin(&j);
	scry_json_key(&j, "$schema");
	scry_json_text(&j, "https://www.speedscope.app/file-format-schema.json");
	scry_json_key(&j, "exporter");
	scry_json_text(&j, "scry");
	scry_json_key(&j, "name");
	scry_json_text(&j, scry_buf_str(&s->note));
	put_frames(s, &j);
	scry_json_key(&j, "profiles");
	scry_json_array_begin(&j);
	for (uint32_t id = 1; id <= s->threads.count; id++)
		put_profile(s, id, &j);
	scry_json_array_end(&j);
	scry_json_object_end(&j);
	err = scry_json_done(&j);
	speedscope_abandon(doc);
	return err ? err : scry_flush(doc->out, "the picture");
}

int scry_out_speedscope_open(struct scry_doc *doc)
{
	static const struct scry_doc_ops ops = {
		.quality = speedscope_quality,
		.note = speedscope_note,
		.verdict = speedscope_verdict,
		.totals = speedscope_totals,
		.table = speedscope_table,
		.row = speedscope_row,
		.remark = speedscope_remark,
		.end = speedscope_end,
		.abandon = speedscope_abandon,
	};
	struct speedscope *s = calloc(1, sizeof(*s));

	if (!s)
		return scry_no_memory("the picture");
	scry_intern_init(&s->frames, FRAMES_MAX, FRAMES_BYTES);
	scry_intern_init(&s->threads, THREADS_MAX, FRAMES_BYTES);
	doc->ops = &ops;
	doc->is_data = true;
	doc->renderer = s;
	return 0;
}
