/*
 * `scry completion bash|zsh|fish`: a script for the shell, made of the tables that the commands
 * themselves read: each is called with a reader of its option rows, and parses nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/output.h"

static const char usage[] = "scry completion bash|zsh|fish";

struct writer {
	const char *group, *name; /* of the command; group may be NULL */
};

typedef void write_row(const struct writer *w, const struct scry_opt *row);

static void print_name(const struct writer *w, char between)
{
	if (w->group)
		printf("%s%c", w->group, between);
	printf("%s", w->name);
}

/* In single quotes; `special` characters get a backslash. */
static void print_quoted(const char *text, const char *special, const char *quote)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs(quote, stdout);
		else if (strchr(special, *text))
			printf("\\%c", *text);
		else
			putchar(*text);
	}
}

/* Words with commas between. */
static bool is_list(const struct scry_opt *row)
{
	return row->choices && row->arg && !strcmp(row->arg, "LIST");
}

static bool is_user(const struct scry_opt *row)
{
	return row->arg && !strcmp(row->arg, "USER");
}

/* The first word of commands that take a patch by its name: `words`, or those that `scry ps` finds
 * in processes. */
static const struct {
	const char *name;  /* of the command in "patch" */
	const char *words; /* NULL: of processes */
} patch_words[] = {{"apply", "ucontext"}, {"undo", NULL}, {"read", NULL}};

#define PATCH_WORDS (sizeof(patch_words) / sizeof(*patch_words))
#define PATCHES_OF_PS                                                                            \
	"scry ps --json 2>/dev/null | sed -n 's/.*\"patches\": *\"\\([^\"]*\\)\".*/\\1/p' | tr " \
	"-d ,"

/* Is it among the choices before it? Lists of several views name some keys twice. */
static bool is_again(const char *choices, const char *word, size_t len)
{
	const char *other;
	size_t n;

	while ((n = scry_opt_next_choice(&choices, &other)) > 0 && other != word)
		if (n == len && !memcmp(other, word, len))
			return true;
	return false;
}

static void print_choices(const struct scry_opt *row, const char *before)
{
	const char *choices = row->choices, *word;
	const char *behind =
		row->kind == SCRY_OPT_STRINGS && !is_list(row) ? "=" : ""; /* KEY=GLOB */
	size_t len;

	for (size_t i = 0; choices && (len = scry_opt_next_choice(&choices, &word)) > 0; i++)
		if (!is_again(row->choices, word, len))
			printf("%s%s%.*s%s", i ? " " : "", before, (int)len, word, behind);
}

static bool is_pid(const struct scry_opt *row)
{
	return !strcmp(row->long_name, "pid");
}

static void each_row(const struct scry_opt *rows, size_t count, void *arg)
{
	void **call = arg;
	write_row *write = *(write_row **)call[0];

	for (size_t i = 0; i < count; i++)
		write(call[1], &rows[i]);
}

/* Calls `write` for each option of the command. */
static void each_option(const struct writer *w, const struct scry_command *c, write_row *write)
{
	char name[32], help[] = "--help";
	char *argv[] = {name, help, NULL};
	void *call[] = {&write, (void *)w};

	snprintf(name, sizeof(name), "%s", c->name);
	scry_opt_read_rows(each_row, call);
	c->run(2, argv);
	scry_opt_read_rows(NULL, NULL);
	scry_error_clear();
}

typedef void write_command(const struct writer *w, const struct scry_command *c);

static void each_command(write_command *write)
{
	for (const struct scry_command *c = scry_commands; c->name; c++) {
		if (!c->group)
			write(&(struct writer){NULL, c->name}, c);
		for (const struct scry_command *g = c->group; g && g->name; g++)
			write(&(struct writer){c->name, g->name}, g);
	}
}

static void print_names(const struct scry_command *table)
{
	for (const struct scry_command *c = table; c->name; c++)
		printf("%s%s", c == table ? "" : " ", c->name);
}

/* For each command that has subcommands: its name and theirs, between these texts. */
static void print_groups(const char *before, const char *between, const char *after)
{
	for (const struct scry_command *c = scry_commands; c->name; c++) {
		if (!c->group)
			continue;
		printf("%s%s%s", before, c->name, between);
		print_names(c->group);
		printf("%s", after);
	}
}

/* bash */

static void bash_option(const struct writer *w, const struct scry_opt *row)
{
	if (row->short_name)
		printf(" -%c", row->short_name);
	printf(" --%s", row->long_name);
	if (scry_opt_has_arg(row) < 0 && row->choices) {
		char before[64];

		snprintf(before, sizeof(before), "--%s=", row->long_name);
		putchar(' ');
		print_choices(row, before);
	}
}

static void bash_options(const struct writer *w, const struct scry_command *c)
{
	printf("\t\"");
	print_name(w, ' ');
	printf("\") words=\"");
	each_option(w, c, bash_option);
	printf("\" ;;\n");
}

static void bash_argument(const struct writer *w, const struct scry_opt *row)
{
	if (!is_pid(row) && !is_user(row) && !row->choices)
		return;
	printf("\t\"");
	print_name(w, ' ');
	printf(" --%s\"", row->long_name);
	if (row->short_name) {
		printf(" | \"");
		print_name(w, ' ');
		printf(" -%c\"", row->short_name);
	}
	printf(") words=\"");
	if (is_pid(row))
		printf("$(ps -eo pid=)");
	if (is_user(row))
		printf("$(compgen -u)");
	print_choices(row, "");
	printf("\" %s;;\n", is_list(row) ? "list=1 " : "");
}

static void bash_arguments(const struct writer *w, const struct scry_command *c)
{
	each_option(w, c, bash_argument);
}

static void write_bash(void)
{
	printf("# Completion of scry for bash: eval \"$(scry completion bash)\"\n"
	       "_scry_full() { # the word of $2 that is $1, or the only one that begins so\n"
	       "\tlocal word found=''\n"
	       "\tfor word in $2; do\n"
	       "\t\t[ \"$word\" != \"$1\" ] || { echo \"$1\"; return; }\n"
	       "\t\t[ -z \"$1\" ] || [[ $word != \"$1\"* ]] || found+=\" $word\"\n"
	       "\tdone\n"
	       "\t[ -n \"$found\" ] && [[ ${found:1} != *\" \"* ]] && echo \"${found:1}\" || echo "
	       "\"$1\"\n"
	       "}\n"
	       "_scry_patches() { " PATCHES_OF_PS "; }\n"
	       "_scry() {\n"
	       "\tlocal cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
	       "\tlocal name=${COMP_WORDS[1]} words='' list='' i\n"
	       "\tCOMPREPLY=()\n"
	       "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	       "\t\tif [ \"${COMP_WORDS[i]}\" = -- ]; then\n"
	       "\t\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
	       "\t\t\treturn\n"
	       "\t\tfi\n"
	       "\tdone\n"
	       "\t[ \"$COMP_CWORD\" = 1 ] || name=$(_scry_full \"$name\" \"");
	print_names(scry_commands);
	printf("\")\n"
	       "\tcase \"$COMP_CWORD $name\" in\n"
	       "\t\"1 \"*) words=\"");
	print_names(scry_commands);
	printf("\" ;;\n\t\"2 help\") words=\"");
	print_names(scry_commands);
	printf("\" ;;\n\t\"3 help\") case $(_scry_full \"${COMP_WORDS[2]}\" \"");
	print_names(scry_commands);
	printf("\") in\n");
	print_groups("\t\t", ") words=\"", "\" ;;\n");
	printf("\t\tesac ;;\n\t\"2 completion\") [ \"${cur:0:1}\" = - ] || words=\"bash zsh fish\" "
	       ";;\n");
	print_groups("\t\"2 ", "\") words=\"", "\" ;;\n");
	printf("\tesac\n\tcase $name in\n");
	for (const struct scry_command *c = scry_commands; c->name; c++) {
		if (!c->group)
			continue;
		printf("\t%s) name=\"%s $(_scry_full \"${COMP_WORDS[2]}\" \"", c->name, c->name);
		print_names(c->group);
		printf("\")\" ;;\n");
	}
	/* bash splits words at "=". */
	printf("\tesac\n"
	       "\tif [ \"$cur\" = = ]; then\n"
	       "\t\tcur=''\n"
	       "\telif [ \"$before\" = = ]; then\n"
	       "\t\tbefore=${COMP_WORDS[COMP_CWORD - 2]}\n"
	       "\tfi\n"
	       "\t[ -n \"$words\" ] || case \"$name $before\" in\n");
	each_command(bash_arguments);
	printf("\tesac\n"
	       "\t[ -n \"$words\" ] || [ \"${cur:0:1}\" = - ] || case \"$COMP_CWORD $name\" in\n");
	for (size_t i = 0; i < PATCH_WORDS; i++)
		printf("\t\"3 patch %s\") words=\"%s\" ;;\n", patch_words[i].name,
		       patch_words[i].words ? patch_words[i].words : "$(_scry_patches)");
	printf("\tesac\n"
	       "\t[ -n \"$words\" ] || [ \"${cur:0:1}\" != - ] || case $name in\n");
	each_command(bash_options);
	printf("\tesac\n"
	       "\t[ -z \"$list\" ] || [[ $cur != *,* ]] ||\n"
	       "\t\twords=$(printf \"${cur%%,*},%%s \" $words)\n"
	       "\t[ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
	       "\"$cur\")\n"
	       "\t[[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n"
	       "}\n"
	       "complete -o default -F _scry scry\n");
}

/* zsh */

static bool is_repeatable(const struct scry_opt *row)
{
	return row->kind == SCRY_OPT_COUNT || row->kind == SCRY_OPT_U64_LIST ||
	       row->kind == SCRY_OPT_STRINGS;
}

static void zsh_option(const struct writer *w, const struct scry_opt *row)
{
	const int arg = scry_opt_has_arg(row);
	const char *behind = arg > 0 ? "=" : arg < 0 ? "=-" : "";

	printf(" \\\n\t\t");
	if (is_repeatable(row))
		printf("'*'");
	else if (row->short_name)
		printf("'(-%c --%s)'", row->short_name, row->long_name);
	if (row->short_name)
		printf("{-%c%s,--%s%s}", row->short_name, arg > 0 ? "+" : "", row->long_name,
		       behind);
	else
		printf("--%s%s", row->long_name, behind);
	printf("'[");
	print_quoted(row->help, "[]:\\", "'\\''");
	putchar(']');
	if (arg) {
		printf("%s%s:", arg < 0 ? "::" : ":", row->arg ? row->arg : "word");
		if (is_pid(row))
			printf("_pids");
		else if (is_user(row))
			printf("_users");
		else if (!row->choices)
			printf("_files");
		else if (is_list(row)) {
			printf("{_values -s , %s ", row->arg);
			print_choices(row, "");
			putchar('}');
		} else {
			putchar('(');
			print_choices(row, "");
			putchar(')');
		}
	}
	putchar('\'');
}

static void zsh_command(const struct writer *w, const struct scry_command *c)
{
	printf("_scry_");
	print_name(w, '_');
	printf("() {\n\t_arguments -s");
	each_option(w, c, zsh_option);
	for (size_t i = 0; w->group && !strcmp(w->group, "patch") && i < PATCH_WORDS; i++)
		if (!strcmp(w->name, patch_words[i].name))
			printf(" \\\n\t\t'1:patch:{compadd -- %s%s}'",
			       patch_words[i].words ? patch_words[i].words : "$(_scry_patches)",
			       patch_words[i].words ? "; _files" : "");
	printf(" \\\n\t\t%s\n}\n",
	       strcmp(w->name, "completion") ? "'*:: :_scry_rest'" : "'1:shell:(bash zsh fish)'");
}

/* A function that picks the word of `table`, and goes on with the rest. */
/* `handlers`: what the names of the functions that go on begin with. */
static void zsh_words(const char *function, const struct scry_command *table, const char *handlers)
{
	printf("%s() {\n\tlocal line state name\n"
	       "\t_arguments -C '1: :->word' '*:: :->rest'\n"
	       "\tcase $state in\n"
	       "\tword)\n\t\tlocal -a words=(",
	       function);
	for (const struct scry_command *c = table; c->name; c++) {
		printf("\n\t\t\t'%s:", c->name);
		print_quoted(c->summary, ":\\", "'\\''");
		putchar('\'');
	}
	printf("\n\t\t)\n\t\t_describe command words\n\t\t;;\n"
	       "\trest)\n\t\tname=$(_scry_full $line[1]");
	for (const struct scry_command *c = table; c->name; c++)
		printf(" %s", c->name);
	printf("%s)\n\t\t(( $+functions[%s_$name] )) && %s_$name\n\t\t;;\n\tesac\n}\n",
	       !strcmp(function, "_scry_main") ? " help" : "", handlers, handlers);
}

static void write_zsh(void)
{
	printf("#compdef scry\n"
	       "_scry_full() { # the word of the others that is $1, or the only one that begins "
	       "so\n"
	       "\tlocal word=$1\n\tshift\n"
	       "\tlocal -a found=(${(M)@:#$word*})\n"
	       "\t(( ${@[(Ie)$word]} )) || (( $#found != 1 )) || [ -z $word ] || word=$found[1]\n"
	       "\tprint -r -- $word\n"
	       "}\n"
	       "_scry_patches() { " PATCHES_OF_PS "; }\n"
	       "_scry_rest() { # a program behind --, else files\n"
	       "\tif (( ${_scry_words[(I)--]} && ${_scry_words[(I)--]} < _scry_at )); then\n"
	       "\t\t_normal\n"
	       "\telse\n"
	       "\t\t_files\n"
	       "\tfi\n"
	       "}\n");
	each_command(zsh_command);
	for (const struct scry_command *c = scry_commands; c->name; c++) {
		char function[64];

		snprintf(function, sizeof(function), "_scry_%s", c->name);
		if (c->group)
			zsh_words(function, c->group, function);
	}
	for (const struct scry_command *c = scry_commands; c->name; c++) {
		char function[64];

		snprintf(function, sizeof(function), "_scry_help_%s", c->name);
		if (c->group)
			zsh_words(function, c->group, "_scry_no");
	}
	zsh_words("_scry_help", scry_commands, "_scry_help");
	zsh_words("_scry_main", scry_commands, "_scry");
	printf("_scry() {\n\tlocal -a _scry_words=(\"${words[@]}\")\n"
	       "\tlocal _scry_at=$CURRENT\n\t_scry_main\n}\n");
	printf("if [ \"$funcstack[1]\" = _scry ]; then\n\t_scry \"$@\"\nelse\n"
	       "\tcompdef _scry scry\nfi\n");
}

/* fish */

static void fish_option(const struct writer *w, const struct scry_opt *row)
{
	printf("complete -c scry -n '__scry_is \"");
	print_name(w, ' ');
	printf("\"'");
	if (row->short_name)
		printf(" -s %c", row->short_name);
	printf(" -l %s", row->long_name);
	if (is_pid(row))
		printf(" -x -a '(__fish_complete_pids)'");
	else if (is_user(row))
		printf(" -x -a '(__fish_complete_users)'");
	else if (row->choices) {
		printf("%s -a '%s", scry_opt_has_arg(row) > 0 ? " -x" : " -f",
		       is_list(row) ? "(__fish_append , " : "");
		print_choices(row, "");
		printf("%s'", is_list(row) ? ")" : "");
	} else if (scry_opt_has_arg(row) > 0)
		printf(" -r");
	printf(" -d '");
	print_quoted(row->help, "\\", "\\'");
	printf("'\n");
}

static void fish_options(const struct writer *w, const struct scry_command *c)
{
	each_option(w, c, fish_option);
}

static void fish_words(const char *condition, const struct scry_command *table)
{
	for (const struct scry_command *c = table; c->name; c++) {
		printf("complete -c scry -f -n '__scry_are \"%s\"' -a %s -d '", condition, c->name);
		print_quoted(c->summary, "\\", "\\'");
		printf("'\n");
	}
}

static void write_fish(void)
{
	printf("# Completion of scry for fish.\n"
	       "function __scry_full # the word of the others that is $argv[1], or the only one "
	       "that begins so\n"
	       "\tset -l found (string match -- \"$argv[1]*\" $argv[2..])\n"
	       "\tif not contains -- $argv[1] $argv[2..]; and test (count $found) = 1\n"
	       "\t\techo $found\n"
	       "\telse\n"
	       "\t\techo $argv[1]\n"
	       "\tend\n"
	       "end\n"
	       "function __scry_words # of the command line, commands in full\n"
	       "\tset -l words (commandline -opc)[2..]\n"
	       "\tset -q words[1]; and set words[1] (__scry_full $words[1] help ");
	print_names(scry_commands);
	printf(")\n\tset -q words[2]; and switch $words[1]\n"
	       "\t\tcase help\n\t\t\tset words[2] (__scry_full $words[2] ");
	print_names(scry_commands);
	printf(")\n");
	print_groups("\t\tcase ", "\n\t\t\tset words[2] (__scry_full $words[2] ", ")\n");
	printf("\tend\n"
	       "\tprintf '%%s\\n' $words\n"
	       "end\n"
	       "function __scry_is # the command line begins with these words\n"
	       "\tset -l words (__scry_words)\n"
	       "\tnot contains -- -- $words; and string match -q -- \"$argv[1] *\" \"$words \"\n"
	       "end\n"
	       "function __scry_are # the command line has these words so far, no others\n"
	       "\tset -l words (__scry_words)\n"
	       "\ttest \"$words\" = \"$argv[1]\"\n"
	       "end\n"
	       "function __scry_behind # what may follow in the command behind --\n"
	       "\tset -l words (commandline -opc)\n"
	       "\tset -l at (contains -i -- -- $words)\n"
	       "\tset -e words[1..$at]\n"
	       "\tcomplete -C (string join ' ' -- (string escape -- $words) "
	       "(commandline -ct))\n"
	       "end\n"
	       "function __scry_patches # by their names\n"
	       "\t" PATCHES_OF_PS " | string split -n ' '\n"
	       "end\n"
	       "complete -c scry -x -n 'contains -- -- (commandline -opc)' -a "
	       "'(__scry_behind)'\n"
	       "complete -c scry -f -n '__scry_are completion' -a 'bash zsh fish'\n");
	fish_words("", scry_commands);
	fish_words("help", scry_commands);
	for (const struct scry_command *c = scry_commands; c->name; c++) {
		char help[64];

		if (!c->group)
			continue;
		fish_words(c->name, c->group);
		snprintf(help, sizeof(help), "help %s", c->name);
		fish_words(help, c->group);
	}
	for (size_t i = 0; i < PATCH_WORDS; i++)
		printf("complete -c scry %s-n '__scry_are \"patch %s\"' -a '%s'\n",
		       patch_words[i].words ? "" : "-f ", patch_words[i].name,
		       patch_words[i].words ? patch_words[i].words : "(__scry_patches)");
	each_command(fish_options);
}

static const struct {
	const char *name;
	void (*write)(void);
} shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};

int scry_cmd_completion(int argc, char **argv)
{
	const char *word = NULL;
	bool help = false;
	const struct scry_opt rows[] = {
		{'h', "help", SCRY_OPT_FLAG, &help, NULL, "this help", NULL},
	};
	int r = scry_opt_parse_one(rows, 1, (struct scry_opt_args){argc, argv}, &word);

	if (r == 0 && help) {
		printf("usage: %s\n\nPrints a script that completes command lines of scry.\n\n",
		       usage);
		scry_opt_help(rows, 1, stdout);
		return 0;
	}
	if (r < 0)
		return SCRY_EXIT_USAGE;
	for (size_t i = 0; word && i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (strcmp(shells[i].name, word) != 0)
			continue;
		shells[i].write();
		return scry_flush(stdout, "the script");
	}
	scry_fail(-EINVAL, "say for which shell; usage: %s", usage);
	return SCRY_EXIT_USAGE;
}
