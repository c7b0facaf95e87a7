/* See patch_file.h. */
#include "cmd/patch_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/patch_children.h"
#include "cmd/patch_lasting.h"
#include "hook/enter_check.h"
#include "patch/apply.h"
#include "scry/patch.h"

#define NAP_NS 20000000

struct file_opts {
	uint64_t pid, max_pause_ns;
	struct scry_patch_risks risks;
	bool dry_run, quiet, help;
	int verbose;
};

/* What was begun is ended, whoever interrupts. */
static int put_on(struct scry_patch_file *f, const struct scry_proc *proc, uint64_t max_pause_ns,
		  uint64_t *ret_pause_ns)
{
	struct scry_inject inj = {.lock = -1, .mem.fd = -1};
	struct scry_lasting patch = {0};
	int r = scry_lasting_enter(&inj, proc,
				   &(struct scry_lasting_way){.purpose = "patch apply",
							      .near = f->near,
							      .max_pause_ns = max_pause_ns});

	if (r == 0) {
		r = scry_patch_file_put_on(f, &inj, &patch);
		if (r < 0)
			r = scry_lasting_give_up(&patch, &inj, r);
	}
	scry_lasting_close(&patch);
	r = scry_lasting_leave(&inj, r);
	*ret_pause_ns = inj.pause_max_ns;
	scry_inject_done(&inj);
	return r;
}

/* Children that were forked before. Those that are forked later have it. */
static void report_children(const struct scry_proc *proc, const char *path, const char *name)
{
	static struct scry_patch_children lack;
	char pids[128];

	scry_patch_children_find(proc->pid, name, false, &lack);
	if (!lack.count)
		return;
	scry_patch_children_words(&lack, pids, sizeof(pids));
	printf("%zu child process%s of it, forked before, %s not have it: %s; fix: scry patch "
	       "apply %s -p PID for each\n",
	       lack.count, lack.count == 1 ? "" : "es", lack.count == 1 ? "does" : "do", pids,
	       scry_text_shown(path).text);
}

static int apply(const struct file_opts *o, const char *path, const struct scry_proc *proc)
{
	struct scry_patch_file f = {0};
	uint64_t pause_ns = 0;
	int r;

	scry_patch_file_name(path, f.name);
	r = scry_lasting_check_free(proc, f.name);
	if (r == 0 && !o->dry_run)
		r = scry_lasting_clean(proc, o->max_pause_ns);
	if (r == 0)
		r = scry_patch_file_open(&f, path, proc, &o->risks);
	if (r == 0 && !o->dry_run)
		r = put_on(&f, proc, o->max_pause_ns, &pause_ns);
	if (r == 0) {
		printf("process %d (%s): patch '%s' %s\n", proc->pid,
		       scry_text_shown(proc->comm).text, scry_text_shown(f.name).text,
		       o->dry_run ? "would be applied" : "is applied");
		scry_patch_file_describe(&f, stdout);
		if (!o->dry_run)
			printf("its threads were stopped for %.1f ms at most; undo: scry patch "
			       "undo %s -p "
			       "%d\n",
			       (double)pause_ns / 1e6, scry_text_shown(f.name).text, proc->pid);
		if (!o->dry_run)
			report_children(proc, path, f.name);
		r = scry_flush(stdout, "the report");
	}
	scry_patch_file_close(&f);
	return r;
}

int scry_cmd_patch_file(int argc, char **argv)
{
	static const char usage[] = "scry patch apply FILE.so -p PID [OPTIONS]";
	struct file_opts o = {.max_pause_ns = 50000000};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &o.pid, "PID", "the process", NULL},
		{0, "dry-run", SCRY_OPT_FLAG, &o.dry_run, NULL, "only show what would be changed",
		 NULL},
		{0, "no-exceptions", SCRY_OPT_FLAG, &o.risks.no_exceptions, NULL,
		 "replace functions in a program that can throw: you know that no exception "
		 "passes them",
		 NULL},
		{0, "no-ipa-ra", SCRY_OPT_FLAG, &o.risks.no_ipa_ra, NULL,
		 "replace functions that are called within their own object: you know that it was "
		 "compiled with -fno-ipa-ra, or by clang",
		 NULL},
		{0, "max-pause", SCRY_OPT_DURATION, &o.max_pause_ns, "TIME",
		 "give up when its threads do not stop within this (default 50ms)", NULL},
		{'q', "quiet", SCRY_OPT_FLAG, &o.quiet, NULL, "no talk on stderr", NULL},
		{'v', "verbose", SCRY_OPT_COUNT, &o.verbose, NULL, "more talk", NULL},
		{'h', "help", SCRY_OPT_FLAG, &o.help, NULL, "this help", NULL},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	struct scry_proc proc;
	int rest, r = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &rest);

	if (r == 0 && o.help) {
		printf("usage: %s\n\nPuts a patch of your own (scry/patch.h) into a running "
		       "program.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (r == 0 && (!o.pid || rest < argc))
		r = scry_fail(-EINVAL, "say which process: -p PID; usage: %s", usage);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	scry_log_setup(o.quiet ? -1 : o.verbose, SCRY_LOG_COLOR_AUTO);
	r = scry_proc_open(&proc, (pid_t)o.pid);
	if (r < 0)
		return scry_front_status(r);
	r = scry_inject_check(&proc);
	if (r == 0)
		r = scry_inject_check_alone(&proc);
	if (r == 0)
		r = apply(&o, argv[0], &proc);
	scry_proc_close(&proc);
	return scry_front_status(r);
}

/* --- what it logs ------------------------------------------------------------------------------
 */

struct reading {
	struct scry_mem mem;
	uint64_t at;   /* of the log in the process */
	uint64_t seen; /* lines up to this one are shown, or lost */
	uint64_t lost;
};

static int find_log(struct reading *in, const struct scry_proc *proc, const char *name)
{
	struct scry_patch_head head;
	int r = scry_lasting_look(proc, name, &head);

	if (r == 0)
		r = scry_mem_open(&in->mem, proc->pid, 0);
	for (uint64_t i = 0; r == 0 && i < head.counter_count && !in->at; i++)
		if (head.counters[i].is_log)
			in->at = head.counters[i].at;
	return r < 0 || in->at
		       ? r
		       : scry_fail(-ENOENT, "patch '%s' of process %d logs nothing (SCRY_LOG)",
				   name, proc->pid);
}

static void print_line(const struct scry_log_line *line)
{
	char text[sizeof(line->text) + 1];
	const size_t size = line->size < sizeof(line->text) ? line->size : sizeof(line->text);

	memcpy(text, line->text, size);
	text[size] = '\0';
	printf("%s\n", scry_text_shown(text).text);
}

/* The lines since the last look, in order. One that is being written is waited for, until it is
 * overwritten. */
static int show_new(struct reading *in)
{
	uint64_t written;
	int r = scry_mem_u64(&in->mem, in->at, &written);

	if (r < 0)
		return r;
	if (written - in->seen > SCRY_LOG_LINES) {
		in->lost += written - SCRY_LOG_LINES - in->seen;
		in->seen = written - SCRY_LOG_LINES;
	}
	for (uint64_t k = 0; k < SCRY_LOG_LINES && in->seen != written; k++) {
		const uint64_t n = in->seen + 1;
		struct scry_log_line line;
		const uint64_t at = in->at + offsetof(struct scry_log, lines) +
				    n % SCRY_LOG_LINES * sizeof(line);
		uint64_t still;

		r = scry_mem_read(&in->mem, at, &line, sizeof(line));
		if (r < 0 || line.number < n)
			return r;
		/* overwritten while it was read? */
		r = scry_mem_u64(&in->mem, at + offsetof(struct scry_log_line, number), &still);
		if (r < 0)
			return r;
		if (line.number == n && still == n)
			print_line(&line);
		else
			in->lost++;
		in->seen = n;
	}
	return 0;
}

static int follow(struct reading *in, const struct scry_proc *proc, uint64_t duration_ns)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	uint64_t waited = 0;
	int r = show_new(in);

	while (r == 0 && !scry_front_interrupts && (!duration_ns || waited < duration_ns)) {
		fflush(stdout);
		nanosleep(&nap, NULL);
		waited += NAP_NS;
		r = show_new(in);
	}
	if (in->lost)
		fprintf(stderr, "scry: %llu lines were overwritten before they were read\n",
			(unsigned long long)in->lost);
	if (r < 0 && !scry_proc_is_alive(proc))
		return scry_proc_fail_gone(proc->pid);
	return r < 0 ? scry_fail(r, "the log cannot be read any more: the patch was taken out, or "
				    "the process runs another program")
		     : scry_flush(stdout, "the log");
}

int scry_cmd_patch_read(int argc, char **argv)
{
	static const char usage[] = "scry patch read NAME -p PID [-d TIME]";
	struct reading in = {.mem.fd = -1};
	uint64_t pid = 0, duration_ns = 0;
	bool help = false;
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &pid, "PID", "the process", NULL},
		{'d', "duration", SCRY_OPT_DURATION, &duration_ns, "TIME",
		 "stop after 30s, 5m, ...; 0 (default): at ^C", NULL},
		{'h', "help", SCRY_OPT_FLAG, &help, NULL, "this help", NULL},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	const char *name = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
	const int skip = name ? 1 : 0;
	struct scry_proc proc;
	int rest, r;

	r = scry_opt_parse(rows, count, (struct scry_opt_args){argc - skip, argv + skip}, &rest);
	if (r == 0 && help) {
		printf("usage: %s\n\nShows what a patch logs.\n\n", usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (r == 0 && (!name || !pid || rest < argc - skip))
		r = scry_fail(-EINVAL, "usage: %s", usage);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	scry_front_catch_signals();
	r = scry_proc_open(&proc, (pid_t)pid);
	if (r < 0)
		return scry_front_status(r);
	r = find_log(&in, &proc, name);
	if (r == 0)
		r = follow(&in, &proc, duration_ns);
	scry_mem_close(&in.mem);
	scry_proc_close(&proc);
	return scry_front_status(r);
}
