/*
 * The gvl view against the pages in test/golden/, on a made-up recording: a process whose lock
 * three threads want, one of them nameless, and a fork child of it in which nobody waits; lines of
 * the program, of a gem, of a library in C. SCRY_GOLDEN_UPDATE=1 rewrites the pages.
 */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "view/gvl_diff.h"

#define MS 1000000ull
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* <main> -> Report#build, which calls into a gem, and a method in C of a library. */
static void put_stacks(struct golden *rec)
{
	const struct scry_ev_stack frames[] = {
		{.id = 1,
		 .file_str = golden_str(rec, "/srv/app.rb"),
		 .line = 30,
		 .method_str = golden_str(rec, "<main>")},
		{.id = 2,
		 .parent = 1,
		 .file_str = golden_str(rec, "/srv/report.rb"),
		 .line = 88,
		 .method_str = golden_str(rec, "Report#build")},
		{.id = 3,
		 .parent = 2,
		 .file_str = golden_str(rec, "/gems/gems/rack-2.2.22/lib/rack/\x1b.rb"),
		 .line = 7,
		 .method_str = golden_str(rec, "Rack::Utils.escape")},
		{.id = 4,
		 .parent = 2,
		 .file_str = golden_str(rec, "/srv/report.rb"),
		 .line = 90,
		 .method_str = golden_str(rec, "Image.blur"),
		 .flags = SCRY_STACK_C},
		{.id = 5,
		 .parent = 4,
		 .file_str = golden_str(rec, "/gems/gems/image-1.0/lib/image.so"),
		 .method_str = golden_str(rec, "image_blur"),
		 .flags = SCRY_STACK_NATIVE},
		{.id = 6,
		 .parent = 1,
		 .file_str = golden_str(rec, "/srv/app.rb"),
		 .line = 31,
		 .method_str = golden_str(rec, "Image.blur"),
		 .flags = SCRY_STACK_C},
		{.id = 7,
		 .parent = 6,
		 .file_str = golden_str(rec, "/gems/gems/image-1.0/lib/image.so"),
		 .method_str = golden_str(rec, "image_blur"),
		 .flags = SCRY_STACK_NATIVE},
		{.id = 8,
		 .parent = 1,
		 .file_str = golden_str(rec, "/srv/report.rb"),
		 .line = 89,
		 .method_str = golden_str(rec, "Report#build")},
	};

	for (size_t i = 0; i < COUNT(frames); i++)
		golden_put(rec, SCRY_EVENT_STACK, &frames[i], sizeof(frames[i]));
}

/* `is_mended`: main does not call into the library any more. */
static void put_threads(struct golden *rec, bool is_mended)
{
	const struct scry_ev_gvl_thread threads[] = {
		{.pid = 4711,
		 .thread = 1,
		 .tid = 4711,
		 .name_str = golden_str(rec, "main"),
		 .threads = 1,
		 .held_ns = 1000 * MS,
		 .wanted_ns = 600 * MS,
		 .granted_ns = 5 * MS,
		 .without_ns = 395 * MS,
		 .takes = 21,
		 .yields = 9,
		 .forced = 7,
		 .passes = 2,
		 .waits = 20,
		 .p50_ns = 10 * MS,
		 .p90_ns = 90 * MS,
		 .p99_ns = 100 * MS,
		 .max_ns = 101 * MS,
		 .lost_ns = is_mended ? 600 * MS : 1500 * MS,
		 .cpu_ns = 1234 * MS + 1}, /* more than it held the lock */
		{.pid = 4711,
		 .thread = 2,
		 .tid = 4713,
		 .name_str = golden_str(rec, "worker\x1b 1"),
		 .threads = 3,
		 .held_ns = 600 * MS,
		 .wanted_ns = is_mended ? 90 * MS : 900 * MS,
		 .without_ns = is_mended ? 1310 * MS : 500 * MS,
		 .takes = 300,
		 .yields = 290,
		 .passes = 280,
		 .overtakes = 3,
		 .runs = 2,
		 .runs_ns = 6 * MS,
		 .run_max_ns = 5 * MS,
		 .run_most = 2,
		 .taken_back = 4,
		 .waits = 299,
		 .p50_ns = 40000,
		 .p90_ns = 50000,
		 .p99_ns = 50 * MS,
		 .max_ns = 60 * MS,
		 .lost_ns = 500 * MS,
		 .older_ns = 300 * MS,
		 .cpu_ns = 200 * MS + 1}, /* so little that it may have been either */
		{.pid = 4711,
		 .thread = 3,
		 .has_ended = 1,
		 .wanted_ns = 500 * MS,
		 .without_ns = 1500 * MS - 12345,
		 .unknown_ns = 12345,
		 .open_ns = 500 * MS},
		{.pid = 4720,
		 .thread = 1,
		 .tid = 4720,
		 .name_str = golden_str(rec, "app"),
		 .held_ns = 20 * MS,
		 .without_ns = 980 * MS,
		 .takes = 2},
	};

	for (size_t i = 0; i < COUNT(threads); i++)
		golden_put(rec, SCRY_EVENT_GVL_THREAD, &threads[i], sizeof(threads[i]));
}

static void put_pairs(struct golden *rec)
{
	const struct scry_ev_gvl_pair pairs[] = {
		{.pid = 4711, .waiter = 2, .holder = 1, .waits = 289, .lost_ns = 890 * MS},
		{.pid = 4711, .waiter = 3, .holder = 1, .waits = 4, .lost_ns = 400 * MS},
		{.pid = 4711, .waiter = 1, .holder = 2, .waits = 19, .lost_ns = 500 * MS},
		{.pid = 4711, .waiter = 1, .holder = 0, .lost_ns = 5 * MS},
	};

	for (size_t i = 0; i < COUNT(pairs); i++)
		golden_put(rec, SCRY_EVENT_GVL_PAIR, &pairs[i], sizeof(pairs[i]));
}

static void put_lines(struct golden *rec, bool is_mended)
{
	const struct scry_ev_gvl_line lines[] = {
		{.pid = 4711, .holder = 1, .stack = 5, .samples = 700, .lost_ns = 700 * MS},
		{.pid = 4711, .holder = 1, .stack = 7, .samples = 200, .lost_ns = 200 * MS},
		{.pid = 4711, .holder = 1, .stack = 2, .samples = 350, .lost_ns = 350 * MS},
		{.pid = 4711, .holder = 1, .stack = 8, .samples = 250, .lost_ns = 250 * MS},
		{.pid = 4711, .holder = 2, .stack = 3, .samples = 300, .lost_ns = 300 * MS},
		{.pid = 4711, .holder = 2, .stack = 2, .samples = 90, .lost_ns = 90 * MS},
		{.pid = 4711, .holder = 2, .stack = 0, .samples = 110, .lost_ns = 110 * MS},
	};

	for (size_t i = is_mended ? 2 : 0; i < COUNT(lines); i++)
		golden_put(rec, SCRY_EVENT_GVL_LINE, &lines[i], sizeof(lines[i]));
}

static void put_wait_lines(struct golden *rec)
{
	const struct scry_ev_gvl_wait_line lines[] = {
		{.pid = 4711, .waiter = 1, .stack = 7, .samples = 600, .lost_ns = 600 * MS},
		{.pid = 4711, .waiter = 1, .stack = 0, .samples = 5, .lost_ns = 5 * MS},
		{.pid = 4711, .waiter = 2, .stack = 3, .samples = 850, .lost_ns = 900 * MS},
		{.pid = 4711, .waiter = 3, .stack = 3, .samples = 500, .lost_ns = 500 * MS},
	};

	for (size_t i = 0; i < COUNT(lines); i++)
		golden_put(rec, SCRY_EVENT_GVL_WAIT_LINE, &lines[i], sizeof(lines[i]));
}

/* The same waiting, with the stack of each wait; one was not over, one found no room. */
static void put_wait_stacks(struct golden *rec)
{
	const struct scry_ev_gvl_wait_line lines[] = {
		{.pid = 4711,
		 .waiter = 1,
		 .stack = 7,
		 .waits = 19,
		 .lost_ns = 600 * MS,
		 .max_ns = 101 * MS},
		{.pid = 4711, .waiter = 1, .lost_ns = 5 * MS},
		{.pid = 4711,
		 .waiter = 2,
		 .stack = 3,
		 .waits = 299,
		 .lost_ns = 900 * MS,
		 .max_ns = 60 * MS},
		{.pid = 4711, .waiter = 3, .stack = 3, .lost_ns = 500 * MS},
	};

	for (size_t i = 0; i < COUNT(lines); i++)
		golden_put(rec, SCRY_EVENT_GVL_WAIT_LINE, &lines[i], sizeof(lines[i]));
}

static void put_locks(struct golden *rec, bool has_stacks)
{
	const struct scry_ev_gvl locks[] = {
		{.pid = 4711,
		 .can_take_back = 1,
		 .watched_ns = 2000 * MS,
		 .unknown_ns = 12345,
		 .contended_ns = 1600 * MS,
		 .ends = 900,
		 .runnable0_ns = 100 * MS,
		 .runnable1_ns = 300 * MS,
		 .runnable2_ns = 1100 * MS,
		 .runnable3_ns = 500 * MS - 12345,
		 .handing_ns = 5 * MS,
		 .unpaired_ns = 210 * MS,
		 .cpu_ns = 900 * MS,
		 .stacks = has_stacks,
		 .unstacked = has_stacks},
		{.pid = 4720,
		 .can_take_back = 1,
		 .watched_ns = 1000 * MS,
		 .ends = 5,
		 .runnable0_ns = 980 * MS,
		 .runnable1_ns = 20 * MS,
		 .cpu_ns = 20 * MS},
	};

	for (size_t i = 0; i < COUNT(locks); i++)
		golden_put(rec, SCRY_EVENT_GVL, &locks[i], sizeof(locks[i]));
}

static int recording_of(bool is_mended, bool has_stacks)
{
	struct golden rec = golden_begin();

	golden_beginning(&rec, "gvl", 4711);
	put_locks(&rec, has_stacks);
	put_threads(&rec, is_mended);
	put_pairs(&rec);
	put_stacks(&rec);
	put_lines(&rec, is_mended);
	if (has_stacks)
		put_wait_stacks(&rec);
	else
		put_wait_lines(&rec);
	golden_totals(&rec, 4711, 905);
	return golden_end(&rec);
}

static int recording(bool is_mended)
{
	return recording_of(is_mended, false);
}

static void with_stacks(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = recording_of(false, true);

	golden_check(fd, "gvl", "gvl_stacks.txt", &opts);
	golden_check(fd, "gvl", "gvl_stacks.json", &opts);
	close(fd);
}

static void whole(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = recording(false);

	golden_check(fd, "gvl", "gvl.txt", &opts);
	golden_check(fd, "gvl", "gvl.json", &opts);
	assert_true(golden_sorts(fd, "gvl", &opts) > 0);
	golden_check(fd, "gvl", "gvl.folded", &opts);
	close(fd);
}

static void by(void **state)
{
	static const struct {
		int by;
		const char *text, *json;
	} pages[] = {
		{SCRY_VIEW_BY_METHOD, "gvl_by_method.txt", "gvl_by_method.json"},
		{SCRY_VIEW_BY_GEM, "gvl_by_gem.txt", "gvl_by_gem.json"},
		{SCRY_VIEW_BY_THREAD, "gvl_by_thread.txt", "gvl_by_thread.json"},
		{SCRY_VIEW_BY_HOLDER, "gvl_by_holder.txt", "gvl_by_holder.json"},
	};
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = recording(false);

	for (size_t i = 0; i < COUNT(pages); i++) {
		opts.by = pages[i].by;
		golden_check(fd, "gvl", pages[i].text, &opts);
		golden_check(fd, "gvl", pages[i].json, &opts);
	}
	close(fd);
}

static void some(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int fd = recording(false);

	opts.grep = "worker";
	golden_check(fd, "gvl", "gvl_grep.txt", &opts);
	opts.grep = NULL;
	opts.filter = (struct scry_opt_strings){1, {"waiter=main"}};
	golden_check(fd, "gvl", "gvl_waiter.txt", &opts);
	opts.filter = (struct scry_opt_strings){1, {"holder=main (4711)"}};
	golden_check(fd, "gvl", "gvl_holder.txt", &opts);
	opts.filter.count = 0;
	opts.pid = 4720;
	golden_check(fd, "gvl", "gvl_pid.txt", &opts);
	opts.pid = 0;
	opts.top = 1;
	golden_check(fd, "gvl", "gvl_top.txt", &opts);
	close(fd);
}

static void diff(int before, int after, const struct scry_view_opts *opts, const char *file)
{
	struct scry_diff_side sides[2] = {{.name = "a.scry"}, {.name = "b.scry"}};
	struct scry_buf page = {0};
	size_t size = 0;
	struct scry_doc doc = {.view = "gvl_diff", .schema = SCRY_GVL_DIFF_SCHEMA};

	doc.out = open_memstream(&page.data, &size);
	assert_non_null(doc.out);
	assert_int_equal(scry_reader_open(before, &sides[0].reader), 0);
	assert_int_equal(scry_reader_open(after, &sides[1].reader), 0);
	assert_int_equal(golden_open(&doc, file), 0);
	assert_int_equal(scry_view_gvl_diff(sides, opts, &doc), 0);
	assert_int_equal(scry_doc_end(&doc), 0);
	fclose(doc.out);
	page.len = size;
	golden_compare(file, &page);
	scry_reader_close(sides[0].reader);
	scry_reader_close(sides[1].reader);
	free(page.data);
}

static void diffs(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	int before = recording(false), after = recording(true);

	diff(before, after, &opts, "gvl_diff.txt");
	diff(before, after, &opts, "gvl_diff.json");
	diff(after, before, &opts, "gvl_diff_back.txt");
	diff(before, before, &opts, "gvl_diff_nothing.txt");
	opts.by = SCRY_VIEW_BY_HOLDER;
	diff(before, after, &opts, "gvl_diff_by_holder.txt");
	opts.by = SCRY_VIEW_BY_THREAD;
	diff(before, after, &opts, "gvl_diff_by_thread.txt");
	close(before);
	close(after);
}

static void nothing(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	struct golden rec = golden_begin();
	int fd;

	golden_beginning(&rec, "gvl", 4711);
	golden_totals(&rec, 4711, 0);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_nothing.txt", &opts);
	golden_check(fd, "gvl", "gvl_nothing.json", &opts);
	close(fd);
	rec = golden_begin(); /* cut short */
	golden_beginning(&rec, "gvl", 4711);
	put_locks(&rec, false);
	put_threads(&rec, false);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_cut.txt", &opts);
	close(fd);
}

static int of_lock(const struct scry_ev_gvl *lock, const struct scry_ev_gvl_line *line)
{
	struct golden rec = golden_begin();

	golden_beginning(&rec, "gvl", 4711);
	golden_put(&rec, SCRY_EVENT_GVL, lock, sizeof(*lock));
	if (line->stack) {
		put_threads(&rec, false);
		put_stacks(&rec);
		golden_put(&rec, SCRY_EVENT_GVL_LINE, line, sizeof(*line));
		golden_put(&rec, SCRY_EVENT_GVL_LINE,
			   &(struct scry_ev_gvl_line){
				   .pid = 4711, .holder = 1, .samples = 1, .lost_ns = 900 * MS},
			   sizeof(*line));
		golden_put(&rec, SCRY_EVENT_GVL_WAIT_LINE,
			   &(struct scry_ev_gvl_wait_line){
				   .pid = 4711, .waiter = 2, .samples = 1, .lost_ns = 900 * MS},
			   sizeof(struct scry_ev_gvl_wait_line));
	}
	golden_totals(&rec, 4711, 1);
	return golden_end(&rec);
}

/* Its one thread that computed did so in a method of Ruby's own. */
static void rubys_own(void **state)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	struct golden rec = golden_begin();
	const struct scry_ev_stack frames[] = {
		{.id = 1,
		 .file_str = golden_str(&rec, "/srv/app.rb"),
		 .line = 12,
		 .method_str = golden_str(&rec, "Report#sum")},
		{.id = 2,
		 .parent = 1,
		 .file_str = golden_str(&rec, "<internal:numeric>"),
		 .line = 257,
		 .method_str = golden_str(&rec, "Integer#times")},
		{.id = 3,
		 .parent = 2,
		 .file_str = golden_str(&rec, "<internal:kernel>"),
		 .line = 18,
		 .method_str = golden_str(&rec, "Kernel#tap")},
	};
	int fd;

	golden_beginning(&rec, "gvl", 4711);
	put_locks(&rec, false);
	put_threads(&rec, false);
	for (size_t i = 0; i < COUNT(frames); i++)
		golden_put(&rec, SCRY_EVENT_STACK, &frames[i], sizeof(frames[i]));
	for (uint32_t i = 2; i <= 3; i++)
		golden_put(&rec, SCRY_EVENT_GVL_LINE,
			   &(struct scry_ev_gvl_line){.pid = 4711,
						      .holder = 1,
						      .stack = i,
						      .samples = 50 * i,
						      .lost_ns = 300 * i * MS},
			   sizeof(struct scry_ev_gvl_line));
	golden_totals(&rec, 4711, 905);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_internal.txt", &opts);
	golden_check(fd, "gvl", "gvl_internal.json", &opts);
	opts.by = SCRY_VIEW_BY_METHOD;
	golden_check(fd, "gvl", "gvl_internal_by_method.json", &opts);
	opts.by = SCRY_VIEW_BY_GEM;
	golden_check(fd, "gvl", "gvl_internal_by_gem.txt", &opts);
	close(fd);
}

/* Threads found no room, and most of the waiting has no line: neither is passed over. */
static void little_known(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_ev_gvl lock = {.pid = 4711,
					 .watched_ns = 2000 * MS,
					 .contended_ns = 1600 * MS,
					 .crowded = 1234,
					 .crowded_after_ns = 700 * MS,
					 .stacks = 1,
					 .unread = 17};
	const struct scry_ev_gvl_line line = {
		.pid = 4711, .holder = 1, .stack = 2, .samples = 80, .lost_ns = 100 * MS};
	int fd = of_lock(&lock, &line);

	golden_check(fd, "gvl", "gvl_crowded.txt", &opts);
	golden_check(fd, "gvl", "gvl_crowded.json", &opts);
	close(fd);
	fd = of_lock(&(struct scry_ev_gvl){.pid = 4711, .watched_ns = 2000 * MS, .ractors = 2},
		     &(struct scry_ev_gvl_line){0});
	golden_check(fd, "gvl", "gvl_ractors.txt", &opts);
	close(fd);
}

/* Threads that have ended, summed by name. */
static void many_ended(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_ev_gvl lock = {
		.pid = 4711, .watched_ns = 2000 * MS, .contended_ns = 1600 * MS};
	struct scry_ev_gvl_thread ended = {.pid = 4711,
					   .thread = SCRY_GVL_ENDED_FROM,
					   .threads = 4600,
					   .has_ended = 1,
					   .held_ns = 900 * MS,
					   .wanted_ns = 1100 * MS,
					   .takes = 9300,
					   .waits = 4800,
					   .max_ns = 3 * MS,
					   .lost_ns = 1100 * MS};
	struct golden rec = golden_begin();
	int fd;

	golden_beginning(&rec, "gvl", 4711);
	ended.name_str = golden_str(&rec, "app.rb:12");
	golden_put(&rec, SCRY_EVENT_GVL, &lock, sizeof(lock));
	golden_put(&rec, SCRY_EVENT_GVL_THREAD, &ended, sizeof(ended));
	ended.thread++;
	ended.threads = 400;
	ended.name_str = 0;
	ended.lost_ns = 0;
	golden_put(&rec, SCRY_EVENT_GVL_THREAD, &ended, sizeof(ended));
	golden_totals(&rec, 4711, 1);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_ended.txt", &opts);
	close(fd);
}

/* By a clock, and by looks: a thread that slept with the lock and ran native code without it, one
 * that ran while it is said to have waited, and one that ran Ruby code without the lock. */
static void contradicted(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_ev_gvl lock = {.pid = 4711, .watched_ns = 2000 * MS, .cpu_ns = 2200 * MS};
	struct golden rec = golden_begin();
	const struct scry_ev_gvl_thread threads[] = {
		{.pid = 4711,
		 .thread = 1,
		 .tid = 4711,
		 .name_str = golden_str(&rec, "sleeper"),
		 .lost_ns = 600 * MS,
		 .held_ns = 800 * MS,
		 .without_ns = 1200 * MS,
		 .takes = 9,
		 .cpu_ns = 500 * MS + 1,
		 .ran_held_ns = 100 * MS,
		 .ran_else_ns = 400 * MS,
		 .looks = 1234},
		{.pid = 4711,
		 .thread = 2,
		 .tid = 4712,
		 .name_str = golden_str(&rec, "runner"),
		 .held_ns = 500 * MS,
		 .wanted_ns = 1500 * MS,
		 .takes = 9,
		 .waits = 9,
		 .cpu_ns = 900 * MS + 1,
		 .ran_held_ns = 500 * MS,
		 .ran_else_ns = 400 * MS,
		 .looks = 300,
		 .contradicted = 2},
		{.pid = 4711,
		 .thread = 3,
		 .tid = 4713,
		 .name_str = golden_str(&rec, "trespasser"),
		 .without_ns = 2000 * MS,
		 .takes = 1,
		 .cpu_ns = 800 * MS + 1,
		 .ran_else_ns = 801 * MS,
		 .looks = 400,
		 .contradicted = 300},
	};
	int fd;

	golden_beginning(&rec, "gvl", 4711);
	golden_put(&rec, SCRY_EVENT_GVL, &lock, sizeof(lock));
	for (size_t i = 0; i < COUNT(threads); i++)
		golden_put(&rec, SCRY_EVENT_GVL_THREAD, &threads[i], sizeof(threads[i]));
	golden_totals(&rec, 4711, 1);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_contradicted.txt", &opts);
	golden_check(fd, "gvl", "gvl_contradicted.json", &opts);
	close(fd);
}

/* A thread for each request: each makes others wait for less than the main thread does, all of
 * them for longer. One has not ended. */
static void many_requests(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_ev_gvl lock = {
		.pid = 4711, .watched_ns = 2000 * MS, .contended_ns = 1600 * MS};
	struct scry_ev_gvl_thread t = {.pid = 4711,
				       .held_ns = 100 * MS,
				       .wanted_ns = 50 * MS,
				       .takes = 9,
				       .waits = 7,
				       .p50_ns = 2 * MS,
				       .p90_ns = 3 * MS,
				       .p99_ns = 4 * MS,
				       .max_ns = 4 * MS};
	struct golden rec = golden_begin();
	int fd;

	golden_beginning(&rec, "gvl", 4711);
	golden_put(&rec, SCRY_EVENT_GVL, &lock, sizeof(lock));
	for (uint32_t i = 1; i <= 5; i++) {
		t.thread = i;
		t.tid = 4710 + i;
		t.threads = i == 2 ? 6 : 1;
		t.has_ended = i > 1 && i < 5;
		t.runs = t.run_most = i == 1;
		t.run_max_ns = i == 1 ? 40 * MS : 0;
		t.max_ns = i * MS;
		t.lost_ns = (i == 1 ? 80 : 50) * MS;
		t.name_str = golden_str(&rec, i == 1 ? "main" : "server.rb:289");
		golden_put(&rec, SCRY_EVENT_GVL_THREAD, &t, sizeof(t));
		golden_put(&rec, SCRY_EVENT_GVL_PAIR,
			   &(struct scry_ev_gvl_pair){.pid = 4711,
						      .waiter = i,
						      .holder = i == 1 ? 3 : 1,
						      .waits = i,
						      .lost_ns = 50 * MS},
			   sizeof(struct scry_ev_gvl_pair));
	}
	put_stacks(&rec);
	golden_put(
		&rec, SCRY_EVENT_GVL_WAIT_LINE,
		&(struct scry_ev_gvl_wait_line){
			.pid = 4711, .waiter = 1, .stack = 2, .samples = 9, .lost_ns = 5000 * MS},
		sizeof(struct scry_ev_gvl_wait_line)); /* by several at a time */
	golden_totals(&rec, 4711, 1);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_requests.txt", &opts);
	golden_check(fd, "gvl", "gvl_requests.json", &opts);
	close(fd);
}

/* Three locks of one process: of the second ractor threads wait, the third one has ended, and two
 * more were not seen. Threads of one name are of two ractors, and are not one thread. */
static void ractors_apart(void **state)
{
	const struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	const struct scry_ev_gvl locks[] = {
		{.pid = 4711,
		 .watched_ns = 1000 * MS,
		 .runnable1_ns = 1000 * MS,
		 .ends = 3,
		 .cpu_ns = 1900 * MS,
		 .ractors = 2,
		 .ractor = 1},
		{.pid = 4711,
		 .watched_ns = 1000 * MS,
		 .contended_ns = 800 * MS,
		 .runnable1_ns = 200 * MS,
		 .runnable2_ns = 500 * MS,
		 .runnable4_ns = 300 * MS,
		 .ends = 90,
		 .ractor = 2},
		{.pid = 4711,
		 .watched_ns = 40 * MS,
		 .runnable0_ns = 40 * MS,
		 .ractor = 3,
		 .is_over = 1},
	};
	struct scry_ev_gvl_thread t = {.pid = 4711, .takes = 9, .threads = 1};
	struct golden rec = golden_begin();
	int fd;

	golden_beginning(&rec, "gvl", 4711);
	for (size_t i = 0; i < COUNT(locks); i++)
		golden_put(&rec, SCRY_EVENT_GVL, &locks[i], sizeof(locks[i]));
	t.name_str = golden_str(&rec, "worker");
	for (uint32_t i = 0; i < 4; i++) {
		t.thread = i ? SCRY_GVL_RACTOR + i : 1;
		t.tid = 4711 + i;
		t.held_ns = (i == 0 ? 1000 : i == 1 ? 700 : 150) * MS;
		t.wanted_ns = (i == 0 ? 0 : i == 1 ? 200 : 450) * MS;
		t.lost_ns = (i == 1 ? 900 : i == 2 ? 200 : 0) * MS;
		t.waits = i ? 5 : 0;
		golden_put(&rec, SCRY_EVENT_GVL_THREAD, &t, sizeof(t));
	}
	for (uint32_t i = 1; i < 4; i++)
		golden_put(&rec, SCRY_EVENT_GVL_PAIR,
			   &(struct scry_ev_gvl_pair){.pid = 4711,
						      .waiter = SCRY_GVL_RACTOR + i,
						      .holder = SCRY_GVL_RACTOR + (i == 1 ? 2 : 1),
						      .waits = i,
						      .lost_ns = (i == 1 ? 200 : 450) * MS},
			   sizeof(struct scry_ev_gvl_pair));
	put_stacks(&rec);
	golden_put(&rec, SCRY_EVENT_GVL_LINE,
		   &(struct scry_ev_gvl_line){.pid = 4711,
					      .holder = SCRY_GVL_RACTOR + 1,
					      .stack = 2,
					      .samples = 900,
					      .lost_ns = 1100 * MS},
		   sizeof(struct scry_ev_gvl_line));
	golden_totals(&rec, 4711, 1);
	fd = golden_end(&rec);
	golden_check(fd, "gvl", "gvl_ractors_apart.txt", &opts);
	golden_check(fd, "gvl", "gvl_ractors_apart.json", &opts);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_ended),	cmocka_unit_test(whole),
		cmocka_unit_test(with_stacks),	cmocka_unit_test(by),
		cmocka_unit_test(some),		cmocka_unit_test(diffs),
		cmocka_unit_test(nothing),	cmocka_unit_test(little_known),
		cmocka_unit_test(rubys_own),	cmocka_unit_test(many_requests),
		cmocka_unit_test(contradicted), cmocka_unit_test(ractors_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
