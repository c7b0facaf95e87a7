/*
 * The option rows that every watching command has, so that they read and behave alike.
 */
#ifndef SCRY_CMD_WATCH_OPTS_H
#define SCRY_CMD_WATCH_OPTS_H

#include "base/opt.h"
#include "watch/watch.h"

#define SCRY_WATCH_PAUSE_NS 50000000u
#define SCRY_WATCH_MEMORY (256u << 20)

/* Rows for `struct scry_watch_opts *o` and three talk settings. `forms`: what -o renders. */
/* clang-format off */
#define SCRY_WATCH_ROWS(o, talk, forms) \
	{'p', "pid", SCRY_OPT_U64_LIST, &(o)->pids, "PID", \
	 "watch this live process; may be given again", NULL}, \
	{'d', "duration", SCRY_OPT_DURATION, &(o)->duration_ns, "TIME", \
	 "stop after 30s, 5m, ...; 0 (default): at ^C, or when it ends", NULL}, \
	{'o', "output", SCRY_OPT_STRING, &(o)->output, "FILE", \
	 "keep the recording (x.scry), or render at once (" forms ")", NULL}, \
	{0, "force", SCRY_OPT_FLAG, &(o)->force, NULL, "replace FILE if it exists", NULL}, \
	{0, "max-pause", SCRY_OPT_DURATION, &(o)->max_pause_ns, "TIME", \
	 "give up when its threads do not stop within this (default 50ms)", NULL}, \
	{0, "max-size", SCRY_OPT_SIZE, &(o)->max_size, "SIZE", "limit of the recording", NULL}, \
	{0, "memory", SCRY_OPT_SIZE, &(o)->memory, "SIZE", \
	 "limit of scry's tables (default 256MiB)", NULL}, \
	{0, "dry-run", SCRY_OPT_FLAG, &(o)->dry_run, NULL, \
	 "say what would be done, and touch nothing", NULL}, \
	{0, "wait", SCRY_OPT_FLAG, &(o)->wait, NULL, \
	 "with -p: return only when nothing of scry is mapped any more", NULL}, \
	{'q', "quiet", SCRY_OPT_FLAG, &(talk)->quiet, NULL, "no talk on stderr", NULL}, \
	{'v', "verbose", SCRY_OPT_COUNT, &(talk)->verbose, NULL, "more talk", NULL}, \
	{'h', "help", SCRY_OPT_FLAG, &(talk)->help, NULL, "this help", NULL}
/* clang-format on */

struct scry_talk_opts {
	bool quiet, help;
	int verbose;
};

/*
 * Parses, applies the talk settings, and leaves `-- CMD` in o->command. 0; 1: help was printed;
 * -EINVAL with a sentence. `usage` is the command's usage line.
 */
struct scry_watch_cli {
	const struct scry_opt *rows;
	size_t count;
	struct scry_watch_opts *opts;
	struct scry_talk_opts *talk;
	const char *usage;
	const char *endings; /* of -o; NULL: SCRY_OUTPUT_RECORDS */
	int *name_count; /* words before `--` are the command's own, gathered at argv[1]; NULL: none
			  */
};
int scry_watch_parse(const struct scry_watch_cli *cli, int argc, char **argv);

/* "scry malloc record -- ls": kept by main as it was typed, cut at 4 KiB; for recordings. */
void scry_command_line_keep(int argc, char **argv);
const char *scry_command_line(void);

/* --dry-run: prepare in this process, print, touch nothing. Exit status. */
int scry_dry_run(struct scry_watch_opts *opts, const struct scry_instrument *instrument);

#endif
