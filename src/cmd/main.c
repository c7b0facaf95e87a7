/* The command table. A command is one file and one row; main prints the usage and picks the row. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/watch_opts.h"
#include "sys/inherited.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

static const struct command commands[] = {
	{"objects", scry_cmd_objects,
	 "which lines of a Ruby program allocate objects, and which survive"},
	{"stacks", scry_cmd_stacks, "which lines of a Ruby program take its time"},
	{"dump", scry_cmd_dump, "what every thread of a Ruby program does now"},
	{"fibers", scry_cmd_fibers, "stacks that a program switches between by itself"},
	{"calls", scry_cmd_calls, "calls of library functions as they happen, like ltrace"},
	{"gvl", scry_cmd_gvl, "which threads hold a Ruby's VM lock (GVL), and which wait"},
	{"locks", scry_cmd_locks, "which mutexes and conditions threads wait for, and where"},
	{"syscalls", scry_cmd_syscalls, "which code makes system calls, and which are in vain"},
	{"malloc", scry_cmd_malloc, "what a program asks of malloc, and which allocator suits it"},
	{"patch", scry_cmd_patch,
	 "count and time calls of native functions; list and undo changes"},
	{"record", scry_cmd_record, "several of these watches at once, in one recording"},
	{"report", scry_cmd_report, "show a recording"},
	{"diff", scry_cmd_diff, "what grew between two recordings, or between slices of one"},
	{"info", scry_cmd_info, "what a recording holds"},
	{"ps", scry_cmd_ps, "Ruby processes, and where scry is or was"},
	{"undo", scry_cmd_undo, "remove what a killed scry left in a process"},
	{"doctor", scry_cmd_doctor, "what works here, why not, and what mends it"},
};

static void usage(FILE *out)
{
	fprintf(out, "scry " SCRY_VERSION ": sees inside a running program\n\n"
		     "  scry dump -p PID                what a Ruby process that hangs waits for\n"
		     "  scry objects -p PID -d 30s      watch a live Ruby process\n"
		     "  scry objects -- ruby app.rb     run a program and watch it\n\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "\nscry COMMAND --help shows its options; man scry the rest.\n");
}

static int run(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("scry " SCRY_VERSION "\n");
		return 0;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name)) {
			int status = commands[i].run(argc - 1, argv + 1);

			if (status && *scry_error())
				scry_log_error("%s", scry_error());
			return status;
		}
	scry_log_error("no command '%s'; scry --help lists them", argv[1]);
	return 2;
}

/* What could not be written is no success. */
int main(int argc, char **argv)
{
	int status;

	scry_inherited_keep();
	scry_command_line_keep(argc, argv);
	status = run(argc, argv);
	if (fflush(stdout) == 0 || status ||
	    errno == EPIPE) /* who read has left: not ours to tell */
		return status;
	scry_log_error("cannot write to standard output: %s", strerror(errno));
	return 1;
}
