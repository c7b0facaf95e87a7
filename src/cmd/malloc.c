/*
 * `scry malloc VERB ...`: what a program asks of malloc, recorded and looked at. A verb is one file
 * and one row.
 */
#include "cmd/malloc.h"

#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage, *summary;
};

static const struct verb verbs[] = {
	{"record", scry_cmd_malloc_record, "record -o FILE -- CMD | -p PID [-d TIME]",
	 "record every call of malloc functions"},
	{"export", scry_cmd_malloc_export, "export FILE [-p PID] [-o TEXT]",
	 "print a recording as text, one line a call"},
	{"import", scry_cmd_malloc_import, "import TEXT -o FILE", "make a recording of such text"},
	{"replay", scry_cmd_malloc_replay, "replay FILE [--with LIST]",
	 "make recorded calls again under several allocators: which suits?"},
	{"compare", scry_cmd_malloc_compare, "compare [--with LIST] -- CMD",
	 "record, replay, run under each: which suits, and was it predicted?"},
};

static void usage(FILE *out)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		fprintf(out, "%s scry malloc %-44s %s\n", i ? "      " : "usage:", verbs[i].usage,
			verbs[i].summary);
}

int scry_cmd_malloc(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
		usage(stdout);
		return 0;
	}
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	usage(stderr);
	return SCRY_EXIT_USAGE;
}
