/*
 * The syscalls view against the pages in test/golden/, on a made-up recording: two processes of one
 * program, three threads, calls in vain of each grade, one without a place, one that nobody looked
 * at. SCRY_GOLDEN_UPDATE=1 rewrites the pages.
 */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/bpf_syscalls.h"

#define LIBC "/usr/lib/x86_64-linux-gnu/libc.so.6"
#define APP "/srv/app"
#define BY_SITE                                                          \
	{                                                                \
		.by = SCRY_VIEW_BY_SITE, .sort = SCRY_VIEW_SORT_DEFAULT, \
		.top = SCRY_VIEW_TOP_DEFAULT                             \
	}

struct place { /* of a call */
	uint32_t site, pid, number;
	const char *name, *module, *symbol;
	uint64_t offset;
};

static void put_site(struct golden *rec, const struct place *p)
{
	const struct scry_ev_syscall_site ev = {
		.site = p->site,
		.pid = p->pid,
		.image = p->pid,
		.number = p->number,
		.name_str = golden_str(rec, p->name),
		.module_str = p->module ? golden_str(rec, p->module) : 0,
		.symbol_str = p->symbol ? golden_str(rec, p->symbol) : 0,
		.offset = p->offset,
		.address = p->module ? 0x7f0000000000 + p->offset : 0,
	};

	golden_put(rec, SCRY_EVENT_SYSCALL_SITE, &ev, sizeof(ev));
}

static void put_sum(struct golden *rec, uint32_t flags, const char *thread,
		    struct scry_ev_syscall ev)
{
	ev.thread_str = golden_str(rec, thread);
	if (!(flags & SCRY_SYSCALLS_EXACT))
		ev = (struct scry_ev_syscall){.site = ev.site,
					      .pid = ev.pid,
					      .tid = ev.tid,
					      .thread_str = ev.thread_str,
					      .ticks = ev.ticks};
	if (flags & SCRY_SYSCALLS_LATENCY) {
		ev.timed = ev.calls;
		ev.total_ns = ev.calls * 500;
		ev.max_ns = 9000 * ev.site;
	}
	golden_put(rec, SCRY_EVENT_SYSCALL, &ev, sizeof(ev));
}

static void put_times(struct golden *rec, uint32_t site, uint64_t calls)
{
	const struct scry_ev_syscall_time times[] = {
		{.site = site, .from_ns = 448, .to_ns = 480, .calls = calls / 100 * 98},
		{.site = site, .from_ns = 8192, .to_ns = 9216, .calls = calls / 100 * 2},
	};

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		golden_put(rec, SCRY_EVENT_SYSCALL_TIME, &times[i], sizeof(times[i]));
}

static void put_frame(struct golden *rec, struct scry_ev_stack frame, const char *module,
		      const char *symbol)
{
	frame.flags = SCRY_STACK_NATIVE;
	frame.file_str = golden_str(rec, module);
	frame.method_str = golden_str(rec, symbol);
	golden_put(rec, SCRY_EVENT_STACK, &frame, sizeof(frame));
}

/* main -> serve -> swapcontext; main -> poll_queue -> read. */
static void put_stacks(struct golden *rec)
{
	const struct scry_ev_syscall_stack counts[] = {
		{.site = 1, .stack = 3, .count = 90}, {.site = 1, .stack = 0, .count = 2},
		{.site = 2, .stack = 3, .count = 8},  {.site = 4, .stack = 5, .count = 3},
		{.site = 4, .stack = 6, .count = 2},
	};

	put_frame(rec, (struct scry_ev_stack){.id = 1, .offset = 64}, APP, "main");
	put_frame(rec, (struct scry_ev_stack){.id = 2, .parent = 1, .offset = 9}, APP, "serve");
	put_frame(rec, (struct scry_ev_stack){.id = 3, .parent = 2, .offset = 141}, LIBC,
		  "swapcontext");
	put_frame(rec, (struct scry_ev_stack){.id = 4, .parent = 1, .offset = 33}, APP,
		  "poll_queue");
	put_frame(rec, (struct scry_ev_stack){.id = 5, .parent = 4, .offset = 14}, LIBC, "read");
	put_frame(rec, (struct scry_ev_stack){.id = 6, .parent = 2, .offset = 14}, LIBC, "read");
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		golden_put(rec, SCRY_EVENT_SYSCALL_STACK, &counts[i], sizeof(counts[i]));
}

/* Of the reads three of four are of one line, of the openats half have none. */
static void put_lines(struct golden *rec)
{
	const struct scry_ev_stack frames[] = {
		{.id = 7,
		 .file_str = golden_str(rec, "/srv/app.rb"),
		 .line = 30,
		 .method_str = golden_str(rec, "<main>")},
		{.id = 8,
		 .parent = 7,
		 .file_str = golden_str(rec, "/srv/app.rb"),
		 .line = 12,
		 .method_str = golden_str(rec, "Foo::Bar#baz")},
		{.id = 9,
		 .parent = 7,
		 .file_str = golden_str(rec, "/srv/lib:2/q.rb"),
		 .line = 7,
		 .method_str = golden_str(rec, "Foo.poll")},
	};
	const struct scry_ev_syscall_line lines[] = {
		{.site = 4, .stack = 8, .count = 3000},
		{.site = 4, .stack = 9, .count = 1000},
		{.site = 5, .stack = 9, .count = 200},
		{.site = 5, .stack = 0, .count = 201},
	};

	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++)
		golden_put(rec, SCRY_EVENT_STACK, &frames[i], sizeof(frames[i]));
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		golden_put(rec, SCRY_EVENT_SYSCALL_LINE, &lines[i], sizeof(lines[i]));
}

static void put_paths(struct golden *rec)
{
	static const char *const paths[] = {"/opt/lib/a.rb", "/opt/lib/a.so", "/srv/lib/a.rb",
					    "/srv/lib/b\x1b.rb"};

	for (uint32_t i = 0; i < 4; i++) {
		const struct scry_ev_syscall_path ev = {
			.site = 5, .path_str = golden_str(rec, paths[i]), .count = 10 - i};

		golden_put(rec, SCRY_EVENT_SYSCALL_PATH, &ev, sizeof(ev));
	}
}

static void put_calls(struct golden *rec, uint32_t flags)
{
	static const struct place places[] = {
		{1, 4711, 14, "rt_sigprocmask", LIBC, "swapcontext", 139},
		{2, 4712, 14, "rt_sigprocmask", LIBC, "swapcontext", 139},
		{3, 4711, 202, "futex", APP, NULL, 0x1234},
		{4, 4711, 0, "read", LIBC, "read", 12},
		{5, 4712, 257, "openat", LIBC, "open64", 16},
		{6, 4711, SCRY_SYSCALLS_RETURNED, "rt_sigreturn", NULL, NULL, 0},
		{7, 4712, 1, "write", "[not looked at]", NULL, 0x7f0000001000},
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		put_site(rec, &places[i]);
	put_sum(rec, flags, "app",
		(struct scry_ev_syscall){.site = 1,
					 .pid = 4711,
					 .tid = 4711,
					 .calls = 60000,
					 .ticks = 300,
					 .vain_ticks = 299,
					 .asked = 59999,
					 .vain = 59999,
					 .what = SCRY_VAIN_MASK});
	put_sum(rec, flags, "worker 1",
		(struct scry_ev_syscall){.site = 2,
					 .pid = 4712,
					 .tid = 4713,
					 .calls = 20000,
					 .ticks = 100,
					 .vain_ticks = 99,
					 .asked = 19999,
					 .vain = 19990,
					 .what = SCRY_VAIN_MASK});
	put_sum(rec, flags, "app",
		(struct scry_ev_syscall){.site = 3,
					 .pid = 4711,
					 .tid = 4711,
					 .calls = 900,
					 .ticks = 9,
					 .vain_ticks = 7,
					 .asked = 800,
					 .vain = 700,
					 .what = SCRY_VAIN_WAKE});
	put_sum(rec, flags, "app",
		(struct scry_ev_syscall){.site = 4,
					 .pid = 4711,
					 .tid = 4711,
					 .calls = 5000,
					 .errors = 3000,
					 .again = 2900,
					 .ticks = 40,
					 .vain_ticks = 20,
					 .again_ticks = 10,
					 .asked = 5000,
					 .vain = 2600,
					 .what = SCRY_VAIN_BYTE,
					 .error = 4});
	put_sum(rec, flags, "worker 2",
		(struct scry_ev_syscall){.site = 5,
					 .pid = 4712,
					 .tid = 4714,
					 .calls = 400,
					 .errors = 399,
					 .absent = 398,
					 .ticks = 7,
					 .absent_ticks = 6,
					 .error = 13});
	put_sum(rec, flags, "app",
		(struct scry_ev_syscall){.site = 6, .pid = 4711, .tid = 4711, .calls = 12});
	put_sum(rec, flags, "worker 2",
		(struct scry_ev_syscall){
			.site = 7, .pid = 4712, .tid = 4714, .calls = 88, .ticks = 1});
}

static void put_totals(struct golden *rec, const struct scry_ev_syscalls *sums)
{
	const bool is_exact = sums->flags & SCRY_SYSCALLS_EXACT;
	const struct scry_ev_totals totals = {
		.pid = 4711,
		.events = is_exact ? sums->calls : sums->inside,
		.lost = is_exact ? sums->nowhere : sums->unplaced,
		.watched_ns = sums->watched_ns,
	};

	golden_put(rec, SCRY_EVENT_TOTALS, &totals, sizeof(totals));
}

/* It does not say which samples were in calls in vain. */
static bool is_older;

static int recording(uint32_t flags, bool has_losses, bool is_ruby)
{
	struct golden rec = golden_begin();
	const bool is_exact = flags & SCRY_SYSCALLS_EXACT;
	struct scry_ev_syscalls sums = {
		.flags = flags | (is_exact && !is_older ? SCRY_SYSCALLS_VAIN_TICKS : 0),
		.rate = 1000,
		.ticks = 1000,
		.inside = 457,
		.calls = is_exact ? 86400 : 0,
		.exits = 2,
		.watched_ns = 2000000000,
		.cpu_ns = 30000000,
		.before_ns = is_exact ? 120 : 0,
		.with_ns = is_exact ? 223 : 0,
	};

	if (has_losses) {
		sums.unplaced = 11;
		sums.nowhere = is_exact ? 1400 : 0;
		sums.killed = 1;
		sums.lost = 5;
		sums.strangers = 3;
		sums.unnamed = 2;
	}
	golden_beginning(&rec, "syscalls", 4711);
	put_calls(&rec, flags);
	if (flags & SCRY_SYSCALLS_LATENCY) {
		put_times(&rec, 1, 60000);
		put_times(&rec, 2, 20000);
		put_times(&rec, 4, 5000);
	}
	put_stacks(&rec);
	if (is_exact)
		put_paths(&rec);
	if (is_ruby) {
		sums.line_samples = 44;
		put_lines(&rec);
	}
	golden_put(&rec, SCRY_EVENT_SYSCALLS, &sums, sizeof(sums));
	put_totals(&rec, &sums);
	return golden_end(&rec);
}

static void check(uint32_t flags, bool has_losses, const struct scry_view_opts *opts,
		  const char *file)
{
	int fd = recording(flags, has_losses, false);

	golden_check(fd, "syscalls", file, opts);
	close(fd);
}

static void sorted(void **state)
{
	const struct scry_view_opts plain = BY_SITE;
	int fd = recording(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, false, false);

	assert_true(golden_sorts(fd, "syscalls", &plain) > 0);
	close(fd);
}

static void sampled(void **state)
{
	const struct scry_view_opts plain = BY_SITE;

	check(0, false, &plain, "syscalls_sampled.txt");
	check(0, false, &plain, "syscalls_sampled.json");
}

static void exact(void **state)
{
	const struct scry_view_opts plain = BY_SITE;
	struct scry_view_opts some = BY_SITE;

	check(SCRY_SYSCALLS_EXACT, false, &plain, "syscalls_exact.txt");
	check(SCRY_SYSCALLS_EXACT, false, &plain, "syscalls_exact.json");
	is_older = true;
	check(SCRY_SYSCALLS_EXACT, false, &plain, "syscalls_older.txt");
	is_older = false;
	some.grep = "poll_queue";
	check(SCRY_SYSCALLS_EXACT, false, &some, "syscalls_grep.txt");
	some = plain;
	some.top = 2;
	some.pid = 4712;
	check(SCRY_SYSCALLS_EXACT, false, &some, "syscalls_pid.txt");
	check(SCRY_SYSCALLS_EXACT, false, &some, "syscalls_pid.json");
}

static void latency(void **state)
{
	const struct scry_view_opts plain = BY_SITE;

	check(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, false, &plain, "syscalls_latency.txt");
	check(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, false, &plain, "syscalls_latency.json");
}

static void by(void **state)
{
	struct scry_view_opts opts = BY_SITE;

	opts.by = SCRY_VIEW_BY_SYSCALL;
	check(SCRY_SYSCALLS_EXACT, false, &opts, "syscalls_by_syscall.txt");
	check(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, false, &opts,
	      "syscalls_by_syscall_latency.txt");
	check(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, false, &opts,
	      "syscalls_by_syscall.json");
	opts.by = SCRY_VIEW_BY_THREAD;
	check(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, false, &opts, "syscalls_by_thread.txt");
	check(SCRY_SYSCALLS_EXACT, false, &opts, "syscalls_by_thread.json");
}

static void lines(void **state)
{
	struct scry_view_opts opts = BY_SITE;
	int fd = recording(SCRY_SYSCALLS_EXACT, false, true);

	golden_check(fd, "syscalls", "syscalls_ruby.txt", &opts);
	golden_check(fd, "syscalls", "syscalls_ruby.json", &opts);
	opts.by = SCRY_VIEW_BY_LINE;
	golden_check(fd, "syscalls", "syscalls_by_line.txt", &opts);
	golden_check(fd, "syscalls", "syscalls_by_line.json", &opts);
	close(fd);
	fd = recording(SCRY_SYSCALLS_EXACT, false, false);
	golden_check(fd, "syscalls", "syscalls_by_line_none.txt", &opts);
	close(fd);
}

static void losses(void **state)
{
	const struct scry_view_opts plain = BY_SITE;

	check(0, true, &plain, "syscalls_sampled_losses.txt");
	check(SCRY_SYSCALLS_EXACT | SCRY_SYSCALLS_LATENCY, true, &plain, "syscalls_losses.txt");
}

/* By clocks of threads: what ran for less than a tick is missing; and of a call there is no number.
 */
static void perf(void **state)
{
	const struct scry_view_opts plain = BY_SITE;
	const struct place unknown = {.site = 8,
				      .pid = 4711,
				      .number = SCRY_SYSCALLS_UNKNOWN,
				      .name = "[not known]",
				      .module = LIBC,
				      .symbol = "syscall",
				      .offset = 0x17};
	struct golden rec = golden_begin();
	const struct scry_ev_syscalls sums = {.flags = SCRY_SYSCALLS_PERF,
					      .rate = 1000,
					      .ticks = 100,
					      .inside = 57,
					      .lost = 5,
					      .watched_ns = 2000000000,
					      .ran_ns = 204257247};
	int fd;

	golden_beginning(&rec, "syscalls", 4711);
	put_site(&rec, &unknown);
	put_sum(&rec, 0, "ruby",
		(struct scry_ev_syscall){.site = 8, .pid = 4711, .tid = 4711, .ticks = 57});
	golden_put(&rec, SCRY_EVENT_SYSCALLS, &sums, sizeof(sums));
	put_totals(&rec, &sums);
	fd = golden_end(&rec);
	golden_check(fd, "syscalls", "syscalls_perf.txt", &plain);
	golden_check(fd, "syscalls", "syscalls_perf.json", &plain);
	close(fd);
}

/* Symbols lose their middle, and a page of 120 columns holds a row: its place to the end, its
 * callers from the beginning. */
static void narrow(void **state)
{
	static const char symbol[] =
		"_ZN4long9namespaceE4nameEISt3mapINSt7__cxx1112basic_stringIcEEEEE3runEv";
	const struct scry_view_opts plain = BY_SITE;
	const struct place place = {.site = 1,
				    .pid = 4711,
				    .number = 110,
				    .name = "getppid",
				    .module = LIBC,
				    .symbol = symbol,
				    .offset = 0x17};
	struct golden rec = golden_begin();
	const struct scry_ev_syscalls sums = {.flags = SCRY_SYSCALLS_EXACT,
					      .rate = 1000,
					      .ticks = 100,
					      .inside = 57,
					      .calls = 12345,
					      .watched_ns = 1000000000};
	const struct scry_ev_syscall_stack stack = {.site = 1, .stack = 3, .count = 10};
	int fd;

	golden_beginning(&rec, "syscalls", 4711);
	put_site(&rec, &place);
	put_sum(&rec, SCRY_SYSCALLS_EXACT, "ruby",
		(struct scry_ev_syscall){
			.site = 1, .pid = 4711, .tid = 4711, .ticks = 57, .calls = 12345});
	put_frame(&rec, (struct scry_ev_stack){.id = 1, .offset = 64}, APP, "main");
	put_frame(&rec, (struct scry_ev_stack){.id = 2, .parent = 1, .offset = 9}, APP, symbol);
	put_frame(&rec, (struct scry_ev_stack){.id = 3, .parent = 2, .offset = 25}, LIBC, symbol);
	golden_put(&rec, SCRY_EVENT_SYSCALL_STACK, &stack, sizeof(stack));
	golden_put(&rec, SCRY_EVENT_SYSCALLS, &sums, sizeof(sums));
	put_totals(&rec, &sums);
	fd = golden_end(&rec);
	golden_check(fd, "syscalls", "syscalls_wide.txt", &plain);
	golden_check(fd, "syscalls", "syscalls_wide.json", &plain);
	golden_width = 120;
	golden_check(fd, "syscalls", "syscalls_narrow.txt", &plain);
	golden_width = 0;
	close(fd);
}

static void put_nothing(struct golden *rec, const struct scry_ev_syscalls *sums)
{
	*rec = golden_begin();
	golden_beginning(rec, "syscalls", 4711);
	if (!sums)
		return;
	golden_put(rec, SCRY_EVENT_SYSCALLS, sums, sizeof(*sums));
	put_totals(rec, sums);
}

static void nothing(void **state)
{
	const struct scry_view_opts plain = BY_SITE;
	const struct scry_ev_syscalls sampled = {.rate = 1000, .watched_ns = 1000000000};
	const struct scry_ev_syscalls exact = {.flags = SCRY_SYSCALLS_EXACT,
					       .watched_ns = 1000000000};
	struct golden rec;
	int fd;

	put_nothing(&rec, &sampled);
	fd = golden_end(&rec);
	golden_check(fd, "syscalls", "syscalls_nothing.txt", &plain);
	close(fd);
	put_nothing(&rec, &exact);
	fd = golden_end(&rec);
	golden_check(fd, "syscalls", "syscalls_nothing_exact.txt", &plain);
	golden_check(fd, "syscalls", "syscalls_nothing.json", &plain);
	close(fd);
	put_nothing(&rec, NULL); /* cut short */
	fd = golden_end(&rec);
	golden_check(fd, "syscalls", "syscalls_cut.txt", &plain);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sorted),  cmocka_unit_test(sampled), cmocka_unit_test(exact),
		cmocka_unit_test(latency), cmocka_unit_test(by),      cmocka_unit_test(losses),
		cmocka_unit_test(nothing), cmocka_unit_test(lines),   cmocka_unit_test(perf),
		cmocka_unit_test(narrow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
