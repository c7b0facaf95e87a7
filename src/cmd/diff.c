/*
 * `scry diff`: what grew between two recordings, or between two slices of one. See view/diff.h.
 */
#include "view/diff.h"
#include "view/gvl_diff.h"
#include "view/malloc_diff.h"
#include "rec/sections.h"
#include "view/filter.h"
#include "view/stacks_diff.h"
#include "view/syscall_diff.h"

#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/output.h"
#include "cmd/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct diff_opts {
	struct scry_report_opts report;
	const char *from, *to; /* moments of one recording */
	const char *section;   /* of what several have recorded; NULL: choose */
	const char *output;
	bool force, is_verbose, help;
};

/* What has rows that are found again in another recording; the first one that both have is
 * compared. */
enum what { OBJECTS, SYSCALLS, GVL, MALLOC, STACKS, WHATS };
static const struct {
	const char *section, *name;
} kinds[WHATS] = {{"objects", "objects"},
		  {"syscalls", "system calls"},
		  {"gvl", "the GVL"},
		  {"malloc", "malloc"},
		  {"stacks", "stacks"}};

struct side {	    /* "x.scry@5m" */
	char *path; /* owned */
	uint64_t since_ns;
	int fd;
	struct scry_sections sections;
	struct scry_diff_side diff;
};

static const char usage[] =
	"scry diff A.scry B.scry | scry diff X.scry@5m X.scry@30m | scry diff X.scry --from 5m";

static int read_moment(const char *text, uint64_t *ret_since_ns)
{
	if (!strcmp(text, "start")) {
		*ret_since_ns = SCRY_MOMENT_BEGINNING;
		return 0;
	}
	if (!strcmp(text, "end")) {
		*ret_since_ns = SCRY_MOMENT_END;
		return 0;
	}
	return scry_opt_read_duration(text, ret_since_ns);
}

/* A file whose name has an @ in it is a file all the same. */
static int side_parse(struct side *side, const char *word)
{
	const char *at = strrchr(word, '@');

	side->since_ns = SCRY_MOMENT_END;
	side->path = strdup(word);
	if (!side->path)
		return scry_no_memory("");
	if (!at || at == word || !access(word, F_OK))
		return 0;
	side->path[at - word] = '\0';
	return read_moment(at + 1, &side->since_ns);
}

/* Two words are two moments; one is a recording, whose moments --from and --to name. */
static int sides_parse(struct side sides[2], const struct diff_opts *opts,
		       const struct scry_opt_words *words)
{
	int err;

	if (words->count == 2 && (opts->from || opts->to))
		return scry_fail(-EINVAL,
				 "--from and --to are for one recording; fix: '%s'@TIME, or one "
				 "recording",
				 words->words[0]);
	if (words->count == 0 || (words->count == 1 && !opts->from && !opts->to))
		return scry_fail(-EINVAL, "say what to compare; usage: %s", usage);
	err = side_parse(&sides[0], words->words[0]);
	if (!err)
		err = side_parse(&sides[1], words->words[words->count - 1]);
	if (err || words->count == 2)
		return err;
	if (sides[0].since_ns != SCRY_MOMENT_END)
		return scry_fail(-EINVAL, "'%s' names a moment already; fix: without @",
				 words->words[0]);
	sides[0].since_ns = SCRY_MOMENT_BEGINNING;
	if (opts->from)
		err = read_moment(opts->from, &sides[0].since_ns);
	if (!err && opts->to)
		err = read_moment(opts->to, &sides[1].since_ns);
	return err;
}

static int blame(const struct side *side, int err)
{
	char why[1024];

	strncpy(why, scry_error(), sizeof(why) - 1);
	why[sizeof(why) - 1] = '\0';
	return scry_fail(err, "'%s': %s", side->path, why);
}

/* A recording that does not name its instrument may be of objects. */
static bool holds(const struct side *side, enum what what)
{
	return scry_sections_find(&side->sections, kinds[what].section) >= 0 ||
	       (what == OBJECTS && !*side->sections.names[0]);
}

static enum what first_of(const struct side *side)
{
	int what = OBJECTS;

	while (what < WHATS && !holds(side, (enum what)what))
		what++;
	return (enum what)what;
}

static int refuse_section(const struct side *side, const char *section)
{
	return blame(side,
		     scry_fail(-EINVAL, "%s was not recorded; fix: scry info shows its sections",
			       section));
}

/* What is compared: --section, else the first that both have. */
static int choose(const struct side sides[2], const char *section, enum what *ret_what)
{
	const enum what first[2] = {first_of(&sides[0]), first_of(&sides[1])};
	int what = OBJECTS;

	for (int i = 0; i < 2; i++)
		if (first[i] == WHATS)
			return blame(
				&sides[i],
				scry_fail(-EINVAL,
					  "a recording of '%s', and only objects, malloc, system "
					  "calls, the GVL and stacks are compared; fix: scry "
					  "report, of each",
					  sides[i].sections.names[0]));
	while (what < WHATS &&
	       (section ? strcmp(section, kinds[what].section) != 0
			: !holds(&sides[0], (enum what)what) || !holds(&sides[1], (enum what)what)))
		what++;
	if (what == WHATS && section)
		return scry_fail(-EINVAL,
				 "sections of '%s' are not compared; fix: --section objects, "
				 "syscalls, gvl, malloc or stacks",
				 section);
	if (what == WHATS)
		return scry_fail(-EINVAL, "one recording is of %s, the other one of %s",
				 kinds[first[0]].name, kinds[first[1]].name);
	for (int i = 0; i < 2; i++)
		if (!holds(&sides[i], (enum what)what))
			return refuse_section(&sides[i], section);
	*ret_what = (enum what)what;
	return 0;
}

static int side_open(struct side *side)
{
	int err = scry_recording_open(side->path, &side->fd);

	if (err)
		return err;
	err = scry_sections_read(side->fd, &side->sections);
	return err ? blame(side, err) : 0;
}

static int side_read(struct side *side, enum what what)
{
	int err;

	if (what != OBJECTS && side->since_ns != SCRY_MOMENT_END)
		err = scry_fail(-EINVAL, "a recording of %s has no moments; fix: two recordings",
				kinds[what].name);
	else
		err = scry_sections_open(side->fd, kinds[what].section, &side->diff.reader);
	if (!err && what == OBJECTS)
		err = scry_moment_find(side->fd, side->since_ns, &side->diff.moment);
	return err ? blame(side, err) : 0;
}

static void side_close(struct side *side)
{
	scry_reader_close(side->diff.reader);
	if (side->fd >= 0)
		close(side->fd);
	free(side->path);
}

/* Two recordings are told apart by name; two moments of one need none. */
static void name_sides(struct side sides[2])
{
	struct stat a, b;
	int i;

	if (!fstat(sides[0].fd, &a) && !fstat(sides[1].fd, &b) && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino)
		return;
	for (i = 0; i < 2; i++)
		sides[i].diff.name = sides[i].path;
}

/* --by: 0, -EINVAL with a sentence. What was not given may have another default here. */
static int check_objects(struct scry_view_opts *rows, bool by_given)
{
	(void)by_given;
	return rows->by < SCRY_VIEW_BY_CALLER
		       ? 0
		       : scry_fail(-EINVAL, "objects are compared by line, class, file, method or "
					    "gem; fix: --by one of these");
}

static int check_syscalls(struct scry_view_opts *rows, bool by_given)
{
	if (!by_given)
		rows->by = SCRY_VIEW_BY_SITE;
	return rows->by == SCRY_VIEW_BY_SITE || rows->by == SCRY_VIEW_BY_SYSCALL
		       ? 0
		       : scry_fail(-EINVAL, "system calls are compared by site or syscall; fix: "
					    "--by one of these");
}

static int check_gvl(struct scry_view_opts *rows, bool by_given)
{
	(void)by_given;
	return rows->by == SCRY_VIEW_BY_LINE || rows->by == SCRY_VIEW_BY_METHOD ||
			       rows->by == SCRY_VIEW_BY_GEM || rows->by == SCRY_VIEW_BY_THREAD ||
			       rows->by == SCRY_VIEW_BY_HOLDER
		       ? 0
		       : scry_fail(-EINVAL, "the GVL is compared by line, method, gem, thread or "
					    "holder; fix: --by one of these");
}

static int check_malloc(struct scry_view_opts *rows, bool by_given)
{
	(void)by_given;
	return rows->by <= SCRY_VIEW_BY_STACK
		       ? 0
		       : scry_fail(-EINVAL, "calls of malloc are compared by line, file, method, "
					    "caller, module or stack; fix: --by one of these");
}

static int check_stacks(struct scry_view_opts *rows, bool by_given)
{
	if (!by_given) /* lines move when code is changed */
		rows->by = SCRY_VIEW_BY_METHOD;
	return rows->by == SCRY_VIEW_BY_LINE || rows->by == SCRY_VIEW_BY_METHOD ||
			       rows->by == SCRY_VIEW_BY_GEM || rows->by == SCRY_VIEW_BY_THREAD
		       ? 0
		       : scry_fail(-EINVAL, "stacks are compared by line, method, gem or thread; "
					    "fix: --by one of these");
}

static int push_objects(const struct scry_diff_side sides[2], const struct scry_view_opts *rows,
			struct scry_doc *doc)
{
	return scry_view_diff(&sides[0], &sides[1], rows, doc);
}

static int push_syscalls(const struct scry_diff_side sides[2], const struct scry_view_opts *rows,
			 struct scry_doc *doc)
{
	const struct scry_syscall_side of[2] = {
		{sides[0].reader, sides[0].name ? sides[0].name : "the first"},
		{sides[1].reader, sides[1].name ? sides[1].name : "the second"}};

	return scry_view_syscall_diff(of, rows, doc);
}

static const struct view {
	const char *name;
	unsigned int schema;
	int (*check)(struct scry_view_opts *rows, bool by_given);
	int (*push)(const struct scry_diff_side sides[2], const struct scry_view_opts *rows,
		    struct scry_doc *doc);
} views[WHATS] = {
	[OBJECTS] = {"diff", SCRY_DIFF_SCHEMA, check_objects, push_objects},
	[SYSCALLS] = {"syscalls_diff", SCRY_SYSCALL_DIFF_SCHEMA, check_syscalls, push_syscalls},
	[GVL] = {"gvl_diff", SCRY_GVL_DIFF_SCHEMA, check_gvl, scry_view_gvl_diff},
	[MALLOC] = {"malloc_diff", SCRY_MALLOC_DIFF_SCHEMA, check_malloc, scry_view_malloc_diff},
	[STACKS] = {"stacks_diff", SCRY_STACKS_DIFF_SCHEMA, check_stacks, scry_view_stacks_diff},
};

static int print(const struct side sides[2], const struct view *view, const struct diff_opts *opts,
		 FILE *out)
{
	const struct scry_diff_side of[2] = {sides[0].diff, sides[1].diff};
	struct scry_view_opts rows = opts->report.rows;
	struct scry_doc doc = {
		.view = view->name, .schema = view->schema, .out = out, .talk = stderr};
	int err = view->check(&rows, opts->report.by_given);

	if (!err)
		err = scry_report_open(&doc, &opts->report);
	if (err)
		return err;
	err = view->push(of, &rows, &doc);
	if (!err)
		return scry_doc_end(&doc);
	scry_doc_abandon(&doc);
	return err;
}

static int print_to(const struct side sides[2], enum what what, const struct diff_opts *opts)
{
	struct scry_output o;
	int err = 0;

	if (opts->report.rows.live && what != OBJECTS)
		err = scry_fail(-EINVAL, "--live is for recordings of objects");
	else if (opts->report.rows.sort == SCRY_VIEW_SORT_TEMPORARY && what != MALLOC)
		err = scry_fail(-EINVAL, "--sort temporary is for recordings of malloc");
	else if (opts->report.rows.filter.count && what != OBJECTS && what != MALLOC)
		err = scry_fail(-EINVAL, "--filter is for recordings of objects and malloc; fix: "
					 "--grep");
	else if (what == OBJECTS)
		err = scry_view_filter_check("objects", &opts->report.rows.filter);
	if (!err)
		err = scry_output_check(opts->output, sides[0].fd);
	if (!err)
		err = scry_output_check(opts->output, sides[1].fd);
	if (!err)
		err = scry_output_stream(&o, opts->output, opts->force);
	return err ? err : scry_output_close(&o, print(sides, &views[what], opts, o.out));
}

static void help(const struct scry_opt *rows, size_t count)
{
	printf("usage: %s\n\nPrints what grew between two recordings of `scry objects`, or between "
	       "two moments of\none that was made with --every. A moment is a time since the "
	       "beginning, start or end.\nOf two recordings of `scry malloc record`, `scry "
	       "syscalls`, `scry gvl` or\n`scry stacks`: what changed.\n\n",
	       usage);
	scry_opt_help(rows, count, stdout);
}

int scry_cmd_diff(int argc, char **argv)
{
	struct diff_opts opts = {.report = SCRY_REPORT_OPTS_DEFAULT};
	struct scry_opt rows[] = {
		{0, "from", SCRY_OPT_STRING, &opts.from, "TIME",
		 "of one recording: from this moment (default start)", NULL},
		{0, "to", SCRY_OPT_STRING, &opts.to, "TIME", "to this one (default end)", NULL},
		{0, "section", SCRY_OPT_STRING, &opts.section, "INSTRUMENT",
		 "compare this section of recordings of several: objects, syscalls, gvl, malloc or "
		 "stacks",
		 "objects|syscalls|gvl|malloc|stacks"},
		{0, "sort", SCRY_OPT_CHOICE, &opts.report.rows.sort, NULL,
		 "most growth first, of this (default live; of malloc bytes at the peak)",
		 SCRY_VIEW_SORT_CHOICES "|temporary"},
		{0, "live", SCRY_OPT_FLAG, &opts.report.rows.live, NULL,
		 "growth of what survived the last full mark of the garbage collector: no garbage",
		 NULL},
		SCRY_VIEW_PICK_OPT_ROWS(&opts.report.rows),
		SCRY_VIEW_STACKS_OPT_ROWS(&opts.report.rows),
		{0, "json", SCRY_OPT_FLAG, &opts.report.json, NULL, "print JSON instead of text",
		 NULL},
		{'o', "output", SCRY_OPT_STRING, &opts.output, "FILE",
		 "write the report to FILE; x.json is JSON", NULL},
		{0, "force", SCRY_OPT_FLAG, &opts.force, NULL, "replace FILE if it exists", NULL},
		{'v', "verbose", SCRY_OPT_FLAG, &opts.is_verbose, NULL,
		 "all totals, one a line, those that are 0 too", NULL},
		{'h', "help", SCRY_OPT_FLAG, &opts.help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	struct side sides[2] = {{.fd = -1}, {.fd = -1}};
	struct scry_opt_words words = {0};
	int err, status = SCRY_EXIT_USAGE;
	enum what what = OBJECTS;
	bool idle;

	for (size_t i = 0; i < count; i++)
		if (rows[i].target == &opts.report.rows.by)
			rows[i].choices = SCRY_REPORT_BY_CHOICES;
	opts.report.rows.by = -1;
	err = scry_opt_parse_words(rows, count, (struct scry_opt_args){argc, argv}, &words);
	scry_report_by_settle(&opts.report);
	if (!err && opts.help) {
		help(rows, count);
		return 0;
	}
	idle = opts.report.rows.times.idle;
	if (!err)
		err = scry_report_opts_check(&opts.report, opts.output);
	opts.report.rows.times.idle = idle; /* JSON and text compare the same threads */
	if (!err)
		err = scry_output_check_ending(opts.output, "txt json");
	if (!err && (opts.report.folded || opts.report.flame || opts.report.speedscope))
		err = scry_fail(-EINVAL, "'%s': growth has no stacks to draw", opts.output);
	if (!err)
		err = sides_parse(sides, &opts, &words);
	if (err)
		goto out;
	scry_log_setup(opts.is_verbose, SCRY_LOG_COLOR_AUTO);
	status = SCRY_EXIT_FAILURE;
	err = side_open(&sides[0]);
	if (!err)
		err = side_open(&sides[1]);
	if (!err)
		err = choose(sides, opts.section, &what);
	for (int i = 0; i < 2 && !err; i++)
		err = side_read(&sides[i], what);
	if (err)
		goto out;
	name_sides(sides);
	err = print_to(sides, what, &opts);
	status = err ? SCRY_EXIT_FAILURE : 0;
out:
	side_close(&sides[0]);
	side_close(&sides[1]);
	return status;
}
