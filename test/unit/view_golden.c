/*
 * Every view in text and JSON, against the pages in test/golden/. SCRY_GOLDEN_UPDATE=1 rewrites
 * them: read the difference before you keep it.
 */
#include "golden.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "rec/writer.h"
#include "view/view.h"
#include "wire/call_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* What a watch of two processes may bring: same lines in both, odd names, no frame, internals. */
static int objects_recording(void)
{
	static const struct golden_place places[] = {
		{4711, "/srv/app/models/user.rb", 12, "String", "to_s", 0, 1234567, 1234000},
		{4711, "/srv/app/models/user.rb", 12, "Array", "to_s", 0, 5000, 5000},
		{4711, "/srv/app/models/user.rb", 14, "Hash", "to_h", 0, 5000, 1},
		{4711, NULL, 0, "Thread::Mutex", NULL, 0, 7, 0},
		{4711, "/srv/app/evil\x1b[2J\n.rb", 3, "Caf\xc3\xa9", "x", 0, 3, 0},
		{4711, "/srv/app/models/user.rb", 12, NULL, NULL, SCRY_SITE_INTERNAL, 777, 0},
		{4711, NULL, 0, NULL, NULL, SCRY_SITE_UNNAMED, 5, 5},
		{4712, "/srv/app/models/user.rb", 12, "String", "to_s", 0, 33, 3},
		{4712, "(eval)", 1, "#<Class:0x1>", "<main>", 0, 1, 0},
	};
	struct scry_ev_note note;
	struct scry_ev_lost lost;
	struct scry_ev_pause pause;
	struct golden rec = golden_begin();
	uint32_t i;

	golden_beginning(&rec, "objects", 4711);
	golden_beginning(&rec, "objects", 4712);
	note = (struct scry_ev_note){.text_str = golden_str(&rec, "1 ractor was not watched")};
	golden_put(&rec, SCRY_EVENT_NOTE, &note, sizeof(note));
	golden_put(&rec, SCRY_EVENT_NOTE, &note, sizeof(note));
	for (i = 0; i < 4; i++) { /* the same of three, something else of one more */
		static const char *const said[] = {
			"process 4711: it made a ractor", "process 4712: it made a ractor",
			"process 4713: it ended early", "process 4714: it made a ractor"};

		note.text_str = golden_str(&rec, said[i]);
		golden_put(&rec, SCRY_EVENT_NOTE, &note, sizeof(note));
	}
	lost = (struct scry_ev_lost){.count = 12, .why_str = golden_str(&rec, "the ring was full")};
	golden_put(&rec, SCRY_EVENT_LOST, &lost, sizeof(lost));
	pause = (struct scry_ev_pause){600000, 3, golden_str(&rec, "mapping the agent")};
	golden_put(&rec, SCRY_EVENT_PAUSE, &pause, sizeof(pause));
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		golden_site(&rec, i + 1, &places[i]);
	golden_totals(&rec, 4711, 2400000);
	golden_totals(&rec, 4712, 40);
	return golden_end(&rec);
}

/* 35 lines, so that the top 30 leaves some out. */
static int many_recording(void)
{
	struct golden rec = golden_begin();
	char file[32];
	uint32_t i;

	golden_beginning(&rec, "objects", 1);
	for (i = 0; i < 35; i++) {
		struct golden_place place = {1, file, i % 5, "String", NULL, 0, 10 * (i + 1), i};

		snprintf(file, sizeof(file), "lib/f%u.rb", i / 5);
		golden_site(&rec, i + 1, &place);
	}
	golden_totals(&rec, 1, 7000);
	return golden_end(&rec);
}

/* A raw recording whose keeper was killed: single events, no counters, no totals. */
static int raw_recording(void)
{
	static const struct golden_place places[] = {
		{9, "a.rb", 1, "String", "m", 0, 0, 0},
		{9, "a.rb", 2, "Array", "m", 0, 0, 0},
	};
	static const struct {
		uint64_t address;
		uint32_t code;
	} steps[] = {
		{0x7f0000001000, 1}, {0x7f0000001028, 2}, {0x7f0000001050, 1}, {0x7f0000001000, 0},
		{0x7f0000009000, 0}, {0x7f0000001000, 2}, {0x7f0000001028, 0},
	};
	struct scry_objects_run run = {
		{9, 1, 5}, NULL, 7, GOLDEN_START_NS + 5000000, GOLDEN_START_NS + 9000000};
	struct golden rec = golden_begin();
	uint64_t words[7];
	size_t i;

	golden_beginning(&rec, "objects", 9);
	golden_site(&rec, 1, &places[0]);
	golden_site(&rec, 2, &places[1]);
	for (i = 0; i < 7; i++)
		words[i] = steps[i].address >> 3 << SCRY_OBJ_CODE_BITS | steps[i].code;
	run.words = words;
	assert_int_equal(scry_writer_objects(rec.w, &run), 0);
	return golden_end(&rec);
}

static int empty_recording(void)
{
	struct golden rec = golden_begin();

	golden_beginning(&rec, "objects", 4711);
	golden_totals(&rec, 4711, 0);
	return golden_end(&rec);
}

/* Of a process and its child. The child has ended; then the keeper was killed. */
static int half_recording(void)
{
	static const struct golden_place place = {4712, "a.rb", 1, "String", "m", 0, 33, 3};
	struct golden rec = golden_begin();

	golden_beginning(&rec, "objects", 4711);
	golden_beginning(&rec, "objects", 4712);
	golden_site(&rec, 1, &place);
	golden_totals(&rec, 4712, 33);
	return golden_end(&rec);
}

/* A process and 100 children, of which each runs a program. */
static int crowd_recording(void)
{
	struct golden rec = golden_begin();

	golden_beginning(&rec, "objects", 1000);
	for (uint32_t pid = 1001; pid <= 1100; pid++) {
		golden_beginning(&rec, "objects", pid);
		golden_beginning(&rec, "objects", pid);
	}
	for (uint32_t i = 0; i < 201; i++)
		golden_totals(&rec, 1000, 0);
	return golden_end(&rec);
}

static int count_recording(void)
{
	struct golden rec = golden_begin();
	struct scry_ev_count count = {
		.symbol_str = golden_str(&rec, "malloc"),
		.module_str = golden_str(&rec, "/lib/x86_64-linux-gnu/libc.so.6"),
		.way_str = golden_str(&rec, "got"),
		.pid = 4711,
		.calls = 10,
		.address = 0x7f1122334450,
	};

	golden_beginning(&rec, "count", 4711);
	golden_put(&rec, SCRY_EVENT_COUNT, &count, sizeof(count));
	count.calls = 123456;
	golden_put(&rec, SCRY_EVENT_COUNT, &count, sizeof(count));
	count.symbol_str = golden_str(&rec, "free");
	count.address += 64;
	count.calls = 9;
	golden_put(&rec, SCRY_EVENT_COUNT, &count, sizeof(count));
	golden_totals(&rec, 4711, 123465);
	return golden_end(&rec);
}

static int time_recording(void)
{
	struct golden rec = golden_begin();
	struct scry_ev_time time = {
		.symbol_str = golden_str(&rec, "usleep"),
		.module_str = golden_str(&rec, "/lib/x86_64-linux-gnu/libc.so.6"),
		.way_str = golden_str(&rec, "entry"),
		.pid = 4711,
		.address = 0x7f1122334450,
		.calls = 1000,
		.returned = 990,
		.left = 6,
		.missed = 1,
		.total_ns = 4950000,
		.p50_ns = 4900,
		.p99_ns = 7100,
		.max_ns = 9123,
	};

	golden_beginning(&rec, "time", 4711);
	golden_put(&rec, SCRY_EVENT_TIME, &time, sizeof(time));
	time = (struct scry_ev_time){.symbol_str = golden_str(&rec, "never_returned"),
				     .module_str = time.module_str,
				     .way_str = time.way_str,
				     .pid = 4711,
				     .address = 0x7f1122334550,
				     .calls = 2};
	golden_put(&rec, SCRY_EVENT_TIME, &time, sizeof(time));
	golden_totals(&rec, 4711, 1002);
	return golden_end(&rec);
}

static int log_recording(void)
{
	struct golden rec = golden_begin();
	struct scry_ev_function function = {
		.function = 3,
		.pid = 4711,
		.symbol_str = golden_str(&rec, "mysql_real_query"),
		.module_str = golden_str(&rec, "/usr/lib/x86_64-linux-gnu/libmariadb.so.3"),
		.way_str = golden_str(&rec, "entry"),
		.address = 0x7f1122334450,
	};
	struct scry_ev_entry entry = {
		.function = 3, .pid = 4711, .args = 2, .arg1 = 0x55aa00, .arg2 = 17};

	golden_beginning(&rec, "log", 4711);
	golden_put(&rec, SCRY_EVENT_FUNCTION, &function, sizeof(function));
	golden_put(&rec, SCRY_EVENT_ENTRY, &entry, sizeof(entry));
	entry.args = 0;
	golden_put(&rec, SCRY_EVENT_ENTRY, &entry, sizeof(entry));
	entry.function = 9; /* not defined */
	golden_put(&rec, SCRY_EVENT_ENTRY, &entry, sizeof(entry));
	golden_totals(&rec, 4711, 3);
	return golden_end(&rec);
}

static void put_at(struct golden *rec, uint64_t ns, uint32_t tid, uint16_t type,
		   const void *payload, size_t bytes)
{
	const struct scry_event head = {.time_ns = GOLDEN_START_NS + ns, .tid = tid, .type = type};

	assert_int_equal(scry_writer_payload(rec->w, &head, payload, bytes), 0);
}

/* `text` is the memory that argument 2 points to. */
static void put_call(struct golden *rec, uint64_t ns, uint32_t tid, struct scry_ev_call call,
		     const char *text, uint16_t flags)
{
	struct {
		struct scry_ev_call call;
		struct scry_call_part part;
		char text[64];
	} all = {.call = call};

	all.call.pid = 4711;
	if (text) {
		all.call.arg2 = 0x5000;
		all.part = (struct scry_call_part){
			.address = 0x5000, .bytes = (uint32_t)strlen(text), .flags = flags};
		all.call.more_bytes =
			(uint32_t)(sizeof(all.part) + (all.part.bytes + 7u) / 8u * 8u);
		memcpy(all.text, text, strlen(text));
	}
	put_at(rec, ns, tid, SCRY_EVENT_CALL, &all, sizeof(call) + all.call.more_bytes);
}

static void put_return(struct golden *rec, uint64_t ns, uint32_t tid, struct scry_ev_return ret)
{
	ret.pid = 4711;
	put_at(rec, ns, tid, SCRY_EVENT_RETURN, &ret, sizeof(ret));
}

/* Of the call that follows: a gem's line, called from the program's. */
static void put_ruby_stack(struct golden *rec, uint64_t call)
{
	const struct scry_ev_stack outer = {.id = 1,
					    .file_str = golden_str(rec, "/srv/app.rb"),
					    .line = 3,
					    .method_str = golden_str(rec, "<main>")};
	const struct scry_ev_stack inner = {
		.id = 2,
		.parent = 1,
		.file_str = golden_str(rec, "/usr/lib/ruby/gems/client-1.0/lib/client.rb"),
		.line = 9,
		.method_str = golden_str(rec, "query")};
	const struct scry_ev_called called = {.pid = 4711, .stack = 2, .call = call};

	golden_put(rec, SCRY_EVENT_STACK, &outer, sizeof(outer));
	golden_put(rec, SCRY_EVENT_STACK, &inner, sizeof(inner));
	golden_put(rec, SCRY_EVENT_CALLED, &called, sizeof(called));
}

static void put_wait(struct golden *rec, uint32_t tid, struct scry_ev_wait wait)
{
	wait.pid = 4711;
	wait.function_str = golden_str(rec, "pthread_mutex_lock");
	put_at(rec, 0, tid, SCRY_EVENT_WAIT, &wait, sizeof(wait));
}

/* A mutex with a name, one on the heap, one of a library without symbols; a condition; ends of all
 * kinds; a place that is not known; a lock that is not defined. All times are a `part` of these. */
static int locks_recording(uint64_t part)
{
	struct golden rec = golden_begin();
	const struct scry_ev_lock locks[] = {
		{1, 4711, 0, golden_str(&rec, "mutex"), golden_str(&rec, "/srv/app"),
		 golden_str(&rec, "queue"), 0x404010, 0},
		{2, 4711, 0, golden_str(&rec, "recursive mutex"), 0, 0, 0x7f0000001000, 0},
		{3, 4711, 0, golden_str(&rec, "mutex"), golden_str(&rec, "/usr/lib/libx\x1b.so.3"),
		 0, 0x7f1000004010, 0x4010},
		{4, 4711, 1, golden_str(&rec, "condition variable"), golden_str(&rec, "/srv/app"),
		 golden_str(&rec, "queue"), 0x404040, 48},
	};
	const struct scry_ev_stack outer = {.id = 1,
					    .flags = SCRY_STACK_NATIVE,
					    .file_str = golden_str(&rec, "/srv/app"),
					    .method_str = golden_str(&rec, "main"),
					    .offset = 64};
	const struct scry_ev_stack inner = {.id = 2,
					    .parent = 1,
					    .flags = SCRY_STACK_NATIVE,
					    .file_str = golden_str(&rec, "/srv/app"),
					    .method_str = golden_str(&rec, "take"),
					    .offset = 9};

	golden_beginning(&rec, "locks", 4711);
	golden_put(&rec, SCRY_EVENT_STACK, &outer, sizeof(outer));
	golden_put(&rec, SCRY_EVENT_STACK, &inner, sizeof(inner));
	for (uint32_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++)
		golden_put(&rec, SCRY_EVENT_LOCK, &locks[i], sizeof(locks[i]));
	for (uint32_t i = 0; i < 4; i++)
		put_wait(&rec, 11 + i,
			 (struct scry_ev_wait){.lock = 1,
					       .stack = 2,
					       .owner = i < 3 ? 20 : 11,
					       .duration_ns = 500000000 / part});
	put_wait(&rec, 11, (struct scry_ev_wait){.lock = 1, .stack = 1, .duration_ns = 40});
	put_wait(&rec, 12,
		 (struct scry_ev_wait){.lock = 2,
				       .stack = 2,
				       .how = SCRY_WAIT_TIMED_OUT,
				       .duration_ns = 1000000 / part});
	put_wait(&rec, 12, (struct scry_ev_wait){.lock = 3, .how = SCRY_WAIT_FAILED});
	put_wait(&rec, 13,
		 (struct scry_ev_wait){.lock = 2,
				       .stack = 1,
				       .owner = 13,
				       .how = SCRY_WAIT_OPEN,
				       .duration_ns = 3000000 / part});
	put_wait(&rec, 14, (struct scry_ev_wait){.lock = 4, .stack = 2, .how = SCRY_WAIT_LEFT});
	put_wait(&rec, 14, (struct scry_ev_wait){.lock = 9, .stack = 2});
	golden_totals(&rec, 4711, 9);
	return golden_end(&rec);
}

/* Two threads: nested, interleaved, left, unfinished; every form of a value; a Ruby stack. */
static int calls_recording(void)
{
	static const char *const functions[][2] = {
		{"mysql_real_query",
		 "int mysql_real_query(addr, mysql(string(array(char, arg3)*)), ulong);\n"},
		{"own", NULL},
		{"kinds", "guess(char) kinds(addr, int, uint, long, ulong, guess(long));\n"},
		{"gone", "void gone(addr);\n"}};
	struct golden rec = golden_begin();
	struct scry_ev_call kinds = {.call = 4,
				     .function = 2,
				     .args = 6,
				     .arg2 = 0xffffffff,
				     .arg3 = 0xffffffff,
				     .arg4 = -5ull,
				     .arg5 = -5ull,
				     .arg6 = 10000};

	golden_beginning(&rec, "calls", 4711);
	for (uint32_t i = 0; i < 4; i++) {
		struct scry_ev_function f = {
			.function = i,
			.pid = 4711,
			.symbol_str = golden_str(&rec, functions[i][0]),
			.module_str = golden_str(&rec, "/usr/lib/libx.so.3"),
			.way_str = golden_str(&rec, "entry"),
			.prototype_str = functions[i][1] ? golden_str(&rec, functions[i][1]) : 0};

		golden_put(&rec, SCRY_EVENT_FUNCTION, &f, sizeof(f));
	}
	put_ruby_stack(&rec, 1);
	put_call(&rec, 1000000, 11,
		 (struct scry_ev_call){.call = 1, .args = 3, .arg1 = 0x27bc540, .arg3 = 15},
		 "SELECT \"1\"\n\x1b   ", SCRY_PART_SQL);
	put_return(&rec, 1001600000, 11,
		   (struct scry_ev_return){.call = 1, .duration_ns = 1000600000});
	put_call(&rec, 1002000000, 11,
		 (struct scry_ev_call){.call = 2,
				       .function = 1,
				       .args = 4,
				       .arg1 = -1ull,
				       .arg2 = 9999,
				       .arg3 = 0x7f0000001000,
				       .arg4 = -10001ull},
		 NULL, 0);
	put_call(&rec, 1003000000, 11, (struct scry_ev_call){.call = 3, .args = 3, .arg3 = 900},
		 "SELECT ?", SCRY_PART_CUT | SCRY_PART_DIGEST);
	put_call(&rec, 1003500000, 12, kinds, NULL, 0);
	put_return(&rec, 1003600000, 12,
		   (struct scry_ev_return){
			   .call = 4, .function = 2, .result = 0xff01, .duration_ns = 100000});
	put_return(
		&rec, 1004000000, 11,
		(struct scry_ev_return){.call = 3, .result = 0xffffffff, .duration_ns = 1000000});
	put_call(&rec, 1005000000, 12,
		 (struct scry_ev_call){.call = 5, .function = 3, .flags = SCRY_CALL_HAS_NO_ARGS},
		 NULL, 0);
	put_return(&rec, 1006000000, 12,
		   (struct scry_ev_return){.call = 5, .function = 3, .duration_ns = 1000000});
	put_return(&rec, 1007000000, 11,
		   (struct scry_ev_return){.call = 2, .function = 1, .how = SCRY_RETURN_LEFT});
	put_call(&rec, 1008000000, 12, (struct scry_ev_call){.call = 6, .function = 9}, NULL, 0);
	golden_totals(&rec, 4711, 6);
	return golden_end(&rec);
}

static void calls(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts opts = plain;
	int fd = calls_recording();

	setenv("TZ", "UTC", 1);
	golden_check(fd, "calls", "calls.txt", &plain);
	golden_check(fd, "calls", "calls.json", &plain);
	opts.calls = (struct scry_view_call_style){
		.clock = 2, .relative = true, .durations = true, .indent = 2};
	golden_check(fd, "calls", "calls_times.txt", &opts);
	opts.calls =
		(struct scry_view_call_style){.clock = 3, .durations = true, .slow_ns = 500000};
	golden_check(fd, "calls", "calls_slow.txt", &opts);
	golden_check(fd, "calls-sums", "calls_sums.txt", &plain);
	golden_check(fd, "calls-sums", "calls_sums.json", &plain);
	assert_true(golden_sorts(fd, "calls-sums", &plain) > 0);
	close(fd);
}

/* Functions that --filter and --grep hide are counted, and their calls are in no sum. */
static void calls_hist(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts opts = plain;
	int fd = calls_recording();

	golden_check(fd, "calls-hist", "calls_hist.txt", &plain);
	golden_check(fd, "calls-hist", "calls_hist.json", &plain);
	opts.filter = (struct scry_opt_strings){1, {"function=[gk]*"}};
	golden_check(fd, "calls-hist", "calls_hist_filter.txt", &opts);
	opts.filter.values[0] = "function=own"; /* which did not return */
	golden_check(fd, "calls-hist", "calls_hist_left.txt", &opts);
	opts.filter.values[0] = "library=nothing";
	golden_check(fd, "calls-hist", "calls_hist_filtered.txt", &opts);
	opts = plain;
	opts.grep = "nothing";
	golden_check(fd, "calls-hist", "calls_hist_grep.txt", &opts);
	close(fd);
}

/* Functions of equal times: in the order of their names, whichever came first. */
static int tied_calls_recording(bool is_reversed)
{
	static const char *const names[] = {"alpha", "beta", "gamma"};
	struct golden rec = golden_begin();

	golden_beginning(&rec, "calls", 4711);
	for (uint32_t i = 0; i < 3; i++) {
		struct scry_ev_function f = {
			.function = i,
			.pid = 4711,
			.symbol_str = golden_str(&rec, names[is_reversed ? 2 - i : i]),
			.module_str = golden_str(&rec, "/usr/lib/libx.so.3"),
			.way_str = golden_str(&rec, "entry")};

		golden_put(&rec, SCRY_EVENT_FUNCTION, &f, sizeof(f));
	}
	for (uint32_t i = 0; i < 3; i++) {
		put_call(&rec, 1000000 * (i + 1), 11,
			 (struct scry_ev_call){.call = i + 1, .function = i}, NULL, 0);
		put_return(&rec, 1000000 * (i + 1) + 500000, 11,
			   (struct scry_ev_return){
				   .call = i + 1, .function = i, .duration_ns = 500000});
	}
	golden_totals(&rec, 4711, 6);
	return golden_end(&rec);
}

/* Equal objects from two callers of one line: in the order of what the callers are called, as a
 * tree and as rows. */
static int tied_objects_recording(bool is_reversed)
{
	static const char *const callers[] = {"first", "second"};
	struct golden rec = golden_begin();

	golden_beginning(&rec, "objects", 4711);
	for (uint32_t i = 0; i < 2; i++) {
		const struct scry_ev_stack caller = {
			.id = i + 1,
			.line = 5,
			.file_str = golden_str(&rec, "/srv/app.rb"),
			.method_str = golden_str(&rec, callers[is_reversed ? 1 - i : i])};
		const struct scry_ev_site site = {.site = i + 1,
						  .pid = 4711,
						  .stack = i + 1,
						  .line = 9,
						  .file_str = golden_str(&rec, "/srv/app.rb"),
						  .class_str = golden_str(&rec, "String"),
						  .method_str = golden_str(&rec, "make"),
						  .slot_bytes = 40};
		const struct scry_ev_objects objects = {
			.site = i + 1, .allocated = 10, .bytes = 400};

		golden_put(&rec, SCRY_EVENT_STACK, &caller, sizeof(caller));
		golden_put(&rec, SCRY_EVENT_SITE, &site, sizeof(site));
		golden_put(&rec, SCRY_EVENT_OBJECTS, &objects, sizeof(objects));
	}
	golden_totals(&rec, 4711, 20);
	return golden_end(&rec);
}

static void ties(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts stacks = plain;

	stacks.stacks = true;
	for (int is_reversed = 0; is_reversed < 2; is_reversed++) {
		int fd = tied_calls_recording(is_reversed);

		golden_check(fd, "calls-hist", "calls_hist_ties.txt", &plain);
		golden_check(fd, "calls-tree", "calls_tree_ties.txt", &plain);
		close(fd);
		fd = tied_objects_recording(is_reversed);
		golden_check(fd, "objects", "objects_ties.txt", &stacks);
		golden_check(fd, "objects", "objects_ties.json", &stacks);
		close(fd);
	}
}

/* Lines that --grep hides are counted below the last one. */
static void hidden_lines(void **state)
{
	const struct scry_view_opts opts = {
		.sort = SCRY_VIEW_SORT_DEFAULT, .top = SCRY_VIEW_TOP_DEFAULT, .grep = "nosuch"};
	int fd = calls_recording();

	golden_check(fd, "calls", "calls_grep.txt", &opts);
	close(fd);
}

static void objects(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts opts = plain;
	int fd = objects_recording();

	golden_check(fd, "objects", "objects.txt", &plain);
	scry_log_setup(1, SCRY_LOG_COLOR_NEVER);
	golden_check(fd, "objects", "objects_verbose.txt", &plain);
	scry_log_setup(0, SCRY_LOG_COLOR_NEVER);
	golden_check(fd, "objects", "objects.json", &plain);
	assert_true(golden_sorts(fd, "objects", &plain) > 0);
	opts.pid = 4712;
	golden_check(fd, "objects", "objects_pid.txt", &opts);
	opts = plain;
	opts.by = SCRY_VIEW_BY_CLASS;
	golden_check(fd, "objects", "objects_class.txt", &opts);
	golden_check(fd, "objects", "objects_class.json", &opts);
	opts.by = SCRY_VIEW_BY_FILE;
	opts.sort = SCRY_VIEW_SORT_LIVE;
	golden_check(fd, "objects", "objects_file.txt", &opts);
	opts = plain;
	opts.grep = "user.rb:12 S";
	golden_check(fd, "objects", "objects_grep.txt", &opts);
	opts.grep = "/^\\(no Ruby.*Mutex$/";
	opts.top = 1;
	golden_check(fd, "objects", "objects_regex.txt", &opts);
	opts.grep = "nowhere";
	golden_check(fd, "objects", "objects_nothing.txt", &opts);
	close(fd);
}

static void many(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = many_recording();

	golden_check(fd, "objects", "objects_many.txt", &plain);
	close(fd);
}

static void raw(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = raw_recording();

	golden_check(fd, "objects", "objects_raw.txt", &plain);
	golden_check(fd, "objects", "objects_raw.json", &plain);
	golden_check(fd, "events", "events_raw.txt", &plain);
	golden_check(fd, "info", "info_raw.txt", &plain);
	close(fd);
}

static void half(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = half_recording();

	golden_check(fd, "objects", "objects_half.txt", &plain);
	golden_check(fd, "objects", "objects_half.json", &plain);
	close(fd);
}

static void crowd(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_buf page = {0};
	int fd = crowd_recording();

	golden_show(fd, "objects", "x.txt", &plain, &page);
	assert_non_null(strstr(scry_buf_str(&page), "scry objects: 101 processes (201 programs)"));
	scry_buf_done(&page);
	close(fd);
}

static void empty(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = empty_recording();

	golden_check(fd, "objects", "objects_empty.txt", &plain);
	golden_check(fd, "objects", "objects_empty.json", &plain);
	close(fd);
}

static void events(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = objects_recording();

	golden_check(fd, "events", "events.txt", &plain);
	golden_check(fd, "events", "events.json", &plain);
	close(fd);
}

static void count(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = count_recording();

	golden_check(fd, "count", "count.txt", &plain);
	golden_check(fd, "count", "count.json", &plain);
	close(fd);
}

static void times(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = time_recording();

	golden_check(fd, "time", "time.txt", &plain);
	golden_check(fd, "time", "time.json", &plain);
	assert_int_equal(golden_sorts(fd, "time", &plain), 0); /* one function leads in all */
	close(fd);
	fd = log_recording();
	golden_check(fd, "log", "log.txt", &plain);
	golden_check(fd, "log", "log.json", &plain);
	close(fd);
}

static void locks(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	struct scry_view_opts some = SCRY_VIEW_OPTS_DEFAULT;
	int fd = locks_recording(1);

	golden_check(fd, "locks", "locks.txt", &plain);
	golden_check(fd, "locks", "locks.json", &plain);
	assert_true(golden_sorts(fd, "locks", &plain) > 0);
	some.top = 1;
	some.grep = "main";
	golden_check(fd, "locks", "locks_some.txt", &some);
	close(fd);
	fd = locks_recording(1000);
	golden_check(fd, "locks", "locks_little.txt", &plain);
	close(fd);
	fd = empty_recording();
	golden_check(fd, "locks", "locks_none.txt", &plain);
	close(fd);
}

static void info(void **state)
{
	const struct scry_view_opts plain = SCRY_VIEW_OPTS_DEFAULT;
	int fd = objects_recording();

	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) + 100), 0);
	golden_check(fd, "info", "info_torn.txt", &plain);
	golden_check(fd, "info", "info_torn.json", &plain);
	close(fd);
}

static void bad_regex(void **state)
{
	struct scry_view_opts opts = {.grep = "/(/"};
	int fd = empty_recording();
	struct scry_doc doc = {.view = "objects", .out = stderr};
	struct scry_reader *reader;

	assert_int_equal(scry_reader_open(fd, &reader), 0);
	assert_int_equal(scry_out_text_open(&doc), 0);
	assert_int_equal(scry_view_objects(reader, &opts, &doc), -EINVAL);
	assert_non_null(strstr(scry_error(), "invalid regular expression"));
	scry_doc_abandon(&doc);
	scry_reader_close(reader);
	close(fd);
}

/* doc/JSON.md has a chapter for each view, of the schema that it has. */
static void documented(void **state)
{
	FILE *f = fopen(SCRY_TEST_DIR "/../doc/JSON.md", "re");
	struct scry_buf page = {0};
	char line[512], chapter[64];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		scry_buf_printf(&page, "%s", line);
	fclose(f);
	for (const struct scry_view *view = scry_views; view->name; view++) {
		snprintf(chapter, sizeof(chapter), "\n## scry.%s/%u: ", view->name, view->schema);
		if (!strstr(scry_buf_str(&page), chapter))
			fail_msg("doc/JSON.md lacks '%s'", chapter + 1);
	}
	scry_buf_done(&page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects),    cmocka_unit_test(many),
		cmocka_unit_test(raw),	      cmocka_unit_test(empty),
		cmocka_unit_test(events),     cmocka_unit_test(count),
		cmocka_unit_test(times),      cmocka_unit_test(locks),
		cmocka_unit_test(calls),      cmocka_unit_test(calls_hist),
		cmocka_unit_test(ties),	      cmocka_unit_test(hidden_lines),
		cmocka_unit_test(info),	      cmocka_unit_test(bad_regex),
		cmocka_unit_test(half),	      cmocka_unit_test(crowd),
		cmocka_unit_test(documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
