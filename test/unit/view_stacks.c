/*
 * The stacks view on a recording whose answer is known: recursion counts once, weights choose, the
 * forms tell of the same time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "golden.h"
#include "view/stacks_diff.h"

#define MS 1000000ull

static void put_frame(struct golden *rec, struct scry_ev_stack f, const char *file,
		      const char *method)
{
	f.file_str = file ? golden_str(rec, file) : 0;
	f.method_str = method ? golden_str(rec, method) : 0;
	golden_put(rec, SCRY_EVENT_STACK, &f, sizeof(f));
}

static void put_samples(struct golden *rec, struct scry_ev_samples s)
{
	s.pid = 4711;
	golden_put(rec, SCRY_EVENT_SAMPLES, &s, sizeof(s));
}

/* main -> fib -> fib; main -> sleep; main -> times -> block. Two threads, one waits for the lock.
 */
static int recording(void)
{
	struct golden rec = golden_begin();
	const struct scry_ev_sampling sums = {
		.pid = 4711,
		.rate = 1000,
		.ticks = 29000,
		.missed = 1000,
		.valid = 350,
		.repaired = 8,
		.rejected = 2,
		.unchanged = 100,
		.dropped = 1,
		.sampler_ns = 12 * MS,
	};

	golden_beginning(&rec, "stacks", 4711);
	put_frame(&rec, (struct scry_ev_stack){.id = 1, .line = 9}, "/srv/app.rb", "<main>");
	put_frame(&rec, (struct scry_ev_stack){.id = 2, .parent = 1, .line = 3}, "/srv/app.rb",
		  "Object#fib");
	put_frame(&rec, (struct scry_ev_stack){.id = 3, .parent = 2, .line = 3}, "/srv/app.rb",
		  "Object#fib");
	put_frame(&rec, (struct scry_ev_stack){.id = 4, .line = 10}, "/srv/app.rb", "<main>");
	put_frame(&rec,
		  (struct scry_ev_stack){.id = 5, .parent = 4, .line = 10, .flags = SCRY_STACK_C},
		  "/srv/app.rb", "Kernel#sleep");
	put_samples(&rec, (struct scry_ev_samples){.thread = 1,
						   .stack = 3,
						   .state = SCRY_STATE_CPU,
						   .count = 100,
						   .wall_ns = 100 * MS,
						   .cpu_ns = 90 * MS});
	put_samples(&rec, (struct scry_ev_samples){.thread = 1,
						   .stack = 2,
						   .state = SCRY_STATE_CPU,
						   .count = 50,
						   .wall_ns = 50 * MS,
						   .cpu_ns = 50 * MS});
	put_samples(&rec, (struct scry_ev_samples){.thread = 1,
						   .stack = 5,
						   .state = SCRY_STATE_SLEEPING,
						   .count = 100,
						   .wall_ns = 100 * MS});
	put_samples(&rec, (struct scry_ev_samples){.thread = 2,
						   .stack = 2,
						   .state = SCRY_STATE_GVL,
						   .count = 80,
						   .wall_ns = 80 * MS,
						   .repaired = 8});
	put_frame(&rec, (struct scry_ev_stack){.id = 6, .parent = 2, .line = 3}, "/srv/app.rb",
		  "(garbage collection)");
	put_samples(&rec, (struct scry_ev_samples){.thread = 1,
						   .stack = 6,
						   .state = SCRY_STATE_GC,
						   .count = 20,
						   .wall_ns = 20 * MS,
						   .cpu_ns = 20 * MS});
	put_samples(&rec, (struct scry_ev_samples){.thread = 2,
						   .state = SCRY_STATE_BLOCKED,
						   .count = 10,
						   .wall_ns = 10 * MS});
	put_frame(&rec, (struct scry_ev_stack){.id = 7}, NULL, "(unknown: it ran between looks)");
	put_samples(&rec, (struct scry_ev_samples){.thread = 2, .stack = 7, .cpu_ns = 7 * MS});
	golden_put(&rec, SCRY_EVENT_SAMPLING, &sums, sizeof(sums));
	golden_totals(&rec, 4711, 360);
	return golden_end(&rec);
}

static void forms(void **state)
{
	const struct scry_view_opts lines = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_view_opts whole = {.sort = SCRY_VIEW_SORT_DEFAULT, .stacks = true};
	const struct scry_view_opts gvl = {.sort = SCRY_VIEW_SORT_DEFAULT, .times.gvl = true};
	const struct scry_view_opts cpu = {.sort = SCRY_VIEW_SORT_DEFAULT, .times.cpu = true};
	int fd = recording();

	golden_check(fd, "stacks", "threads.txt", &lines);
	golden_check(fd, "stacks", "threads.json", &lines);
	assert_true(golden_sorts(fd, "stacks", &lines) > 0);
	golden_check(fd, "stacks", "threads_whole.txt", &whole);
	golden_check(fd, "stacks", "threads_whole.json", &whole);
	golden_check(fd, "stacks", "threads_gvl.txt", &gvl);
	golden_check(fd, "stacks", "threads_cpu.txt", &cpu);
	close(fd);
}

/* _start -> a function without a symbol -> <main> -> crc32 of C -> crc32_z. */
static void native(void **state)
{
	const struct scry_view_opts lines = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_view_opts whole = {.sort = SCRY_VIEW_SORT_DEFAULT, .stacks = true};
	const uint32_t flags = SCRY_STACK_NATIVE;
	struct golden rec = golden_begin();
	int fd;

	golden_beginning(&rec, "stacks", 4711);
	put_frame(&rec, (struct scry_ev_stack){.id = 1, .flags = flags}, "/usr/bin/ruby", "_start");
	put_frame(&rec,
		  (struct scry_ev_stack){.id = 2, .parent = 1, .flags = flags, .offset = 0x1234},
		  "/usr/lib/libruby.so.3", NULL);
	put_frame(&rec, (struct scry_ev_stack){.id = 3, .parent = 2, .line = 9}, "/srv/app.rb",
		  "<main>");
	put_frame(&rec,
		  (struct scry_ev_stack){.id = 4, .parent = 3, .line = 9, .flags = SCRY_STACK_C},
		  "/srv/app.rb", "Zlib.crc32");
	put_frame(&rec, (struct scry_ev_stack){.id = 5, .parent = 4, .flags = flags},
		  "/usr/lib/libz.so.1", "crc32_z");
	put_samples(&rec, (struct scry_ev_samples){.thread = 1,
						   .stack = 5,
						   .state = SCRY_STATE_CPU,
						   .count = 30,
						   .wall_ns = 30 * MS,
						   .cpu_ns = 30 * MS});
	put_samples(&rec, (struct scry_ev_samples){.thread = 1,
						   .stack = 2,
						   .state = SCRY_STATE_CPU,
						   .count = 10,
						   .wall_ns = 10 * MS,
						   .cpu_ns = 10 * MS});
	golden_totals(&rec, 4711, 40);
	fd = golden_end(&rec);
	golden_check(fd, "stacks", "native.txt", &lines);
	golden_check(fd, "stacks", "native_whole.json", &whole);
	golden_check(fd, "stacks", "native.folded", &whole);
	close(fd);
}

static void put_thread(struct golden *rec, uint32_t number, const char *name)
{
	const struct scry_ev_thread e = {.pid = 4711,
					 .tid = 4711 + number,
					 .thread = number,
					 .name_str = golden_str(rec, name)};

	golden_put(rec, SCRY_EVENT_THREAD, &e, sizeof(e));
}

/* Three threads for a second each: one computes, `spare` waits, and `worker` waits for so long and
 * computes for the rest. */
static int with_waits(uint64_t worker_ms)
{
	struct golden rec = golden_begin();

	golden_beginning(&rec, "stacks", 4711);
	put_frame(&rec, (struct scry_ev_stack){.id = 1, .line = 9}, "/srv/app.rb", "Object#fib");
	put_frame(&rec, (struct scry_ev_stack){.id = 2, .line = 10, .flags = SCRY_STACK_C},
		  "/srv/app.rb", "Thread::Queue#pop");
	put_thread(&rec, 1, "main");
	put_thread(&rec, 2, "worker");
	put_thread(&rec, 3, "spare");
	for (uint32_t thread = 1; thread <= 3; thread++) {
		const uint64_t wait_ms = thread == 1 ? 0 : thread == 2 ? worker_ms : 1000;

		put_samples(&rec, (struct scry_ev_samples){.thread = thread,
							   .stack = 2,
							   .state = SCRY_STATE_BLOCKED,
							   .count = (uint32_t)wait_ms,
							   .wall_ns = wait_ms * MS});
		put_samples(&rec, (struct scry_ev_samples){.thread = thread,
							   .stack = 1,
							   .state = SCRY_STATE_CPU,
							   .count = (uint32_t)(1000 - wait_ms),
							   .wall_ns = (1000 - wait_ms) * MS});
	}
	golden_totals(&rec, 4711, 3000);
	return golden_end(&rec);
}

static void diff(int before, int after, const struct scry_view_opts *opts, const char *file)
{
	struct scry_diff_side sides[2] = {{.name = "a.scry"}, {.name = "b.scry"}};
	struct scry_buf page = {0};
	size_t size = 0;
	struct scry_doc doc = {.view = "stacks_diff", .schema = SCRY_STACKS_DIFF_SCHEMA};

	doc.out = open_memstream(&page.data, &size);
	assert_non_null(doc.out);
	assert_int_equal(scry_reader_open(before, &sides[0].reader), 0);
	assert_int_equal(scry_reader_open(after, &sides[1].reader), 0);
	assert_int_equal(golden_open(&doc, file), 0);
	assert_int_equal(scry_view_stacks_diff(sides, opts, &doc), 0);
	assert_int_equal(scry_doc_end(&doc), 0);
	fclose(doc.out);
	page.len = size;
	golden_compare(file, &page);
	scry_reader_close(sides[0].reader);
	scry_reader_close(sides[1].reader);
	free(page.data);
}

/* A worker that is idle in one recording, and 80 % idle in the other one, is compared with itself:
 * it waits less. */
static void idle_in_one(void **state)
{
	struct scry_view_opts opts = {.sort = SCRY_VIEW_SORT_DEFAULT, .by = SCRY_VIEW_BY_METHOD};
	int before = with_waits(1000), after = with_waits(800);

	diff(before, after, &opts, "stacks_diff.txt");
	diff(before, after, &opts, "stacks_diff.json");
	diff(after, before, &opts, "stacks_diff_back.txt");
	diff(before, before, &opts, "stacks_diff_idle.txt");
	opts.times.idle = true;
	diff(before, after, &opts, "stacks_diff_all.txt");
	close(before);
	close(after);
}

/* A recording's note that writes to the clipboard of the terminal: no renderer lets it. */
static void note_is_escaped(void **state)
{
	static const char *const files[] = {"note.txt", "note.json", "note.folded",
					    "note.speedscope.json"};
	const struct scry_view_opts whole = {.sort = SCRY_VIEW_SORT_DEFAULT, .stacks = true};
	struct golden rec = golden_begin();
	struct scry_ev_note note = {.text_str = golden_str(&rec, "\x1b]52;c;AAAA\a\r\xc2\x9b")};
	int fd;

	golden_beginning(&rec, "stacks", 4711);
	golden_put(&rec, SCRY_EVENT_NOTE, &note, sizeof(note));
	golden_totals(&rec, 4711, 0);
	fd = golden_end(&rec);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct scry_buf page = {0};

		golden_show(fd, "stacks", files[i], &whole, &page);
		assert_non_null(strstr(scry_buf_str(&page), "1b]52;c;AAAA\\"));
		assert_null(strpbrk(scry_buf_str(&page), "\x1b\a\r\x9b"));
		scry_buf_done(&page);
	}
	close(fd);
}

static void weights_exclude_each_other(void **state)
{
	const struct scry_view_opts both = {.times = {.cpu = true, .gvl = true}};

	assert_int_equal(scry_view_opts_check(&both), -22);
	assert_non_null(strstr(scry_error(), "fix: one"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms),
		cmocka_unit_test(native),
		cmocka_unit_test(idle_in_one),
		cmocka_unit_test(note_is_escaped),
		cmocka_unit_test(weights_exclude_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
