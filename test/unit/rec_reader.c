/* The reader, against recordings that are whole, torn anywhere, flipped anywhere, old, new and
 * forged. */
#include "rec/reader.h"

#include "base/buf.h"
#include "base/err.h"
#include "rec/check.h"
#include "rec/fields.h"
#include "rec/sections.h"
#include "rec/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define EVENTS_MAX 64

/* What a recording yielded: a digest of each event, so that prefixes can be compared. */
struct yield {
	size_t count;
	uint64_t digests[EVENTS_MAX];
	struct scry_reader_stats stats;
};

static int file_of(const void *bytes, size_t len)
{
	int fd = memfd_create("recording", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, 0), len);
	return fd;
}

/* 0 or the error of open. */
static int read_all(const void *bytes, size_t len, struct yield *ret_yield)
{
	const struct scry_event *event;
	struct yield got = {0};
	struct scry_reader *r;
	int fd = file_of(bytes, len), more;
	int err = scry_reader_open(fd, &r);

	if (!err) {
		while ((more = scry_reader_next(r, &event)) > 0) {
			assert_true(got.count < EVENTS_MAX);
			got.digests[got.count++] = XXH3_64bits(event, event->size);
		}
		assert_int_equal(more, 0);
		assert_int_equal(scry_reader_next(r, &event), 0); /* the end stays the end */
		scry_reader_stats(r, &got.stats);
		assert_int_equal(scry_reader_is_torn(r), got.stats.left_out > 0);
		scry_reader_close(r);
		*ret_yield = got;
	}
	close(fd);
	return err;
}

static void put(struct scry_writer *w, uint16_t type, const void *payload, size_t bytes)
{
	struct scry_event head = {.time_ns = 77, .tid = 5, .type = type};

	assert_int_equal(scry_writer_payload(w, &head, payload, bytes), 0);
}

/* A recording of three chunks: sites and strings, packed objects, an end. */
static struct scry_buf sample(void)
{
	const uint64_t words[] = {
		UINT64_C(0x7f0000001000) >> 3 << SCRY_OBJ_CODE_BITS | 1,
		UINT64_C(0x7f0000001028) >> 3 << SCRY_OBJ_CODE_BITS | 2,
		UINT64_C(0x7f0000001000) >> 3 << SCRY_OBJ_CODE_BITS,
	};
	struct scry_objects_run run = {{9, 1, 2}, words, 3, 500, 600};
	struct scry_ev_site site = {.site = 1, .pid = 9, .line = 3, .slot_bytes = 40};
	struct scry_ev_totals totals = {.events = 3, .pid = 9};
	int fd = memfd_create("sample", MFD_CLOEXEC);
	struct scry_buf buf = {0};
	struct scry_writer *w;
	struct stat st;

	assert_int_equal(scry_writer_open(fd, 0, &w), 0);
	assert_int_equal(scry_writer_string(w, "app.rb", 6, &site.file_str), 0);
	put(w, SCRY_EVENT_SITE, &site, sizeof(site));
	site.site = 2;
	put(w, SCRY_EVENT_SITE, &site, sizeof(site));
	assert_int_equal(scry_writer_objects(w, &run), 0);
	put(w, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
	assert_int_equal(scry_writer_close(w), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(scry_buf_zeros(&buf, (size_t)st.st_size), 0);
	assert_int_equal(pread(fd, buf.data, buf.len, 0), st.st_size);
	close(fd);
	return buf;
}

static void whole(void **state)
{
	struct scry_buf buf = sample();
	struct yield got;

	assert_int_equal(read_all(buf.data, buf.len, &got), 0);
	assert_int_equal(got.count, 3 + 3 + 1);
	assert_int_equal(got.stats.errors, 0);
	assert_int_equal(got.stats.left_out, 0);
	assert_int_equal(got.stats.kinds[SCRY_CHUNK_EVENTS].chunks, 2);
	assert_int_equal(got.stats.kinds[SCRY_CHUNK_OBJECTS].events, 3);
	assert_int_equal(got.stats.strings, 1);
	scry_buf_done(&buf);
}

static void is_prefix(const struct yield *part, const struct yield *all)
{
	assert_true(part->count <= all->count);
	assert_memory_equal(part->digests, all->digests, part->count * sizeof(all->digests[0]));
}

static void torn_everywhere(void **state)
{
	struct scry_buf buf = sample();
	struct yield all, got;
	size_t len;

	assert_int_equal(read_all(buf.data, buf.len, &all), 0);
	for (len = 0; len < buf.len; len++) {
		int err = read_all(buf.data, len, &got);

		if (len < sizeof(struct scry_file_head)) {
			assert_int_equal(err, -EINVAL);
			continue;
		}
		assert_int_equal(err, 0);
		is_prefix(&got, &all);
		assert_int_equal(got.stats.errors, 0);
		assert_true(got.stats.left_out < len);
		assert_true(got.count < all.count);
	}
	scry_buf_done(&buf);
}

/* Each bit of each byte in turn: never an event that was not written. */
static void flipped_everywhere(void **state)
{
	struct scry_buf buf = sample();
	struct yield all, got;
	size_t bit;

	assert_int_equal(read_all(buf.data, buf.len, &all), 0);
	for (bit = 0; bit < buf.len * 8; bit++) {
		int err;

		buf.data[bit / 8] ^= (char)(1 << bit % 8);
		err = read_all(buf.data, buf.len, &got);
		buf.data[bit / 8] ^= (char)(1 << bit % 8);
		if (bit / 8 >= sizeof(struct scry_file_head)) {
			assert_int_equal(err, 0);
			assert_true(got.stats.left_out > 0);
		}
		if (!err)
			is_prefix(&got, &all);
	}
	scry_buf_done(&buf);
}

/* A recording made by hand: head, then chunks of raw payload. */
static struct scry_buf forge(void)
{
	struct scry_file_head head = {SCRY_FILE_MAGIC, SCRY_FILE_VERSION, sizeof(head), 0, 0};
	struct scry_buf buf = {0};

	scry_buf_append(&buf, &head, sizeof(head));
	return buf;
}

static void forge_chunk(struct scry_buf *buf, uint32_t kind, const void *payload, size_t bytes)
{
	struct scry_chunk chunk = {.magic = SCRY_CHUNK_MAGIC, .kind = kind, .bytes = bytes};

	chunk.check = scry_chunk_check(&chunk, payload);
	scry_buf_append(buf, &chunk, sizeof(chunk));
	scry_buf_append(buf, payload, bytes);
}

static void unknown_kinds_are_skipped(void **state)
{
	struct {
		struct scry_event head;
		uint64_t payload;
	} future = {{.type = 60000, .size = 24}, 5};
	struct scry_buf buf = forge();
	struct yield got;

	forge_chunk(&buf, 77, "12345678", 8);
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &future, sizeof(future));
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, NULL, 0);
	forge_chunk(&buf, SCRY_CHUNK_OBJECTS, NULL, 0);
	assert_int_equal(read_all(buf.data, buf.len, &got), 0);
	assert_int_equal(got.count, 1);
	assert_int_equal(got.stats.errors, 0);
	assert_int_equal(got.stats.kinds[0].chunks, 1);
	scry_buf_done(&buf);
}

static void old_payloads_grow(void **state)
{
	struct {
		struct scry_event head;
		uint64_t events;
	} old = {{.type = SCRY_EVENT_TOTALS, .size = 24}, 5};
	const struct scry_event *event;
	const struct scry_ev_totals *totals;
	struct scry_buf buf = forge();
	struct scry_reader *r;
	int fd;

	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &old, sizeof(old));
	fd = file_of(buf.data, buf.len);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	assert_int_equal(scry_reader_next(r, &event), 1);
	assert_int_equal(event->size, sizeof(*event) + sizeof(*totals));
	totals = (const void *)(event + 1);
	assert_int_equal(totals->events, 5);
	assert_int_equal(totals->pid, 0);
	scry_reader_close(r);
	close(fd);
	scry_buf_done(&buf);
}

static void forged_ids_become_unknown(void **state)
{
	struct {
		struct scry_event head;
		struct scry_ev_objects objects;
	} forged = {{.type = SCRY_EVENT_OBJECTS, .size = sizeof(forged)},
		    {.site = 12345, .allocated = 1}};
	struct {
		struct scry_event head;
		struct scry_ev_note note;
	} note = {{.type = SCRY_EVENT_NOTE, .size = 24}, {.text_str = 4000000000u}};
	uint64_t word = 8 << SCRY_OBJ_CODE_BITS | 999;
	const struct scry_event *event;
	struct scry_buf buf = forge();
	struct scry_reader_stats stats;
	struct scry_reader *r;
	int fd, i;

	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &forged, sizeof(forged));
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &note, sizeof(note));
	forge_chunk(&buf, SCRY_CHUNK_OBJECTS, &word, sizeof(word));
	fd = file_of(buf.data, buf.len);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(scry_reader_next(r, &event), 1);
	assert_int_equal(event->type, SCRY_EVENT_ALLOC);
	assert_int_equal(((const struct scry_ev_alloc *)(event + 1))->site, 0);
	assert_int_equal(((const struct scry_ev_alloc *)(event + 1))->address, 64);
	scry_reader_stats(r, &stats);
	assert_int_equal(stats.errors, 3);
	scry_reader_close(r);
	close(fd);
	scry_buf_done(&buf);
}

struct frame_event {
	struct scry_event head;
	struct scry_ev_stack stack;
};

static void forge_frame(struct frame_event *frame, uint32_t id, uint32_t parent)
{
	*frame = (struct frame_event){{.type = SCRY_EVENT_STACK, .size = sizeof(*frame)},
				      {.id = id, .parent = parent}};
}

/* Whoever follows parents comes to an end: a parent is defined before, a frame once. */
static void stacks_are_trees(void **state)
{
	static const uint32_t parents[] = {0, 1, 0, 3, 2};
	struct {
		struct scry_event head;
		struct scry_ev_site site;
	} site = {{.type = SCRY_EVENT_SITE, .size = sizeof(site)}, {.site = 1, .stack = 99}};
	const struct scry_event *event;
	struct frame_event run[8];
	struct scry_buf buf = forge();
	struct scry_reader_stats stats;
	struct scry_reader *r;
	int fd;
	size_t i;

	forge_frame(&run[0], 1, 0);
	forge_frame(&run[1], 2, 1);
	forge_frame(&run[2], 3, 3); /* its own parent: mended */
	forge_frame(&run[3], 1, 2); /* again, as a ring: left out */
	forge_frame(&run[4], 0, 1); /* no id: left out */
	forge_frame(&run[5], 4, 3);
	forge_frame(&run[6], 1u << 24, 1); /* beyond the limit: left out */
	forge_frame(&run[7], 5, 2);
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, run, sizeof(run));
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &site, sizeof(site));
	fd = file_of(buf.data, buf.len);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	for (i = 0; i < 5; i++) {
		const struct scry_ev_stack *stack;

		assert_int_equal(scry_reader_next(r, &event), 1);
		stack = (const void *)(event + 1);
		assert_int_equal(stack->id, i + 1);
		assert_int_equal(stack->parent, parents[i]);
	}
	assert_int_equal(scry_reader_next(r, &event), 1);
	assert_int_equal(((const struct scry_ev_site *)(event + 1))->stack, 0);
	assert_int_equal(scry_reader_next(r, &event), 0);
	scry_reader_stats(r, &stats);
	assert_int_equal(stats.errors, 1 + 3 + 1);
	scry_reader_close(r);
	close(fd);
	scry_buf_done(&buf);
}

static void bad_events(void **state)
{
	struct string_event {
		struct scry_event head;
		struct scry_ev_string string;
		char bytes[8];
	} ok = {{.type = SCRY_EVENT_STRING, .size = 32}, {1, 8}, "abcdefg"}, long_one = ok,
	  zero = ok;
	struct string_event run[4];
	struct scry_buf buf = forge();
	struct yield got;

	long_one.string = (struct scry_ev_string){2, 9};
	zero.string.id = 0;
	run[0] = long_one;
	run[1] = zero;
	run[2] = ok;
	run[3] = ok; /* defined twice */
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, run, sizeof(run));
	ok.head.size = 40; /* beyond the chunk */
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &ok, sizeof(ok));
	ok.head.size = 8;
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &ok, sizeof(ok));
	ok.head.size = 28;
	forge_chunk(&buf, SCRY_CHUNK_EVENTS, &ok, sizeof(ok));
	assert_int_equal(read_all(buf.data, buf.len, &got), 0);
	assert_int_equal(got.count, 1);
	assert_int_equal(got.stats.errors, 3 + 3);
	assert_int_equal(got.stats.strings, 1);
	assert_int_equal(got.stats.left_out, 0);
	scry_buf_done(&buf);
}

static void heads(void **state)
{
	struct scry_buf buf = forge();
	struct scry_file_head *head = (struct scry_file_head *)buf.data;
	struct yield got;
	int ends[2];
	struct scry_reader *r;

	head->version = SCRY_FILE_VERSION + 1;
	assert_int_equal(read_all(buf.data, buf.len, &got), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "newer scry"));
	head->version = SCRY_FILE_VERSION;
	head->head_size = 40; /* beyond the file */
	assert_int_equal(read_all(buf.data, buf.len, &got), -EINVAL);
	scry_buf_zeros(&buf, 8); /* a later version's longer head */
	assert_int_equal(read_all(buf.data, buf.len, &got), 0);
	assert_int_equal(got.stats.left_out, 0);
	assert_int_equal(read_all("#!/usr/bin/ruby                          ", 40, &got), -EINVAL);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(scry_reader_open(ends[0], &r), -ESPIPE);
	close(ends[0]);
	close(ends[1]);
	scry_buf_done(&buf);
}

/* Every byte of every payload struct has one row in the field table. */
/* The session of a section, with its first string: both have the same ids in all sections. */
static void begin_section(struct scry_writer *w, const char *name)
{
	struct scry_ev_session session = {0};

	assert_int_equal(scry_writer_string(w, name, strlen(name), &session.instrument_str), 0);
	assert_int_equal(session.instrument_str, 1);
	put(w, SCRY_EVENT_SESSION, &session, sizeof(session));
	assert_int_equal(scry_writer_flush(w), 0);
}

/* Each is a recording of its own: its strings, its totals, nothing of the other. */
static void sections(void **state)
{
	const struct scry_ev_totals totals[2] = {{.events = 3}, {.events = 5}};
	const char *const names[] = {"malloc", "calls"};
	struct scry_writer *w, *second;
	struct scry_sections found;
	const struct scry_event *event;
	struct scry_reader *r;
	int fd = memfd_create("sections", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(scry_writer_open(fd, 0, &w), 0);
	assert_int_equal(scry_writer_section(w, 1, &second), 0);
	begin_section(w, names[0]);
	begin_section(second, names[1]);
	put(second, SCRY_EVENT_TOTALS, &totals[1], sizeof(totals[1]));
	put(w, SCRY_EVENT_TOTALS, &totals[0], sizeof(totals[0]));
	assert_int_equal(scry_writer_close(second), 0);
	assert_int_equal(scry_writer_close(w), 0);
	assert_int_equal(scry_sections_read(fd, &found), 0);
	assert_int_equal(found.count, 2);
	for (uint32_t i = 0; i < 2; i++) {
		size_t count = 0;

		assert_string_equal(found.names[i], names[i]);
		assert_int_equal(scry_sections_open(fd, names[i], &r), 0);
		while (scry_reader_next(r, &event) > 0) {
			count++;
			if (event->type == SCRY_EVENT_TOTALS)
				assert_memory_equal(event + 1, &totals[i], sizeof(totals[i]));
		}
		assert_int_equal(count, 3);
		assert_string_equal(scry_reader_string(r, 1, NULL), names[i]);
		scry_reader_close(r);
	}
	assert_int_equal(scry_sections_find(&found, "locks"), -1);
	close(fd);
}

/* A section's writer ends with the file, and each tells what it has lost. */
static void sections_end_together(void **state)
{
	const struct scry_ev_totals totals = {.events = 3};
	struct scry_writer *w, *second;
	struct scry_writer_stats stats;
	struct scry_reader *r;
	const struct scry_event *event;
	int fd = memfd_create("sections", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(scry_writer_open(fd, 600, &w), 0);
	assert_int_equal(scry_writer_section(w, 1, &second), 0);
	begin_section(w, "malloc");
	begin_section(second, "calls");
	for (int i = 0; i < 20; i++)
		put(second, SCRY_EVENT_NOTE, &(struct scry_ev_note){0},
		    sizeof(struct scry_ev_note));
	assert_true(scry_writer_flush(second) < 0);
	scry_error_clear();
	put(w, SCRY_EVENT_TOTALS, &totals, sizeof(totals)); /* kept for the end */
	scry_writer_stats(w, &stats);
	assert_true(stats.is_full);
	scry_writer_close(second);
	scry_writer_close(w);
	scry_error_clear();
	assert_int_equal(scry_sections_open(fd, "malloc", &r), 0);
	while (scry_reader_next(r, &event) > 0)
		assert_true(event->type != SCRY_EVENT_NOTE);
	assert_false(scry_reader_is_torn(r));
	scry_reader_close(r);
	close(fd);
}

static void fields_cover_payloads(void **state)
{
	size_t covered, i;
	uint16_t type;

	assert_null(scry_event_kind(0));
	assert_null(scry_event_kind(UINT16_MAX));
	for (type = 1; scry_event_kind(type); type++) {
		const struct scry_event_kind *kind = scry_event_kind(type);

		for (covered = i = 0; i < kind->field_count; i++) {
			assert_int_equal(kind->fields[i].offset, covered);
			covered += kind->fields[i].size;
		}
		assert_int_equal(covered, kind->payload_size);
		assert_int_equal(covered % 8, 0);
	}
	assert_true(type > SCRY_EVENT_SLICE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole),
		cmocka_unit_test(torn_everywhere),
		cmocka_unit_test(flipped_everywhere),
		cmocka_unit_test(unknown_kinds_are_skipped),
		cmocka_unit_test(old_payloads_grow),
		cmocka_unit_test(forged_ids_become_unknown),
		cmocka_unit_test(stacks_are_trees),
		cmocka_unit_test(bad_events),
		cmocka_unit_test(sections),
		cmocka_unit_test(sections_end_together),
		cmocka_unit_test(heads),
		cmocka_unit_test(fields_cover_payloads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
