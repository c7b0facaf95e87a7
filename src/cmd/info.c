/*
 * `scry info FILE`: what a recording is made of.
 */
#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/report.h"

#include <errno.h>
#include <stdio.h>

static const char usage[] = "scry info FILE [--section INSTRUMENT] [--json]";

int scry_cmd_info(int argc, char **argv)
{
	struct scry_report_opts opts = {.view = "info", .rows = SCRY_VIEW_OPTS_DEFAULT};
	bool wants_help = false;
	const struct scry_opt rows[] = {
		{0, "section", SCRY_OPT_STRING, &opts.section, "INSTRUMENT",
		 "the section of this instrument (scry record)", SCRY_REPORT_SECTION_CHOICES},
		{0, "json", SCRY_OPT_FLAG, &opts.json, NULL, "print JSON instead of text", NULL},
		{'h', "help", SCRY_OPT_FLAG, &wants_help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	const char *recording = NULL;
	int err;

	err = scry_opt_parse_one(rows, count, (struct scry_opt_args){argc, argv}, &recording);
	if (!err && wants_help) {
		printf("usage: %s\n\nSays what a recording holds.\n\n", usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err && !recording)
		err = scry_fail(-EINVAL, "say which recording; usage: %s", usage);
	if (err)
		return SCRY_EXIT_USAGE;
	return scry_report_file(recording, &opts, NULL, false);
}
