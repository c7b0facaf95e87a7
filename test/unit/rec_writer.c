/* The writer: what it writes reads back, and what it cannot write it counts, cuts off and survives.
 */
#include "rec/writer.h"

#include "base/err.h"
#include "rec/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int new_file(void)
{
	int fd = memfd_create("recording", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int add_count(struct scry_writer *w, uint64_t calls)
{
	struct scry_event head = {.time_ns = 1000 + calls, .tid = 7, .type = SCRY_EVENT_COUNT};
	struct scry_ev_count count = {.pid = 1, .calls = calls};

	return scry_writer_payload(w, &head, &count, sizeof(count));
}

struct content {
	uint64_t counts, last_calls, allocs, frees, lost, totals;
	struct scry_reader_stats stats;
};

static struct content content_of(int fd)
{
	const struct scry_event *event;
	struct content found = {0};
	struct scry_reader *r;
	int got;

	assert_int_equal(scry_reader_open(fd, &r), 0);
	while ((got = scry_reader_next(r, &event)) > 0) {
		const void *payload = event + 1;

		if (event->type == SCRY_EVENT_COUNT) {
			const struct scry_ev_count *count = payload;

			assert_int_equal(event->time_ns, 1000 + count->calls);
			assert_int_equal(count->calls, found.counts);
			found.last_calls = count->calls;
			found.counts++;
		}
		found.allocs += event->type == SCRY_EVENT_ALLOC;
		found.frees += event->type == SCRY_EVENT_FREE;
		found.totals += event->type == SCRY_EVENT_TOTALS;
		if (event->type == SCRY_EVENT_LOST)
			found.lost += ((const struct scry_ev_lost *)payload)->count;
	}
	assert_int_equal(got, 0);
	scry_reader_stats(r, &found.stats);
	assert_int_equal(found.stats.errors, 0);
	scry_reader_close(r);
	return found;
}

static void strings_once(void **state)
{
	struct scry_writer_stats stats;
	struct scry_writer *w;
	uint32_t a, b, c;
	struct content got;
	char *big = calloc(1, 100000);
	int fd = new_file();

	assert_int_equal(scry_writer_open(fd, 0, &w), 0);
	assert_int_equal(scry_writer_string(w, "app.rb", 6, &a), 0);
	assert_int_equal(scry_writer_string(w, "String", 6, &b), 0);
	assert_int_equal(scry_writer_string(w, "app.rb", 6, &c), 0);
	assert_true(a && b && a != b && a == c);
	assert_int_equal(scry_writer_string(w, big, 100000, &a), 0);
	assert_int_equal(scry_writer_string(w, big, 100001, &b), 0);
	assert_int_equal(a, b); /* cut alike */
	assert_int_equal(scry_writer_flush(w), 0);
	assert_int_equal(scry_writer_flush(w), 0);
	scry_writer_stats(w, &stats);
	assert_int_equal(stats.events, 0);
	assert_int_equal(scry_writer_close(w), 0);
	got = content_of(fd);
	assert_int_equal(got.stats.strings, 3);
	assert_int_equal(got.stats.kinds[SCRY_CHUNK_EVENTS].chunks, 1);
	free(big);
	close(fd);
}

static void many_events(void **state)
{
	struct scry_writer *w;
	struct content got;
	int fd = new_file();
	uint64_t i;

	assert_int_equal(scry_writer_open(fd, 0, &w), 0);
	for (i = 0; i < 50000; i++)
		assert_int_equal(add_count(w, i), 0);
	assert_int_equal(scry_writer_close(w), 0);
	got = content_of(fd);
	assert_int_equal(got.counts, 50000);
	assert_in_range(got.stats.kinds[SCRY_CHUNK_EVENTS].chunks, 10, 20);
	assert_int_equal(got.stats.left_out, 0);
	close(fd);
}

static int add_objects(struct scry_writer *w, size_t count)
{
	struct scry_objects_run run = {
		.producer = {.pid = 42, .ring = 3, .start_ticks = 99},
		.first_ns = 5,
		.last_ns = 6,
		.count = count,
	};
	uint64_t *words = calloc(count, sizeof(*words));
	size_t i;
	int err;

	for (i = 0; i < count; i++)
		words[i] = (UINT64_C(0x7fff12345678) >> 3) << SCRY_OBJ_CODE_BITS | i % 2;
	run.words = words;
	err = scry_writer_objects(w, &run);
	free(words);
	return err;
}

static void add_site(struct scry_writer *w, uint32_t id)
{
	struct scry_event head = {.type = SCRY_EVENT_SITE};
	struct scry_ev_site site = {.site = id, .slot_bytes = 40};

	assert_int_equal(scry_writer_payload(w, &head, &site, sizeof(site)), 0);
}

static void packed_objects(void **state)
{
	struct scry_writer *w;
	struct content got;
	int fd = new_file();

	assert_int_equal(scry_writer_open(fd, 0, &w), 0);
	add_site(w, 1);
	assert_int_equal(add_objects(w, (SCRY_CHUNK_MAX / 8) + 10), 0);
	assert_int_equal(scry_writer_close(w), 0);
	got = content_of(fd);
	assert_int_equal(got.allocs, SCRY_CHUNK_MAX / 16 + 5);
	assert_int_equal(got.frees, SCRY_CHUNK_MAX / 16 + 5);
	assert_int_equal(got.stats.kinds[SCRY_CHUNK_OBJECTS].chunks, 2);
	close(fd);
}

/* Writes until the file takes no more: one error, then quiet counting, and a whole file at the end.
 */
static void fill_up(int fd, uint64_t max_size, uint64_t events, int error)
{
	struct scry_event head = {.type = SCRY_EVENT_TOTALS};
	struct scry_ev_totals totals = {.events = events, .pid = 1};
	struct scry_writer_stats stats;
	struct scry_writer *w;
	struct content got;
	int errors = 0;
	uint64_t i;

	assert_int_equal(scry_writer_open(fd, max_size, &w), 0);
	for (i = 0; i < events; i++) {
		if (add_count(w, i)) {
			errors++;
			assert_non_null(strstr(scry_error(), "recording"));
		}
	}
	assert_int_equal(errors, 1);
	assert_int_equal(scry_writer_payload(w, &head, &totals, sizeof(totals)), 0);
	scry_writer_stats(w, &stats);
	assert_int_equal(stats.events + stats.lost, events);
	assert_int_equal(stats.error, error);
	assert_int_equal(scry_writer_close(w), 0);
	got = content_of(fd);
	assert_int_equal(got.counts, stats.events);
	assert_true(got.counts > 0);
	assert_int_equal(got.stats.left_out, 0);
	assert_int_equal(got.lost, stats.lost);
	assert_int_equal(got.totals, 1);
	if (max_size)
		assert_true(got.stats.file_bytes <= max_size);
}

static void largest_size(void **state)
{
	int fd = new_file();

	fill_up(fd, 1 << 20, 50000, -EFBIG);
	close(fd);
}

static void file_size_limit(void **state)
{
	struct rlimit old, limit;
	char path[] = "/tmp/scry-test-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = (struct rlimit){.rlim_cur = 1000000, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	fill_up(fd, 0, 50000, -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	close(fd);
}

static void full_disk(void **state)
{
	char dir[] = "/tmp/scry-test-XXXXXX", path[64];
	int fd;

	assert_non_null(mkdtemp(dir));
	if (mount("tmpfs", dir, "tmpfs", 0, "size=1000k")) {
		print_message("mounting a tmpfs: %s; needs root\n", strerror(errno));
		rmdir(dir);
		skip();
	}
	snprintf(path, sizeof(path), "%s/full.scry", dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	umount2(dir, MNT_DETACH); /* lives on until the fd is closed */
	rmdir(dir);
	assert_true(fd >= 0);
	fill_up(fd, 0, 50000, -ENOSPC);
	close(fd);
}

static void packed_leave_room(void **state)
{
	struct scry_writer_stats stats;
	struct scry_writer *w;
	struct content got;
	int fd = new_file(), i, errors = 0;

	assert_int_equal(scry_writer_open(fd, 1 << 20, &w), 0);
	add_site(w, 1);
	for (i = 0; i < 100; i++)
		errors += add_objects(w, 4000) != 0;
	assert_int_equal(errors, 1);
	for (i = 0; i < 1000; i++)
		assert_int_equal(add_count(w, (uint64_t)i), 0);
	scry_writer_stats(w, &stats);
	assert_int_equal(scry_writer_close(w), 0);
	got = content_of(fd);
	assert_int_equal(got.counts, 1000);
	assert_int_equal(got.allocs + got.frees + stats.lost, 400000);
	assert_int_equal(stats.error, -EFBIG);
	assert_int_equal(got.lost, stats.lost);
	close(fd);
}

/* /dev/full takes no byte at all: even the head fails. */
static void broken_from_the_start(void **state)
{
	struct scry_writer *w = NULL;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_int_equal(scry_writer_open(fd, 0, &w), -ENOSPC);
	assert_null(w);
	assert_non_null(strstr(scry_error(), "No space left"));
	close(fd);
}

/* A pipe cannot be cut back; its reader sees the bytes in order. */
static void into_a_pipe(void **state)
{
	struct scry_writer *w;
	char bytes[4096];
	int ends[2];
	ssize_t got;

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(scry_writer_open(ends[1], 0, &w), 0);
	assert_int_equal(add_count(w, 0), 0);
	assert_int_equal(scry_writer_close(w), 0);
	got = read(ends[0], bytes, sizeof(bytes));
	assert_int_equal(got, sizeof(struct scry_file_head) + sizeof(struct scry_chunk) +
				      sizeof(struct scry_event) + sizeof(struct scry_ev_count));
	close(ends[0]);
	close(ends[1]);
}

/* SIGKILL of the writer at 30 moments: a shorter recording, with the counts in order from 0. */
static void killed(void **state)
{
	int round;

	for (round = 0; round < 30; round++) {
		int fd = new_file(), status;
		struct content got;
		pid_t child = fork();

		assert_true(child >= 0);
		if (!child) {
			struct scry_writer *w;
			uint64_t i = 0;

			if (scry_writer_open(fd, 0, &w))
				_exit(1);
			while (!add_count(w, i++))
				if (i % 64 == 0)
					scry_writer_flush(w);
			_exit(1);
		}
		usleep(1000 + (useconds_t)round * 531);
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		if (lseek(fd, 0, SEEK_END) >= (off_t)sizeof(struct scry_file_head)) {
			got = content_of(fd);
			assert_int_equal(got.counts % 64, 0);
		}
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_once),	     cmocka_unit_test(many_events),
		cmocka_unit_test(packed_objects),    cmocka_unit_test(largest_size),
		cmocka_unit_test(file_size_limit),   cmocka_unit_test(full_disk),
		cmocka_unit_test(packed_leave_room), cmocka_unit_test(broken_from_the_start),
		cmocka_unit_test(into_a_pipe),	     cmocka_unit_test(killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
