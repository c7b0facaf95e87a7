/*
 * The JSON renderer: made to be depended on; doc/JSON.md is its contract.
 *
 * A document is one object: schema, data quality, notes, verdict, totals, rows. The sections come
 * in this order and each is closed when the next one begins. A stream is JSON lines: one object a
 * record, data quality last.
 */
#include "base/buf.h"
#include "base/demangle.h"
#include "base/err.h"
#include "base/json.h"
#include "view/doc.h"
#include "view/data_quality.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct out_json {
	struct scry_json json;
	bool has_begun, has_quality;
	bool in_notes;
	struct scry_buf verdict; /* until the notes have ended */
	bool in_rows;
};

/* Sections and rows begin a line; a stream's object is one line. */
static void new_line(const struct scry_doc *doc, struct scry_json *json)
{
	if (!doc->is_stream)
		scry_json_break(json);
}

static void put_text(struct scry_json *json, const char *bytes, size_t length)
{
	if (bytes)
		scry_json_string(json, bytes, length);
	else
		scry_json_null(json);
}

static void key_u64(struct scry_json *json, const char *key, uint64_t value)
{
	scry_json_key(json, key);
	scry_json_u64(json, value);
}

static void key_known(struct scry_json *json, const char *key, uint64_t value, bool is_known)
{
	scry_json_key(json, key);
	if (is_known)
		scry_json_u64(json, value);
	else
		scry_json_null(json);
}

void scry_out_json_frame(struct scry_json *json, const struct scry_doc_frame *frame)
{
	const char *kind = frame->is_native ? "native" : frame->is_c ? "c" : "ruby";

	scry_json_object_begin(json);
	scry_json_key(json, frame->is_native ? "name" : "method");
	put_text(json, frame->method, frame->method_length);
	if (frame->is_native)
		scry_demangle_key(json, frame->method, frame->method_length);
	scry_json_key(json, frame->is_native ? "module" : "file");
	put_text(json, frame->file, frame->file_length);
	if (frame->is_native)
		key_u64(json, "offset", frame->offset);
	else
		key_known(json, "line", frame->line, frame->line != 0);
	scry_json_key(json, "kind");
	scry_json_text(json, frame->file || frame->method ? kind : "unknown");
	if (frame->label) {
		scry_json_key(json, "label");
		scry_json_text(json, frame->label);
	}
	if (frame->address)
		key_u64(json, "address", frame->address);
	scry_json_object_end(json);
}

/* Leaf first. A nameless frame alone is none. */
static void put_frames(struct scry_json *json, const struct scry_cell *cell)
{
	if (cell->number == 1 && !cell->frames->file && !cell->frames->method) {
		scry_json_null(json);
		return;
	}
	scry_json_array_begin(json);
	for (uint64_t i = cell->number; i; i--)
		scry_out_json_frame(json, &cell->frames[i - 1]);
	scry_json_array_end(json);
}

static void put_value(struct scry_json *json, const struct scry_doc_value *value)
{
	char hex[24];
	double real;

	switch (value->kind) {
	case SCRY_VALUE_NULL:
		scry_json_null(json);
		break;
	case SCRY_VALUE_TEXT:
		scry_json_string(json, value->bytes, value->number);
		break;
	case SCRY_VALUE_SIGNED:
		scry_json_i64(json, (int64_t)value->number);
		break;
	case SCRY_VALUE_UNSIGNED:
		scry_json_u64(json, value->number);
		break;
	case SCRY_VALUE_HEX:
		snprintf(hex, sizeof(hex), "0x%" PRIx64, value->number);
		scry_json_text(json, hex);
		break;
	case SCRY_VALUE_BOOL:
		scry_json_bool(json, value->number != 0);
		break;
	case SCRY_VALUE_DOUBLE:
		memcpy(&real, &value->number, sizeof(real));
		scry_json_double(json, real);
		break;
	case SCRY_VALUE_BEGIN:
		scry_json_array_begin(json);
		break;
	case SCRY_VALUE_END:
		scry_json_array_end(json);
		break;
	case SCRY_VALUE_OBJECT:
		scry_json_object_begin(json);
		break;
	case SCRY_VALUE_KEY:
		scry_json_key(json, value->bytes);
		break;
	case SCRY_VALUE_OBJECT_END:
		scry_json_object_end(json);
		break;
	}
}

/* The value at `i`; lists that lie deeper than a document may be are null. Returns where it ends.
 */
static uint64_t put_shallow(struct scry_json *json, const struct scry_cell *cell, uint64_t i)
{
	uint64_t open = 0;

	if (cell->values[i].kind != SCRY_VALUE_BEGIN || json->depth + 2 < SCRY_JSON_DEPTH) {
		put_value(json, &cell->values[i]);
		return i;
	}
	scry_json_null(json);
	for (; i < cell->number; i++) {
		open += cell->values[i].kind == SCRY_VALUE_BEGIN;
		open -= cell->values[i].kind == SCRY_VALUE_END;
		if (!open)
			break;
	}
	return i;
}

static void put_values(struct scry_json *json, const struct scry_cell *cell)
{
	scry_json_array_begin(json);
	for (uint64_t i = 0; i < cell->number; i++)
		i = put_shallow(json, cell, i);
	scry_json_array_end(json);
}

static void put_cell(struct scry_json *json, enum scry_cell_kind kind, const struct scry_cell *cell)
{
	char hex[24];

	if (cell->is_unknown) {
		scry_json_null(json);
	} else if (kind == SCRY_CELL_FRAMES) {
		put_frames(json, cell);
	} else if (kind == SCRY_CELL_VALUE) {
		for (uint64_t i = 0; i < cell->number; i++)
			i = put_shallow(json, cell, i);
	} else if (kind == SCRY_CELL_VALUES) {
		put_values(json, cell);
	} else if (kind == SCRY_CELL_BOOL) {
		scry_json_bool(json, cell->number != 0);
	} else if (kind == SCRY_CELL_DELTA) {
		scry_json_i64(json, (int64_t)cell->number);
	} else if (kind == SCRY_CELL_TEXT || kind == SCRY_CELL_SYMBOL) {
		scry_json_string(json, cell->bytes, cell->length);
	} else if (kind == SCRY_CELL_HEX) {
		snprintf(hex, sizeof(hex), "0x%" PRIx64, cell->number);
		scry_json_text(json, hex);
	} else {
		scry_json_u64(json, cell->number);
	}
}

static void key_string(struct scry_json *json, const struct scry_reader *reader, const char *key,
		       uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = scry_reader_string(reader, id, &cell.length);
	cell.is_unknown = !cell.bytes;
	scry_json_key(json, key);
	put_cell(json, SCRY_CELL_TEXT, &cell);
}

static void put_processes(struct scry_json *json, const struct scry_data_quality *h)
{
	uint32_t i;

	scry_json_key(json, "processes");
	scry_json_array_begin(json);
	for (i = 0; i < h->process_count && i < SCRY_DATA_QUALITY_PROCESSES; i++) {
		scry_json_object_begin(json);
		key_u64(json, "pid", h->processes[i].pid);
		key_string(json, h->reader, "exe", h->processes[i].exe_str);
		key_string(json, h->reader, "runtime", h->processes[i].runtime_str);
		scry_json_object_end(json);
	}
	scry_json_array_end(json);
}

static void put_causes(struct scry_json *json, const struct scry_data_quality *h)
{
	uint32_t i;

	scry_json_key(json, "lost_by_cause");
	scry_json_array_begin(json);
	for (i = 0; i < h->cause_count; i++) {
		scry_json_object_begin(json);
		key_string(json, h->reader, "why", h->causes[i].why_str);
		key_u64(json, "count", h->causes[i].count);
		scry_json_object_end(json);
	}
	scry_json_array_end(json);
}

static void begin_document(struct scry_doc *doc, struct scry_json *json)
{
	char schema[64];

	snprintf(schema, sizeof(schema), "scry.%s/%u", doc->view, doc->schema);
	scry_json_object_begin(json);
	scry_json_key(json, "schema");
	scry_json_text(json, schema);
	new_line(doc, json);
}

/* A document of what was looked at now has no recording, and so no data quality of one. */
static void begin_without_quality(struct scry_doc *doc)
{
	struct out_json *out = doc->renderer;

	if (!out->has_begun)
		begin_document(doc, &out->json);
	out->has_begun = true;
}

static void json_quality(struct scry_doc *doc, const struct scry_data_quality *h)
{
	struct out_json *out = doc->renderer;
	struct scry_json *json = &out->json;
	double percent;

	if (!out->has_begun)
		begin_document(doc, json);
	else
		new_line(doc, json);
	scry_json_key(json, out->has_quality ? "data_quality_from" : "data_quality");
	out->has_quality = out->has_begun = true;
	scry_json_object_begin(json);
	scry_json_key(json, "is_complete");
	scry_json_bool(json, h->has_totals && !h->lost && !h->has_lost_more && !h->missing &&
				     !h->perhaps && !h->left_out && !h->read_errors &&
				     !h->read_beyond);
	key_known(json, "events", h->events, h->has_totals);
	key_u64(json, "lost", h->lost);
	key_u64(json, "errors", h->errors);
	key_u64(json, "torn_bytes", h->left_out);
	if (h->missing || h->perhaps) {
		key_u64(json, "missing_processes", h->missing);
		key_u64(json, "perhaps_missing_processes", h->perhaps);
	}
	scry_json_key(json, "pause_max_us");
	if (h->has_pause)
		scry_json_double(json, (double)h->pause_max_ns / 1000);
	else
		scry_json_null(json);
	if (h->forced_gc_ns) {
		scry_json_key(json, "forced_gc_us");
		scry_json_double(json, (double)h->forced_gc_ns / 1000);
	}
	if (h->uncollected)
		key_u64(json, "uncollected_processes", h->uncollected);
	if (h->start_ns) {
		scry_json_key(json, "held_at_start_us");
		scry_json_double(json, (double)h->start_ns / 1000);
	}
	scry_json_key(json, "overhead_pct");
	if (scry_data_quality_overhead(h, &percent))
		scry_json_double(json, (double)(int64_t)(percent * 100 + 0.5) / 100);
	else
		scry_json_null(json);
	key_known(json, "watched_ns", h->watched_ns, h->has_totals);
	key_known(json, "gcs", h->gcs, h->has_totals && !h->is_moment);
	key_known(json, "full_gcs", h->full_gcs, h->has_totals && !h->is_moment);
	key_known(json, "compactions", h->compactions, h->has_totals && !h->is_moment);
	key_known(json, "compaction_moved", h->moved, h->has_totals && !h->is_moment);
	key_known(json, "sample_every", h->sample_every, h->has_totals);
	key_known(json, "sample_bytes", h->sample_bytes, h->has_totals);
	put_processes(json, h);
	put_causes(json, h);
	scry_json_object_end(json);
}

static void json_note(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct out_json *out = doc->renderer;

	if (!out->in_notes) {
		begin_without_quality(doc);
		new_line(doc, &out->json);
		scry_json_key(&out->json, "notes");
		scry_json_array_begin(&out->json);
		out->in_notes = true;
	}
	scry_json_string(&out->json, bytes, length);
}

static void json_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct out_json *out = doc->renderer;

	assert(!out->verdict.len && !out->in_rows);
	scry_buf_append(&out->verdict, bytes, length);
}

/* Closes the section that is open. */
static void json_section(struct scry_doc *doc)
{
	struct out_json *out = doc->renderer;

	begin_without_quality(doc);
	if (out->in_rows)
		new_line(doc, &out->json);
	if (out->in_notes || out->in_rows)
		scry_json_array_end(&out->json);
	out->in_notes = out->in_rows = false;
	if (out->verdict.len) {
		new_line(doc, &out->json);
		scry_json_key(&out->json, "verdict");
		scry_json_string(&out->json, out->verdict.data, out->verdict.len);
		scry_buf_clear(&out->verdict);
	}
	new_line(doc, &out->json);
}

static void json_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
	struct out_json *out = doc->renderer;
	size_t i;

	json_section(doc);
	scry_json_key(&out->json, "totals");
	scry_json_object_begin(&out->json);
	for (i = 0; i < count; i++) {
		scry_json_key(&out->json, pairs[i].key);
		put_cell(&out->json, pairs[i].kind, &pairs[i].cell);
	}
	scry_json_object_end(&out->json);
}

static void json_table(struct scry_doc *doc)
{
	struct out_json *out = doc->renderer;

	json_section(doc);
	scry_json_key(&out->json, doc->section ? doc->section : "rows");
	scry_json_array_begin(&out->json);
	out->in_rows = true;
}

static void json_row(struct scry_doc *doc, const struct scry_cell *cells)
{
	struct scry_json *json = &((struct out_json *)doc->renderer)->json;
	size_t i;

	scry_json_break(json);
	scry_json_object_begin(json);
	for (i = 0; i < doc->column_count; i++) {
		if (!doc->columns[i].key)
			continue;
		scry_json_key(json, doc->columns[i].key);
		put_cell(json, doc->columns[i].kind, &cells[i]);
		if (doc->columns[i].kind == SCRY_CELL_SYMBOL && !cells[i].is_unknown)
			scry_demangle_key(json, cells[i].bytes, cells[i].length);
	}
	scry_json_object_end(json);
}

/* Remarks are for people. */
static void json_remark(struct scry_doc *doc, const char *remark)
{
}

static void json_record(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
	struct scry_json *json = &((struct out_json *)doc->renderer)->json;
	size_t i;

	scry_json_object_begin(json);
	for (i = 0; i < count; i++) {
		scry_json_key(json, pairs[i].key);
		put_cell(json, pairs[i].kind, &pairs[i].cell);
		if (pairs[i].kind == SCRY_CELL_SYMBOL && !pairs[i].cell.is_unknown)
			scry_demangle_key(json, pairs[i].cell.bytes, pairs[i].cell.length);
	}
	scry_json_object_end(json);
	fputc('\n', doc->out);
	scry_doc_pass_on(doc);
	scry_json_init(json, doc->out); /* the next line is a document of its own */
}

static void json_abandon(struct scry_doc *doc)
{
	struct out_json *out = doc->renderer;

	scry_buf_done(&out->verdict);
	free(out);
	doc->renderer = NULL;
}

static int json_end(struct scry_doc *doc)
{
	struct out_json *out = doc->renderer;
	bool failed = out->verdict.failed;
	int err;

	if (out->in_rows || out->in_notes || out->verdict.len)
		json_section(doc);
	scry_json_object_end(&out->json);
	err = scry_json_done(&out->json);
	json_abandon(doc);
	if (failed)
		return scry_no_memory("the report");
	return err;
}

int scry_out_json_open(struct scry_doc *doc)
{
	static const struct scry_doc_ops ops = {
		.quality = json_quality,
		.note = json_note,
		.verdict = json_verdict,
		.totals = json_totals,
		.table = json_table,
		.row = json_row,
		.remark = json_remark,
		.record = json_record,
		.end = json_end,
		.abandon = json_abandon,
	};
	struct out_json *out = calloc(1, sizeof(*out));

	if (!out)
		return scry_no_memory("the report");
	scry_json_init(&out->json, doc->out);
	doc->ops = &ops;
	doc->renderer = out;
	doc->is_data = true;
	return 0;
}
