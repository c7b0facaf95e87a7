/*
 * Recordings made for the golden tests, and the comparison of pages. See golden.h.
 */
#include "golden.h"

#include "base/err.h"
#include "view/sort.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

struct golden golden_begin(void)
{
	struct golden rec = {.fd = memfd_create("golden", MFD_CLOEXEC)};

	assert_true(rec.fd >= 0);
	assert_int_equal(scry_writer_open(rec.fd, 0, &rec.w), 0);
	return rec;
}

/* The clocks of the head are the only bytes that differ from run to run. */
int golden_end(struct golden *rec)
{
	uint64_t clocks[2] = {UINT64_C(1700000000000000000), GOLDEN_START_NS};

	assert_int_equal(scry_writer_close(rec->w), 0);
	assert_int_equal(
		pwrite(rec->fd, clocks, sizeof(clocks), offsetof(struct scry_file_head, wall_ns)),
		sizeof(clocks));
	return rec->fd;
}

uint32_t golden_str(struct golden *rec, const char *text)
{
	uint32_t id;

	assert_int_equal(scry_writer_string(rec->w, text, strlen(text), &id), 0);
	return id;
}

void golden_put(struct golden *rec, uint16_t type, const void *payload, size_t bytes)
{
	static uint64_t ticks;
	struct scry_event head = {
		.time_ns = GOLDEN_START_NS + 1500000 * ++ticks, .tid = 4712, .type = type};

	if (type == SCRY_EVENT_SESSION)
		head.time_ns = GOLDEN_START_NS + 1500000 * (ticks = 1);
	assert_int_equal(scry_writer_payload(rec->w, &head, payload, bytes), 0);
}

void golden_beginning(struct golden *rec, const char *instrument, uint32_t pid)
{
	struct scry_ev_session session = {
		.instrument_str = golden_str(rec, instrument),
		.command_str = golden_str(rec, "scry objects -p 4711"),
		.version_str = golden_str(rec, "0.1.0"),
		.host_str = golden_str(rec, "testhost"),
		.wall_ns = 1700000000,
	};
	struct scry_ev_process process = {
		.pid = pid,
		.uid = 1000,
		.start_ticks = 5,
		.exe_str = golden_str(rec, "/usr/bin/ruby3.1"),
		.runtime_str = golden_str(
			rec, "ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]"),
	};

	golden_put(rec, SCRY_EVENT_SESSION, &session, sizeof(session));
	golden_put(rec, SCRY_EVENT_PROCESS, &process, sizeof(process));
}

void golden_totals(struct golden *rec, uint32_t pid, uint64_t events)
{
	struct scry_ev_totals totals = {
		.events = events,
		.pause_max_ns = 412000,
		.pause_total_ns = 800000,
		.target_cpu_ns = 10000000000,
		.overhead_cpu_ns = 312000000,
		.watched_ns = 30000000000,
		.frees_older = 99,
		.pid = pid,
	};

	golden_put(rec, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
}

void golden_site(struct golden *rec, uint32_t id, const struct golden_place *place)
{
	struct scry_ev_site site = {
		.site = id,
		.pid = place->pid,
		.file_str = place->file ? golden_str(rec, place->file) : 0,
		.line = place->line,
		.class_str = place->class ? golden_str(rec, place->class) : 0,
		.method_str = place->method ? golden_str(rec, place->method) : 0,
		.flags = place->flags,
		.slot_bytes = 40,
	};
	struct scry_ev_objects objects = {
		.site = id,
		.allocated = place->allocated,
		.freed = place->freed,
		.bytes = place->allocated * 40,
	};

	golden_put(rec, SCRY_EVENT_SITE, &site, sizeof(site));
	if (place->allocated)
		golden_put(rec, SCRY_EVENT_OBJECTS, &objects, sizeof(objects));
}

unsigned int golden_width;

static bool has_ending(const char *file, const char *ending)
{
	return !strcmp(file + strlen(file) - strlen(ending), ending);
}

int golden_open(struct scry_doc *doc, const char *file)
{
	if (has_ending(file, ".speedscope.json"))
		return scry_out_speedscope_open(doc);
	if (has_ending(file, ".json"))
		return scry_out_json_open(doc);
	if (has_ending(file, ".folded"))
		return scry_out_folded_open(doc);
	doc->width = golden_width;
	return scry_out_text_open(doc);
}

void golden_show(int fd, const char *name, const char *file, const struct scry_view_opts *opts,
		 struct scry_buf *ret_page)
{
	const struct scry_view *view = scry_view_find(name);
	struct scry_doc doc = {.view = name, .schema = view->schema, .is_stream = view->is_stream};
	struct scry_reader *reader;
	char *text;
	size_t len;

	doc.out = doc.talk = open_memstream(&text, &len);
	assert_int_equal(scry_reader_open(fd, &reader), 0);
	assert_int_equal(golden_open(&doc, file), 0);
	assert_int_equal(view->run(reader, opts, &doc), 0);
	assert_int_equal(scry_doc_end(&doc), 0);
	scry_reader_close(reader);
	fclose(doc.out);
	scry_buf_append(ret_page, text, len);
	free(text);
}

void golden_compare(const char *file, const struct scry_buf *page)
{
	char path[512], want[65536];
	bool update = getenv("SCRY_GOLDEN_UPDATE") != NULL;
	FILE *golden;
	size_t len;

	snprintf(path, sizeof(path), "%s/golden/%s", SCRY_TEST_DIR, file);
	golden = fopen(path, update ? "w" : "r");
	if (!golden)
		fail_msg("%s: %s", path, strerror(errno));
	if (update) {
		fwrite(page->data, 1, page->len, golden);
		fclose(golden);
		return;
	}
	len = fread(want, 1, sizeof(want) - 1, golden);
	fclose(golden);
	want[len] = '\0';
	assert_string_equal(scry_buf_str(page), want);
}

void golden_check(int fd, const char *view, const char *file, const struct scry_view_opts *opts)
{
	struct scry_buf page = {0};

	golden_show(fd, view, file, opts, &page);
	golden_compare(file, &page);
	scry_buf_done(&page);
}

/* Rows are one a line: of the first table that has the key it must fall from row to row. How many
 * rows have it. */
static size_t falls(const char *page, const char *key, size_t *ret_rows)
{
	char quoted[64];
	double last = INFINITY;
	size_t with = 0;
	bool is_past = false;

	*ret_rows = 0;
	snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
	for (const char *line = page; line; line = strchr(line, '\n')) {
		const char *at, *end;
		double number;

		line += *line == '\n';
		end = strchr(line, '\n');
		if (strncmp(line, "{\"", 2) != 0 || line == page) {
			is_past |= with != 0; /* another table */
			continue;
		}
		++*ret_rows;
		at = strstr(line, quoted);
		if (!at || is_past || (end && at > end))
			continue;
		at += strlen(quoted);
		number = strncmp(at, "null", 4) ? strtod(at, NULL) : -INFINITY;
		if (number > last)
			fail_msg("--sort %s: %g below %g in:\n%s", key, number, last, page);
		last = number;
		with++;
	}
	return with;
}

/* Columns of rows that may be sorted by, as the view that runs has them. */
static struct {
	const struct scry_view *view;
	const struct scry_doc_ops *ops;
} seen;

/* Objects are sorted by what a person asks for, and not by what says how far a number is known. */
static bool is_left(const char *key)
{
	static const char *const keys[] = {"allocated_error", "live_error",  "old_live",
					   "old_live_bytes",  "unsized",     "live_unsized",
					   "samples",	      "live_samples"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!strcmp(seen.view->name, "objects") && !strcmp(keys[i], key))
			return true;
	return false;
}

/* What is an amount has a key of --sort; what is a number of something (a pid, a line) need not. */
static void on_table(struct scry_doc *doc)
{
	for (size_t i = 0; i < doc->column_count && !doc->section; i++) {
		const struct scry_column *c = &doc->columns[i];

		if (c->key && !scry_view_has_sort(seen.view, c->key) && !is_left(c->key) &&
		    (c->kind == SCRY_CELL_COUNT || c->kind == SCRY_CELL_TIME ||
		     c->kind == SCRY_CELL_DELTA))
			fail_msg("%s has no --sort %s (view/sort.h)", seen.view->name, c->key);
	}
	seen.ops->table(doc);
}

static void columns_have_keys(int fd, const struct scry_view *view,
			      const struct scry_view_opts *opts)
{
	struct scry_doc doc = {.view = view->name, .schema = view->schema};
	struct scry_doc_ops ops;
	struct scry_reader *reader;

	doc.out = doc.talk = fopen("/dev/null", "w");
	assert_int_equal(scry_reader_open(fd, &reader), 0);
	assert_int_equal(scry_out_json_open(&doc), 0);
	seen.view = view;
	seen.ops = doc.ops;
	ops = *doc.ops;
	ops.table = on_table;
	doc.ops = &ops;
	assert_int_equal(view->run(reader, opts, &doc), 0);
	assert_int_equal(scry_doc_end(&doc), 0);
	scry_reader_close(reader);
	fclose(doc.out);
}

size_t golden_sorts(int fd, const char *name, const struct scry_view_opts *opts)
{
	const struct scry_view *view = scry_view_find(name);
	const char *words = view->sorts, *word;
	struct scry_buf plain = {0};
	size_t length, rows, plain_rows, changed = 0;

	columns_have_keys(fd, view, opts);
	golden_show(fd, name, "x.json", opts, &plain);
	falls(scry_buf_str(&plain), "no key", &plain_rows);
	while ((length = scry_opt_next_choice(&words, &word)) > 0) {
		struct scry_view_opts by = *opts;
		struct scry_buf page = {0};
		char key[64];

		snprintf(key, sizeof(key), "%.*s", (int)length, word);
		by.sort_key = key;
		assert_int_equal(scry_view_sort_check(name, key), 0);
		scry_view_sort_settle(view, &by);
		golden_show(fd, name, "x.json", &by, &page);
		if (!falls(scry_buf_str(&page), key, &rows) && by.sort_key)
			fail_msg("%s: no row has the key '%s'", name, key);
		assert_int_equal(rows, plain_rows);
		changed += strcmp(scry_buf_str(&page), scry_buf_str(&plain)) != 0;
		scry_buf_done(&page);
	}
	scry_buf_done(&plain);
	assert_int_equal(scry_view_sort_check(name, "no_such"), -EINVAL);
	return changed;
}
