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
		cmocka_unit_test(note_is_escaped),
		cmocka_unit_test(weights_exclude_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
