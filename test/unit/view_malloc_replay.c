/* What replays say: verdicts and pictures of given numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "view/data_quality.h"
#include "view/malloc_replay.h"

#define MIB (UINT64_C(1) << 20)

/* A quantity whose runs lie within `percent` of its median. */
static struct scry_replay_spread around(uint64_t median, unsigned int percent)
{
	struct scry_replay_spread s = {.median = median, .count = 5};

	for (uint32_t i = 0; i < 5; i++)
		s.sorted[i] = median - median * percent / 100 + i * (median * percent / 200);
	s.least = s.sorted[0];
	s.most = s.sorted[4];
	return s;
}

static struct scry_replay_row row(const char *label, uint64_t cpu_ms, uint64_t rss_mib,
				  unsigned int percent)
{
	return (struct scry_replay_row){.label = label,
					.runs = 5,
					.cpu_ns = around(cpu_ms * 1000000, percent),
					.rss_peak = around(rss_mib * MIB, 1)};
}

static const char *judge(struct scry_replay_row *rows, uint32_t count,
			 struct scry_replay_verdict *v)
{
	struct scry_replay_report r = {.rows = rows, .count = count};

	scry_replay_judge(&r, v);
	return v->sentence;
}

static void better_in_both(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("jemalloc", 96, 82, 1)};
	struct scry_replay_verdict v;

	assert_string_equal(
		judge(rows, 2, &v),
		"jemalloc: 18 % less memory, 4 % less allocator time than glibc on this trace; "
		"the difference is outside the noise");
	assert_int_equal(v.winner, 1);
	assert_int_equal(v.best_time, 1);
	assert_int_equal(v.best_memory, 1);
}

static void better_in_one(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("a", 60, 101, 1),
					 row("b", 60, 100, 1), row("c", 90, 100, 1)};
	struct scry_replay_verdict v;

	judge(rows, 4, &v);
	assert_int_equal(v.winner, 1);
	assert_non_null(strstr(v.sentence,
			       "40 % less allocator time than glibc (memory is the same within "
			       "the noise)"));
	assert_non_null(strstr(v.sentence, "; b is as good, within the noise"));
	assert_null(strstr(v.sentence, "c is as good"));
}

/* Where time is the same there is no share of the program's that is saved. */
static void same_time(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 1000, 100, 10), row("a", 990, 80, 10)};
	struct scry_replay_report r = {.rows = rows, .count = 2, .program_cpu_ns = 2000000000};
	struct scry_replay_verdict v;

	(void)state;
	scry_replay_judge(&r, &v);
	assert_string_equal(
		v.sentence,
		"a: 20 % less memory than glibc (allocator time is the same within the noise) on "
		"this trace; the difference is outside the noise");
	rows[1] = row("a", 500, 80, 10);
	scry_replay_judge(&r, &v);
	assert_non_null(strstr(v.sentence, "(about 25.0 % of the program's CPU time)"));
	rows[0].runs = 0;
	scry_replay_judge(&r, &v);
	assert_non_null(strstr(v.sentence, "glibc, with which the others are compared, could not "
					   "be tried; fix: name another"));
}

static void of_an_even_number(void **state)
{
	struct scry_replay_spread s = {.count = 4, .sorted = {40, 10, 30, 20}};

	(void)state;
	scry_replay_spread(&s);
	assert_int_equal(s.median, 25);
	assert_int_equal(s.least, 10);
	assert_int_equal(s.most, 40);
}

/* A difference that runs of one allocator have among themselves is none; nor is one below 3 %. */
static void within_the_noise(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 20), row("a", 80, 98, 20)};
	struct scry_replay_verdict v;

	assert_non_null(strstr(judge(rows, 2, &v), "cannot tell"));
	assert_int_equal(v.winner, -1);
	assert_int_equal(v.best_time, -1);
	rows[0] = row("glibc", 1000, 100, 0);
	rows[1] = row("a", 975, 100, 0);
	assert_non_null(strstr(judge(rows, 2, &v), "cannot tell"));
	rows[1] = row("a", 960, 100, 0);
	judge(rows, 2, &v);
	assert_int_equal(v.winner, 1);
	rows[1].runs = 2;
	assert_non_null(strstr(judge(rows, 2, &v), "cannot tell"));
	assert_non_null(strstr(judge(rows, 1, &v), "cannot tell"));
}

/* One run that was disturbed hides nothing, as long as nine of ten pairs say the same. */
static void one_run_is_disturbed(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 4), row("a", 90, 100, 4)};
	struct scry_replay_verdict v;

	(void)state;
	rows[1].cpu_ns.most = rows[1].cpu_ns.sorted[4] = 98500000; /* above two of the first's */
	judge(rows, 2, &v);
	assert_int_equal(v.winner, 1);
	rows[1].cpu_ns.most = rows[1].cpu_ns.sorted[4] = 103000000; /* above four */
	judge(rows, 2, &v);
	assert_int_equal(v.winner, -1);
	rows[1].cpu_ns.sorted[4] = 98500000;
	rows[0].cpu_ns.sorted[0] = 90000000; /* three such pairs, and one that is alike */
	judge(rows, 2, &v);
	assert_int_equal(v.winner, -1);
}

/* What is replayed is not what the program did; what really ran is not touched by that. */
static void much_was_lost(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("a", 80, 98, 1)};
	struct scry_data_quality quality = {.lost = 11};
	struct scry_replay_report r = {
		.rows = rows, .count = 2, .calls = 10000, .quality = &quality};
	struct scry_replay_verdict v;

	(void)state;
	scry_replay_judge(&r, &v);
	assert_non_null(strstr(v.sentence, "cannot tell: 11 calls were lost"));
	assert_int_equal(v.winner, -1);
	assert_int_equal(v.best_time, -1);
	for (int i = 0; i < 2; i++) {
		rows[i].has_real = true;
		rows[i].real_cpu_ns = rows[i].cpu_ns;
		rows[i].real_rss = rows[i].rss_peak;
	}
	scry_replay_judge_real(&r, &v);
	assert_int_equal(v.winner, 1);
	quality = (struct scry_data_quality){.lost = 1, .has_lost_more = true};
	scry_replay_judge(&r, &v);
	assert_non_null(strstr(v.sentence, "cannot tell: at least 1 calls were lost"));
	quality.has_lost_more = false;
	quality.lost = 10;
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 1);
}

/* Time for memory: the price is named; of two that are as fast, the one that costs less. */
static void a_trade(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 2), row("tc", 57, 144, 2),
					 row("mi", 58, 111, 2), row("small", 150, 70, 2)};
	struct scry_replay_verdict v;

	judge(rows, 4, &v);
	assert_int_equal(v.winner, -1);
	assert_int_equal(v.best_time, 2);
	assert_int_equal(v.best_memory, 3);
	assert_string_equal(
		v.sentence,
		"no clear winner; mi: 42 % less allocator time for 11 % more memory; small: 30 % "
		"less memory for 50 % more allocator time than glibc on this trace; the "
		"differences are outside the noise");
}

static void the_first_is_best(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("a", 130, 100, 1),
					 row("b", 100, 150, 1)};
	struct scry_replay_verdict v;

	judge(rows, 3, &v);
	assert_int_equal(v.winner, 0);
	rows[2] = row("b", 100, 101, 1);
	assert_non_null(strstr(judge(rows, 3, &v), "cannot tell"));
}

/* Those that could not be tried win nothing. */
/* Blocks that go from thread to thread: what waits between them differs from run to run. */
static void handed_over(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("a", 100, 80, 1),
					 row("b", 100, 70, 1)};
	struct scry_replay_report r = {
		.rows = rows, .count = 2, .calls = 800, .crossed = 100, .threads_peak = 5};
	struct scry_replay_verdict v;

	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_non_null(strstr(v.sentence, "cannot tell"));
	r.count = 3;
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 2);
	rows[1] = row("a", 60, 119, 1);
	rows[0].rss_end = around(8 * MIB, 1);
	rows[1].rss_end = around(15 * MIB, 1);
	r.count = 2;
	scry_replay_judge(&r, &v);
	assert_string_equal(
		v.sentence,
		"a: 40 % less allocator time than glibc (19 % more memory: less than such replays "
		"can show, 25 %, as threads hand blocks over) on this trace; the "
		"difference is outside the noise; 88 % more memory at the end");
	rows[1].rss_end = around(9 * MIB, 1);
	scry_replay_judge(&r, &v);
	assert_null(strstr(v.sentence, "at the end"));
	rows[1] = row("a", 100, 80, 1);
	r.crossed = 99;
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 1);
}

/* Less than a tenth of what the replay takes by itself is not told apart from nothing. */
static void beside_the_replay(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 0, 100, 0), row("a", 50, 100, 0)};
	struct scry_replay_report r = {.rows = rows, .count = 2, .null_cpu_ns = 100000000};
	struct scry_replay_verdict v;

	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 0);
	r.null_cpu_ns = UINT64_C(20000000000);
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, -1);
}

/* What was recorded is next to nothing of the program. */
static void too_little(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 8, 4, 1), row("a", 4, 40, 1)};
	struct scry_replay_report r = {.rows = rows,
				       .count = 2,
				       .program_rss_peak = 81 * MIB,
				       .program_cpu_ns = 380000000};
	struct scry_replay_verdict v;

	(void)state;
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_int_equal(v.best_time, -1);
	assert_int_equal(v.best_memory, -1);
	assert_string_equal(
		v.sentence,
		"cannot tell: too little was recorded: no allocator takes 10 ms of CPU time for "
		"its calls, and under glibc they have 4096 KiB of the 82944 that the program had "
		"(less than a tenth); fix: record more of it, from its start");
	rows[1] = row("a", 15, 40, 1);
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 0);
	assert_non_null(strstr(v.sentence, "; memory is not compared: too little of it"));
	rows[0] = row("glibc", 18, 4, 1);
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 1);
	assert_non_null(strstr(v.sentence,
			       "a: 17 % less allocator time than glibc (memory is not compared: "
			       "too little of it)"));
	rows[0] = row("glibc", 9, 9, 1);
	rows[1] = row("a", 4, 9, 1);
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_non_null(
		strstr(v.sentence, "noise; allocator time is not compared: too little of it"));
	rows[1] = row("a", 4, 6, 1);
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 1);
	assert_non_null(strstr(v.sentence,
			       "a: 33 % less memory than glibc (allocator time is not compared: "
			       "too little of it)"));
}

static void real_runs(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("a", 50, 100, 1)};
	struct scry_replay_report r = {.rows = rows, .count = 2};
	struct scry_replay_verdict v;

	scry_replay_judge_real(&r, &v);
	assert_int_equal(v.winner, -1);
	for (int i = 0; i < 2; i++) {
		rows[i].has_real = true;
		rows[i].real_cpu_ns = around((i ? 90 : 60) * MIB, 1);
		rows[i].real_wall_ns = around((i ? 190 : 160) * MIB, 1);
		rows[i].real_rss = around(10 * MIB, 1);
	}
	scry_replay_judge_real(&r, &v);
	assert_int_equal(v.winner, 0);
	/* programs of 1 ms decide nothing */
	for (int i = 0; i < 2; i++)
		rows[i].real_cpu_ns = around((i ? 9 : 6) * 100000, 1);
	scry_replay_judge_real(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_non_null(strstr(v.sentence, "program time is not compared: too little of it"));
}

/* Differences that nobody can resolve. */
static void unresolved(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 20, 100, 1), row("a", 18, 100, 1)};
	struct scry_replay_report r = {.rows = rows, .count = 2};
	struct scry_replay_verdict v;

	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, 1);
	r.null_spread_ns = 5000000; /* what the replay itself takes differs by more */
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_non_null(strstr(v.sentence, "cannot tell: nothing is better than glibc"));
	rows[0].rss_peak = around(400 << 10, 1);
	rows[1].rss_peak = around(326 << 10, 1); /* 74 KiB, and 18 % */
	scry_replay_judge(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_int_equal(v.best_memory, -1);
}

static char remarks[4096];

static void no_note(struct scry_doc *doc, const char *bytes, size_t length)
{
}

static void keep_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
	strncat(remarks, bytes, length);
	strcat(remarks, "\n");
}

static char totals[2048];

static void keep_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		snprintf(totals + strlen(totals), sizeof(totals) - strlen(totals), "%llu %s\n",
			 (unsigned long long)pairs[i].cell.number,
			 doc->is_data ? pairs[i].key : pairs[i].unit);
}

static void no_table(struct scry_doc *doc)
{
}

static void no_row(struct scry_doc *doc, const struct scry_cell *cells)
{
}

static void keep_remark(struct scry_doc *doc, const char *text)
{
	strncat(remarks, text, sizeof(remarks) - strlen(remarks) - 2);
	strcat(remarks, "\n");
}

/* What is said above and below the tables. */
static const char *say(const struct scry_replay_report *r, bool is_data)
{
	const struct scry_doc_ops ops = {.note = no_note,
					 .verdict = keep_verdict,
					 .totals = keep_totals,
					 .table = no_table,
					 .row = no_row,
					 .remark = keep_remark};
	struct scry_doc doc = {.ops = &ops, .is_data = is_data};

	*remarks = *totals = 0;
	scry_replay_push(r, &doc);
	return remarks;
}

static const char *remarks_of(const struct scry_replay_report *r)
{
	return say(r, false);
}

/* Totals for people have the units of the table below them. */
static void units(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 60, 1)};
	struct scry_replay_report r = {.rows = rows,
				       .count = 1,
				       .touch = "recorded",
				       .pace = "none",
				       .live_peak_bytes = 2000,
				       .null_cpu_ns = 1500,
				       .program_cpu_ns = 390000000,
				       .program_rss_peak = 20 * MIB};

	say(&r, false);
	assert_non_null(strstr(totals, "2 KiB asked for that lived at once, at most\n"));
	assert_non_null(strstr(totals, "2 us of CPU that the replay itself takes"));
	assert_non_null(strstr(totals, "390000 us of CPU that the program took"));
	assert_non_null(strstr(totals, "20480 KiB of its anonymous memory then"));
	say(&r, true);
	assert_non_null(strstr(totals, "2000 live_peak_bytes\n"));
	assert_non_null(strstr(totals, "1500 replay_cpu_ns\n"));
	assert_non_null(strstr(totals, "390000000 program_cpu_ns\n"));
	assert_non_null(strstr(totals, "20971520 program_rss_anon_peak_bytes\n"));
}

/* A replay has nothing but what was asked of malloc: more than the program had is not so. */
static void more_than_the_program(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 60, 1), row("a", 50, 60, 1)};
	struct scry_replay_report r = {.rows = rows,
				       .count = 2,
				       .touch = "recorded",
				       .pace = "none",
				       .recorded = &rows[0],
				       .recorded_rss = 20 * MIB};

	assert_non_null(strstr(remarks_of(&r),
			       "the replays' memory is not this program's: 61440 KiB at most under "
			       "glibc, and the program had 20480 when it was recorded\n"));
	r.recorded_rss = 50 * MIB;
	assert_null(strstr(remarks_of(&r), "is not this program's"));
	r.recorded_rss = 20 * MIB;
	r.recorded = NULL; /* it had another allocator */
	assert_null(strstr(remarks_of(&r), "is not this program's"));
}

/* What the calls take less, and what the program takes more. */
static void not_foretold(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 100, 60, 1), row("a", 70, 60, 1),
					 row("b", 100, 60, 1)};
	struct scry_replay_report r = {
		.rows = rows, .count = 3, .touch = "recorded", .pace = "none"};

	for (int i = 0; i < 3; i++) {
		rows[i].has_real = true;
		rows[i].real_cpu_ns = around((i == 1 ? 246 : 200) * MIB, 2);
		rows[i].real_rss = around((i == 1 ? 90 : 70) * MIB, 2);
	}
	remarks_of(&r);
	/* the real runs are gone by, so that they are the verdict */
	assert_ptr_equal(strstr(remarks, "cannot tell: nothing is better than glibc in program "
					 "time or memory in these runs by more than the noise; a "
					 "takes 23 % more program time; a takes 29 % more "
					 "memory\n"),
			 remarks);
	assert_non_null(strstr(remarks, "\nreplayed: a: 30 % less allocator time than glibc"));
	assert_null(strstr(remarks, "really run: "));
	assert_non_null(strstr(remarks,
			       "the replay does not predict this program's time: what was "
			       "predicted is off by -30 % under a; go by the real runs\n"));
	assert_non_null(strstr(remarks, "this program's memory: what was predicted is off by -22 % "
					"under a; go by the real runs\n"));
	rows[1].real_cpu_ns = around(170 * MIB, 2);
	rows[1].real_rss = around(70 * MIB, 2);
	assert_null(strstr(remarks_of(&r), "does not predict"));
	/* those of one allocator alone compare with nothing */
	rows[1].has_real = rows[2].has_real = false;
	remarks_of(&r);
	assert_ptr_equal(strstr(remarks, "a: 30 % less allocator time than glibc"), remarks);
}

/* They end by the clock: whoever is faster does more, and takes as much. */
static void by_the_clock(void **state)
{
	struct scry_replay_row rows[] = {row("glibc", 500, 100, 1), row("a", 250, 100, 1)};
	struct scry_replay_report r = {
		.rows = rows, .count = 2, .touch = "recorded", .pace = "none"};
	struct scry_replay_verdict v;

	for (int i = 0; i < 2; i++) {
		rows[i].has_real = true;
		rows[i].real_cpu_ns = around(i ? 950000000 : 900000000, 1);
		rows[i].real_wall_ns = around(i ? 1001000000 : 1000000000, 0);
		rows[i].real_rss = around(10 * MIB, 1);
	}
	assert_true(scry_replay_is_by_clock(&r));
	scry_replay_judge_real(&r, &v);
	assert_int_equal(v.winner, -1);
	assert_int_equal(v.best_time, -1);
	assert_non_null(strstr(v.sentence, "program time is not compared: each run takes equally "
					   "long, whatever it gets done"));
	assert_null(strstr(remarks_of(&r), "this program's time"));
	/* as long by chance, as no allocator differs */
	rows[1].real_cpu_ns = around(900000000, 1);
	rows[1].cpu_ns = rows[0].cpu_ns;
	assert_false(scry_replay_is_by_clock(&r));
	/* it ends when its work is done */
	rows[1].real_cpu_ns = around(700000000, 1);
	rows[1].real_wall_ns = around(800000000, 1);
	assert_false(scry_replay_is_by_clock(&r));
	scry_replay_judge_real(&r, &v);
	assert_int_equal(v.winner, 1);
}

static unsigned int count(const char *text, const char *what)
{
	unsigned int n = 0;

	while ((text = strstr(text, what))) {
		n++;
		text++;
	}
	return n;
}

/* Labels are foreign; nothing lies outside the picture. */
static void pictures(void **state)
{
	const struct scry_replay_point points[] = {{0, 0}, {50, 3 * MIB}, {100, MIB}};
	struct scry_replay_row rows[] = {row("glibc", 100, 100, 1), row("<a&\"\x01>", 50, 100, 1)};
	struct scry_replay_report r = {.rows = rows,
				       .count = 2,
				       .calls = 1000,
				       .words = 100,
				       .live = points,
				       .live_count = 3};
	struct scry_buf out = {0};

	rows[0].points = rows[1].points = points;
	rows[0].point_count = rows[1].point_count = 3;
	assert_int_equal(scry_replay_svg(&r, &out), 0);
	assert_int_equal(count(out.data, "<polyline"), 2);
	assert_int_equal(count(out.data, "&lt;a&amp;&quot;\\x01>"), 1);
	assert_int_equal(count(out.data, "\x01"), 0);
	assert_int_equal(count(out.data, "points=\"76.0,384.0 510.0,28.0 944.0,265.3\""), 2);
	scry_buf_clear(&out);
	assert_int_equal(scry_replay_html(&r, &out), 0);
	assert_int_equal(count(out.data, "<svg"), 1);
	assert_int_equal(count(out.data, "<tr>"), 3);
	scry_buf_clear(&out);
	r.count = r.live_count = 0; /* nothing to draw is no error */
	assert_int_equal(scry_replay_svg(&r, &out), 0);
	scry_buf_done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(better_in_both),
		cmocka_unit_test(better_in_one),
		cmocka_unit_test(same_time),
		cmocka_unit_test(of_an_even_number),
		cmocka_unit_test(within_the_noise),
		cmocka_unit_test(one_run_is_disturbed),
		cmocka_unit_test(much_was_lost),
		cmocka_unit_test(a_trade),
		cmocka_unit_test(the_first_is_best),
		cmocka_unit_test(real_runs),
		cmocka_unit_test(by_the_clock),
		cmocka_unit_test(unresolved),
		cmocka_unit_test(handed_over),
		cmocka_unit_test(beside_the_replay),
		cmocka_unit_test(more_than_the_program),
		cmocka_unit_test(too_little),
		cmocka_unit_test(units),
		cmocka_unit_test(not_foretold),
		cmocka_unit_test(pictures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
