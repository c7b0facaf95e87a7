/*
 * `scry doctor`: what works on this machine, why not, and the command that mends it. With -p PID:
 * whether that process can be watched, and everything that was learned about its Ruby, how, and how
 * it was checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cmd/doctor.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "hook/enter_check.h"
#include "hook/inject.h"
#include "hook/shared.h"
#include "instrument/objects/alloc_functions.h"
#include "instrument/objects/rehearsal.h"
#include "probe/bpf.h"
#include "sample/syscall_perf.h"
#include "sys/container.h"
#include "view/table.h"
#include "vm/ruby.h"
#include "vm/ruby_gc.h"

struct line {
	bool is_ok, is_problem;
	const char *item, *text, *fix;
};

static struct scry_doc doc = {.view = "doctor", .schema = 1};
static int problems;

static struct scry_cell shown_text(const struct line *line, struct scry_buf *buf)
{
	scry_buf_printf(buf, "%s%s%s", line->text, *line->fix ? "; fix: " : "", line->fix);
	return scry_cell_buf(buf);
}

#define GET(name, ...) SCRY_GET(name, struct line, void, __VA_ARGS__)

GET(get_mark, scry_cell_string(row->is_ok ? "ok" : row->is_problem ? "NO" : "--"))
GET(get_item, scry_cell_string(row->item))
GET(get_shown, shown_text(row, buf))
GET(get_text, scry_cell_string(row->text))
GET(get_fix, scry_cell_string(*row->fix ? row->fix : NULL))

static const struct scry_column columns[] = {
	{"", NULL, SCRY_CELL_TEXT, get_mark, 0},
	{"", "item", SCRY_CELL_TEXT, get_item, 0},
	{NULL, "is_ok", SCRY_CELL_BOOL, SCRY_AT(struct line, is_ok)},
	{NULL, "is_problem", SCRY_CELL_BOOL, SCRY_AT(struct line, is_problem)},
	{"", NULL, SCRY_CELL_TEXT, get_shown, 0},
	{NULL, "text", SCRY_CELL_TEXT, get_text, 0},
	{NULL, "fix", SCRY_CELL_TEXT, get_fix, 0},
};

void scry_doctor_line(const char *item, bool ok, const char *text, const char *fix)
{
	const struct line line = {ok, !ok, item, text, ok ? "" : fix};

	scry_table_push_row(&(struct scry_table){SCRY_COLUMNS(columns)}, &line, &doc);
	problems += !ok;
}

void scry_doctor_optional(const char *item, bool ok, const char *text)
{
	const struct line line = {ok, false, item, text, ""};

	scry_table_push_row(&(struct scry_table){SCRY_COLUMNS(columns)}, &line, &doc);
}

/* What was learned of a Ruby, how, and what proves it. */
static void push_checks(const struct scry_ruby *ruby)
{
	struct scry_buf text = {0};

	for (size_t i = 0; i < ruby->check_count; i++) {
		const struct scry_ruby_check *c = &ruby->checks[i];

		scry_buf_clear(&text);
		scry_ruby_put_check(c, &text);
		/* "not known", "not proven": scry does without */
		if (c->ok && !strncmp(c->value, "not ", 4))
			scry_doctor_optional(c->item, false, scry_buf_str(&text));
		else
			scry_doctor_line(c->item, c->ok, scry_buf_str(&text), "");
	}
	scry_buf_done(&text);
}

static int read_int(const char *path)
{
	FILE *f = fopen(path, "re");
	int value = -1;

	if (f && fscanf(f, "%d", &value) != 1)
		value = -1;
	if (f)
		fclose(f);
	return value;
}

static void check_machine(void)
{
	struct utsname un;
	char text[256];
	int r, scope = read_int("/proc/sys/kernel/yama/ptrace_scope");
	bool ptrace_any = scry_proc_can(19);

	uname(&un);
	snprintf(text, sizeof(text), "%s %s %s", un.sysname, un.release, un.machine);
	scry_doctor_line("kernel", !strcmp(un.machine, "x86_64"), text, "scry runs on x86_64 only");
	snprintf(text, sizeof(text), "uid %u, %s", geteuid(),
		 ptrace_any ? "may trace any process" : "may trace your own processes");
	scry_doctor_line("permission to trace", ptrace_any || scope <= 0, text,
			 "run scry as root (sudo scry ...)");
	if (scope > 0 && !ptrace_any) {
		snprintf(text, sizeof(text), "kernel.yama.ptrace_scope is %d", scope);
		scry_doctor_line("yama", false, text,
				 "sudo scry ..., or sudo sysctl kernel.yama.ptrace_scope=0");
	}
	scry_doctor_line("shared ring", scry_shared_is_possible(),
			 "by a memfd that the other process makes",
			 "a kernel with pidfd_getfd, Linux 5.6 or later");
	r = scry_bpf_check();
	scry_doctor_optional("eBPF", r == 0, r == 0 ? "programs can be loaded" : scry_error());
	if (r < 0) {
		r = scry_syscall_perf_check();
		scry_doctor_optional("syscalls: samples", r == 0,
				     r == 0 ? "by perf events, of processes that you may look at"
					    : scry_error());
	}
	scry_doctor_line("memory access", access("/proc/self/mem", R_OK | W_OK) == 0,
			 "/proc/PID/mem", "mount /proc");
}

/* Each way to watch objects, on a child first. */
static void rehearse(struct scry_ruby *ruby, const struct scry_proc *proc)
{
	static const uint32_t ways[] = {0, SCRY_RUBY_WAY_STACKS, SCRY_RUBY_WAY_SAMPLED,
					SCRY_RUBY_WAY_HOOKS};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if ((ways[i] & SCRY_RUBY_WAY_HOOKS) && !ruby->layout.alloc_functions.is_proven)
			continue;
		if (scry_rehearse(ruby, proc, ways[i]) < 0 &&
		    !ruby->layout.rehearsed[ways[i]].agent)
			scry_doctor_line("rehearsal", false, scry_error(), "");
		else
			scry_rehearse_report(ruby, ways[i]);
	}
	scry_error_clear();
}

static void check_process(pid_t pid)
{
	struct scry_proc proc;
	struct scry_ruby *ruby;
	struct scry_ruby_gc gc;
	bool classic, triggered;
	const char *fix;
	char text[768];
	int r = scry_proc_open(&proc, pid);

	if (r < 0) {
		fix = scry_container_fix(SCRY_CONTAINER_PROCESSES);
		scry_doctor_line("process", false, scry_error(),
				 r == -ESRCH && *fix ? fix + strlen("; ") : "");
		return;
	}
	snprintf(text, sizeof(text), "%d (%s), uid %u, %d thread%s", proc.pid, proc.comm, proc.uid,
		 proc.threads, scry_text_s((uint64_t)proc.threads));
	scry_doctor_line("process", true, text, "");
	r = scry_inject_check(&proc);
	if (r == 0)
		r = scry_inject_check_alone(&proc);
	scry_doctor_line("may be entered", r == 0, r == 0 ? "yes" : scry_error(), "");
	r = scry_ruby_open(pid, SCRY_RUBY_BOOTED, &ruby);
	if (r == -ENOENT) { /* what looks at any program does without */
		scry_doctor_optional("ruby", false, scry_error());
	} else if (r < 0) {
		scry_doctor_line("ruby", false, *scry_error() ? scry_error() : strerror(-r), "");
	} else {
		snprintf(text, sizeof(text), "%s in %s", ruby->description, ruby->module);
		scry_doctor_line("ruby", true, text, "");
		classic = scry_ruby_symbol(ruby, "rb_postponed_job_register_one") != 0;
		triggered = scry_ruby_symbol(ruby, "rb_postponed_job_preregister") &&
			    scry_ruby_symbol(ruby, "rb_postponed_job_trigger");
		scry_doctor_line("switch for events", classic || triggered,
				 triggered ? "rb_postponed_job_trigger"
					   : "rb_postponed_job_register_one",
				 "this Ruby is not supported yet");
		r = scry_alloc_functions_find(ruby, &proc);
		scry_doctor_line(
			"allocation hooks", r == 0 && ruby->layout.alloc_functions.is_proven,
			r < 0					 ? scry_error()
			: ruby->layout.alloc_functions.is_proven ? "proven by counting"
								 : ruby->layout.alloc_functions.why,
			"use events (the default)");
		rehearse(ruby, &proc);
		scry_ruby_gc_find(ruby, &gc);
		scry_doctor_line("garbage collector", gc.is_known,
				 gc.has_epochs
					 ? "its state is known, and when what it frees may change"
					 : "its state is known",
				 "scry stacks does not show it");
		scry_doctor_engines(ruby);
		scry_doctor_stacks(ruby);
		push_checks(ruby);
		scry_ruby_free(ruby);
	}
	scry_proc_close(&proc);
}

int scry_cmd_doctor(int argc, char **argv)
{
	struct scry_report_opts form = SCRY_REPORT_OPTS_DEFAULT;
	uint64_t pid = 0;
	bool help = false;
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &pid, "PID", "look at this process too", NULL},
		{0, "json", SCRY_OPT_FLAG, &form.json, NULL, "print JSON instead of text", NULL},
		{'h', "help", SCRY_OPT_FLAG, &help, NULL, "this help", NULL},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	int rest, r = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &rest);

	if (r == 0 && (rest < argc || pid > 4194304))
		r = scry_fail(-EINVAL, "usage: scry doctor [-p PID] [--json]");
	if (r < 0)
		return SCRY_EXIT_USAGE;
	if (help) {
		printf("usage: scry doctor [-p PID] [--json]\n\n");
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	doc.out = stdout;
	if (scry_report_open(&doc, &form) < 0)
		return SCRY_EXIT_FAILURE;
	scry_doc_table(&doc, columns, sizeof(columns) / sizeof(columns[0]));
	check_machine();
	if (pid)
		check_process((pid_t)pid);
	else
		scry_doctor_engines(NULL);
	scry_error_clear();
	return scry_doc_end(&doc) < 0 || problems ? SCRY_EXIT_FAILURE : 0;
}
