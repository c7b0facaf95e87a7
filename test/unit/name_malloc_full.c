/*
 * No room for the recording: it becomes nearly as large as it may be, and the calls that are not in
 * it are counted to the last.
 */
#include "name/malloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "rec/reader.h"
#include "wire/event.h"
#include "wire/malloc_ring.h"

#define CALLS 300000ull
#define LARGEST 100000
#define TSC 1000000ull

/* A block of some size begins, or the one that lives ends. */
static void tell(struct scry_malloc *m, uint64_t i)
{
	const uint64_t address = 0x1000 >> 3 << 4, size = (uint64_t)random() % 2000;
	const uint64_t words[2] = {
		address | (i % 2 ? SCRY_MALLOC_OP_FREE : SCRY_MALLOC_OP_MALLOC | size << 48),
		scry_malloc_word1(TSC + i, 0, 0)};
	const struct scry_stream_words run = {
		.thread = 1, .tid = 7, .begin_tick = i ? 0 : TSC, .words = words, .count = 2};

	assert_int_equal(scry_stream_add(scry_malloc_stream(m), &run), 0);
	if (i % 50000 == 0)
		assert_int_equal(scry_malloc_merge(m, UINT64_MAX), 0);
}

static void make(int fd, struct scry_malloc_stats *ret_stats, uint64_t *ret_lost)
{
	struct scry_malloc_opts opts = {.producer = {.pid = 1, .start_ticks = 5}};
	struct scry_writer_stats written;
	struct scry_malloc *m;

	assert_int_equal(scry_writer_open(fd, LARGEST, &opts.writer), 0);
	assert_int_equal(scry_malloc_new(&opts, &m), 0);
	scry_stream_clock(scry_malloc_stream(m), &(struct scry_ticks_pair){TSC, 1000, 1000});
	scry_stream_clock(scry_malloc_stream(m),
			  &(struct scry_ticks_pair){TSC + 1000000, 501000, 501000});
	srandom(3);
	for (uint64_t i = 0; i < CALLS; i++)
		tell(m, i);
	assert_int_equal(scry_malloc_merge(m, UINT64_MAX), 0);
	assert_int_equal(scry_malloc_finish(m), 0);
	scry_malloc_stats(m, ret_stats);
	scry_writer_stats(opts.writer, &written);
	assert_true(written.is_full);
	*ret_lost = written.lost;
	scry_malloc_free(m);
	assert_int_equal(scry_writer_close(opts.writer), 0);
}

static void test_full(void **state)
{
	int fd = memfd_create("name_malloc_full", MFD_CLOEXEC);
	struct scry_malloc_stats stats;
	const struct scry_event *event;
	struct scry_reader_stats file;
	struct scry_reader *r;
	uint64_t kept = 0, lost;

	(void)state;
	assert_true(fd >= 0);
	make(fd, &stats, &lost);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	while (scry_reader_next(r, &event) == 1)
		kept += event->type == SCRY_EVENT_MALLOC;
	scry_reader_stats(r, &file);
	scry_reader_close(r);
	close(fd);
	assert_int_equal(file.errors, 0);
	assert_int_equal(stats.calls, CALLS);
	assert_int_equal(kept, CALLS - stats.unwritten);
	assert_int_equal(lost, stats.unwritten);
	assert_in_range(file.file_bytes, LARGEST * 3 / 4, LARGEST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_full)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
