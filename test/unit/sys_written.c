/* sys/written: which pages were written, of reserved memory much larger than what is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/page_scan.h"
#include "sys/written.h"

#define RESERVED (1ull << 40)
#define PAGE 4096u
#define LOOKS_MAX 8 /* by 8 MiB at a time it takes 131,072 */

static void few_pages_of_a_tebibyte(void **unused)
{
	const uint64_t at[] = {PAGE, 1ull << 33, RESERVED - PAGE};
	char *room = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const uint64_t base = (uintptr_t)room, end = base + RESERVED;
	struct scry_written w;
	struct scry_maps maps;
	struct scry_scan_region runs[4];
	uint64_t start, run_end, from = base;
	int looks = 0;

	(void)unused;
	if (room == MAP_FAILED)
		skip();
	madvise(room, RESERVED, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < 3; i++)
		room[at[i]] = 1;
	assert_int_equal(room[1ull << 34], 0); /* the kernel's page of zeros: not written */
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	scry_written_open(&w, getpid(), &maps);
	if (!w.has_scan) {
		print_message("this kernel has no PAGEMAP_SCAN\n");
		skip();
	}
	for (size_t i = 0; i < 3; i++) {
		assert_true(scry_written_run(&w, from, end, &start, &run_end));
		assert_int_equal(start, base + at[i]);
		assert_int_equal(run_end, start + PAGE);
		assert_int_equal(scry_written_next(&w, from, end), start);
		from = run_end;
	}
	assert_int_equal(from, end);
	assert_int_equal(scry_written_runs(&w, base, end, runs, 2, &from), 2);
	assert_int_equal(from, runs[1].end);
	assert_int_equal(scry_written_runs(&w, from, end, runs + 2, 2, &from), 1);
	assert_int_equal(from, end);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(runs[i].start, base + at[i]);
		assert_int_equal(runs[i].end, base + at[i] + PAGE);
	}
	for (from = base; from < end && looks < LOOKS_MAX; looks++, from = run_end)
		assert_true(scry_written_run(&w, from, end, &start, &run_end));
	assert_true(looks < LOOKS_MAX);
	scry_written_close(&w);
	scry_maps_done(&maps);
	munmap(room, RESERVED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_pages_of_a_tebibyte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
