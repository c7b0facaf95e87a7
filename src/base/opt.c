/*
 * One table of options over getopt_long. See opt.h.
 *
 * getopt reports a long option by its row's number above every char, a short one by its letter.
 */
#include "base/opt.h"

#include "base/err.h"
#include "base/nearest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define OPT_LONG_BASE 256
#define OPT_HELP_COLUMN 30
#define OPT_HELP_WIDTH 100

static scry_opt_reader *opt_reader;
static void *opt_reader_arg;
static bool opt_was_help;

struct opt_unit {
	const char *name;
	uint64_t factor;
};

static const struct opt_unit duration_units[] = {
	{"", 1000000000},
	{"ns", 1},
	{"us", 1000},
	{"ms", 1000000},
	{"s", 1000000000},
	{"m", UINT64_C(60000000000)},
	{"min", UINT64_C(60000000000)},
	{"h", UINT64_C(3600000000000)},
	{NULL, 0},
};

static const struct opt_unit size_units[] = {
	{"", 1},
	{"B", 1},
	{"K", 1u << 10},
	{"k", 1u << 10},
	{"KiB", 1u << 10},
	{"M", 1u << 20},
	{"MiB", 1u << 20},
	{"G", 1u << 30},
	{"GiB", 1u << 30},
	{"T", UINT64_C(1) << 40},
	{"TiB", UINT64_C(1) << 40},
	{NULL, 0},
};

static bool opt_has_arg(const struct scry_opt *row)
{
	return row->kind != SCRY_OPT_FLAG && row->kind != SCRY_OPT_COUNT;
}

int scry_opt_read_u64(const char *text, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	/* strtoull takes "-1" and leading blanks; we do not. */
	if (!isdigit((unsigned char)text[0]))
		return scry_fail(-EINVAL, "'%s' is not a number", text);
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end)
		return scry_fail(-EINVAL, "'%s' is not a number", text);
	if (errno)
		return scry_fail(-ERANGE, "'%s' is too big a number", text);
	*ret_value = value;
	return 0;
}

static int opt_read_pid(const char *text, uint64_t *ret_pid)
{
	uint64_t value;
	int err = scry_opt_read_u64(text, &value);

	if (err)
		return err;
	if (value > INT32_MAX)
		return scry_fail(-ERANGE, "'%s' is too big a number", text);
	*ret_pid = value;
	return 0;
}

/* A number with up to nine decimals, and a unit: all in integers, so 0.1 is exact. */
static int opt_read_unit(const char *text, const struct opt_unit *units, uint64_t *ret_value)
{
	unsigned __int128 whole = 0, part = 0;
	uint64_t scale = 1;
	const char *at = text;
	const struct opt_unit *unit;

	for (; isdigit((unsigned char)*at) && whole <= UINT64_MAX; at++)
		whole = whole * 10 + (unsigned int)(*at - '0');
	if (at == text && !(at[0] == '.' && isdigit((unsigned char)at[1])))
		return -EINVAL;
	if (*at == '.') {
		for (at++; isdigit((unsigned char)*at); at++) {
			if (scale >= 1000000000)
				return -EINVAL;
			part = part * 10 + (unsigned int)(*at - '0');
			scale *= 10;
		}
	}
	for (unit = units; unit->name; unit++)
		if (!strcmp(unit->name, at))
			break;
	if (!unit->name)
		return -EINVAL;
	if (whole > UINT64_MAX / unit->factor)
		return -ERANGE;
	whole = whole * unit->factor + part * unit->factor / scale;
	if (whole > UINT64_MAX)
		return -ERANGE;
	*ret_value = (uint64_t)whole;
	return 0;
}

int scry_opt_read_duration(const char *text, uint64_t *ret_ns)
{
	int err = opt_read_unit(text, duration_units, ret_ns);

	if (err == -ERANGE)
		return scry_fail(err, "'%s' is too long a time", text);
	if (err)
		return scry_fail(err, "'%s' is not a time; fix: like 50ms, 30s, 5m or 2h", text);
	return 0;
}

int scry_opt_read_size(const char *text, uint64_t *ret_bytes)
{
	int err = opt_read_unit(text, size_units, ret_bytes);

	if (err == -ERANGE)
		return scry_fail(err, "'%s' is too big a size", text);
	if (err)
		return scry_fail(err, "'%s' is not a size; fix: like 64KiB, 256MiB or 1GiB", text);
	return 0;
}

size_t scry_opt_next_choice(const char **choices, const char **ret_word)
{
	size_t len = strcspn(*choices, "|");

	*ret_word = *choices;
	*choices += len + ((*choices)[len] == '|');
	return len;
}

static int opt_read_choice(const struct scry_opt *row, const char *text)
{
	const char *words = row->choices, *word;
	size_t len;
	int index;

	for (index = 0; (len = scry_opt_next_choice(&words, &word)) > 0; index++) {
		if (strlen(text) == len && !memcmp(text, word, len)) {
			*(int *)row->target = index;
			return 0;
		}
	}
	return scry_fail(-EINVAL, "'%s' is not one of %s", text, row->choices);
}

#define BLANKS " \t\n" /* as between the words of $(pgrep puma) */

static int opt_read_list(struct scry_opt_list *list, const char *text)
{
	while (*(text += strspn(text, BLANKS))) {
		size_t len = strcspn(text, BLANKS ",");
		char item[32];
		size_t i = 0;
		int err;

		if (list->count >= SCRY_OPT_LIST_MAX)
			return scry_fail(-EINVAL, "more than %d values", SCRY_OPT_LIST_MAX);
		snprintf(item, sizeof(item), "%.*s", (int)(len < 31 ? len : 31), text);
		err = scry_opt_read_u64(item, &list->values[list->count]);
		if (err)
			return err;
		while (list->values[i] != list->values[list->count])
			i++;
		list->count += i == list->count; /* given twice, it is meant once */
		text += len;
		text += strspn(text, BLANKS);
		if (*text == ',' && !*++text)
			break;
	}
	return list->count ? 0 : scry_fail(-EINVAL, "'' is not a number");
}

static int opt_add_string(struct scry_opt_strings *list, const char *text)
{
	if (list->count >= SCRY_OPT_LIST_MAX)
		return scry_fail(-EINVAL, "given more than %d times", SCRY_OPT_LIST_MAX);
	list->values[list->count++] = text;
	return 0;
}

static int opt_store(const struct scry_opt *row, const char *text)
{
	switch (row->kind) {
	case SCRY_OPT_FLAG:
		*(bool *)row->target = true;
		return 0;
	case SCRY_OPT_COUNT:
		++*(int *)row->target;
		return 0;
	case SCRY_OPT_STRING:
		*(const char **)row->target = text;
		return 0;
	case SCRY_OPT_CHOICE:
		return opt_read_choice(row, text);
	case SCRY_OPT_CHOICE_MAYBE:
		*(int *)row->target = 0;
		return text ? opt_read_choice(row, text) : 0;
	case SCRY_OPT_U64_MAYBE:
		*(uint64_t *)row->target = UINT64_MAX;
		return text ? scry_opt_read_u64(text, row->target) : 0;
	case SCRY_OPT_U64:
		return scry_opt_read_u64(text, row->target);
	case SCRY_OPT_PID:
		return opt_read_pid(text, row->target);
	case SCRY_OPT_DURATION:
		return scry_opt_read_duration(text, row->target);
	case SCRY_OPT_SIZE:
		return scry_opt_read_size(text, row->target);
	case SCRY_OPT_U64_LIST:
		return opt_read_list(row->target, text);
	case SCRY_OPT_STRINGS:
		return opt_add_string(row->target, text);
	}
	assert(!"an option row has an unknown kind");
	return -EINVAL;
}

static const struct scry_opt *opt_by_code(const struct scry_opt *rows, size_t count, int code)
{
	size_t i;

	if (code >= OPT_LONG_BASE)
		return (size_t)(code - OPT_LONG_BASE) < count ? &rows[code - OPT_LONG_BASE] : NULL;
	for (i = 0; i < count; i++)
		if (rows[i].short_name == code)
			return &rows[i];
	return NULL;
}

/* Its argument may be left out. */
static bool opt_is_maybe(const struct scry_opt *row)
{
	return row->kind == SCRY_OPT_U64_MAYBE || row->kind == SCRY_OPT_CHOICE_MAYBE;
}

static int opt_getopt_arg(const struct scry_opt *row)
{
	if (opt_is_maybe(row))
		return optional_argument;
	return opt_has_arg(row) ? required_argument : no_argument;
}

int scry_opt_has_arg(const struct scry_opt *row)
{
	return opt_is_maybe(row) ? -1 : opt_has_arg(row);
}

/* What getopt needs. "+": stop at the first non-option; ":": a missing argument is an error of its
 * own. */
static void opt_fill(const struct scry_opt *rows, size_t count, char *shorts, struct option *longs)
{
	size_t i;

	*shorts++ = '+';
	*shorts++ = ':';
	for (i = 0; i < count; i++) {
		longs[i] = (struct option){
			.name = rows[i].long_name,
			.has_arg = opt_getopt_arg(&rows[i]),
			.val = OPT_LONG_BASE + (int)i,
		};
		if (!rows[i].short_name)
			continue;
		*shorts++ = rows[i].short_name;
		if (opt_has_arg(&rows[i]))
			*shorts++ = ':';
	}
	longs[count] = (struct option){0};
	*shorts = '\0';
}

/* A long option that is none, or the beginning of more than one. */
static int opt_complain_word(const struct scry_opt *rows, size_t count, const char *word)
{
	const char *name = word + strspn(word, "-");
	const struct scry_opt *first = NULL;
	size_t len = strcspn(name, "=");
	struct scry_nearest near;
	char typed[SCRY_NEAREST_MAX];

	snprintf(typed, sizeof(typed), "%.*s", (int)len, name);
	scry_nearest_begin(&near, typed);
	for (size_t i = 0; len && i < count; i++) {
		scry_nearest_offer(&near, rows[i].long_name);
		if (strncmp(rows[i].long_name, name, len))
			continue;
		if (first)
			return scry_fail(-EINVAL, "'%s' may be --%s or --%s; fix: write more of it",
					 word, first->long_name, rows[i].long_name);
		first = &rows[i];
	}
	if (*near.name)
		return scry_fail(-EINVAL, "unknown option '%s'; did you mean '--%s'?", word,
				 near.name);
	return scry_fail(-EINVAL, "unknown option '%s'; fix: --help lists them", word);
}

/* getopt said '?' or ':' about the word before optind, or about the letter in optopt. */
static int opt_complain(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
			int code)
{
	const struct scry_opt *row = optopt ? opt_by_code(rows, count, optopt) : NULL;
	const char *word = args.argv[optind - 1];

	if (code == ':')
		return scry_fail(-EINVAL, "option --%s needs %s", row ? row->long_name : word,
				 row && row->arg ? row->arg : "an argument");
	if (row && !strncmp(word, "--", 2))
		return scry_fail(-EINVAL, "option --%s takes no argument", row->long_name);
	if (optopt && optopt < OPT_LONG_BASE)
		return scry_fail(-EINVAL, "unknown option '-%c'; fix: --help lists them", optopt);
	return opt_complain_word(rows, count, word);
}

void scry_opt_read_rows(scry_opt_reader *reader, void *arg)
{
	opt_reader = reader;
	opt_reader_arg = arg;
}

int scry_opt_parse(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
		   int *ret_rest)
{
	char shorts[2 * SCRY_OPT_ROWS_MAX + 3];
	struct option longs[SCRY_OPT_ROWS_MAX + 1];
	int code, err;

	assert(count <= SCRY_OPT_ROWS_MAX);
	if (opt_reader) {
		opt_reader(rows, count, opt_reader_arg);
		return -ECANCELED;
	}
	opt_fill(rows, count, shorts, longs);
	optind = 0; /* glibc: begin anew */
	opterr = 0;
	while ((code = getopt_long(args.argc, args.argv, shorts, longs, NULL)) != -1) {
		const struct scry_opt *row;
		char why[512];

		if (code == '?' || code == ':')
			return opt_complain(rows, count, args, code);
		row = opt_by_code(rows, count, code);
		err = opt_store(row, optarg);
		if (err) {
			snprintf(why, sizeof(why), "%s", scry_error());
			return scry_fail(-EINVAL, "option --%s: %s", row->long_name, why);
		}
	}
	*ret_rest = optind;
	return 0;
}

static int opt_parse_words(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
			   struct scry_opt_words *words, size_t max)
{
	int rest, err;

	for (;;) {
		err = scry_opt_parse(rows, count, args, &rest);
		if (err)
			return err;
		if (rest >= args.argc)
			return 0;
		if (words->count == max)
			return scry_fail(-EINVAL, "'%s' is one word too many", args.argv[rest]);
		words->words[words->count++] = args.argv[rest];
		args.argv += rest; /* the word is where a program's name is */
		args.argc -= rest;
	}
}

int scry_opt_parse_words(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
			 struct scry_opt_words *ret_words)
{
	struct scry_opt_words words = {0};
	int err = opt_parse_words(rows, count, args, &words, SCRY_OPT_WORDS_MAX);

	if (!err)
		*ret_words = words;
	return err;
}

int scry_opt_parse_one(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
		       const char **ret_word)
{
	struct scry_opt_words words = {0};
	int err = opt_parse_words(rows, count, args, &words, 1);

	if (!err)
		*ret_word = words.words[0];
	return err;
}

static const char *opt_arg_name(const struct scry_opt *row)
{
	if (row->arg)
		return row->arg;
	return row->choices ? row->choices : "VALUE";
}

/* Prints `text` from OPT_HELP_COLUMN on, broken at blanks before OPT_HELP_WIDTH. */
static void opt_wrap(const char *text, FILE *out)
{
	size_t column = OPT_HELP_COLUMN;

	while (*text) {
		size_t len = strcspn(text, " ");

		if (column > OPT_HELP_COLUMN && column + 1 + len > OPT_HELP_WIDTH) {
			fprintf(out, "\n%*s", OPT_HELP_COLUMN, "");
			column = OPT_HELP_COLUMN;
		} else if (column > OPT_HELP_COLUMN) {
			fputc(' ', out);
			column++;
		}
		fwrite(text, 1, len, out);
		column += len;
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void opt_help_row(const struct scry_opt *row, FILE *out)
{
	int width =
		row->short_name ? fprintf(out, "  -%c, ", row->short_name) : fprintf(out, "      ");

	width += fprintf(out, "--%s", row->long_name);
	if (opt_has_arg(row))
		width += fprintf(out, opt_is_maybe(row) ? "[=%s]" : "=%s", opt_arg_name(row));
	if (width + 2 > OPT_HELP_COLUMN)
		fprintf(out, "\n%*s", OPT_HELP_COLUMN, "");
	else
		fprintf(out, "%*s", OPT_HELP_COLUMN - width, "");
	opt_wrap(row->help, out);
}

/* Rows that commands share end with --help; where others follow them, it is the last all the same.
 */
void scry_opt_help(const struct scry_opt *rows, size_t count, FILE *out)
{
	const struct scry_opt *help = NULL;

	opt_was_help = true;
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(rows[i].long_name, "help"))
			help = &rows[i];
		else
			opt_help_row(&rows[i], out);
	}
	if (help)
		opt_help_row(help, out);
}

bool scry_opt_helped(void)
{
	return opt_was_help;
}
