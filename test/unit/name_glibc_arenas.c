/*
 * Living blocks found from outside, compared with a program that knows them (test/targets/
 * malloc_blocks.c), and with what glibc itself counts.
 */
#include "name/glibc_arenas.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/map.h"
#include "child.h"

struct row { /* as the target has it */
	uint64_t address, size;
};

/* All its threads are held. One that stands in the midst of a call may hold a heap that does not
 * fit: then again. */
static int read_blocks(pid_t pid, struct scry_mem *mem, uint64_t deadline_ns,
		       struct scry_glibc_arenas *ret)
{
	struct scry_maps maps;
	int r = -1;

	assert_int_equal(scry_mem_open(mem, pid, 0), 0);
	for (int i = 0; i < 5 && r < 0; i++) {
		assert_int_equal(kill(pid, SIGSTOP), 0);
		assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
		assert_int_equal(scry_maps_read(pid, &maps), 0);
		r = scry_glibc_arenas_read(mem, &maps, deadline_ns, ret);
		scry_maps_done(&maps);
		assert_int_equal(kill(pid, SIGCONT), 0);
	}
	if (r == 0)
		scry_glibc_arenas_settle(ret);
	return r;
}

/* What of the table was found; bytes that were found and are not in it. */
struct compared {
	uint64_t blocks, bytes, found, found_bytes, other, other_bytes, freed;
};

static struct compared compare(const struct row *rows, size_t count,
			       const struct scry_glibc_arenas *a)
{
	struct compared c = {0};
	struct scry_map known;

	scry_map_init(&known, count + 1);
	for (size_t i = 0; i < count; i++)
		if (rows[i].size)
			assert_int_equal(scry_map_put(&known, rows[i].address, rows[i].size), 0);
	for (size_t i = 0; i < a->count; i++) {
		uint64_t size;

		if (scry_map_remove(&known, a->rows[i].address, &size)) {
			c.found++;
			c.found_bytes += size;
			assert_true(a->rows[i].usable >= size);
		} else {
			c.other++;
			c.other_bytes += a->rows[i].usable;
		}
	}
	for (size_t i = 0; i < count; i++) {
		c.blocks += rows[i].size != 0;
		c.bytes += rows[i].size;
	}
	scry_map_done(&known);
	return c;
}

/* Without holding it: it stands still. */
static void check_held(pid_t pid, const struct scry_mem *mem, uint64_t bytes, uint64_t arenas)
{
	struct scry_glibc_held held;
	struct scry_maps maps;
	struct scry_glibc_holding found;

	assert_int_equal(scry_maps_read(pid, &maps), 0);
	assert_int_equal(scry_glibc_held_find(mem, &maps, &held), 0);
	assert_int_equal(scry_glibc_held_read(mem, &held, &found), 0);
	assert_int_equal(found.bytes, bytes);
	assert_int_equal(found.arenas, arenas);
	assert_int_equal(found.thread_bytes != 0, arenas > 1);
	assert_true(found.thread_bytes < bytes);
	held.main_arena += 16;
	assert_int_equal(scry_glibc_held_read(mem, &held, &found), -EFAULT);
	scry_maps_done(&maps);
}

static void check(const char *how, double least, uint32_t broken)
{
	struct scry_glibc_arenas a;
	unsigned long long table, held;
	struct compared c;
	struct scry_mem mem;
	struct child child;
	struct row *rows;
	int count;

	if (!child_start(&child, "target_malloc_blocks", how))
		skip();
	assert_int_equal(
		sscanf(child_next(&child), "table %llx %d held %llu", &table, &count, &held), 3);
	if (read_blocks(child.pid, &mem, 0, &a) == -ENOTSUP) {
		print_message("skipped: %s\n", scry_error());
		child_end(&child);
		skip();
	}
	rows = malloc((size_t)count * sizeof(*rows));
	assert_non_null(rows);
	assert_int_equal(scry_mem_read(&mem, table, rows, (size_t)count * sizeof(*rows)), 0);
	c = compare(rows, (size_t)count, &a);
	print_message("%llu of %llu blocks, %llu of %llu bytes; %llu others with %llu bytes; %u "
		      "arenas, %u broken, %u tcaches, %llu cached, mapped %llu of %llu\n",
		      (unsigned long long)c.found, (unsigned long long)c.blocks,
		      (unsigned long long)c.found_bytes, (unsigned long long)c.bytes,
		      (unsigned long long)c.other, (unsigned long long)c.other_bytes, a.arenas,
		      a.broken, a.tcaches, (unsigned long long)a.cached,
		      (unsigned long long)a.mapped_found, (unsigned long long)a.mapped);
	assert_true((double)c.found_bytes >= least * (double)c.bytes);
	/* libc's own: threads, buffers, empty tcaches; and what a cache holds behind a block that
	 * lies where the heap was not found */
	assert_true(c.other < (broken ? 400 : 40));
	assert_int_equal(a.broken, broken);
	check_held(child.pid, &mem, held, a.arenas);
	free(rows);
	scry_glibc_arenas_done(&a);
	scry_mem_close(&mem);
	child_end(&child);
}

static void test_known(void **state)
{
	(void)state;
	check(NULL, 0.999, 0);
}

/* Too late from the first chunk on: nothing is found, and it is said of how much. */
static void test_late(void **state)
{
	struct scry_glibc_arenas a;
	struct scry_mem mem;
	struct child child;

	(void)state;
	if (!child_start(&child, "target_malloc_blocks", NULL))
		skip();
	child_next(&child);
	if (read_blocks(child.pid, &mem, 1, &a) == 0) {
		assert_true(a.is_late);
		assert_int_equal(a.count, 0);
		assert_int_equal(a.walked_bytes, 0);
		assert_in_range(a.arenas, 2, 7);
		assert_int_equal(a.broken, a.arenas);
		assert_true(a.system_bytes > 10 << 20);
		scry_glibc_arenas_done(&a);
	}
	scry_mem_close(&mem);
	child_end(&child);
}

static void test_pieces(void **state)
{
	(void)state;
	check("pieces", 0.5, 1); /* it says that some is missing */
}

/* glibc's own sums: mallinfo2 counts what is used, what threads have cached and heads of chunks
 * too, but not fastbins, which Python 3.13 leaves full: those it tells apart. */
static void test_python(void **state)
{
	static const char path[] = "/tmp/scry-test-mallinfo.py";
	static const char script[] =
		"#!/usr/bin/env python3\n"
		"import ctypes, json, os\n"
		"class Info(ctypes.Structure):\n"
		" _fields_ = [(n, ctypes.c_size_t) for n in 'arena ordblks smblks hblks hblkhd '\n"
		"  'usmblks fsmblks uordblks fordblks keepcost'.split()]\n"
		"mallinfo = ctypes.CDLL(None).mallinfo2\n"
		"mallinfo.restype = Info\n"
		"keep = [json.loads('[%s{}]' % ('{\"a\":[1,2.5,\"x\"]},' * 200)) for _ in "
		"range(100)]\n"
		"keep += [bytearray(1 << n) for n in range(24)]\n"
		"del keep[::3]\n"
		"print('pid', os.getpid(), flush=True)\n"
		"i = mallinfo()\n"
		"print('info', i.uordblks, i.fsmblks, i.hblkhd, flush=True)\n"
		/* nothing large: for that libc empties its fastbins */
		"os.read(0, 1)\n";
	unsigned long long used, fast, mapped, all;
	struct scry_glibc_arenas a;
	struct scry_mem mem;
	struct child child;
	uint64_t sum;
	FILE *f = fopen(path, "w");

	(void)state;
	assert_non_null(f);
	fputs(script, f);
	assert_int_equal(fchmod(fileno(f), 0700), 0);
	fclose(f);
	setenv("PYTHONMALLOC", "malloc", 1);
	assert_true(child_start(&child, path, NULL));
	assert_int_equal(sscanf(child_next(&child), "info %llu %llu %llu", &used, &fast, &mapped),
			 3);
	if (read_blocks(child.pid, &mem, 0, &a) == -ENOTSUP) {
		print_message("skipped: %s\n", scry_error());
		child_end(&child);
		skip();
	}
	sum = a.bytes + 8 * a.count + 8 * a.mapped_found + a.cached_bytes + 8 * a.cached +
	      8 * a.tcaches;
	all = used + fast + mapped;
	print_message("%llu bytes in %zu blocks, %llu cached; libc counts %llu, %llu in fastbins "
		      "and %llu mapped\n",
		      (unsigned long long)sum, a.count, (unsigned long long)a.cached, used, fast,
		      mapped);
	assert_int_equal(a.broken, 0);
	assert_true(a.cached_bytes + 8 * a.cached >= fast);
	assert_in_range(sum, all / 100 * 98, all / 100 * 102);
	scry_glibc_arenas_done(&a);
	scry_mem_close(&mem);
	child_end(&child);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_python),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
