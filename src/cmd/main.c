/* The command table. A command is one file and one row; main prints the usage and picks the row,
 * by its name or a beginning of it that no other has. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/watch_opts.h"
#include "sys/inherited.h"

const struct scry_command scry_commands[] = {
	{"objects", scry_cmd_objects,
	 "which lines of a Ruby program allocate objects, and which survive",
	 "scry objects -p 4711 -d 30s --force-gc", NULL},
	{"stacks", scry_cmd_stacks, "which lines of a Ruby program take its time",
	 "scry stacks -p 4711 -d 10s -o app.html", NULL},
	{"dump", scry_cmd_dump, "what every thread of a Ruby program does now", "scry dump -p 4711",
	 NULL},
	{"fibers", scry_cmd_fibers, "stacks that a program switches between by itself",
	 "scry fibers -p 4711", NULL},
	{"calls", scry_cmd_calls, "calls of library functions as they happen, like ltrace",
	 "scry calls -x 'SSL_*' -c -p 4711 -d 10s", NULL},
	{"gvl", scry_cmd_gvl, "which threads hold a Ruby's VM lock (GVL), and which wait",
	 "scry gvl -p 4711 -d 30s", NULL},
	{"locks", scry_cmd_locks, "which mutexes and conditions threads wait for, and where",
	 "scry locks -p 4711 -d 10s", NULL},
	{"syscalls", scry_cmd_syscalls, "which code makes system calls, and which are in vain",
	 "scry syscalls -p 4711 -d 10s", NULL},
	{"malloc", NULL, "what a program asks of malloc, and which allocator suits it", NULL,
	 scry_commands_malloc},
	{"patch", NULL, "count and time calls of native functions; list and undo changes", NULL,
	 scry_commands_patch},
	{"record", scry_cmd_record, "several of these watches at once, in one recording",
	 "scry record -e objects,malloc -p 4711 -d 30s -o app.scry", NULL},
	{"report", scry_cmd_report, "show a recording", "scry report app.scry --top 20", NULL},
	{"diff", scry_cmd_diff, "what grew between two recordings, or between slices of one",
	 "scry diff before.scry after.scry", NULL},
	{"info", scry_cmd_info, "what a recording holds", "scry info app.scry", NULL},
	{"ps", scry_cmd_ps, "Ruby processes, and where scry is or was", "scry ps", NULL},
	{"undo", scry_cmd_undo, "remove what a killed scry left in a process", "scry undo -p 4711",
	 NULL},
	{"doctor", scry_cmd_doctor, "what works here, why not, and what mends it",
	 "scry doctor -p 4711", NULL},
	{"completion", scry_cmd_completion, "completion of command lines for bash, zsh and fish",
	 "eval \"$(scry completion bash)\"", NULL},
	{0},
};

static void usage(FILE *out)
{
	fprintf(out, "scry " SCRY_VERSION ": sees inside a running program\n\n"
		     "  scry dump -p PID                what a Ruby process that hangs waits for\n"
		     "  scry objects -p PID -d 30s      watch a live Ruby process\n"
		     "  scry objects -- ruby app.rb     run a program and watch it\n\n");
	for (const struct scry_command *c = scry_commands; c->name; c++)
		fprintf(out, "  %-11s %s\n", c->name, c->summary);
	fprintf(out, "\nscry COMMAND --help shows its options; man scry the rest.\n");
}

static void usage_of_group(const struct scry_command *group, FILE *out)
{
	fprintf(out, "usage: scry %s COMMAND ...\n\n%c%s.\n\n", group->name,
		toupper((unsigned char)*group->summary), group->summary + 1);
	for (const struct scry_command *c = group->group; c->name; c++)
		fprintf(out, "  scry %s %-8s %s\n", group->name, c->name, c->summary);
	fprintf(out, "\nscry %s COMMAND --help shows its options.\n", group->name);
}

/* The row of that name, or of the only one that begins so; NULL with a sentence. */
static const struct scry_command *command_named(const struct scry_command *table, const char *word)
{
	const struct scry_command *found = NULL;
	struct scry_nearest near;

	scry_nearest_begin(&near, word);
	for (const struct scry_command *c = table; c->name; c++) {
		if (!strcmp(c->name, word))
			return c;
		scry_nearest_offer(&near, c->name);
	}
	for (const struct scry_command *c = table; *word && c->name; c++) {
		if (strncmp(c->name, word, strlen(word)) != 0)
			continue;
		if (found) {
			scry_fail(-EINVAL, "'%s' may be %s or %s; fix: write more of it", word,
				  found->name, c->name);
			return NULL;
		}
		found = c;
	}
	if (!found)
		scry_fail(-EINVAL, "no command '%s'%s", word,
			  *near.name ? scry_nearest_ask(&near).text : "; scry --help lists them");
	return found;
}

static bool is_help(const char *word)
{
	return !strcmp(word, "-h") || !strcmp(word, "--help") || !strcmp(word, "help");
}

static int run_command(const struct scry_command *c, int argc, char **argv)
{
	int status;

	argv[0] = (char *)c->name; /* it may have been shortened */
	status = c->run(argc, argv);
	if (status == 0 && scry_opt_helped())
		printf("\nexample:\n  %s\n", c->example);
	return status;
}

/* `scry help CMD` is `scry CMD --help`, also of a command of a group. */
static int run_help(int argc, char **argv)
{
	const struct scry_command *c = command_named(scry_commands, argv[0]);
	char help[] = "--help";
	char *of[] = {NULL, help, NULL};

	if (c && c->group && argc == 1) {
		usage_of_group(c, stdout);
		return 0;
	}
	if (c && c->group) {
		c = command_named(c->group, argv[1]);
		argc--;
	}
	if (c && argc > 1) {
		scry_fail(-EINVAL, "help is of one command; usage: scry help COMMAND");
		c = NULL;
	}
	return c ? run_command(c, 2, of) : SCRY_EXIT_USAGE;
}

static int run(int argc, char **argv)
{
	const struct scry_command *c, *group = NULL;

	if (argc < 2) {
		usage(stderr);
		return SCRY_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "help") && argc > 2)
		return run_help(argc - 2, argv + 2);
	if (is_help(argv[1])) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("scry " SCRY_VERSION "\n");
		return 0;
	}
	c = command_named(scry_commands, argv[1]);
	if (c && c->group) {
		group = c;
		argc--;
		argv++;
		if (argc < 2 || is_help(argv[1])) {
			usage_of_group(group, argc < 2 ? stderr : stdout);
			return argc < 2 ? SCRY_EXIT_USAGE : 0;
		}
		c = command_named(group->group, argv[1]);
	}
	return c ? run_command(c, argc - 1, argv + 1) : SCRY_EXIT_USAGE;
}

/* What could not be written is not a success. */
int main(int argc, char **argv)
{
	int status;

	scry_inherited_keep();
	scry_command_line_keep(argc, argv);
	status = run(argc, argv);
	if (status && *scry_error())
		scry_log_error("%s", scry_error());
	if (fflush(stdout) == 0 || status ||
	    errno == EPIPE) /* the reader has left: nothing to report */
		return status;
	scry_log_error("cannot write to standard output: %s", strerror(errno));
	return 1;
}
