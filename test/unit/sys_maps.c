/* sys/maps against mmap's own answers. */
#include "sys/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static void test_entries(void **state)
{
	char path[] = "/tmp/scry maps (x).XXXXXX";
	int fd = mkstemp(path);
	const struct scry_map_entry *e;
	struct scry_maps maps;
	struct stat st;
	void *shared, *priv;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 0x4000), 0);
	fstat(fd, &st);
	shared = mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x1000);
	priv = mmap(NULL, 0x3000, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	assert_true(maps.count > 10);
	for (size_t i = 1; i < maps.count; i++)
		assert_true(maps.entries[i].start >= maps.entries[i - 1].end);

	e = scry_maps_at(&maps, (uintptr_t)shared);
	assert_non_null(e);
	assert_true(e->start == (uintptr_t)shared && e->end == (uintptr_t)shared + 0x2000);
	assert_true(e->r && e->w && !e->x && e->shared && !e->deleted);
	assert_true(e->offset == 0x1000);
	assert_true(e->inode == st.st_ino);
	assert_int_equal(e->dev_major, major(st.st_dev));
	assert_int_equal(e->dev_minor, minor(st.st_dev));
	assert_string_equal(e->path, path);
	assert_ptr_equal(scry_maps_at(&maps, (uintptr_t)shared + 0x1fff), e);

	e = scry_maps_at(&maps, (uintptr_t)priv);
	assert_non_null(e);
	assert_true(e->r && !e->w && e->x && !e->shared);
	assert_string_equal(e->path, "");
	assert_null(scry_maps_at(&maps, 0));
	assert_null(scry_maps_at(&maps, UINT64_MAX));
	scry_maps_done(&maps);

	unlink(path);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	e = scry_maps_at(&maps, (uintptr_t)shared);
	assert_true(e && e->deleted);
	assert_string_equal(e->path, path);
	scry_maps_done(&maps);
	munmap(shared, 0x2000);
	munmap(priv, 0x3000);
	close(fd);
}

static void test_code_and_stack(void **state)
{
	struct scry_maps maps;
	int local = 0;
	const struct scry_map_entry *e;

	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	e = scry_maps_at(&maps, (uintptr_t)test_code_and_stack);
	assert_true(e && e->x && e->inode);
	e = scry_maps_at(&maps, (uintptr_t)&local);
	assert_true(e && e->w);
	assert_string_equal(e->path, "[stack]");
	scry_maps_done(&maps);
}

/* The kernel must agree that the gap is free and takes a mapping there. */
static void test_gap(void **state)
{
	uint64_t near = (uintptr_t)&printf, size = 0x10000;
	struct scry_maps maps;
	uint64_t at;
	void *got;

	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	at = scry_maps_gap(&maps, near, size, 0x7fff0000);
	assert_true(at != 0 && at % 4096 == 0);
	assert_true((at > near ? at + size - near : near - at) <= 0x7fff0000);
	got = mmap((void *)at, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		   -1, 0);
	assert_true((uintptr_t)got == at);
	munmap(got, size);
	/* Nothing within one page of a busy place; a reach that leaves the address space is cut. */
	assert_true(scry_maps_gap(&maps, near, size, 4096) == 0);
	assert_true(scry_maps_gap(&maps, near, 0, 0x7fff0000) == 0);
	scry_maps_done(&maps);
}

static void test_gap_of_bytes(void **state)
{
	struct scry_map_entry e[] = {
		{.start = 0x10000000, .end = 0x10100000},
		{.start = 0x10180000, .end = 0x20000000},
	};
	struct scry_maps maps = {.entries = e, .count = 2};

	/* The hole 0x10100000..0x10180000 less a margin of 64 KiB on each side. */
	assert_true(scry_maps_gap(&maps, 0x10000000, 0x1000, 0x8000000) == 0xffef000);
	assert_true(scry_maps_gap(&maps, 0x10100000, 0x1000, 0x80000) == 0x10110000);
	assert_true(scry_maps_gap(&maps, 0x10140000, 0x60000, 0x80000) == 0x10110000);
	assert_true(scry_maps_gap(&maps, 0x10140000, 0x61000, 0x80000) == 0);
	/* Never below 1 MiB. */
	assert_true(scry_maps_gap(&maps, 0x1000, 0x1000, 0x10000) == 0);
}

static void test_gone(void **state)
{
	struct scry_maps maps;

	assert_int_equal(scry_maps_read(0x3ffffff, &maps), -ESRCH);
	assert_non_null(strstr(scry_error(), "gone"));
}

/* A process that ends while its list is read has all of it, or none: what is missing would be taken
 * for free memory. */
static void test_ends_meanwhile(void **state)
{
	const size_t extra = 3000;
	unsigned int refused = 0;

	for (int i = 0; i < 40; i++) {
		struct scry_maps maps;
		int ready[2], r;
		char byte;
		pid_t pid;

		assert_int_equal(pipe(ready), 0);
		pid = fork();
		if (pid == 0) {
			for (size_t n = 0; n < 2 * extra;
			     n++) /* every other one: they do not join */
				mmap(NULL, 4096, n % 2 ? PROT_READ : PROT_NONE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (write(ready[1], "", 1) == 1)
				for (;;)
					pause();
			_exit(1);
		}
		assert_true(pid > 0);
		assert_int_equal(read(ready[0], &byte, 1), 1);
		if (fork() == 0) { /* it ends at another moment each time */
			usleep((useconds_t)i * 100);
			kill(pid, SIGKILL);
			_exit(0);
		}
		do {
			r = scry_maps_read(pid, &maps);
			if (r == 0) {
				assert_true(maps.count >= 2 * extra);
				scry_maps_done(&maps);
			}
		} while (r == 0);
		assert_int_equal(r, -ESRCH);
		refused++;
		while (wait(NULL) > 0)
			;
		close(ready[0]);
		close(ready[1]);
	}
	assert_int_equal(refused, 40);
}

/* `count` mappings of a page each, every other page free. */
static char *list_of(size_t count)
{
	char *text = malloc(count * 64 + 1), *at = text;

	assert_non_null(text);
	for (size_t i = 0; i < count; i++)
		at += sprintf(at, "%zx-%zx rw-p 00000000 00:00 0 \n", (2 * i + 1) << 12,
			      (2 * i + 2) << 12);
	return text;
}

/* All of a long list, or none of it. */
static void test_many(void **state)
{
	struct scry_maps maps;

	assert_int_equal(scry_maps_parse(list_of(SCRY_MAPS_MAX), &maps), 0);
	assert_int_equal(maps.count, SCRY_MAPS_MAX);
	assert_int_equal(maps.entries[SCRY_MAPS_MAX - 1].start, (2 * SCRY_MAPS_MAX - 1ull) << 12);
	scry_maps_done(&maps);
	assert_int_equal(scry_maps_parse(list_of(SCRY_MAPS_MAX + 1), &maps), -E2BIG);
	assert_non_null(strstr(scry_error(), "262145 mappings"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entries), cmocka_unit_test(test_code_and_stack),
		cmocka_unit_test(test_gap),	cmocka_unit_test(test_gap_of_bytes),
		cmocka_unit_test(test_gone),	cmocka_unit_test(test_ends_meanwhile),
		cmocka_unit_test(test_many),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
