/*
 * One table of options: it parses the command line, prints the help and feeds the completion.
 *
 * A command writes an array of rows with targets in its own options struct; rows shared by commands
 * are macros that expand to rows. Parsing stops at the first word that is not an option, or after
 * `--`, so the arguments of the program to run are left alone. A row given twice: the last one
 * wins, except for a list, which grows. Over getopt_long: `--long=VALUE`, `--long VALUE`,
 * unambiguous prefixes, `-dVALUE`.
 */
#ifndef SCRY_BASE_OPT_H
#define SCRY_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum scry_opt_kind {
	SCRY_OPT_FLAG,	       /* bool *: set to true */
	SCRY_OPT_COUNT,	       /* int *: counts how often it was given (-v -v) */
	SCRY_OPT_STRING,       /* const char **: points into argv */
	SCRY_OPT_CHOICE,       /* int *: index of the word in `choices` */
	SCRY_OPT_CHOICE_MAYBE, /* the same; --long alone is the first word */
	SCRY_OPT_U64,	       /* uint64_t * */
	SCRY_OPT_PID,	       /* uint64_t *: as many as a pid_t holds */
	SCRY_OPT_U64_MAYBE,    /* uint64_t *: --long=N; --long alone is UINT64_MAX */
	SCRY_OPT_DURATION, /* uint64_t *: ns; 50ms, 1.5s, 30s, 5m, 2h; a bare number is seconds */
	SCRY_OPT_SIZE,	   /* uint64_t *: bytes; 64KiB, 256M, 1GiB; powers of 1024 */
	SCRY_OPT_U64_LIST, /* struct scry_opt_list *: repeatable; commas, blanks; each once */
	SCRY_OPT_STRINGS,  /* struct scry_opt_strings *: repeatable, point into argv */
};

#define SCRY_OPT_LIST_MAX 64
#define SCRY_OPT_ROWS_MAX 64

struct scry_opt_list {
	size_t count;
	uint64_t values[SCRY_OPT_LIST_MAX];
};

struct scry_opt_strings {
	size_t count;
	const char *values[SCRY_OPT_LIST_MAX];
};

struct scry_opt {
	char short_name;       /* 0: none */
	const char *long_name; /* never NULL */
	enum scry_opt_kind kind;
	void *target;	     /* as the kind says; untouched when the option is not given */
	const char *arg;     /* name of the argument in the help; NULL for flags */
	const char *help;    /* one sentence, lower case, no full stop */
	const char *choices; /* CHOICE and CHOICE_MAYBE: "line|class|file" */
};

/*
 * Reads argv[1...]. 0 and in *ret_rest the index of the first word that was not consumed (argc when
 * none); -EINVAL with a sentence for anything a user can get wrong. argv is not reordered. Not
 * re-entrant (getopt); call before threads start.
 */
struct scry_opt_args {
	int argc;
	char **argv;
};
int scry_opt_parse(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
		   int *ret_rest);

/*
 * For commands with words of their own, options before, between and after them: `diff A B --json`.
 * 0 or -EINVAL with a sentence.
 */
#define SCRY_OPT_WORDS_MAX 2
struct scry_opt_words {
	size_t count;
	const char *words[SCRY_OPT_WORDS_MAX];
};
int scry_opt_parse_words(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
			 struct scry_opt_words *ret_words);

/* The same for at most one word: `report FILE --json`. *ret_word is NULL when there is none. */
int scry_opt_parse_one(const struct scry_opt *rows, size_t count, struct scry_opt_args args,
		       const char **ret_word);

/* Two columns for a terminal of 100 columns. */
void scry_opt_help(const struct scry_opt *rows, size_t count, FILE *out);

/* Has scry_opt_help printed anything yet? Then an example may follow. */
bool scry_opt_helped(void);

/*
 * For completion: while a reader is set, scry_opt_parse and the functions after it hand it the
 * rows, parse nothing and return -ECANCELED; NULL ends that. The rows are good during the call.
 */
typedef void scry_opt_reader(const struct scry_opt *rows, size_t count, void *arg);
void scry_opt_read_rows(scry_opt_reader *reader, void *arg);

/* The next word of a row's `choices`: its length; *choices moves behind it. 0 at the end. */
size_t scry_opt_next_choice(const char **choices, const char **ret_word);
/* Is its argument in a word of its own (1), only behind "=", if at all (-1), or has it none (0)? */
int scry_opt_has_arg(const struct scry_opt *row);

/* Text to numbers as the kinds above read them. 0, -EINVAL or -ERANGE with a sentence. */
int scry_opt_read_u64(const char *text, uint64_t *ret_value);
int scry_opt_read_duration(const char *text, uint64_t *ret_ns);
int scry_opt_read_size(const char *text, uint64_t *ret_bytes);

#endif
