/*
 * Every view in text and JSON, against the pages in test/golden/. SCRY_GOLDEN_UPDATE=1 rewrites
 * them: read the difference before you keep it.
 */
#include "base/buf.h"
#include "base/err.h"
#include "rec/writer.h"
#include "view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define START_NS 1000000000000u

struct recorder {
	int fd;
	struct scry_writer *w;
};

static struct recorder begin(void)
{
	struct recorder rec = {.fd = memfd_create("golden", MFD_CLOEXEC)};

	assert_true(rec.fd >= 0);
	assert_int_equal(scry_writer_open(rec.fd, 0, &rec.w), 0);
	return rec;
}

/* The clocks of the head are the only bytes that differ from run to run. */
static int end(struct recorder *rec)
{
	uint64_t clocks[2] = {UINT64_C(1700000000000000000), START_NS};

	assert_int_equal(scry_writer_close(rec->w), 0);
	assert_int_equal(
		pwrite(rec->fd, clocks, sizeof(clocks), offsetof(struct scry_file_head, wall_ns)),
		sizeof(clocks));
	return rec->fd;
}

static uint32_t str(struct recorder *rec, const char *text)
{
	uint32_t id;

	assert_int_equal(scry_writer_string(rec->w, text, strlen(text), &id), 0);
	return id;
}

static void put(struct recorder *rec, uint16_t type, const void *payload, size_t bytes)
{
	static uint64_t ticks;
	struct scry_event head = {
		.time_ns = START_NS + 1500000 * ++ticks, .tid = 4712, .type = type};

	if (type == SCRY_EVENT_SESSION)
		head.time_ns = START_NS + 1500000 * (ticks = 1);
	assert_int_equal(scry_writer_payload(rec->w, &head, payload, bytes), 0);
}

static void put_beginning(struct recorder *rec, const char *instrument, uint32_t pid)
{
	struct scry_ev_session session = {
		.instrument_str = str(rec, instrument),
		.command_str = str(rec, "scry objects -p 4711"),
		.version_str = str(rec, "0.1.0"),
		.host_str = str(rec, "testhost"),
		.wall_ns = 1700000000,
	};
	struct scry_ev_process process = {
		.pid = pid,
		.uid = 1000,
		.start_ticks = 5,
		.exe_str = str(rec, "/usr/bin/ruby3.1"),
		.runtime_str = str(
			rec, "ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]"),
	};

	put(rec, SCRY_EVENT_SESSION, &session, sizeof(session));
	put(rec, SCRY_EVENT_PROCESS, &process, sizeof(process));
}

static void put_end(struct recorder *rec, uint32_t pid, uint64_t events)
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

	put(rec, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
}

struct place {
	uint32_t pid;
	const char *file;
	uint32_t line;
	const char *class;
	const char *method;
	uint32_t flags;
	uint64_t allocated, freed;
};

static void put_site(struct recorder *rec, uint32_t id, const struct place *place)
{
	struct scry_ev_site site = {
		.site = id,
		.pid = place->pid,
		.file_str = place->file ? str(rec, place->file) : 0,
		.line = place->line,
		.class_str = place->class ? str(rec, place->class) : 0,
		.method_str = place->method ? str(rec, place->method) : 0,
		.flags = place->flags,
		.slot_bytes = 40,
	};
	struct scry_ev_objects objects = {
		.site = id,
		.allocated = place->allocated,
		.freed = place->freed,
		.bytes = place->allocated * 40,
	};

	put(rec, SCRY_EVENT_SITE, &site, sizeof(site));
	if (place->allocated)
		put(rec, SCRY_EVENT_OBJECTS, &objects, sizeof(objects));
}

/* What a watch of two processes may bring: same lines in both, odd names, no frame, internals. */
static int objects_recording(void)
{
	static const struct place places[] = {
		{4711, "/srv/app/models/user.rb", 12, "String", "to_s", 0, 1234567, 1234000},
		{4711, "/srv/app/models/user.rb", 12, "Array", "to_s", 0, 5000, 5000},
		{4711, "/srv/app/models/user.rb", 14, "Hash", "to_h", 0, 5000, 1},
		{4711, NULL, 0, "Thread::Mutex", NULL, 0, 7, 0},
		{4711, "/srv/app/evil\x1b[2J\n.rb", 3, "Caf\xc3\xa9", "x", 0, 3, 0},
		{4711, "/srv/app/models/user.rb", 12, NULL, NULL, SCRY_SITE_INTERNAL, 777, 0},
		{4711, NULL, 0, NULL, NULL, SCRY_SITE_UNNAMED, 5, 5},
		{4712, "/srv/app/models/user.rb", 12, "String", "to_s", 0, 33, 3},
		{4712, "(eval)", 1, "#<Class:0x1>", "<main>", 0, 1, 0},
	};
	struct scry_ev_note note;
	struct scry_ev_lost lost;
	struct scry_ev_pause pause;
	struct recorder rec = begin();
	uint32_t i;

	put_beginning(&rec, "objects", 4711);
	put_beginning(&rec, "objects", 4712);
	note = (struct scry_ev_note){.text_str = str(&rec, "1 ractor was not watched")};
	put(&rec, SCRY_EVENT_NOTE, &note, sizeof(note));
	put(&rec, SCRY_EVENT_NOTE, &note, sizeof(note));
	lost = (struct scry_ev_lost){.count = 12, .why_str = str(&rec, "the ring was full")};
	put(&rec, SCRY_EVENT_LOST, &lost, sizeof(lost));
	pause = (struct scry_ev_pause){600000, 3, str(&rec, "mapping the agent")};
	put(&rec, SCRY_EVENT_PAUSE, &pause, sizeof(pause));
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		put_site(&rec, i + 1, &places[i]);
	put_end(&rec, 4711, 2400000);
	put_end(&rec, 4712, 40);
	return end(&rec);
}

/* 35 lines, so that the top 30 leaves some out. */
static int many_recording(void)
{
	struct recorder rec = begin();
	char file[32];
	uint32_t i;

	put_beginning(&rec, "objects", 1);
	for (i = 0; i < 35; i++) {
		struct place place = {1, file, i % 5, "String", NULL, 0, 10 * (i + 1), i};

		snprintf(file, sizeof(file), "lib/f%u.rb", i / 5);
		put_site(&rec, i + 1, &place);
	}
	put_end(&rec, 1, 7000);
	return end(&rec);
}

/* A raw recording whose keeper was killed: single events, no counters, no totals. */
static int raw_recording(void)
{
	static const struct place places[] = {
		{9, "a.rb", 1, "String", "m", 0, 0, 0},
		{9, "a.rb", 2, "Array", "m", 0, 0, 0},
	};
	static const struct {
		uint64_t address;
		uint32_t code;
	} steps[] = {
		{0x7f0000001000, 1}, {0x7f0000001028, 2}, {0x7f0000001050, 1}, {0x7f0000001000, 0},
		{0x7f0000009000, 0}, {0x7f0000001000, 2}, {0x7f0000001028, 0},
	};
	struct scry_objects_run run = {{9, 1, 5}, NULL, 7, START_NS + 5000000, START_NS + 9000000};
	struct recorder rec = begin();
	uint64_t words[7];
	size_t i;

	put_beginning(&rec, "objects", 9);
	put_site(&rec, 1, &places[0]);
	put_site(&rec, 2, &places[1]);
	for (i = 0; i < 7; i++)
		words[i] = steps[i].address >> 3 << SCRY_OBJ_CODE_BITS | steps[i].code;
	run.words = words;
	assert_int_equal(scry_writer_objects(rec.w, &run), 0);
	return end(&rec);
}

static int empty_recording(void)
{
	struct recorder rec = begin();

	put_beginning(&rec, "objects", 4711);
	put_end(&rec, 4711, 0);
	return end(&rec);
}

static int count_recording(void)
{
	struct recorder rec = begin();
	struct scry_ev_count count = {
		.symbol_str = str(&rec, "malloc"),
		.module_str = str(&rec, "/lib/x86_64-linux-gnu/libc.so.6"),
		.way_str = str(&rec, "got"),
		.pid = 4711,
		.calls = 10,
		.address = 0x7f1122334450,
	};

	put_beginning(&rec, "count", 4711);
	put(&rec, SCRY_EVENT_COUNT, &count, sizeof(count));
	count.calls = 123456;
	put(&rec, SCRY_EVENT_COUNT, &count, sizeof(count));
	count.symbol_str = str(&rec, "free");
	count.address += 64;
	count.calls = 9;
	put(&rec, SCRY_EVENT_COUNT, &count, sizeof(count));
	put_end(&rec, 4711, 123465);
	return end(&rec);
}

static void show(int fd, const char *name, bool json, const struct scry_view_opts *opts,
		 struct scry_buf *ret_page)
{
	const struct scry_view *view = scry_view_find(name);
	struct scry_doc doc = {.view = name, .schema = view->schema, .is_stream = view->is_stream};
	struct scry_reader *reader;
	char *text;
	size_t len;

	doc.out = doc.talk = open_memstream(&text, &len);
	assert_int_equal(scry_reader_open(fd, &reader), 0);
	assert_int_equal(json ? scry_out_json_open(&doc) : scry_out_text_open(&doc), 0);
	assert_int_equal(view->run(reader, opts, &doc), 0);
	assert_int_equal(scry_doc_end(&doc), 0);
	scry_reader_close(reader);
	fclose(doc.out);
	scry_buf_append(ret_page, text, len);
	free(text);
}

static void compare(const char *file, const struct scry_buf *page)
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

static void check(int fd, const char *view, const char *file, const struct scry_view_opts *opts)
{
	struct scry_buf page = {0};

	show(fd, view, strstr(file, ".json") != NULL, opts, &page);
	compare(file, &page);
	scry_buf_done(&page);
}

static void objects(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts opts = plain;
	int fd = objects_recording();

	check(fd, "objects", "objects.txt", &plain);
	check(fd, "objects", "objects.json", &plain);
	opts.by = SCRY_VIEW_BY_CLASS;
	check(fd, "objects", "objects_class.txt", &opts);
	check(fd, "objects", "objects_class.json", &opts);
	opts.by = SCRY_VIEW_BY_FILE;
	opts.sort = SCRY_VIEW_SORT_LIVE;
	check(fd, "objects", "objects_file.txt", &opts);
	opts = plain;
	opts.grep = "user.rb:12 S";
	check(fd, "objects", "objects_grep.txt", &opts);
	opts.grep = "/^\\(no Ruby.*Mutex$/";
	opts.top = 1;
	check(fd, "objects", "objects_regex.txt", &opts);
	opts.grep = "nowhere";
	check(fd, "objects", "objects_nothing.txt", &opts);
	close(fd);
}

static void many(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = many_recording();

	check(fd, "objects", "objects_many.txt", &plain);
	close(fd);
}

static void raw(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = raw_recording();

	check(fd, "objects", "objects_raw.txt", &plain);
	check(fd, "objects", "objects_raw.json", &plain);
	check(fd, "events", "events_raw.txt", &plain);
	check(fd, "info", "info_raw.txt", &plain);
	close(fd);
}

static void empty(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = empty_recording();

	check(fd, "objects", "objects_empty.txt", &plain);
	check(fd, "objects", "objects_empty.json", &plain);
	close(fd);
}

static void events(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = objects_recording();

	check(fd, "events", "events.txt", &plain);
	check(fd, "events", "events.json", &plain);
	close(fd);
}

static void count(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = count_recording();

	check(fd, "count", "count.txt", &plain);
	check(fd, "count", "count.json", &plain);
	close(fd);
}

static void info(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = objects_recording();

	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) + 100), 0);
	check(fd, "info", "info_torn.txt", &plain);
	check(fd, "info", "info_torn.json", &plain);
	close(fd);
}

static void bad_regex(void **state)
{
	struct scry_view_opts opts = {.grep = "/(/"};
	int fd = empty_recording();
	struct scry_doc doc = {.view = "objects", .out = stderr};
	struct scry_reader *reader;

	assert_int_equal(scry_reader_open(fd, &reader), 0);
	assert_int_equal(scry_out_text_open(&doc), 0);
	assert_int_equal(scry_view_objects(reader, &opts, &doc), -EINVAL);
	assert_non_null(strstr(scry_error(), "no regular expression"));
	scry_doc_abandon(&doc);
	scry_reader_close(reader);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects), cmocka_unit_test(many),	cmocka_unit_test(raw),
		cmocka_unit_test(empty),   cmocka_unit_test(events),	cmocka_unit_test(count),
		cmocka_unit_test(info),	   cmocka_unit_test(bad_regex),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
