/* The verdict on the memory of a process: view/malloc_verdict.h. */
#include "view/malloc_verdict.h"

#include "malloc_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* As retaining, but three times as much is resident: that is not malloc's, and no advice is due. */
static void elsewhere(void **state)
{
	static uint32_t blocks[2000];
	struct scry_buf buf = {0};
	struct program p = begin();
	struct scry_malloc_sum sum;
	int fd;

	for (int i = 0; i < 2000; i++)
		blocks[i] = make(&p, 1, 4000);
	look(&p, 24000000);
	for (int i = 0; i < 2000; i++)
		end_block(&p, blocks[i]);
	look(&p, 23000000);
	for (int i = 0; i < 2000; i++)
		end_block(&p, make(&p, 1, 64));
	fd = finish(&p, 8000);
	sum = sum_of(fd, 0);
	assert_int_equal(scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf),
			 SCRY_MALLOC_VERDICT_ELSEWHERE);
	assert_int_equal(strncmp(buf.data, "malloc explains only 33 %", 25), 0);
	assert_null(strstr(buf.data, "replay"));
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* The same memory between two sets of blocks that never lived together: gaps may explain it. */
static int in_rounds(uint64_t held)
{
	static uint32_t blocks[2000];
	struct program p = begin();

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 2000; i++)
			blocks[i] = make(&p, 1, 4000);
		look_at(&p, 24000000, held);
		for (int i = 0; i < 2000; i++)
			end_block(&p, blocks[i]);
	}
	return finish(&p, 16000);
}

static void unexplained(void **state)
{
	int fd = in_rounds(0);
	struct scry_malloc_sum sum = sum_of(fd, 0);
	struct scry_buf buf = {0};

	assert_int_equal(scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf),
			 SCRY_MALLOC_VERDICT_UNEXPLAINED);
	assert_non_null(strstr(buf.data, "live blocks explain only 33 %"));
	assert_non_null(strstr(buf.data,
			       "the rest is gaps between blocks, or what the program maps "
			       "itself, as the heap of the VM"));
	scry_buf_clear(&buf);
	scry_malloc_sum_main(&sum)->has_vm = false;
	scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf);
	assert_non_null(strstr(buf.data,
			       "the rest is gaps between blocks, or what the program maps "
			       "itself:"));
	scry_buf_clear(&buf);
	scry_malloc_sum_main(&sum)->threads = 4;
	scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf);
	assert_non_null(strstr(buf.data, "the arenas of malloc for 4 threads, the stacks of 4 "
					 "threads, or"));
	scry_buf_clear(&buf);
	scry_malloc_sum_main(&sum)->is_glibc = false; /* tcmalloc has tables of its own */
	scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf);
	assert_non_null(strstr(buf.data, "gaps between blocks, tables and caches of the "
					 "allocator's own, the stacks of 4 threads, or"));
	assert_null(strstr(buf.data, "VM"));
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* A verdict, and what is in its sentence; frees the sum. */
static void judged(int fd, enum scry_malloc_verdict verdict, bool is_leak, const char *what)
{
	struct scry_malloc_sum sum = sum_of(fd, 0);
	struct scry_malloc_process *p = scry_malloc_sum_main(&sum);
	struct scry_buf buf = {0};

	assert_int_equal(scry_malloc_verdict(p, &buf), verdict);
	assert_int_equal(grows(p, 1), is_leak);
	assert_non_null(strstr(buf.data, what));
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* malloc says what it has: then it is known. */
static void held(void **state)
{
	int fd = in_rounds(20000000);
	struct scry_malloc_sum sum = sum_of(fd, 0);
	struct scry_buf buf = {0};

	judged(in_rounds(20000000), SCRY_MALLOC_VERDICT_FRAGMENTS, false,
	       "malloc held 19.1 MiB of the kernel's");
	judged(in_rounds(15000000), SCRY_MALLOC_VERDICT_ELSEWHERE, false,
	       "malloc held 14.3 MiB of the kernel's at most");
	scry_malloc_sum_main(&sum)->allocator.flags = SCRY_ALLOCATOR_OLDER_PARTIAL;
	assert_int_equal(scry_malloc_verdict(scry_malloc_sum_main(&sum), &buf),
			 SCRY_MALLOC_VERDICT_UNEXPLAINED);
	scry_buf_done(&buf);
	scry_malloc_sum_done(&sum);
	close(fd);
}

/* The process ends, before finish. */
static void exits(struct program *p)
{
	struct scry_ev_detach detach = {
		.pid = PID, .verified = 1, .reason_str = golden_str(&p->rec, SCRY_REASON_ENDED)};
	struct scry_event head = {.type = SCRY_EVENT_DETACH, .time_ns = p->time_ns};

	assert_int_equal(scry_malloc_pack_write(p->pack, p->rec.w), 0);
	assert_int_equal(scry_writer_payload(p->rec.w, &head, &detach, sizeof(detach)), 0);
}

/* Grows until the last call, which frees it. */
static int grown_and_freed(bool is_its_end)
{
	struct program p = begin();
	uint32_t block = make(&p, 1, 1000);

	for (int i = 2; i < 3000; i++) {
		end_block(&p, make(&p, 2, 64));
		call(&p, (struct scry_ev_malloc){.function = SCRY_MALLOC_REALLOC,
						 .caller = 1,
						 .size = (uint64_t)i * 1000,
						 .block = block});
	}
	end_block(&p, block);
	if (is_its_end)
		exits(&p);
	return finish(&p, 8996);
}

/* A program that ends frees what it holds; in one that goes on it may be garbage. */
static void freed_at_the_end(void **state)
{
	judged(grown_and_freed(true), SCRY_MALLOC_VERDICT_GROWS, true,
	       "those of 1 caller by 2.9 MiB");
	judged(grown_and_freed(true), SCRY_MALLOC_VERDICT_GROWS, true,
	       "the program freed 2.9 MiB of what lived in its last 0.1 ms: a leak while it runs");
	judged(grown_and_freed(false), SCRY_MALLOC_VERDICT_STEADY, false,
	       "only 0 B were left then");
}

/* A leak of 300 KB a second beside what comes and goes; at the end all is freed, by atexit or by
 * main, and a few small blocks are begun meanwhile. */
static int leaks_and_clears_up(bool is_leak)
{
	static uint32_t blocks[1000];
	struct program p = begin();
	uint64_t calls = 1000;

	for (int i = 0; i < 1000; i++) {
		blocks[i] = make(&p, 1, 3000);
		p.time_ns += 10000000;
		if (i % 10 == 9) {
			end_block(&p, make(&p, 2, 50000));
			calls += 2;
		}
		for (int k = i - 9; !is_leak && i % 10 == 9 && k <= i; k++, calls++)
			end_block(&p, blocks[k]);
	}
	for (int i = 0; is_leak && i < 1000; i++, calls++) {
		end_block(&p, blocks[i]);
		if (i % 100 == 0) {
			end_block(&p, make(&p, 2, 4000));
			calls += 2;
		}
	}
	exits(&p);
	return finish(&p, calls);
}

static void cleared_up(void **state)
{
	shows(leaks_and_clears_up(true), "100 % of its blocks were not freed before the end");
	judged(leaks_and_clears_up(true), SCRY_MALLOC_VERDICT_GROWS, true,
	       " a second; the program freed 2.9 MiB of what lived in its last ");
	shows(leaks_and_clears_up(true), "1 caller grew: parse+0x1c (libapp.so.1) by 29");
	judged(leaks_and_clears_up(false), SCRY_MALLOC_VERDICT_STEADY, false, "no leak seen");
}

/* Garbage that was collected now and then, and the last of it at the end. */
static void garbage_to_the_end(void **state)
{
	static uint32_t garbage[1000];
	struct program p = begin();

	for (int r = 0; r < 4; r++) {
		for (int i = 0; i < 1000; i++) {
			garbage[i] = make(&p, 1, 1000);
			p.time_ns += 1000000;
		}
		for (int i = 0; i < 1000; i++)
			end_block(&p, garbage[i]);
	}
	exits(&p);
	judged(finish(&p, 8000), SCRY_MALLOC_VERDICT_STEADY, false, "no leak seen");
}

/* A table that is loaded at the beginning, and an hour with few calls. */
static void loaded_once(void **state)
{
	struct program p = begin();

	for (int i = 0; i < 20000; i++)
		make(&p, 1, 200);
	for (int i = 0; i < 60; i++) {
		p.time_ns += 60000000000;
		end_block(&p, make(&p, 2, 64));
	}
	judged(finish(&p, 20120), SCRY_MALLOC_VERDICT_STEADY, false,
	       "they grew by 0 B in the second half of the time, 30 min");
}

/* The same without a call: the kernel told that it was there. */
static void loaded_and_idle(void **state)
{
	struct scry_ev_memory memory = {.pid = PID, .rss_anon = 4500000};
	struct scry_event head = {.type = SCRY_EVENT_MEMORY};
	struct program p = begin();

	for (int i = 0; i < 20000; i++)
		make(&p, 1, 200);
	assert_int_equal(scry_malloc_pack_write(p.pack, p.rec.w), 0);
	head.time_ns = p.time_ns + 3600000000000;
	assert_int_equal(scry_writer_payload(p.rec.w, &head, &memory, sizeof(memory)), 0);
	judged(finish(&p, 20000), SCRY_MALLOC_VERDICT_STEADY, false, "they grew by 0 B");
}

/* A table, and a leak that goes on for hours with few calls, slower and slower. */
static void loaded_and_leaking(void **state)
{
	struct program p = begin();

	for (int i = 0; i < 20000; i++)
		make(&p, 1, 200);
	for (int i = 0; i < 1000; i++) {
		p.time_ns += 10000000000 + 10000000ull * (uint64_t)i;
		make(&p, 1, 2000);
	}
	judged(finish(&p, 21000), SCRY_MALLOC_VERDICT_GROWS, true, "a leak");
}

/* A leak beside ten times as much that was there before: all together hardly grows. */
static void older_and_leaking(void **state)
{
	struct program p = begin();

	for (int i = 0; i < 10000; i++)
		call(&p, (struct scry_ev_malloc){
				 .function = SCRY_MALLOC_OLDER, .size = 2000, .usable = 2008});
	for (int i = 0; i < 3000; i++) {
		make(&p, 1, 1000);
		end_block(&p, make(&p, 2, 64));
	}
	judged(finish(&p, 9000), SCRY_MALLOC_VERDICT_GROWS, true, "a leak");
}

/* A cache whose entries were there before, and are replaced: all together stays. */
static void older_and_replaced(void **state)
{
	static uint32_t older[3000];
	struct program p = begin();

	for (int i = 0; i < 3000; i++)
		older[i] = call(&p, (struct scry_ev_malloc){.function = SCRY_MALLOC_OLDER,
							    .size = 1000,
							    .usable = 1000});
	p.time_ns += 5000000;
	for (int i = 0; i < 3000; i++) {
		end_block(&p, older[i]);
		make(&p, 1, 1000);
	}
	judged(finish(&p, 6000), SCRY_MALLOC_VERDICT_UNKNOWN, true,
	       "newer blocks may replace older ones");
}

struct pool { /* of 2000 blocks of 100 to 2,100 bytes, which come and go; all alike */
	uint32_t blocks[2000];
	uint32_t seed;
};

static void stir(struct program *p, struct pool *pool, uint32_t caller)
{
	for (int i = 0; i < 20; i++) {
		uint32_t *at;

		pool->seed = pool->seed * 1103515245 + 12345;
		at = &pool->blocks[(pool->seed >> 8) % 2000];
		if (*at)
			end_block(p, *at);
		*at = pool->seed >> 4 & 3 ? make(p, caller, 100 + (pool->seed >> 16) % 2000) : 0;
	}
}

/* 2 MB that come and go, for 40 s; from some second on 7 KB a second are not given back. */
static int pool_and_leak(int from_s)
{
	struct pool pool = {.seed = 7};
	struct program p = begin();

	for (int i = 0; i < 4000; i++) {
		stir(&p, &pool, 2);
		p.time_ns += 10000000;
		if (i >= from_s * 100)
			make(&p, 1, 70);
	}
	return finish(&p, 140000);
}

static void pool_alone(void **state)
{
	judged(pool_and_leak(100), SCRY_MALLOC_VERDICT_STEADY, false, "no leak seen");
}

static void pool_and_slow_leak(void **state)
{
	judged(pool_and_leak(0), SCRY_MALLOC_VERDICT_GROWS, true,
	       "live bytes grew to the end, those of 1 caller by 2");
}

static void pool_and_late_leak(void **state)
{
	judged(pool_and_leak(29), SCRY_MALLOC_VERDICT_GROWS, true, "a leak");
}

/* 100 MB at the beginning, then 300 KB a second, or none. */
static int table_and(bool is_leak)
{
	struct program p = begin();

	for (int i = 0; i < 10000; i++)
		make(&p, 2, 10000);
	for (int i = 0; i < 1000; i++) {
		uint32_t block = make(&p, 1, 3000);

		if (!is_leak)
			end_block(&p, block);
		p.time_ns += 10000000;
	}
	return finish(&p, is_leak ? 11000 : 12000);
}

static void table_and_leak(void **state)
{
	int fd = table_and(true);

	shows(fd, "\"verdict\": \"grows\"");
	shows(fd, "1 caller grew: parse+0x1c (libapp.so.1) by 29");
	shows(fd, " a second, 100 % of its blocks were never freed");
	judged(fd, SCRY_MALLOC_VERDICT_GROWS, true, "live bytes grew ");
}

static void table_alone(void **state)
{
	judged(table_and(false), SCRY_MALLOC_VERDICT_STEADY, false, "no leak seen");
}

/* Garbage is freed now and then, and the recording ends before that: each rise is like the last. */
static int collected(int rises, int of_last)
{
	static uint32_t garbage[1000];
	struct program p = begin();

	for (int r = 0; r < rises; r++) {
		int n = r == rises - 1 ? of_last : 1000;

		for (int i = 0; i < n; i++) {
			garbage[i] = make(&p, 1, 1000);
			p.time_ns += 1000000;
		}
		for (int i = 0; i < 1000 && n == 1000; i++)
			end_block(&p, garbage[i]);
	}
	return finish(&p, (uint64_t)(rises - 1) * 2000 + (uint64_t)of_last);
}

static void garbage(void **state)
{
	judged(collected(4, 900), SCRY_MALLOC_VERDICT_STEADY, false, "no leak seen");
	judged(collected(2, 900), SCRY_MALLOC_VERDICT_UNKNOWN, false, "but had been more before");
}

/* What was loaded is freed, and then it grows for most of the time: nobody can tell yet. */
static void one_rise(void **state)
{
	static uint32_t blocks[2000];
	struct program p = begin();

	for (int i = 0; i < 2000; i++)
		blocks[i] = make(&p, 1, 1000);
	for (int i = 0; i < 2000; i++)
		end_block(&p, blocks[i]);
	for (int i = 0; i < 1000; i++) {
		p.time_ns += 1000000;
		make(&p, 1, 1000);
	}
	judged(finish(&p, 5000), SCRY_MALLOC_VERDICT_UNKNOWN, false, "but had been more before");
}

static void too_short(void **state)
{
	struct program p = begin();

	for (int i = 0; i < 400; i++)
		make(&p, 1, 1000);
	judged(finish(&p, 400), SCRY_MALLOC_VERDICT_UNKNOWN, false, "too short to show growth");
}

/* Before its first call only: that is what each program has. */
static void not_measured(void **state)
{
	struct program p = begin();
	int fd;

	look(&p, 180000);
	for (int i = 0; i < 500; i++)
		make(&p, 1, 100);
	for (int i = 0; i < 5000; i++)
		end_block(&p, make(&p, 1, 100));
	fd = finish(&p, 10500);
	shows(fd, "\"rss_peak_bytes\": null,");
	judged(fd, SCRY_MALLOC_VERDICT_STEADY, false, "resident memory was not measured after");
}

/* Blocks that are asked for and not used take no memory. */
static void not_touched(void **state)
{
	struct program p = begin();

	for (int i = 0; i < 500; i++)
		make(&p, 1, 100000);
	look(&p, 2000000);
	for (int i = 0; i < 5000; i++)
		end_block(&p, make(&p, 1, 100));
	judged(finish(&p, 10500), SCRY_MALLOC_VERDICT_STEADY, false,
	       "when 47.7 MiB lived: not all of that was touched");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elsewhere),
		cmocka_unit_test(unexplained),
		cmocka_unit_test(freed_at_the_end),
		cmocka_unit_test(cleared_up),
		cmocka_unit_test(garbage_to_the_end),
		cmocka_unit_test(loaded_once),
		cmocka_unit_test(loaded_and_idle),
		cmocka_unit_test(loaded_and_leaking),
		cmocka_unit_test(older_and_leaking),
		cmocka_unit_test(not_measured),
		cmocka_unit_test(not_touched),
		cmocka_unit_test(held),
		cmocka_unit_test(older_and_replaced),
		cmocka_unit_test(pool_alone),
		cmocka_unit_test(pool_and_slow_leak),
		cmocka_unit_test(pool_and_late_leak),
		cmocka_unit_test(table_and_leak),
		cmocka_unit_test(table_alone),
		cmocka_unit_test(garbage),
		cmocka_unit_test(one_rise),
		cmocka_unit_test(too_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
