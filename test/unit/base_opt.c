/* The option table: parsing, what it refuses, and the texts made from it. */
#include "base/opt.h"

#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
	bool json;
	int verbose, by, exact;
	const char *output;
	uint64_t top, duration_ns, memory_bytes;
	struct scry_opt_list pids;
	struct scry_opt_strings filters;
} got;

static const struct scry_opt rows[] = {
	{'p', "pid", SCRY_OPT_U64_LIST, &got.pids, "PID", "watch this process", NULL},
	{'d', "duration", SCRY_OPT_DURATION, &got.duration_ns, "TIME", "stop after TIME", NULL},
	{'o', "output", SCRY_OPT_STRING, &got.output, "FILE", "write to FILE", NULL},
	{'v', "verbose", SCRY_OPT_COUNT, &got.verbose, NULL, "say more", NULL},
	{0, "json", SCRY_OPT_FLAG, &got.json, NULL, "print one JSON object", NULL},
	{0, "by", SCRY_OPT_CHOICE, &got.by, NULL, "group the rows", "line|class|file"},
	{0, "exact", SCRY_OPT_CHOICE_MAYBE, &got.exact, NULL, "count", "here|there"},
	{0, "top", SCRY_OPT_U64, &got.top, "N", "show N rows", NULL},
	{0, "filter", SCRY_OPT_STRINGS, &got.filters, "WHAT", "only WHAT", NULL},
	{0, "memory", SCRY_OPT_SIZE, &got.memory_bytes, "SIZE", "use at most SIZE", NULL},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Parses `line`, split at blanks; the index of the rest, or the error. */
static int parse(const char *line)
{
	static char copy[256];
	char *argv[32] = {"scry"}, *save;
	int argc = 1, rest, err;

	memset(&got, 0, sizeof(got));
	snprintf(copy, sizeof(copy), "%s", line);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	err = scry_opt_parse(rows, ROWS, (struct scry_opt_args){argc, argv}, &rest);
	return err ? err : rest;
}

static void strings_are_gathered(void **state)
{
	static char *argv[SCRY_OPT_LIST_MAX + 3] = {"scry"};
	int rest;
	size_t i;

	assert_true(parse("--filter a,b --top 3 --filter=c") > 0);
	assert_int_equal(got.filters.count, 2);
	assert_string_equal(got.filters.values[0], "a,b"); /* commas are theirs */
	assert_string_equal(got.filters.values[1], "c");
	for (i = 1; i <= SCRY_OPT_LIST_MAX + 1; i++)
		argv[i] = "--filter=x";
	memset(&got, 0, sizeof(got));
	assert_int_equal(scry_opt_parse(rows, ROWS, (struct scry_opt_args){(int)i, argv}, &rest),
			 -EINVAL);
	assert_non_null(strstr(scry_error(), "more than 64 times"));
}

static void a_choice_may_be_left_out(void **state)
{
	got.exact = -1;
	assert_int_equal(parse("--exact"), 2);
	assert_int_equal(got.exact, 0);
	assert_int_equal(parse("--exact=there there"), 2); /* the next word is not its own */
	assert_int_equal(got.exact, 1);
	assert_int_equal(parse("--exact=where"), -EINVAL);
}

static void reads_every_kind(void **state)
{
	assert_int_equal(parse("-p 12 --pid=13,14 -d 1.5s -oout -vv --json --by class --top 0 "
			       "--memory=256MiB -- ruby -v"),
			 15);
	assert_int_equal(got.pids.count, 3);
	assert_int_equal(got.pids.values[2], 14);
	assert_int_equal(got.duration_ns, 1500000000);
	assert_string_equal(got.output, "out");
	assert_int_equal(got.verbose, 2);
	assert_true(got.json);
	assert_int_equal(got.by, 1);
	assert_int_equal(got.memory_bytes, 256 << 20);
}

static void stops_at_first_word(void **state)
{
	assert_int_equal(parse("--json ruby --nothing -x"), 2);
	assert_int_equal(parse(""), 1);
}

static void two_words_anywhere(void **state)
{
	char *argv[] = {"diff", "a", "--json", "b", "--top", "3"},
	     *more[] = {"diff", "a", "b", "c"};
	struct scry_opt_words words = {7, {NULL, NULL}};

	memset(&got, 0, sizeof(got));
	assert_int_equal(scry_opt_parse_words(rows, ROWS, (struct scry_opt_args){4, more}, &words),
			 -EINVAL);
	assert_int_equal(words.count, 7);
	assert_int_equal(scry_opt_parse_words(rows, ROWS, (struct scry_opt_args){6, argv}, &words),
			 0);
	assert_int_equal(words.count, 2);
	assert_string_equal(words.words[0], "a");
	assert_string_equal(words.words[1], "b");
	assert_true(got.json && got.top == 3);
}

static void one_word_anywhere(void **state)
{
	char *argv[] = {"report", "--json", "x.scry", "--top", "3", "--", "-v"};
	const char *word = "";

	memset(&got, 0, sizeof(got));
	assert_int_equal(scry_opt_parse_one(rows, ROWS, (struct scry_opt_args){5, argv}, &word), 0);
	assert_string_equal(word, "x.scry");
	assert_true(got.json);
	assert_int_equal(got.top, 3);
	assert_int_equal(scry_opt_parse_one(rows, ROWS, (struct scry_opt_args){2, argv}, &word), 0);
	assert_null(word);
	assert_int_equal(scry_opt_parse_one(rows, ROWS, (struct scry_opt_args){7, argv}, &word),
			 -EINVAL);
	assert_string_equal(scry_error(), "'-v' is one word too many");
}

static void refused(const char *line, const char *sentence)
{
	assert_int_equal(parse(line), -EINVAL);
	assert_string_equal(scry_error(), sentence);
}

static void refuses(void **state)
{
	refused("--nothing", "unknown option '--nothing'; fix: --help lists them");
	refused("-x", "unknown option '-x'; fix: --help lists them");
	refused("-vx", "unknown option '-x'; fix: --help lists them");
	refused("-p", "option --pid needs PID");
	refused("--top", "option --top needs N");
	refused("--json=1", "option --json takes no argument");
	refused("--top -1", "option --top: '-1' is not a number");
	refused("--top 3x", "option --top: '3x' is not a number");
	refused("--top 99999999999999999999",
		"option --top: '99999999999999999999' is too big a number");
	refused("--by colour", "option --by: 'colour' is not one of line|class|file");
	refused("--by lin", "option --by: 'lin' is not one of line|class|file");
	refused("-d soon",
		"option --duration: 'soon' is not a time; fix: like 50ms, 30s, 5m or 2h");
	refused("-p 1,x", "option --pid: 'x' is not a number");
	refused("-p ,", "option --pid: '' is not a number");
}

static void times_and_sizes(void **state)
{
	uint64_t value;

	assert_int_equal(scry_opt_read_duration("30", &value), 0);
	assert_int_equal(value, 30000000000);
	assert_int_equal(scry_opt_read_duration("50ms", &value), 0);
	assert_int_equal(value, 50000000);
	assert_int_equal(scry_opt_read_duration("0.1ms", &value), 0);
	assert_int_equal(value, 100000);
	assert_int_equal(scry_opt_read_duration("5m", &value), 0);
	assert_int_equal(value, 300000000000);
	assert_int_equal(scry_opt_read_duration("-1s", &value), -EINVAL);
	assert_int_equal(scry_opt_read_duration("", &value), -EINVAL);
	assert_int_equal(scry_opt_read_duration("99999999h", &value), -ERANGE);
	assert_int_equal(scry_opt_read_size("1.5K", &value), 0);
	assert_int_equal(value, 1536);
	assert_int_equal(scry_opt_read_size("18446744073709551615", &value), 0);
	assert_int_equal(value, UINT64_MAX);
	assert_int_equal(scry_opt_read_size("18446744073709551616", &value), -ERANGE);
	assert_int_equal(scry_opt_read_size("1TB", &value), -EINVAL);
}

static void texts(void **state)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	scry_opt_help(rows, ROWS, out);
	fclose(out);
	assert_non_null(strstr(text, "  -p, --pid=PID               watch this process\n"));
	assert_non_null(strstr(text, "      --by=line|class|file    group the rows\n"));
	free(text);
}

static void count_rows(const struct scry_opt *row, size_t count, void *arg)
{
	assert_ptr_equal(row, rows);
	*(size_t *)arg += count;
}

/* Nothing is parsed, so nothing is stored. */
static void rows_are_read(void **state)
{
	size_t seen = 0;

	scry_opt_read_rows(count_rows, &seen);
	assert_int_equal(parse("--top 3"), -ECANCELED);
	scry_opt_read_rows(NULL, NULL);
	assert_int_equal(seen, ROWS);
	assert_int_equal(got.top, 0);
	assert_true(parse("--top 3") > 0);
	assert_int_equal(got.top, 3);
}

static void a_misspelt_option_is_guessed(void **state)
{
	assert_int_equal(parse("--duratoin 3"), -EINVAL);
	assert_non_null(strstr(scry_error(), "did you mean '--duration'?"));
	assert_int_equal(parse("--ouptut=x"), -EINVAL);
	assert_non_null(strstr(scry_error(), "did you mean '--output'?"));
	assert_int_equal(parse("--nonsense"), -EINVAL);
	assert_null(strstr(scry_error(), "did you mean"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_kind),
		cmocka_unit_test(a_choice_may_be_left_out),
		cmocka_unit_test(strings_are_gathered),
		cmocka_unit_test(stops_at_first_word),
		cmocka_unit_test(one_word_anywhere),
		cmocka_unit_test(two_words_anywhere),
		cmocka_unit_test(refuses),
		cmocka_unit_test(times_and_sizes),
		cmocka_unit_test(texts),
		cmocka_unit_test(rows_are_read),
		cmocka_unit_test(a_misspelt_option_is_guessed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
