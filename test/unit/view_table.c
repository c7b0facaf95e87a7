/* A table's columns, and what --grep and --top leave out of it. */
#include "view/table.h"

#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct row {
	uint16_t line;
	int64_t growth;
	uint64_t calls;
	const char *symbol, *file;
};

static const struct row rows[] = {
	{1, -5, 7, "open", "a.c"},
	{65535, 3, 5, "_ZN3app3runEv", "b.c"},
	{3, 3, 1ull << 40, "reopen", NULL},
	{4, 0, 3, "close", "a.c"},
};

#define GET(name, ...) SCRY_GET(name, struct row, unsigned int, __VA_ARGS__)

GET(get_symbol, (++*view, scry_cell_string(row->symbol)))
GET(get_file, scry_cell_string(row->file))
GET(get_place,
    (scry_buf_printf(buf, "%s:%u", row->file ? row->file : "?", row->line), scry_cell_buf(buf)))

GET(get_known, scry_cell_known(row->calls, row->calls<100 && row->calls> 3))

GET(get_nothing, scry_cell_unknown())

static const struct scry_column columns[] = {
	{NULL, "growth", SCRY_CELL_DELTA, SCRY_AT(struct row, growth)},
	{NULL, "known", SCRY_CELL_COUNT, get_known, 0},
	{NULL, "nothing", SCRY_CELL_COUNT, get_nothing, 0},
	{"calls", "calls", SCRY_CELL_COUNT, SCRY_AT(struct row, calls)},
	{NULL, "line", SCRY_CELL_NUMBER, SCRY_AT(struct row, line)},
	{"symbol", NULL, SCRY_CELL_SYMBOL, get_symbol, SCRY_COLUMN_GREP},
	{NULL, "place", SCRY_CELL_TEXT, get_place, 0},
	{NULL, "file", SCRY_CELL_TEXT, get_file, SCRY_COLUMN_GREP},
};

static char printed[4096];
static const char *sort;
static const struct scry_opt_strings *filter;
static unsigned int symbols_made;

/* The table as text or JSON, into `printed`; how many rows it has. */
static uint64_t show(const char *pattern, uint64_t top, int (*open)(struct scry_doc *doc))
{
	FILE *out = fmemopen(printed, sizeof(printed), "w");
	struct scry_doc doc = {.view = "test", .schema = 1, .out = out};
	struct scry_table table = {SCRY_COLUMNS(columns), SCRY_ROWS(rows, 4), .view = &symbols_made,
				   .top = top, .sort = sort};
	struct scry_grep grep;
	uint64_t shown;

	symbols_made = 0;
	assert_int_equal(scry_grep_init(&grep, pattern), 0);
	table.grep = &grep;
	table.filter = filter;
	assert_int_equal(open(&doc), 0);
	shown = scry_table_push(&table, &doc);
	assert_int_equal(scry_doc_end(&doc), 0);
	fclose(out);
	scry_grep_done(&grep);
	return shown;
}

static void has(const char *text)
{
	if (!strstr(printed, text))
		fail_msg("no '%s' in:\n%s", text, printed);
}

static void lacks(const char *text)
{
	if (strstr(printed, text))
		fail_msg("'%s' in:\n%s", text, printed);
}

static void cells(void **state)
{
	assert_int_equal(show(NULL, 0, scry_out_text_open), 4);
	has("1,099,511,627,776  reopen");
	has("app::run()");
	lacks("not shown");
	assert_int_equal(show(NULL, 0, scry_out_json_open), 4);
	has("\"line\": 65535, \"place\": \"b.c:65535\"");
	lacks("symbol");
	assert_int_equal(symbols_made, 0); /* JSON has no such column */
}

static void left_out(void **state)
{
	assert_int_equal(show(NULL, 3, scry_out_text_open), 3);
	has("\n1 more row is not shown; --top 0 shows it\n");
	assert_int_equal(show("open", 1, scry_out_text_open), 1);
	has("\n1 more row is not shown; --top 0 shows it\n2 rows are left out by --grep\n");
	assert_int_equal(show("open", 1, scry_out_json_open), 1);
	lacks("not shown");
}

static void grepped(void **state)
{
	assert_int_equal(show("/^open$/", 0, scry_out_text_open), 1); /* one column by itself */
	assert_int_equal(show("/open a/", 0, scry_out_text_open), 1); /* and all in a line */
	assert_int_equal(show("a.c", 0, scry_out_text_open), 2);      /* also one not shown */
	assert_int_equal(show("app::run", 0, scry_out_text_open), 1); /* or mangled */
	assert_int_equal(show("_ZN3app3runEv", 0, scry_out_text_open), 1);
	assert_int_equal(show("65535", 0, scry_out_text_open), 0); /* not a column of --grep */
}

/* The order of lines, as they are printed. */
static void is_order(const char *key, const char *want)
{
	struct scry_buf got = {0};

	sort = key;
	show(NULL, 0, scry_out_json_open);
	for (const char *at = printed; (at = strstr(at, "\"line\": ")) != NULL; at++)
		scry_buf_printf(&got, "%s%ld", got.len ? " " : "", strtol(at + 8, NULL, 10));
	assert_string_equal(scry_buf_str(&got), want);
	scry_buf_done(&got);
	sort = NULL;
}

static void sorted(void **state)
{
	is_order(NULL, "1 65535 3 4");
	is_order("line", "65535 4 3 1");
	is_order("growth", "65535 3 4 1"); /* signed; what is equal stays */
	is_order("known", "1 65535 3 4");  /* unknown: the last two */
	is_order("place", "1 65535 3 4");  /* a text */
	sort = "line";
	assert_int_equal(show(NULL, 1, scry_out_text_open), 1); /* the first of all */
	has("app::run()");
	lacks("not sorted");
	sort = NULL;
	is_order("nothing", "1 65535 3 4");
	sort = "nothing";
	show(NULL, 0, scry_out_text_open);
	has("\nrows are not sorted: 'nothing' is not known of any of them\n");
	sort = NULL;
}

/* By the keys of columns: texts, names as they are or demangled, numbers; not by sums. */
static void filters(void **state)
{
	const struct scry_opt_strings a = {1, {"place=a.c:*"}}, line = {1, {"line=3"}},
				      none = {2, {"place=a.c:*", "line=3"}},
				      other = {1, {"module=x"}}, sum = {1, {"calls=7"}},
				      both = {3, {"line=3", "module=x", "module!=y"}},
				      unlike = {1, {"file!=b.c"}}, known = {1, {"file!="}};
	struct scry_table table = {SCRY_COLUMNS(columns), .filter = &other};

	filter = &a;
	assert_int_equal(show(NULL, 0, scry_out_text_open), 2);
	has("open");
	has("close");
	lacks("app::run");
	has("2 rows are left out by --filter");
	assert_int_equal(show("open", 0, scry_out_text_open), 1);
	has("2 rows are left out by --grep");
	has("1 row is left out by --filter");
	filter = &line;
	assert_int_equal(show(NULL, 0, scry_out_json_open), 1);
	has("\"line\": 3");
	filter = &none;
	assert_int_equal(show(NULL, 0, scry_out_text_open), 0);
	filter = &other; /* a table that has no such column */
	assert_int_equal(show(NULL, 0, scry_out_text_open), 4);
	has("\n--filter does not concern this table: it has no column 'module'\n");
	lacks("left out");
	filter = &both; /* one key that it has; the other is said once */
	assert_int_equal(show(NULL, 0, scry_out_text_open), 1);
	has("3 rows are left out by --filter");
	has("no column 'module'");
	assert_null(strstr(strstr(printed, "no column") + 1, "no column"));
	filter = &unlike; /* what is not known is not b.c */
	assert_int_equal(show(NULL, 0, scry_out_text_open), 3);
	has("reopen");
	filter = &known;
	assert_int_equal(show(NULL, 0, scry_out_text_open), 3);
	lacks("reopen");
	assert_int_equal(scry_table_check_filter(&table, "test"), -EINVAL);
	assert_non_null(strstr(scry_error(), "the test view has no column 'module' to filter by"));
	table.filter = &line;
	assert_int_equal(scry_table_check_filter(&table, "test"), 0);
	table.filter = &sum;
	assert_int_equal(scry_table_check_filter(&table, "test"), -EINVAL);
	filter = NULL;
}

static int by_growth(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	return (a->growth < b->growth) - (a->growth > b->growth);
}

/* Rows that the view calls equal come by what names them, whatever order they came in. */
static void ties(void **state)
{
	static const struct row pairs[2][3] = {
		{{9, 1, 2, "b", "x.c"}, {10, 1, 9, "a", "x.c"}, {9, 1, 5, NULL, NULL}},
		{{9, 1, 5, NULL, NULL}, {10, 1, 9, "a", "x.c"}, {9, 1, 2, "b", "x.c"}},
	};
	static const uint64_t calls[] = {2, 5, 9}; /* lines 9, 9, 10; a name before none */

	for (size_t i = 0; i < 2; i++) {
		FILE *out = fmemopen(printed, sizeof(printed), "w");
		struct scry_doc doc = {.view = "test", .schema = 1, .out = out};
		const struct scry_table table = {SCRY_COLUMNS(columns), SCRY_ROWS(pairs[i], 3),
						 .view = &symbols_made, .order = by_growth};
		const char *at = printed;

		assert_int_equal(((const struct row *)scry_table_first(&table))->calls, calls[0]);
		assert_int_equal(scry_out_json_open(&doc), 0);
		assert_int_equal(scry_table_push(&table, &doc), 3);
		assert_int_equal(scry_doc_end(&doc), 0);
		fclose(out);
		for (size_t k = 0; k < 3; k++) {
			char text[32];

			snprintf(text, sizeof(text), "\"calls\": %d,", (int)calls[k]);
			at = strstr(at, text);
			assert_non_null(at);
		}
	}
}

GET(get_lines,
    (scry_buf_printf(buf, "call %s\n    line %u\n", row->symbol, row->line), scry_cell_buf(buf)))
static struct scry_doc_value values[7];

static struct scry_cell object_of(const struct row *row)
{
	const struct scry_doc_value all[] = {
		{.kind = SCRY_VALUE_OBJECT},
		SCRY_VALUE_OF_KEY("line"),
		{.kind = SCRY_VALUE_HEX, .number = row->line},
		SCRY_VALUE_OF_KEY("calls"),
		{.kind = SCRY_VALUE_BEGIN},
		{.kind = SCRY_VALUE_END},
		{.kind = SCRY_VALUE_OBJECT_END},
	};

	memcpy(values, all, sizeof(all));
	return (struct scry_cell){.values = values, .number = 7};
}

GET(get_object, object_of(row))

/* A row may be lines for people, and have objects for programs. */
static void lines_and_objects(void **state)
{
	static const struct scry_column of_lines[] = {
		{"", NULL, SCRY_CELL_LINES, get_lines, 0},
		{NULL, "of", SCRY_CELL_VALUE, get_object, 0},
	};
	int (*const opens[])(struct scry_doc * doc) = {scry_out_text_open, scry_out_json_open};
	const char *const expected[] = {
		"\nof each\n\ncall open\n    line 1\n\ncall _ZN3app3runEv\n    line 65535\n"
		"\ncall open\n    line 1\n\ncall _ZN3app3runEv\n    line 65535\n",
		"{\"schema\": \"scry.test/1\",\n\"rows\": [\n"
		"{\"of\": {\"line\": \"0x1\", \"calls\": []}},\n"
		"{\"of\": {\"line\": \"0xffff\", \"calls\": []}}\n],\n\"rows\": [\n"
		"{\"of\": {\"line\": \"0x1\", \"calls\": []}},\n"
		"{\"of\": {\"line\": \"0xffff\", \"calls\": []}}\n]\n}\n",
	};

	for (size_t i = 0; i < 2; i++) {
		FILE *out = fmemopen(printed, sizeof(printed), "w");
		struct scry_doc doc = {.view = "test", .schema = 1, .out = out, .title = "of each"};
		const struct scry_table table = {SCRY_COLUMNS(of_lines), SCRY_ROWS(rows, 2),
						 .view = &symbols_made};

		assert_int_equal(opens[i](&doc), 0);
		scry_table_push(&table, &doc);
		doc.title = NULL;
		scry_table_push(&table, &doc);
		assert_int_equal(scry_doc_end(&doc), 0);
		fclose(out);
		assert_string_equal(printed, expected[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cells),
		cmocka_unit_test(left_out),
		cmocka_unit_test(grepped),
		cmocka_unit_test(sorted),
		cmocka_unit_test(filters),
		cmocka_unit_test(ties),
		cmocka_unit_test(lines_and_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
