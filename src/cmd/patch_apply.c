/*
 * `scry patch apply ucontext`: takes the system call out of a running program's context switches,
 * after it was proven to be in vain, and shows what that gains.
 *
 * Watched from outside first: does any call change a mask? Then the patch is put in as it is, with
 * the functions as they were behind it, and counts; after a while it is switched over, by one byte,
 * and counts on. So before and after are the same process, observed in the same way.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/outside.h"
#include "cmd/patch_file.h"
#include "cmd/patch_lasting.h"
#include "cmd/report.h"
#include "hook/enter_check.h"
#include "patch/ucontext.h"
#include "sample/mask_audit.h"
#include "view/table.h"
#include "view/verdict.h"

#define NAP_NS 20000000
#define FEW 1000 /* switches */
#define START_NS 3000000000u

struct window { /* a while of the patched program */
	uint64_t ns, cpu_ns;
	struct scry_ucontext_counts counts; /* calls within it */
	uint64_t ticks, inside;
};

struct apply {
	uint64_t pid, audit_ns, window_ns, max_pause_ns;
	bool json, dry_run, quiet, help;
	int verbose;
	struct scry_outside o; /* of -- CMD */
	struct scry_proc proc;
	struct scry_ucontext u;
	struct scry_mask_audit audit;
	uint64_t mask;
	size_t threads;
	struct scry_lasting patch;
	struct window before, after;
	uint64_t pause_ns, bytes;
	bool has_proc, has_found;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t switches(const struct scry_ucontext_counts *c)
{
	return c->fast[1] + c->fast[2] + c->slow[1] + c->slow[2];
}

static uint64_t slow_calls(const struct scry_ucontext_counts *c)
{
	return c->slow[0] + c->slow[1] + c->slow[2];
}

static double per_second(uint64_t n, const struct window *w)
{
	return w->ns ? (double)n * 1e9 / (double)w->ns : 0;
}

static double switch_ns(const struct window *w)
{
	const uint64_t n = switches(&w->counts);

	return n ? (double)w->cpu_ns / (double)n : 0;
}

/* --- before anything is changed --------------------------------------------------------------- */

static int interrupted(void)
{
	return scry_fail(-EINTR, "interrupted; nothing was changed");
}

static int audit(struct apply *a)
{
	uint64_t all = 0;
	int r;

	a->audit = (struct scry_mask_audit){.exact = true,
					    .stops = &scry_front_interrupts,
					    .spared = a->u.hooks.objects.is_static ? NULL
										   : "libc.so.6",
					    .place_count = SCRY_UCONTEXT_FUNCTIONS};
	for (size_t i = 0; i < SCRY_UCONTEXT_FUNCTIONS; i++)
		a->audit.places[i] = a->u.at[i] ? a->u.at[i] : UINT64_MAX;
	r = scry_mask_audit(a->proc.pid, a->audit_ns, &a->audit);
	if (r == 0 && !scry_proc_is_alive(&a->proc))
		r = scry_proc_fail_gone(a->proc.pid);
	if (r == 0 && scry_front_interrupts)
		r = interrupted();
	if (r < 0)
		return r;
	for (size_t i = 0; i < SCRY_UCONTEXT_SITES; i++)
		all += a->audit.calls[i];
	if (a->audit.changes)
		return scry_fail(
			-ENOTSUP,
			"process %d (%s) changes signal masks: %llu calls did within %.1f s "
			"(%s), so that its contexts need the system call, or would soon make it "
			"again",
			a->proc.pid, a->proc.comm, (unsigned long long)a->audit.changes,
			(double)a->audit.watched_ns / 1e9, a->audit.changed_by);
	if (a->audit.lost)
		return scry_fail(-ENOTSUP,
				 "not all calls of process %d could be examined: %llu were lost; "
				 "fix: try again",
				 a->proc.pid, (unsigned long long)a->audit.lost);
	return all ? 0 : -EAGAIN;
}

static int none_seen(const struct apply *a)
{
	return scry_fail(-ENOTSUP,
			 "process %d (%s) made no system call by getcontext, setcontext or "
			 "swapcontext within %.1f s: there is nothing to take out; fix: --audit "
			 "with a longer time, or scry syscalls -p %d, which shows what it calls",
			 a->proc.pid, a->proc.comm, (double)a->audit_ns / 1e9, a->proc.pid);
}

static int look(struct apply *a)
{
	int r = scry_proc_open(&a->proc, (pid_t)a->pid);

	a->has_proc = r == 0;
	if (r == 0)
		r = scry_inject_check(&a->proc);
	if (r == 0)
		r = scry_inject_check_alone(&a->proc);
	if (r == 0)
		r = scry_lasting_check_free(&a->proc, SCRY_UCONTEXT_NAME);
	if (r == 0 && !a->dry_run)
		r = scry_lasting_clean(&a->proc, a->max_pause_ns);
	if (r == 0) {
		a->has_found = true;
		r = scry_ucontext_find(&a->u, &a->proc);
	}
	return r;
}

static void look_no_more(struct apply *a)
{
	if (a->has_found)
		scry_ucontext_close(&a->u);
	if (a->has_proc)
		scry_proc_close(&a->proc);
	a->has_found = a->has_proc = false;
}

/* --- the change --------------------------------------------------------------------------------
 */

/* Not to be interrupted: what is begun is ended, within a second or so. */
static int put_in(struct apply *a)
{
	struct scry_inject inj = {.lock = -1, .mem.fd = -1};
	int r = scry_lasting_enter(&inj, &a->proc,
				   &(struct scry_lasting_way){.purpose = "patch apply",
							      .near = a->u.at[2],
							      .max_pause_ns = a->max_pause_ns});

	if (r == 0)
		r = scry_ucontext_common_mask(&inj, &a->mask, &a->threads);
	if (r == 0) {
		r = scry_ucontext_apply(&a->u, &inj, a->mask, &a->patch);
		if (r < 0)
			r = scry_lasting_give_up(&a->patch, &inj, r);
		a->bytes = a->patch.edit.bytes_changed;
	}
	scry_edit_close(&a->patch.edit);
	r = scry_lasting_leave(&inj, r);
	a->pause_ns = inj.pause_max_ns;
	scry_inject_done(&inj);
	return r;
}

/* To the ns where it can be asked, else in ticks. */
static uint64_t cpu_ns(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		return scry_proc_cpu_ns(pid);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void subtract(struct scry_ucontext_counts *to, const struct scry_ucontext_counts *from)
{
	for (size_t i = 0; i < SCRY_UCONTEXT_SITES; i++) {
		to->fast[i] -= from->fast[i];
		to->slow[i] -= from->slow[i];
	}
}

static int measure(struct apply *a, const struct scry_mem *mem, struct window *w)
{
	struct scry_mask_audit shares = {.stops = &scry_front_interrupts,
					 .place_count = SCRY_UCONTEXT_SITES};
	struct scry_ucontext_counts first;
	uint64_t began, cpu;
	int r = scry_ucontext_counts(mem, &a->patch.head, &first);

	memcpy(shares.places, a->u.at, SCRY_UCONTEXT_SITES * sizeof(*a->u.at));
	began = now_ns();
	cpu = cpu_ns(a->proc.pid);
	if (r == 0)
		r = scry_mask_audit(a->proc.pid, a->window_ns, &shares);
	w->cpu_ns = cpu_ns(a->proc.pid) - cpu;
	w->ns = now_ns() - began;
	if (r == 0)
		r = scry_ucontext_counts(mem, &a->patch.head, &w->counts);
	subtract(&w->counts, &first);
	w->ticks = shares.ticks;
	w->inside = shares.inside;
	return r < 0 && !scry_proc_is_alive(&a->proc) ? scry_proc_fail_gone(a->proc.pid) : r;
}

/* Takes it out again, for the reason that the error says. */
static int take_out(struct apply *a, int reason)
{
	char kept[512];
	int r;

	snprintf(kept, sizeof(kept), "%s", scry_error());
	r = scry_lasting_take_out(&a->proc, SCRY_UCONTEXT_NAME, a->max_pause_ns, NULL);
	return r < 0 ? r : scry_fail(reason, "%s; the patch was taken out again", kept);
}

/* Is the patch still what we have put in? Another scry may have taken it out meanwhile. */
static int check_is_in(struct apply *a)
{
	struct scry_patch_head now = {0};

	if (scry_lasting_look(&a->proc, SCRY_UCONTEXT_NAME, &now) == 0 &&
	    now.nonce == a->patch.head.nonce && now.stage == SCRY_PATCH_ON)
		return 0;
	return scry_fail(-EBUSY, "another program has meanwhile removed the patch from process %d",
			 a->proc.pid);
}

/* No other scry edits the process while it is measured, and what is written is written to the
 * patch.
 */
static int switch_over(struct apply *a)
{
	struct scry_mem mem = {.fd = -1};
	struct scry_inject claim = {.lock = -1, .mem.fd = -1};
	int r = scry_inject_lock(&claim, &a->proc);

	if (r == 0)
		r = scry_mem_open(&mem, a->proc.pid, 1);
	if (r == 0)
		r = measure(a, &mem, &a->before);
	if (r == 0 && (a->before.counts.has_changed || scry_front_interrupts))
		r = a->before.counts.has_changed
			    ? scry_fail(-ENOTSUP,
					"process %d (%s) has changed a signal mask "
					"while it was measured",
					a->proc.pid, a->proc.comm)
			    : scry_fail(-EINTR, "interrupted");
	if (r == 0)
		r = check_is_in(a);
	if (r == 0)
		r = scry_ucontext_start(&mem, &a->patch.head);
	scry_inject_unlock(&claim);
	if (r < 0) {
		scry_mem_close(&mem);
		return r == -EBUSY || r == -ESRCH || !scry_proc_is_alive(&a->proc) ? r
										   : take_out(a, r);
	}
	r = measure(a, &mem, &a->after);
	scry_mem_close(&mem);
	return r;
}

/* --- the report --------------------------------------------------------------------------------
 */

static void verdict(const struct apply *a, char *ret, size_t size)
{
	const double before = switch_ns(&a->before), after = switch_ns(&a->after);

	if (a->after.counts.has_changed)
		snprintf(ret, size,
			 "the program has changed a signal mask since: its context switches make "
			 "the system call again");
	else if (switches(&a->before.counts) < FEW || switches(&a->after.counts) < FEW ||
		 before <= 0 || after <= 0)
		snprintf(ret, size,
			 "it is in, but the program made too few context switches to say what it "
			 "gains: %llu before, %llu after",
			 (unsigned long long)switches(&a->before.counts),
			 (unsigned long long)switches(&a->after.counts));
	else
		snprintf(ret, size,
			 "a context switch takes %.0f ns of processor time instead of %.0f "
			 "(%.1fx), rt_sigprocmask is called %.0f times a second by it instead of "
			 "%.0f",
			 after, before, after > 0 ? before / after : 0,
			 per_second(slow_calls(&a->after.counts), &a->after),
			 per_second(slow_calls(&a->before.counts), &a->before));
}

static double share(const struct window *w)
{
	return w->ticks ? 100.0 * (double)w->inside / (double)w->ticks : 0;
}

static const char risk[] =
	"x87 exception flags are no longer kept for each context; a mask that is changed otherwise "
	"than by sigprocmask or pthread_sigmask, as by a system call of the program's own or by "
	"leaving a signal handler with a switch, is not seen";

/* A row: a window, as before or after. */
struct span {
	const char *name;
	const struct window *of;
	struct scry_doc_value *value; /* of its row's only double */
};

#define GET(name, ...) SCRY_GET(name, struct span, const struct apply, __VA_ARGS__)
#define WINDOW(member) GET(get_##member, scry_cell_number(row->of->member))
GET(get_name, scry_cell_string(row->name))
GET(get_rate, scry_cell_number((uint64_t)per_second(switches(&row->of->counts), row->of)))
GET(get_tenths,
    scry_cell_known((uint64_t)(switch_ns(row->of) * 10 + 0.5), switches(&row->of->counts) != 0))
GET(get_slow_rate, scry_cell_number((uint64_t)per_second(slow_calls(&row->of->counts), row->of)))
GET(get_share, scry_cell_known((uint64_t)(share(row->of) * 10 + 0.5), row->of->ticks != 0))
WINDOW(ns)
WINDOW(cpu_ns)
GET(get_switches, scry_cell_number(switches(&row->of->counts)))
GET(get_switch_ns, scry_cell_double(switch_ns(row->of), row->value))
GET(get_slow, scry_cell_number(slow_calls(&row->of->counts)))
WINDOW(ticks)
WINDOW(inside)
#undef WINDOW
#undef GET

static void push_windows(const struct apply *a, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"", "window", SCRY_CELL_TEXT, get_name, 0},
		{"switches/s", NULL, SCRY_CELL_COUNT, get_rate, 0},
		{"CPU ns for each", NULL, SCRY_CELL_TENTHS, get_tenths, 0},
		{"rt_sigprocmask/s", NULL, SCRY_CELL_COUNT, get_slow_rate, 0},
		{"% of CPU in it", NULL, SCRY_CELL_TENTHS, get_share, 0},
		{NULL, "wall_ns", SCRY_CELL_NUMBER, get_ns, 0},
		{NULL, "cpu_ns", SCRY_CELL_NUMBER, get_cpu_ns, 0},
		{NULL, "switches", SCRY_CELL_NUMBER, get_switches, 0},
		{NULL, "switch_ns", SCRY_CELL_VALUE, get_switch_ns, 0},
		{NULL, "system_calls", SCRY_CELL_NUMBER, get_slow, 0},
		{"samples", "samples", SCRY_CELL_NUMBER, get_ticks, 0},
		{NULL, "samples_inside", SCRY_CELL_NUMBER, get_inside, 0},
	};
	struct scry_doc_value values[2];
	const struct span spans[] = {{"before", &a->before, &values[0]},
				     {"after", &a->after, &values[1]}};

	scry_table_push(
		&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROWS(spans, 2), .view = (void *)a},
		doc);
}

/* People read a duration, programs ns. */
static struct scry_pair duration(const char *key, const char *unit, uint64_t ns,
				 struct scry_buf *text)
{
	if (!text)
		return (struct scry_pair){key, unit, SCRY_CELL_NUMBER, 0, scry_cell_number(ns)};
	scry_text_duration(text, ns);
	return (struct scry_pair){key, unit, SCRY_CELL_TEXT, 0, scry_cell_buf(text)};
}

/* For programs only. */
static struct scry_pair number(const char *key, uint64_t value)
{
	struct scry_pair pair = {key, "", SCRY_CELL_NUMBER, 0, scry_cell_number(value)};

	pair.cell.is_blank = true;
	return pair;
}

static struct scry_pair count(const char *key, const char *unit, uint64_t value)
{
	return (struct scry_pair){key, unit, SCRY_CELL_COUNT, 0, scry_cell_number(value)};
}

static void push_totals(const struct apply *a, struct scry_doc *doc)
{
	const struct scry_mask_audit *audit = &a->audit;
	struct scry_buf pause = {0}, watched = {0};
	struct scry_cell patch = scry_cell_string(SCRY_UCONTEXT_NAME),
			 command = scry_cell_string(a->proc.comm);
	struct scry_cell has_changed = scry_cell_number(a->after.counts.has_changed);

	patch.is_blank = command.is_blank = has_changed.is_blank = true;
	const struct scry_pair pairs[] = {
		{"patch", "", SCRY_CELL_TEXT, 0, patch},
		number("pid", (uint64_t)a->proc.pid),
		{"command", "", SCRY_CELL_TEXT, 0, command},
		{"has_changed_mask", "", SCRY_CELL_BOOL, 0, has_changed},
		{"module", "changed", SCRY_CELL_TEXT, 0, scry_cell_string(a->u.module)},
		count("bytes_changed", a->bytes == 1 ? "byte of it" : "bytes of it", a->bytes),
		duration("pause_ns", "longest pause", a->pause_ns, doc->is_data ? NULL : &pause),
		duration("audit_wall_ns", "of audit", audit->watched_ns,
			 doc->is_data ? NULL : &watched),
		count("audit_calls", "calls of rt_sigprocmask in it, which changed no mask",
		      audit->calls[0] + audit->calls[1] + audit->calls[2] + audit->other_calls),
		number("audit_getcontext", audit->calls[0]),
		number("audit_setcontext", audit->calls[1]),
		number("audit_swapcontext", audit->calls[2]),
		number("audit_other_calls", audit->other_calls),
		count("audit_own_changes",
		      "calls of libc's own changed one for a moment, as when a thread starts",
		      audit->own_changes),
		count("threads", a->threads == 1 ? "thread" : "threads", a->threads),
		{"mask", "is their mask", SCRY_CELL_HEX, 0, scry_cell_number(a->mask)},
	};

	doc->ops->totals(doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
	scry_buf_done(&pause);
	scry_buf_done(&watched);
}

static int report(const struct apply *a)
{
	const struct scry_report_opts form = {.json = a->json};
	struct scry_doc doc = {.view = "patch_apply", .schema = 2, .out = stdout};
	struct scry_buf buf = {0};
	char text[512];
	int r = scry_report_open(&doc, &form);

	if (r < 0)
		return r;
	verdict(a, text, sizeof(text));
	scry_buf_printf(&buf, "process %d (%s): %s", a->proc.pid, a->proc.comm, text);
	scry_verdict(&doc, &buf);
	scry_buf_done(&buf);
	push_totals(a, &doc);
	push_windows(a, &doc);
	scry_doc_remark(&doc, "undo: scry patch undo %s -p %d", SCRY_UCONTEXT_NAME, a->proc.pid);
	return scry_doc_end(&doc);
}

static int describe(const struct apply *a)
{
	printf("process %d (%s): these functions of %s would be changed\n", a->proc.pid,
	       scry_text_shown(a->proc.comm).text, scry_text_shown(a->u.module).text);
	for (size_t i = 0; i < a->u.hooks.count; i++)
		printf("  change  %u bytes at %#llx\n", a->u.hooks.rows[i].jump,
		       (unsigned long long)(a->u.hooks.rows[i].address +
					    a->u.hooks.rows[i].window.endbr));
	printf("note  %s\n", risk);
	return scry_flush(stdout, "the list");
}

/* --- the command -------------------------------------------------------------------------------
 */

static int apply_now(struct apply *a)
{
	int r;

	scry_log_say("%s", risk);
	r = put_in(a);
	if (r == 0)
		r = switch_over(a);
	return r < 0 ? r : report(a);
}

static int run_pid(struct apply *a)
{
	int r = look(a);

	if (r == 0 && a->dry_run)
		return describe(a);
	if (r == 0) {
		scry_log_say("watching for %.1f s whether process %d changes a signal mask; "
			     "meanwhile each system call of every process on this machine takes "
			     "some 100 to 200 ns longer",
			     (double)a->audit_ns / 1e9, a->proc.pid);
		r = audit(a);
	}
	if (r == -EAGAIN)
		r = none_seen(a);
	return r < 0 ? r : apply_now(a);
}

/* Is that an answer? Not while the program may not have loaded its libraries yet, or became another
 * one by exec, as a shell does. */
static bool is_final(int r, uint64_t began_ns)
{
	return r != -EAGAIN && r != -ESRCH && (r == 0 || now_ns() - began_ns > START_NS);
}

/* The program is looked at until it has switched contexts; then as any other. */
static int run_command(struct apply *a)
{
	const uint64_t began_ns = now_ns();
	int r = scry_outside_start(&a->o, false);

	if (r < 0)
		return r;
	a->pid = (uint64_t)a->o.child;
	r = -EAGAIN;
	while (!is_final(r, began_ns) && !scry_outside_has_ended(&a->o)) {
		look_no_more(a);
		scry_outside_rest(NAP_NS);
		scry_error_clear();
		r = look(a);
		if (r == 0)
			r = audit(a);
	}
	if (r == 0)
		r = apply_now(a);
	else if (scry_outside_has_ended(&a->o)) {
		scry_log_say("the program ended before it was seen to switch contexts");
		r = 0;
	}
	if (r < 0)
		scry_log_error("%s", scry_error());
	scry_error_clear();
	while (!scry_outside_has_ended(&a->o))
		scry_outside_rest(NAP_NS);
	return r;
}

static int parse(struct apply *a, int argc, char **argv)
{
	static const char usage[] = "scry patch apply ucontext [OPTIONS] -p PID | -- CMD...";
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &a->pid, "PID", "the process", NULL},
		{0, "audit", SCRY_OPT_DURATION, &a->audit_ns, "TIME",
		 "watch for this long first whether a mask is changed (default 2s)", NULL},
		{'d', "duration", SCRY_OPT_DURATION, &a->window_ns, "TIME",
		 "measure for this long before and after (default 1s)", NULL},
		{0, "max-pause", SCRY_OPT_DURATION, &a->max_pause_ns, "TIME",
		 "give up when its threads do not stop within this (default 50ms)", NULL},
		{0, "dry-run", SCRY_OPT_FLAG, &a->dry_run, NULL, "only show what would be changed",
		 NULL},
		{0, "json", SCRY_OPT_FLAG, &a->json, NULL, "print JSON instead of text", NULL},
		{'q', "quiet", SCRY_OPT_FLAG, &a->quiet, NULL, "no talk on stderr", NULL},
		{'v', "verbose", SCRY_OPT_COUNT, &a->verbose, NULL, "more talk", NULL},
		{'h', "help", SCRY_OPT_FLAG, &a->help, NULL, "this help", NULL},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	int rest, r = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &rest);

	if (r == 0 && a->help) {
		printf("usage: %s\n       scry patch apply FILE.so -p PID (--help after "
		       "FILE.so)\n\n"
		       "Takes the system call out of the context switches of a "
		       "running program. These options are those of ucontext.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 1;
	}
	if (r == 0 && rest < argc)
		a->o.command = argv + rest;
	if (r == 0 && !a->pid == !a->o.command)
		r = scry_fail(-EINVAL, "say which process: -p PID, or -- CMD; usage: %s", usage);
	if (r == 0 && (!a->audit_ns || !a->window_ns))
		r = scry_fail(-EINVAL, "--audit and -d take a time greater than 0");
	return r;
}

int scry_cmd_patch_apply(int argc, char **argv)
{
	struct apply a = {.audit_ns = 2000000000u,
			  .window_ns = 1000000000u,
			  .max_pause_ns = 50000000u,
			  .o = SCRY_OUTSIDE_INIT};
	int r;

	if (argc >= 2 && argv[1][0] != '-' && strchr(argv[1], '.'))
		return scry_cmd_patch_file(argc - 1, argv + 1);
	if (argc < 2 || strcmp(argv[1], SCRY_UCONTEXT_NAME) != 0) {
		if (argc >= 2 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")))
			return parse(&a, argc, argv) == 1 ? 0 : SCRY_EXIT_USAGE;
		scry_fail(-EINVAL, "name the patch, before the options: scry patch apply ucontext "
				   "-p PID, or FILE.so");
		return SCRY_EXIT_USAGE;
	}
	r = parse(&a, argc - 1, argv + 1);
	if (r == 1)
		return 0;
	if (r < 0)
		return SCRY_EXIT_USAGE;
	scry_log_setup(a.quiet ? -1 : a.verbose, SCRY_LOG_COLOR_AUTO);
	scry_front_catch_signals();
	r = a.o.command ? run_command(&a) : run_pid(&a);
	look_no_more(&a);
	return a.o.command ? scry_outside_status(&a.o, r) : scry_front_status(r);
}
