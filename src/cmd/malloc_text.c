/*
 * `scry malloc export` and `scry malloc import`: a recording as text, and back: rec/malloc_text.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/malloc.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "rec/malloc_part.h"
#include "rec/malloc_text.h"

static int usage_error(int err, const char *usage)
{
	if (!err)
		scry_fail(-EINVAL, "say which file; usage: %s", usage);
	return SCRY_EXIT_USAGE;
}

/* Which of several it is, and the others. */
static int report_choice(int fd)
{
	struct scry_malloc_part part = {0};
	struct scry_buf others = {0};
	int err = scry_malloc_part_choose(fd, 0, &part);

	if (!err)
		err = scry_malloc_part_others(fd, &part, &others);
	if (!err && others.len)
		scry_log_say("process %u is written, with most calls; --pid PID for another: %s",
			     part.pid, scry_buf_str(&others));
	scry_buf_done(&others);
	return err == -ENOENT ? 0 : err;
}

struct text_target {
	const char *path; /* NULL: stdout */
	bool force;
};

static int export_to(const char *recording, uint32_t pid, const struct text_target *to)
{
	struct scry_malloc_text_sums sums = {0};
	struct scry_output o;
	int fd, err = scry_recording_open(recording, &fd);

	if (err)
		return err;
	err = scry_output_check(to->path, fd);
	if (!err)
		err = scry_output_stream(&o, to->path, to->force);
	if (err)
		goto out;
	err = pid ? 0 : report_choice(fd);
	if (!err)
		err = scry_malloc_text_write(fd, pid, o.out, &sums);
	if (err && err != -EIO)
		scry_fail(err, "'%s': %s", recording, scry_error());
	err = scry_output_close(&o, err);
	if (!err && sums.lacks.len)
		scry_log_error("%s: calls may be missing; the text says so in its last line",
			       scry_buf_str(&sums.lacks));
	scry_buf_done(&sums.lacks);
out:
	close(fd);
	return err;
}

int scry_cmd_malloc_export(int argc, char **argv)
{
	static const char usage[] = "scry malloc export FILE [-p PID] [-o TEXT]";
	const char *recording = NULL;
	struct text_target to = {0};
	bool wants_help = false;
	uint64_t pid = 0;
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &pid, "PID",
		 "this process of several (default: the one that called malloc most)", NULL},
		{'o', "output", SCRY_OPT_STRING, &to.path, "TEXT", "write to TEXT, not to stdout",
		 NULL},
		{0, "force", SCRY_OPT_FLAG, &to.force, NULL, "replace TEXT if it exists", NULL},
		{'h', "help", SCRY_OPT_FLAG, &wants_help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	int err = scry_opt_parse_one(rows, count, (struct scry_opt_args){argc, argv}, &recording);

	if (!err && wants_help) {
		printf("usage: %s\n\nPrints the calls of a malloc recording, one a line.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err)
		err = scry_output_check_ending(to.path, "txt");
	if (err || !recording)
		return usage_error(err, usage);
	return export_to(recording, (uint32_t)pid, &to) ? SCRY_EXIT_FAILURE : 0;
}

static int import_to(FILE *in, const char *path, bool force)
{
	struct scry_writer *writer;
	struct scry_output o;
	uint64_t calls = 0;
	int err = scry_output_check(path, fileno(in));

	if (!err)
		err = scry_output_open(&o, path, force);
	if (err)
		return err;
	err = scry_writer_open(o.fd, 0, &writer);
	if (!err) {
		int closed;

		err = scry_malloc_text_read(in, writer, &calls);
		closed = scry_writer_close(writer);
		err = err ? err : closed;
	}
	err = scry_output_close(&o, err); /* half a trace would be taken for a whole one */
	if (!err)
		scry_log_say("%llu call%s written to '%s'", (unsigned long long)calls,
			     scry_text_s(calls), path);
	return err;
}

int scry_cmd_malloc_import(int argc, char **argv)
{
	static const char usage[] = "scry malloc import TEXT -o FILE";
	const char *text = NULL, *path = NULL;
	bool force = false, wants_help = false;
	const struct scry_opt rows[] = {
		{'o', "output", SCRY_OPT_STRING, &path, "FILE", "the recording to write", NULL},
		{0, "force", SCRY_OPT_FLAG, &force, NULL, "replace FILE if it exists", NULL},
		{'h', "help", SCRY_OPT_FLAG, &wants_help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	int err = scry_opt_parse_one(rows, count, (struct scry_opt_args){argc, argv}, &text);
	FILE *in = stdin;

	if (!err && wants_help) {
		printf("usage: %s\n\nMakes a recording of such text as scry malloc export prints; "
		       "- is stdin.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err)
		err = scry_output_check_ending(path, "scry");
	if (err || !text || !path)
		return usage_error(err, usage);
	if (strcmp(text, "-"))
		in = fopen(text, "re");
	if (!in) {
		scry_fail(-errno, "cannot open '%s': %s", text, strerror(errno));
		return SCRY_EXIT_FAILURE;
	}
	err = import_to(in, path, force);
	if (in != stdin)
		fclose(in);
	if (err == -EINVAL)
		scry_fail(err, "'%s': %s", text, scry_error());
	return err ? SCRY_EXIT_FAILURE : 0;
}
