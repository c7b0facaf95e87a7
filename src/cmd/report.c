/*
 * `scry report FILE`: a recording as a report. See report.h.
 */
#include "cmd/report.h"

#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/output.h"
#include "name/native_lines.h"
#include "view/native_line.h"
#include "view/recorded.h"
#include "view/filter.h"
#include "view/sort.h"
#include "view/takes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Columns of the terminal that `out` is; 0: none. */
static unsigned int terminal_width(FILE *out)
{
	int fd = fileno(out);
	struct winsize size;

	if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size))
		return 0;
	return size.ws_col;
}

void scry_report_by_settle(struct scry_report_opts *opts)
{
	opts->by_given = opts->rows.by >= 0;
	if (!opts->by_given)
		opts->rows.by = SCRY_VIEW_BY_LINE;
}

int scry_report_opts_check(struct scry_report_opts *opts, const char *path)
{
	if (path) {
		opts->speedscope = scry_output_is(path, ".speedscope.json");
		opts->json |= !opts->speedscope && scry_output_is(path, ".json");
		opts->folded |= scry_output_is(path, ".folded");
		opts->flame |= scry_output_is(path, ".html");
	}
	if (path && scry_output_is(path, ".svg"))
		return scry_fail(
			-EINVAL,
			"'%s': scry does not draw reports as SVG; fix: --folded, whose stacks "
			"flamegraph.pl draws",
			path);
	if (path && scry_output_is(path, ".txt") && (opts->json || opts->folded))
		return scry_fail(
			-EINVAL, "'%s' is text, and --%s is not; fix: -o x.%s, or one of them",
			path, opts->json ? "json" : "folded", opts->json ? "json" : "folded");
	if (opts->folded && opts->json)
		return scry_fail(-EINVAL,
				 "--folded and --json are two forms of a report; fix: one");
	if ((opts->flame || opts->speedscope) && (opts->folded || opts->json))
		return scry_fail(
			-EINVAL,
			"%s is a picture, and neither a report in JSON nor folded; fix: one",
			opts->flame ? "x.html" : "x.speedscope.json");
	opts->rows.stacks |= opts->folded || opts->flame || opts->speedscope;
	opts->rows.times.split = opts->flame || opts->speedscope;
	opts->rows.times.idle |= opts->json; /* programs get all */
	return scry_view_opts_check(&opts->rows);
}

int scry_report_check_kept(const struct scry_report_opts *opts, const char *path)
{
	const char *form = opts->json ? "json" : "folded";

	if (!path || scry_output_renders(path) || !(opts->json || opts->folded))
		return 0;
	return scry_fail(-EINVAL,
			 "--%s is a form of a report, and '%s' keeps the recording; fix: -o x.%s, "
			 "or --%s with scry report",
			 form, path, form, form);
}

int scry_report_open(struct scry_doc *doc, const struct scry_report_opts *opts)
{
	if (opts->json)
		return scry_out_json_open(doc);
	if (opts->folded)
		return scry_out_folded_open(doc);
	if (opts->flame)
		return scry_out_flame_open(doc);
	if (opts->speedscope)
		return scry_out_speedscope_open(doc);
	doc->width = terminal_width(doc->out);
	return scry_out_text_open(doc);
}

static int is_stacks_by(int by)
{
	if (by == SCRY_VIEW_BY_LINE || by == SCRY_VIEW_BY_METHOD || by == SCRY_VIEW_BY_GEM ||
	    by == SCRY_VIEW_BY_THREAD || by == SCRY_VIEW_BY_PROCESS)
		return 0;
	return scry_fail(-EINVAL, "reports of stacks are by line, method, gem, thread or process; "
				  "fix: --by one of these");
}

/* What rows are by, of this view; -EINVAL with a sentence. */
static int choose_by(const struct scry_view *view, const struct scry_report_opts *opts, int *by)
{
	const bool is_syscalls = !strcmp(view->name, "syscalls");
	const bool is_malloc = !strcmp(view->name, "malloc");
	const bool is_gvl = !strcmp(view->name, "gvl");

	if (is_syscalls && !opts->by_given)
		*by = SCRY_VIEW_BY_SITE;
	if (is_syscalls && (*by < SCRY_VIEW_BY_SYSCALL || *by > SCRY_VIEW_BY_SITE) &&
	    *by != SCRY_VIEW_BY_LINE)
		return scry_fail(
			-EINVAL,
			"reports of system calls are by site, syscall, line or thread; fix: "
			"--by one of these");
	if (is_gvl &&
	    (*by == SCRY_VIEW_BY_LINE || *by == SCRY_VIEW_BY_METHOD || *by == SCRY_VIEW_BY_GEM ||
	     *by == SCRY_VIEW_BY_THREAD || *by == SCRY_VIEW_BY_HOLDER))
		return 0;
	if (is_gvl)
		return scry_fail(-EINVAL, "reports of the GVL are by line, method, gem, "
					  "thread or holder; fix: --by one of these");
	if (!strcmp(view->name, "stacks"))
		return is_stacks_by(*by);
	if (*by == SCRY_VIEW_BY_PROCESS)
		return scry_fail(-EINVAL, "--by process is for recordings of stacks");
	if (*by == SCRY_VIEW_BY_HOLDER)
		return scry_fail(-EINVAL, "--by holder is for recordings of the GVL");
	if (*by >= SCRY_VIEW_BY_SYSCALL && !is_syscalls)
		return scry_fail(-EINVAL, "--by syscall, thread and site are for recordings of "
					  "system calls");
	if (*by >= SCRY_VIEW_BY_CALLER && !is_syscalls && !is_malloc)
		return scry_fail(-EINVAL, "--by caller, module and stack are for recordings of "
					  "malloc");
	return 0;
}

/* What is asked for lines of native code, made at the first question. */
static uint32_t find_line(void *arg, const struct scry_view_code *code, struct scry_buf *ret_file)
{
	struct scry_native_lines **lines = arg;
	const struct scry_native_place place = {.module = code->module,
						.build_id = code->build_id,
						.symbol = code->symbol,
						.offset = code->offset};

	if (!*lines)
		*lines = scry_native_lines_new();
	return *lines ? scry_native_line(*lines, &place, ret_file) : 0;
}

static int run_view(struct scry_reader *reader, const struct scry_view *view,
		    const struct scry_report_opts *opts, FILE *out)
{
	struct scry_doc doc = {
		.view = view->name,
		.schema = view->schema,
		.is_stream = view->is_stream,
		.out = out,
		.talk = stderr,
	};
	struct scry_view_opts rows = opts->rows;
	struct scry_native_lines *known = NULL;
	const struct scry_view_lines lines = {find_line, &known};
	int err = choose_by(view, opts, &rows.by);

	if (err)
		return err;
	if (opts->folded && strcmp(view->name, "objects") && strcmp(view->name, "malloc") &&
	    strcmp(view->name, "stacks") && strcmp(view->name, "gvl"))
		return scry_fail(-EINVAL, "view '%s' has no stacks to fold", view->name);
	if (opts->speedscope && strcmp(view->name, "stacks"))
		return scry_fail(-EINVAL, "view '%s' has no flame graph", view->name);
	if (opts->flame && strcmp(view->name, "stacks") && strcmp(view->name, "malloc"))
		return scry_fail(-EINVAL, "view '%s' has no flame graph", view->name);
	err = scry_view_refuse(view, &opts->rows);
	if (err)
		return err;
	err = scry_view_sort_check(view->name, rows.sort_key);
	if (err)
		return err;
	err = scry_view_filter_check(view->name, &rows.filter);
	if (err)
		return err;
	if (rows.stacks && rows.filter.count && !strcmp(view->name, "malloc"))
		return scry_fail(-EINVAL, "the tree of malloc's callers has no --filter; fix: "
					  "--grep, or without --stacks");
	scry_view_sort_settle(view, &rows);
	if (rows.stacks && rows.sort_key && !strcmp(view->name, "malloc"))
		return scry_fail(-EINVAL,
				 "stacks of malloc cannot be sorted by '%s'; fix: --sort with one "
				 "of at_bytes, at_blocks, allocated, bytes, temporary",
				 rows.sort_key);
	err = scry_report_open(&doc, opts);
	if (err)
		return err;
	rows.lines = &lines;
	err = view->run(reader, &rows, &doc);
	scry_native_lines_free(known);
	if (!err)
		return scry_doc_end(&doc);
	scry_doc_abandon(&doc);
	return err;
}

int scry_recording_open(const char *path, int *ret_fd)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not hang us */

	if (fd < 0)
		return scry_fail(-errno, "cannot open '%s': %s", path, strerror(errno));
	*ret_fd = fd;
	return 0;
}

static int show_part(int fd, const struct scry_view_part *part, const struct scry_report_opts *opts,
		     FILE *out)
{
	struct scry_reader *reader;
	int err = scry_reader_open(fd, &reader);

	if (err)
		return err;
	scry_reader_section(reader, part->section);
	err = run_view(reader, part->view, opts, out);
	scry_reader_close(reader);
	return err;
}

/* An option that none of them has. */
static int refuse_everywhere(const struct scry_view_choice *c, const struct scry_view_opts *opts)
{
	struct scry_buf names = {0};
	struct scry_view any = {0};
	int err;

	for (size_t i = 0; i < c->count; i++) {
		any.takes |= c->parts[i].view->takes;
		scry_buf_printf(&names, "%s%s", i ? " or " : "", c->parts[i].view->name);
	}
	any.name = scry_buf_str(&names);
	err = scry_view_refuse(&any, opts);
	scry_buf_done(&names);
	return err;
}

/* One section of several: with those options that it has; a line above it says what it lacks. 1: it
 * heeds one; 0: none. */
static int show_one_of(int fd, const struct scry_view_part *part,
		       const struct scry_report_opts *opts, FILE *out)
{
	struct scry_report_opts own = *opts;
	struct scry_buf lacking = {0};
	int err;

	scry_view_strip(part->view, &own.rows, &lacking);
	if (lacking.len)
		fprintf(out, "note: %s has no %s, and is shown without\n", part->view->name,
			scry_buf_str(&lacking));
	scry_buf_done(&lacking);
	err = show_part(fd, part, &own, out);
	if (!err)
		return scry_view_has_opts(&own.rows);
	if (err != -EINVAL || !scry_view_has_opts(&own.rows))
		return err;
	fprintf(out, "note: %s is shown without options: %s\n", part->view->name, scry_error());
	scry_error_clear();
	own.rows = (struct scry_view_opts)SCRY_VIEW_OPTS_DEFAULT;
	own.rows.by = SCRY_VIEW_BY_LINE;
	own.rows.pid = opts->rows.pid;
	own.by_given = false;
	return show_part(fd, part, &own, out);
}

/* Leaves those in which the process has an event. -EINVAL with a sentence: none. */
static int keep_those_of(int fd, struct scry_view_choice *c, uint32_t pid)
{
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < c->count; i++) {
		err = scry_view_refuse_absent(fd, c->parts[i].section, pid);
		if (err && err != -EINVAL)
			return err;
		if (!err)
			c->parts[kept++] = c->parts[i];
	}
	if (!kept)
		return err;
	c->count = kept;
	scry_error_clear();
	return 0;
}

static int show_several(int fd, const struct scry_view_choice *c,
			const struct scry_report_opts *opts, FILE *out)
{
	int err = refuse_everywhere(c, &opts->rows);
	bool is_heeded = !scry_view_has_opts(&opts->rows);

	for (size_t i = 0; i < c->count && err >= 0; i++) {
		if (i)
			fputc('\n', out);
		err = show_one_of(fd, &c->parts[i], opts, out);
		is_heeded |= err == 1;
	}
	if (err >= 0 && !is_heeded)
		return scry_fail(-EINVAL, "no section has these options with these values");
	return err < 0 ? err : 0;
}

/* "process 12 is not in malloc" */
static void say_absent(const struct scry_view_choice *all, const struct scry_view_choice *c,
		       const struct scry_report_opts *opts, FILE *out)
{
	for (size_t i = 0, k = 0; i < all->count; i++) {
		if (k < c->count && c->parts[k].section == all->parts[i].section)
			k++;
		else
			fprintf(out, "note: process %llu is not in the section of %s\n",
				(unsigned long long)opts->rows.pid, all->parts[i].view->name);
	}
}

int scry_report_fd(int fd, const struct scry_report_opts *opts, FILE *out)
{
	const struct scry_view *view = opts->view ? scry_view_find(opts->view) : NULL;
	struct scry_view_choice choice = {.view = opts->view, .section = opts->section};
	struct scry_view_choice all;
	int err = opts->view && !view ? -EINVAL : view ? scry_view_refuse(view, &opts->rows) : 0;

	if (!err)
		err = scry_view_choose(fd, &choice);
	if (!err && choice.count > 1 &&
	    (opts->json || opts->folded || opts->flame || opts->speedscope))
		return scry_fail(-EINVAL,
				 "%zu instruments have recorded, and this form is of one; fix: "
				 "--section %s, or another one that scry info names",
				 choice.count, choice.parts[0].view->name);
	all = choice;
	if (!err && opts->rows.pid)
		err = keep_those_of(fd, &choice, (uint32_t)opts->rows.pid);
	if (!err)
		say_absent(&all, &choice, opts, out);
	if (err || all.count == 1)
		return err ? err : show_part(fd, &choice.parts[0], opts, out);
	return show_several(fd, &choice, opts, out);
}

int scry_report_live(int fd, const struct scry_report_opts *opts, FILE *out,
		     const struct scry_report_live *live)
{
	const struct scry_view *view = scry_view_find(opts->view);
	struct scry_reader *reader;
	int err = view ? scry_view_refuse(view, &opts->rows) : -EINVAL;

	if (!err)
		err = scry_reader_open(fd, &reader);
	if (err)
		return err;
	scry_reader_follow(reader, live->wait, live->arg);
	err = run_view(reader, view, opts, out);
	scry_reader_close(reader);
	return err;
}

static const char usage[] = "scry report FILE [OPTIONS]";

static void help(const struct scry_opt *rows, size_t count)
{
	const struct scry_view *view;

	printf("usage: %s\n\nPrints a report of a recording.\n\n", usage);
	scry_opt_help(rows, count, stdout);
	printf("\nviews:\n");
	for (view = scry_views; view->name; view++)
		printf("  %-10s %s\n", view->name, view->help);
}

static int report_to(int fd, const struct scry_report_opts *opts, const char *path, bool force)
{
	struct scry_output o;
	int err = scry_output_check(path, fd);

	if (!err)
		err = scry_output_stream(&o, path, force);
	return err ? err : scry_output_close(&o, scry_report_fd(fd, opts, o.out));
}

int scry_report_file(const char *path, const struct scry_report_opts *opts, const char *to,
		     bool force)
{
	int fd, err = scry_recording_open(path, &fd);

	if (err)
		return SCRY_EXIT_FAILURE;
	err = report_to(fd, opts, to, force);
	close(fd);
	if (err == -EINVAL || err == -ENOTSUP || err == -ESPIPE) /* what was read is to blame */
		scry_fail(err, "'%s': %s", path, scry_error());
	return err ? SCRY_EXIT_FAILURE : 0;
}

/* "objects|malloc|...", for completion. */
static const char *list_views(char *ret, size_t room)
{
	size_t at = 0;

	*ret = '\0';
	for (const struct scry_view *view = scry_views; view->name && at < room; view++)
		at += (size_t)snprintf(ret + at, room - at, "%s%s", at ? "|" : "", view->name);
	return ret;
}

int scry_cmd_report(int argc, char **argv)
{
	struct scry_report_opts opts = SCRY_REPORT_OPTS_DEFAULT;
	const char *path = NULL;
	bool force = false, wants_help = false, is_verbose = false;
	bool sums = false, hist = false, tree = false;
	char views[512];
	struct scry_opt rows[] = {
		{0, "view", SCRY_OPT_STRING, &opts.view, "VIEW", "what to show, see below",
		 list_views(views, sizeof(views))},
		{'c', "sums", SCRY_OPT_FLAG, &sums, NULL,
		 "calls: no lines, a table: calls and times of each function", NULL},
		{0, "hist", SCRY_OPT_FLAG, &hist, NULL,
		 "calls: no lines, a histogram of each function's times", NULL},
		{0, "tree", SCRY_OPT_FLAG, &tree, NULL,
		 "calls: no lines, a tree: which functions called which, and their times", NULL},
		{0, "section", SCRY_OPT_STRING, &opts.section, "INSTRUMENT",
		 "the section of this instrument (scry record); else each in turn",
		 SCRY_REPORT_SECTION_CHOICES},
		SCRY_REPORT_OPT_ROWS(&opts),
		{0, "at", SCRY_OPT_STRING, &opts.rows.at, "MOMENT",
		 "malloc: what was live at the peak (default), at the end, or at a time since the "
		 "beginning: peak, end, 30s",
		 "peak|end"},
		SCRY_VIEW_CALLS_OPT_ROWS(&opts.rows),
		SCRY_VIEW_STACKS_OPT_ROWS(&opts.rows),
		{0, "pid", SCRY_OPT_PID, &opts.rows.pid, "PID", "only this process of several",
		 NULL},
		{'o', "output", SCRY_OPT_STRING, &path, "FILE",
		 "write the report to FILE; x.json is JSON, x.folded is folded, x.html a picture "
		 "of stacks, x.speedscope.json one for speedscope",
		 NULL},
		{0, "force", SCRY_OPT_FLAG, &force, NULL, "replace FILE if it exists", NULL},
		{'v', "verbose", SCRY_OPT_FLAG, &is_verbose, NULL,
		 "all totals, one a line, those that are 0 too", NULL},
		{'h', "help", SCRY_OPT_FLAG, &wants_help, NULL, "this help", NULL},
	};
	const struct scry_opt sort = {
		0,
		"sort",
		SCRY_OPT_STRING,
		&opts.rows.sort_key,
		"KEY",
		"biggest first, by the column with this key in JSON; of objects allocated "
		"(default), bytes, live, live_bytes or max_age_gcs",
		SCRY_SORT_REPORT};
	const struct scry_opt filter = SCRY_VIEW_FILTER_OPT_ROW(&opts.rows, SCRY_FILTER_REPORT);
	size_t count = sizeof(rows) / sizeof(rows[0]);
	const char *recording = NULL;
	int err;

	for (size_t i = 0; i < count; i++) {
		if (rows[i].target == &opts.rows.by)
			rows[i].choices = SCRY_REPORT_BY_CHOICES;
		if (rows[i].target == &opts.rows.sort)
			rows[i] = sort;
		if (rows[i].target == &opts.rows.filter)
			rows[i] = filter;
	}
	opts.rows.by = -1; /* so that one that is given is seen */
	err = scry_opt_parse_one(rows, count, (struct scry_opt_args){argc, argv}, &recording);
	if (!err && wants_help) {
		help(rows, count);
		return 0;
	}
	scry_report_by_settle(&opts);
	if (!err && sums + hist + tree + (opts.view != NULL) > 1)
		err = scry_fail(-EINVAL, "-c, --hist, --tree and --view are one choice; fix: one");
	if (sums || hist || tree)
		opts.view = sums ? "calls-sums" : hist ? "calls-hist" : "calls-tree";
	if (!err && opts.view && !scry_view_find(opts.view))
		err = -EINVAL;
	if (!err)
		err = scry_report_opts_check(&opts, path);
	if (!err)
		err = scry_output_check_ending(path, "txt json folded html");
	if (!err && !recording)
		err = scry_fail(-EINVAL, "say which recording; usage: %s", usage);
	if (err)
		return SCRY_EXIT_USAGE;
	scry_log_setup(is_verbose, SCRY_LOG_COLOR_AUTO);
	return scry_report_file(recording, &opts, path, force);
}
