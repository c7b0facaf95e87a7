/*
 * `scry stacks`: where a Ruby program's time goes, by sampling the stacks of all its threads from
 * outside. There is no keeper: nothing is ever written into the process, so nothing is to be
 * undone, and a sampler that dies leaves nothing behind, also while it holds threads (--pause).
 *
 * Ticks: the time is cut into slots of 1/rate; in each one look is taken at a random moment, so
 * that no timer of the program's runs in step with it. A slot for which there was no time is
 * missed, counted, and the next sample stands for it too.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/outside.h"
#include "sample/descendants.h"
#include "sys/fd.h"
#include "sys/tracee.h"
#include "watch/signals.h"
#include "view/filter.h"
#include "view/sort.h"

#define LATE_PART 20 /* of all looks: more of them late */
#define RATE_MAX 20000u
#define BOOT_LOOK_NS 3000000u
#define SAMPLER_NICE (-15)
#define RATE_DEFAULT 1000u
#define RATE_HELD 100u	    /* the default where what runs is held for a look */
#define RATE_BOTH_MAX 2000u /* at which threads are read and have a clock too */

enum { ENGINE_AUTO, ENGINE_READ, ENGINE_BPF };

struct stacks {
	struct scry_opt_list pids;
	struct scry_outside o;
	uint64_t duration_ns, rate;
	int names; /* enum scry_sampling_names */
	int engine;
	int by; /* as the option has it */
	bool native, pause, quiet, help, follow;
	int verbose;
	/* the run */
	pid_t pid;
	bool is_gone;		/* all that was watched had ended when the watch was over */
	struct scry_ruby *ruby; /* of the first process, till that is opened */
	struct scry_sampling run;
	struct scry_descendants *descendants;
	uint64_t cpu_began_ns, seed;
	const char *why; /* it ended */
};

/* --- the recording ---------------------------------------------------------------------------- */

static uint64_t own_cpu_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note_descendant(struct stacks *s)
{
	const struct scry_descendants_sums sums = scry_descendants_sums(s->descendants);
	char text[200];

	snprintf(text, sizeof(text), "%zu Rub%s started could not be sampled; -v says why",
		 sums.refused, sums.refused == 1 ? "y that was" : "ies that were");
	if (sums.refused)
		scry_outside_note(&s->o, text);
	snprintf(text, sizeof(text), "%zu fork child%s ended before scry could sample%s",
		 sums.unseen, sums.unseen == 1 ? "" : "ren",
		 sums.unseen_ns ? "" : "; -v says which");
	if (sums.unseen_ns)
		snprintf(text, sizeof(text),
			 "%zu fork child%s ended before scry could sample, having run for %.1f ms",
			 sums.unseen, sums.unseen == 1 ? "" : "ren", (double)sums.unseen_ns / 1e6);
	if (sums.unseen)
		scry_outside_note(&s->o, text);
	if (sums.is_other_program)
		scry_outside_note(
			&s->o,
			"the process became another program (exec), and was not watched on; fix: "
			"scry stacks -f");
}

/* What of the native frames is not there. */
static void note_native(struct stacks *s)
{
	const struct scry_samples_native_sums sums = s->run.native_sums;
	char text[240];

	snprintf(text, sizeof(text),
		 "native frames: of %" PRIu64 " stacks that were read %" PRIu64
		 " have all, %" PRIu64 " lack the oldest, %" PRIu64 " have none%s, %" PRIu64
		 " did not fit Ruby's and were left out",
		 sums.whole + sums.cut + sums.none + sums.apart, sums.whole, sums.cut, sums.none,
		 s->run.clock || s->pause
			 ? ""
			 : " (running threads have them with --engine=bpf or --pause only)",
		 sums.apart);
	scry_outside_note(&s->o, text);
}

static void note_pauses(struct stacks *s)
{
	char text[200];

	snprintf(text, sizeof(text),
		 "%" PRIu64 " look%s left out, so that the program was stopped for no more than "
		 "%u %% of the time; fix: a lower --rate",
		 s->run.spared, s->run.spared == 1 ? " was" : "s were",
		 100 / SCRY_SAMPLES_PAUSE_SHARE);
	if (s->run.spared)
		scry_outside_note(&s->o, text);
	snprintf(text, sizeof(text),
		 "%" PRIu64 " look%s left out, as a thread would not stop in time or another "
		 "program traced it",
		 s->run.late, s->run.late == 1 ? " was" : "s were");
	if (s->run.late)
		scry_outside_note(&s->o, text);
}

/* Looks then come when the program is put off, and not at random moments. */
static void note_late(struct stacks *s)
{
	const struct scry_descendants_sums sums = scry_descendants_sums(s->descendants);

	if (!s->run.clock && !s->pause && sums.late * LATE_PART > sums.looks)
		scry_outside_note(&s->o, "other programs had the processors when scry was to look: "
					 "by reading, shares "
					 "of time may be off by tens of percent then; fix: "
					 "--engine=bpf, --pause, or "
					 "a machine that has less to do");
}

static int write_end(struct stacks *s)
{
	struct scry_ev_sampling sums = {0}; /* of all that is watched */
	int err;

	if (s->run.clock)
		scry_clock_end(s->run.clock, &sums);
	note_descendant(s);
	sums.sampler_ns = own_cpu_ns() - s->cpu_began_ns;
	err = scry_descendants_end(s->descendants, s->why, &sums);
	if (!err && s->native)
		note_native(s);
	if (!err)
		note_pauses(s);
	if (!err)
		note_late(s);
	return err;
}

/* --- the program ------------------------------------------------------------------------------ */

/* A started program, or with -f one that it starts, becomes a Ruby, and boots. */
static int wait_for_ruby(struct stacks *s)
{
	for (;;) {
		bool has_ended = scry_outside_has_ended(&s->o);
		int err = scry_descendants_find(s->descendants, s->pid, &s->ruby);

		if (err != -EAGAIN && err != -ESRCH)
			return err;
		scry_error_clear();
		if (has_ended && (err == -ESRCH || scry_front_interrupts))
			return scry_fail(-ENOENT,
					 "'%s' ended before a Ruby in it could be sampled, or had "
					 "none%s",
					 s->o.command[0],
					 s->follow ? ""
						   : "; fix: a program that runs longer, ruby "
						     "itself, or -f to watch the program's "
						     "children too");
		scry_outside_rest(BOOT_LOOK_NS);
	}
}

static int open_target(struct stacks *s)
{
	int err = scry_descendants_open(&s->run, s->follow, &s->descendants);

	if (err)
		return err;
	return s->o.command ? wait_for_ruby(s) : scry_ruby_open(s->pid, SCRY_RUBY_BOOTED, &s->ruby);
}

/* --- ticks ------------------------------------------------------------------------------------ */

static uint64_t random_below(struct stacks *s, uint64_t limit)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed % limit;
}

/* A thread that was released before it could stop does so some day, and is to be released then. */
static void rest_beside_late(uint64_t ns)
{
	while (scry_tracee_lingering() && scry_now_ns() < ns) {
		scry_tracee_poll_lingering();
		scry_outside_rest(100000);
	}
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static bool is_over(struct stacks *s)
{
	if (!scry_descendants_lives(s->descendants))
		return true;
	if (scry_front_interrupts && (!s->o.child || scry_outside_has_ended(&s->o)))
		s->why = "interrupt";
	else if (!s->duration_ns || scry_now_ns() - s->run.began_ns < s->duration_ns)
		return false;
	return true;
}

/* Looks in slots. Until the watch is over: 0 or -errno. */
static int look(struct stacks *s)
{
	uint64_t slot_ns = s->run.slot_ns, slot = 0, done = 0, next_ns;

	for (;;) {
		int err;

		next_ns = s->run.began_ns + slot * slot_ns + random_below(s, slot_ns);
		rest_beside_late(next_ns);
		sleep_until(next_ns);
		if (is_over(s))
			return 0;
		slot = (scry_now_ns() - s->run.began_ns) / slot_ns;
		err = scry_descendants_turn(s->descendants);
		if (!err)
			err = scry_descendants_look(s->descendants, slot);
		if (err)
			return err;
		done = slot + 1;
		slot = (scry_now_ns() - s->run.began_ns) / slot_ns;
		if (slot < done)
			slot = done;
	}
}

/* Lets what runs report itself, by the clocks. Until the watch is over: 0 or -errno. */
static int listen(struct stacks *s)
{
	int err = 0;

	while (!err && !is_over(s)) {
		scry_clock_wait(s->run.clock);
		err = scry_descendants_turn(s->descendants);
	}
	return err;
}

/* --- the engine ------------------------------------------------------------------------------- */

/*
 * By eBPF where it can be: it alone distinguishes running from ready while a thread is either, as
 * the kernel's counts are late for a reader. But not where two samplers at that rate would cost the
 * program more than one; native frames of threads that run are its alone.
 */
static bool wants_clock(const struct stacks *s)
{
	if (s->pause)
		return false;
	if (s->engine == ENGINE_AUTO && !s->o.report.rows.times.cpu && !s->native)
		return s->rate <= RATE_BOTH_MAX;
	return s->engine != ENGINE_READ;
}

/* As of a clock that cannot be had: 0 when all is read then, or `err`. */
static int drop_clock(struct stacks *s, int err)
{
	if (s->engine != ENGINE_AUTO)
		return err;
	if (s->native)
		return scry_fail(err,
				 "native frames of running threads need eBPF, which is not "
				 "available: %s; or: --engine=read, which has those of waiting "
				 "threads",
				 scry_error());
	scry_log_detail("stacks are read from outside, as eBPF is not available: %s", scry_error());
	scry_error_clear();
	scry_clock_close(s->run.clock);
	s->run.clock = NULL;
	s->run.only_clock = false;
	return 0;
}

/* The first process, with the engine that can be had. */
static int open_first(struct stacks *s, struct scry_sampler **ret)
{
	struct scry_clock_opts opts = {.rate = s->rate, .native = s->native};
	int err = 0;

	scry_descendants_clock_opts(s->descendants, &opts);
	if (wants_clock(s))
		err = scry_clock_open(&opts, &s->run.clock);
	s->run.only_clock = s->run.clock && s->o.report.rows.times.cpu;
	if (!err)
		err = scry_sampler_open(&s->run, s->ruby, ret);
	if (err && s->run.clock && !scry_clock_works(s->run.clock)) {
		err = drop_clock(s, err);
		if (!err)
			err = scry_sampler_open(&s->run, s->ruby, ret);
	}
	if (!err)
		s->ruby = NULL;
	s->run.is_lenient = true;
	return err;
}

static int start_clock(struct stacks *s)
{
	int err = s->run.clock ? scry_descendants_attach(s->descendants) : 0;

	if (err && err != -ESRCH) { /* perf may not be used so */
		scry_descendants_detach(s->descendants);
		return drop_clock(s, err);
	}
	if (!err && s->run.only_clock)
		scry_outside_note(
			&s->o,
			"only what was running was sampled (--cpu, by eBPF): the recording knows "
			"nothing of waiting");
	if (!err && !s->run.clock && !s->pause) /* a look takes longer than such a call */
		scry_outside_note(
			&s->o,
			"C methods that take less than some microseconds mostly count as the line "
			"that called them; fix: --engine=bpf or --pause");
	return err;
}

static void note_stopped(struct stacks *s)
{
	struct scry_proc_stat st;
	char text[160];

	if (scry_proc_stat(s->pid, &st) < 0 || st.state != 'T')
		return;
	snprintf(text, sizeof(text),
		 "the process was stopped by a signal (as ^Z is) when sampling began: none of its "
		 "threads ran; fix: kill -CONT %d",
		 (int)s->pid);
	scry_outside_note(&s->o, text);
}

static int sample(struct stacks *s)
{
	int err = start_clock(s);

	if (err)
		return err;
	note_stopped(s);
	scry_writer_flush(s->o.writer);
	if (!s->quiet && !s->o.command && !s->duration_ns)
		scry_log_say(s->pids.count > 1
				     ? "watching process %d and %zu more; ^C stops and reports"
				     : "watching process %d; ^C stops and reports",
			     (int)s->pid, s->pids.count - 1);
	s->run.began_ns = scry_now_ns();
	s->seed = s->run.began_ns | 1;
	s->why = "duration";
	err = s->run.only_clock ? listen(s) : look(s);
	return err ? err : write_end(s);
}

/* A started program runs while its Ruby is found and learned. */
static void note_start(struct stacks *s)
{
	uint64_t ns = s->o.child ? scry_proc_cpu_ns(s->pid) : 0;
	char text[160];

	if (!ns)
		return;
	snprintf(text, sizeof(text),
		 "sampling began when the program had run for %.2f s of processor time: what it "
		 "did till then is not in this report",
		 (double)ns / 1e9);
	scry_outside_note(&s->o, text);
}

static int watch(struct stacks *s)
{
	struct scry_sampler *first = NULL;
	int err;

	scry_fd_raise_limit(); /* two a thread */
	/* On a machine with more work than processors samples would come late, and when the work
	 * lets them. Where it may not be, it is late, and counted. */
	setpriority(PRIO_PROCESS, 0, SAMPLER_NICE);
	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	s->cpu_began_ns = own_cpu_ns();
	s->run = (struct scry_sampling){.writer = s->o.writer,
					.native = s->native,
					.pause = s->pause,
					.names = (enum scry_sampling_names)s->names,
					.slot_ns = 1000000000u / s->rate,
					.rate = (uint32_t)s->rate};
	err = open_first(s, &first);
	if (!err) {
		scry_outside_head(&s->o, "stacks");
		err = scry_descendants_begin(s->descendants, first, s->pid);
	}
	for (size_t i = 1; i < s->pids.count && !err; i++)
		err = scry_descendants_add(s->descendants, (pid_t)s->pids.values[i]);
	if (!err)
		note_start(s);
	if (!err)
		err = sample(s);
	s->is_gone = !err && !scry_descendants_lives(s->descendants);
	return err;
}

/* --- the command ------------------------------------------------------------------------------ */

static int run(struct stacks *s)
{
	int err = scry_outside_files(&s->o);

	if (!err && s->o.command)
		err = scry_outside_start(&s->o, false);
	if (!err && s->o.child)
		s->pid = s->o.child;
	if (!err)
		err = open_target(s);
	if (!err && !s->o.out.out)
		err = scry_output_keep(&s->o.out);
	if (!err)
		err = watch(s);
	if (!err && s->o.child) /* it goes on when the watch is over */
		while (!scry_outside_has_ended(&s->o))
			scry_outside_rest(BOOT_LOOK_NS);
	if (!err)
		err = scry_outside_show(&s->o);
	scry_descendants_close(s->descendants);
	scry_clock_close(s->run.clock);
	scry_iseq_events_all_done(&s->run.probes);
	scry_ruby_free(s->ruby);
	return scry_outside_close(&s->o, err);
}

static int check(struct stacks *s, int argc, char **argv, int rest_at)
{
	static const int by[] = {SCRY_VIEW_BY_LINE, SCRY_VIEW_BY_METHOD, SCRY_VIEW_BY_GEM,
				 SCRY_VIEW_BY_THREAD, SCRY_VIEW_BY_PROCESS};

	s->o.report.rows.by = by[s->by];
	s->o.report.by_given = s->by;
	if (rest_at < argc)
		s->o.command = argv + rest_at;
	if (!s->pids.count == !s->o.command)
		return scry_fail(-EINVAL, s->pids.count
						  ? "either -p PID or a command, not both"
						  : "say what to watch: -p PID, or -- CMD; "
						    "usage: scry stacks [OPTIONS] -p PID | -- "
						    "CMD...");
	for (size_t i = 0; i < s->pids.count; i++)
		if (!s->pids.values[i] || s->pids.values[i] > 4194304) /* PID_MAX_LIMIT */
			return scry_fail(-EINVAL, "%llu is not a process id",
					 (unsigned long long)s->pids.values[i]);
	if (s->pause && s->engine == ENGINE_BPF)
		return scry_fail(-EINVAL, "--pause reads from outside; fix: it, or --engine=bpf");
	if (s->rate == UINT64_MAX)
		s->rate = s->pause ? RATE_HELD : RATE_DEFAULT;
	if (!s->rate || s->rate > RATE_MAX)
		return scry_fail(-EINVAL, "--rate is from 1 to %u samples a second", RATE_MAX);
	s->pid = s->pids.count ? (pid_t)s->pids.values[0] : 0;
	if (scry_output_check_ending(s->o.output, SCRY_OUTPUT_RECORDS) < 0)
		return -EINVAL;
	if (scry_report_opts_check(&s->o.report, s->o.output) < 0)
		return -EINVAL;
	if (scry_view_sort_check("stacks", s->o.report.rows.sort_key) < 0 ||
	    scry_view_filter_check("stacks", &s->o.report.rows.filter) < 0 ||
	    scry_stacks_check_filter(&s->o.report.rows) < 0)
		return -EINVAL;
	return scry_report_check_kept(&s->o.report, s->o.output);
}

int scry_cmd_stacks(int argc, char **argv)
{
	static const char usage[] = "scry stacks [OPTIONS] -p PID | -- CMD...";
	struct stacks s = {.rate = UINT64_MAX, .o = SCRY_OUTSIDE_INIT};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_U64_LIST, &s.pids, "PID",
		 "watch this live process; may be given again, and have several: \"$(pgrep puma)\"",
		 NULL},
		{'d', "duration", SCRY_OPT_DURATION, &s.duration_ns, "TIME",
		 "stop after 30s, 5m, ...; 0 (default): at ^C, or when it ends", NULL},
		{'r', "rate", SCRY_OPT_U64, &s.rate, "N",
		 "samples a second (default 1000; with --pause 100)", NULL},
		{0, "engine", SCRY_OPT_CHOICE, &s.engine, "NAME",
		 "how samples are taken: auto, read (from outside), bpf (in the kernel)",
		 "auto|read|bpf"},
		{0, "pause", SCRY_OPT_FLAG, &s.pause, NULL,
		 "hold what runs for each look: stacks are exact, native ones too", NULL},
		{'f', "follow", SCRY_OPT_FLAG, &s.follow, NULL,
		 "sample its child processes too, and what they run", NULL},
		{'o', "output", SCRY_OPT_STRING, &s.o.output, "FILE",
		 "keep the recording (x.scry), or render at once (x.html, x.folded, "
		 "x.speedscope.json, x.json, x.txt)",
		 NULL},
		{0, "native", SCRY_OPT_FLAG, &s.native, NULL,
		 "native frames too, of C code, merged with Ruby's", NULL},
		{0, "force", SCRY_OPT_FLAG, &s.o.force, NULL, "replace FILE if it exists", NULL},
		{0, "max-size", SCRY_OPT_SIZE, &s.o.max_size, "SIZE", "limit of the recording",
		 NULL},
		{0, "names", SCRY_OPT_CHOICE, &s.names, NULL,
		 "names of code: read from memory, or reported by a probe in the kernel when it is "
		 "made",
		 "auto|read|probe"},
		SCRY_VIEW_STACKS_OPT_ROWS(&s.o.report.rows),
		{0, "by", SCRY_OPT_CHOICE, &s.by, NULL,
		 "a row for each line (default), method, gem, thread or process",
		 "line|method|gem|thread|process"},
		SCRY_VIEW_SORT_OPT_ROW(&s.o.report.rows, SCRY_SORT_STACKS),
		{0, "top", SCRY_OPT_U64, &s.o.report.rows.top, "N",
		 "show N rows, 0 all (default 30; all in JSON)", NULL},
		{0, "grep", SCRY_OPT_STRING, &s.o.report.rows.grep, "TEXT",
		 "only rows whose \"file:line method\" contains TEXT, or matches /REGEX/", NULL},
		SCRY_VIEW_FILTER_OPT_ROW(&s.o.report.rows, SCRY_FILTER_STACKS),
		{0, "stacks", SCRY_OPT_FLAG, &s.o.report.rows.stacks, NULL,
		 "one row for each stack, and not for each line", NULL},
		{0, "folded", SCRY_OPT_FLAG, &s.o.report.folded, NULL,
		 "print one line per stack, for flame graph tools", NULL},
		{0, "json", SCRY_OPT_FLAG, &s.o.report.json, NULL, "print JSON instead of text",
		 NULL},
		{'q', "quiet", SCRY_OPT_FLAG, &s.quiet, NULL, "no talk on stderr", NULL},
		{'v', "verbose", SCRY_OPT_COUNT, &s.verbose, NULL, "more talk", NULL},
		{'h', "help", SCRY_OPT_FLAG, &s.help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	int at, err = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &at);

	if (!err && s.help) {
		printf("usage: %s\n\nWhere a Ruby program's time goes: samples of all its threads' "
		       "stacks.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err)
		err = check(&s, argc, argv, at);
	if (err)
		return SCRY_EXIT_USAGE;
	scry_log_setup(s.quiet ? -1 : s.verbose ? 1 : 0, SCRY_LOG_COLOR_AUTO);
	scry_front_catch_signals();
	err = run(&s);
	if (!err && !s.o.child)
		err = scry_front_is_gone(s.is_gone && s.duration_ns);
	if (s.o.child)
		return scry_outside_status(&s.o, err);
	return err && s.o.command ? SCRY_EXIT_OWN : scry_front_status(err);
}
