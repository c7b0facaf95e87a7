/*
 * `scry stacks`: where a Ruby program's time goes, by sampling the stacks of all its threads from
 * outside. There is no keeper: nothing is ever written into the process, so nothing is to be
 * undone, and a sampler that dies leaves nothing behind.
 *
 * Ticks: the time is cut into slots of 1/rate; in each one look is taken at a random moment, so
 * that no timer of the program's runs in step with it. A slot for which there was no time is
 * missed, counted, and the next sample stands for it too.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/front.h"
#include "cmd/iseq_probe.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "cmd/stacks_clock.h"
#include "cmd/stacks_kin.h"
#include "name/samples.h"
#include "sys/tracee.h"

#define RATE_MAX 20000u
#define BOOT_LOOK_NS 3000000u
#define SAMPLER_NICE (-15)
#define RATE_BOTH_MAX 2000u /* at which threads are read and have a clock too */

enum { ENGINE_AUTO, ENGINE_READ, ENGINE_BPF };

enum { NAMES_AUTO, NAMES_READ, NAMES_PROBE };

struct stacks {
	struct scry_opt_list pids;
	char **command;
	uint64_t duration_ns, rate, max_size;
	int names;
	const char *output;
	int engine;
	bool force, native, quiet, help, follow;
	int verbose;
	struct scry_report_opts report;
	char command_line[4096];
	/* the run */
	pid_t pid, child;
	int child_status;
	bool child_ended;
	int rec_fd;
	FILE *out; /* of the report; NULL: the recording is kept */
	struct scry_writer *writer;
	struct scry_proc proc;
	struct scry_ruby *ruby;
	struct scry_samples samples;
	struct scry_iseq_probe probe;
	struct scry_clock *clock; /* NULL: all is read */
	bool only_clock;	  /* nothing is */
	struct scry_kin_run kin_run;
	struct scry_kin *kin; /* with -f; else NULL */
	bool is_first_over;
	uint64_t began_ns, cpu_began_ns, seed;
	const char *why, *kin_why; /* it ended, or the watch */
};

/* --- the recording ---------------------------------------------------------------------------- */

static int open_files(struct stacks *s)
{
	int err = scry_output_recording(s->output, s->force, &s->rec_fd, &s->out);

	return err ? err : scry_writer_open(s->rec_fd, s->max_size, &s->writer);
}

static uint32_t string(struct stacks *s, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(s->writer, text, strlen(text), &id);
	return id;
}

static void event(struct stacks *s, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(s->writer, &(struct scry_event){.time_ns = scry_now_ns(), .type = type},
			    payload, size);
}

static void write_head(struct stacks *s)
{
	struct scry_ev_session session = {0};
	struct timespec wall;
	struct utsname un;

	clock_gettime(CLOCK_REALTIME, &wall);
	uname(&un);
	session.instrument_str = string(s, "stacks");
	session.command_str = string(s, s->command_line);
	session.version_str = string(s, SCRY_VERSION);
	session.host_str = string(s, un.nodename);
	session.wall_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
	event(s, SCRY_EVENT_SESSION, &session, sizeof(session));
	scry_kin_write_head(&s->kin_run, &s->proc, s->ruby);
}

static void note(struct stacks *s, const char *text)
{
	struct scry_ev_note ev = {.text_str = string(s, text)};

	event(s, SCRY_EVENT_NOTE, &ev, sizeof(ev));
}

static uint64_t own_cpu_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void write_naming(struct stacks *s)
{
	struct scry_iseq_probe_sums sums;
	struct scry_ev_naming ev = {.pid = (uint32_t)s->pid, .told = s->samples.symbols.told};

	if (!s->probe.bpf)
		return;
	scry_iseq_probe_end(&s->probe, &sums);
	ev.born = sums.seen;
	ev.lost = sums.lost + sums.unread + sums.births.bad + sums.births.dropped;
	ev.late = sums.births.late;
	ev.nameless = sums.births.nameless;
	ev.agree = sums.births.agree;
	ev.differ = (uint32_t)sums.births.differ;
	ev.gone = sums.births.gone;
	event(s, SCRY_EVENT_NAMING, &ev, sizeof(ev));
}

static int write_end(struct stacks *s)
{
	char text[80];
	size_t refused;
	int err;

	s->samples.sums.sampler_ns = own_cpu_ns() - s->cpu_began_ns; /* of all that is watched */
	write_naming(s);
	err = scry_kin_write_end(&s->kin_run, &s->samples, s->began_ns, s->why);
	if (err || !s->kin)
		return err;
	refused = scry_kin_refused(s->kin);
	snprintf(text, sizeof(text),
		 "%zu Rubies that were started could not be sampled; -v says why", refused);
	if (refused)
		note(s, text);
	return scry_kin_end(s->kin, s->kin_why);
}

/* --- the program ------------------------------------------------------------------------------ */

static int start_program(struct stacks *s)
{
	int fault[2], err = 0;

	if (pipe2(fault, O_CLOEXEC) < 0)
		return scry_fail(-errno, "cannot make a pipe: %s", strerror(errno));
	fflush(NULL);
	s->child = fork();
	if (s->child < 0)
		return scry_fail(-errno, "cannot fork: %s", strerror(errno));
	if (s->child == 0) {
		signal(SIGPIPE, SIG_DFL);
		signal(SIGXFSZ, SIG_DFL);
		execvp(s->command[0], s->command);
		err = errno;
		if (write(fault[1], &err, sizeof(err)) < 0)
			_exit(SCRY_EXIT_OWN);
		_exit(err == ENOENT ? SCRY_EXIT_NOT_FOUND : SCRY_EXIT_CANNOT_RUN);
	}
	scry_front_program = s->child;
	s->pid = s->child;
	close(fault[1]);
	if (read(fault[0], &err, sizeof(err)) == sizeof(err))
		scry_fail(-err, "cannot run '%s': %s", s->command[0], strerror(err));
	else
		err = 0;
	close(fault[0]);
	return -err;
}

static bool has_child_ended(struct stacks *s)
{
	if (s->child && !s->child_ended && waitpid(s->child, &s->child_status, WNOHANG) == s->child)
		s->child_ended = true;
	if (s->child_ended)
		scry_front_program = 0;
	return s->child_ended;
}

static void rest(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

/* A started program becomes a Ruby, and boots. */
static int wait_for_ruby(struct stacks *s)
{
	int err;

	for (;;) {
		if (has_child_ended(s))
			return scry_fail(-ENOENT,
					 "'%s' ended before a Ruby ran in that process; fix: start "
					 "the Ruby itself (a shell: exec ruby ...)",
					 s->command[0]);
		err = scry_ruby_open(s->pid, SCRY_RUBY_BOOTS, &s->ruby);
		if (err != -EAGAIN && err != -ENOENT && err != -ESRCH)
			return err;
		scry_error_clear();
		rest(BOOT_LOOK_NS);
	}
}

static int open_target(struct stacks *s)
{
	int err = 0;

	if (s->command)
		err = wait_for_ruby(s);
	if (!err)
		err = scry_proc_open(&s->proc, s->pid);
	if (!err && !s->command)
		err = scry_ruby_open(s->pid, SCRY_RUBY_BOOTED, &s->ruby);
	return err;
}

/* --- ticks ------------------------------------------------------------------------------------ */

static uint64_t random_below(struct stacks *s, uint64_t limit)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed % limit;
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* The program is gone: of itself, or by an exec? */
static void tell_end(struct stacks *s)
{
	bool lives;

	s->why = "target exited";
	/* Its memory goes a moment before itself. */
	for (int i = 0; i < 100 && scry_proc_is_alive(&s->proc); i++)
		rest(BOOT_LOOK_NS / 3);
	lives = scry_proc_is_alive(&s->proc);
	if (lives)
		s->why = "target ran another program";
	if (lives && !s->kin)
		note(s, "the process became another program (exec), and was not watched on; fix: "
			"scry stacks -f");
	if (s->kin)
		scry_kin_first_ended(s->kin, lives);
	s->is_first_over = true;
	scry_error_clear();
}

static bool is_over(struct stacks *s)
{
	if (s->is_first_over && !scry_kin_lives(s->kin))
		return true;
	if (scry_front_interrupts && (!s->child || has_child_ended(s)))
		s->kin_why = "interrupt";
	else if (s->duration_ns && scry_now_ns() - s->began_ns >= s->duration_ns)
		s->kin_why = "duration";
	else
		return false;
	if (!s->is_first_over)
		s->why = s->kin_why;
	return true;
}

/* One look, for the slots from `done` on. 0 or -errno. */
static int tick(struct stacks *s, uint64_t slot, uint64_t done)
{
	int err = 0;

	if (!s->is_first_over) {
		err = s->clock ? scry_clock_turn(s->clock) : 0;
		if (!err)
			err = scry_samples_tick(&s->samples,
						(slot + 1 - done) * s->kin_run.slot_ns);
		if (!err)
			s->samples.sums.missed += slot - done;
	}
	if (err == -ESRCH && s->kin) {
		tell_end(s);
		err = 0;
	}
	if (!err && s->kin) {
		scry_kin_scan(s->kin);
		err = scry_kin_tick(s->kin, slot);
	}
	return err;
}

/* Looks in slots. Until the watch is over: 0 or -errno. */
static int look(struct stacks *s)
{
	uint64_t slot_ns = s->kin_run.slot_ns, slot = 0, done = 0;

	for (;;) {
		int err;

		sleep_until(s->began_ns + slot * slot_ns + random_below(s, slot_ns));
		if (is_over(s))
			return 0;
		slot = (scry_now_ns() - s->began_ns) / slot_ns;
		err = tick(s, slot, done);
		if (err)
			return err;
		scry_iseq_probe_tick(&s->probe);
		done = slot + 1;
		slot = (scry_now_ns() - s->began_ns) / slot_ns;
		if (slot < done)
			slot = done;
	}
}

/* Lets the threads' own clocks tell. Until the watch is over: 0 or -errno. */
static int listen(struct stacks *s)
{
	int err = 0;

	while (!err && !is_over(s)) {
		scry_clock_wait(s->clock);
		err = scry_clock_turn(s->clock);
		scry_iseq_probe_tick(&s->probe);
	}
	return err;
}

static int sample(struct stacks *s)
{
	int err;

	s->why = "duration";
	err = s->only_clock ? listen(s) : look(s);
	if (err == -ESRCH) {
		tell_end(s);
		err = 0;
	}
	if (s->clock)
		scry_clock_end(s->clock);
	return err;
}

/* --- the engine ------------------------------------------------------------------------------- */

/*
 * By eBPF where it can be: it alone tells running from ready while a thread is either, as the
 * kernel counts late for who reads. But not where two samplers at that rate would cost the program
 * more than one; native frames of threads that run are its alone.
 */
static int choose_engine(struct stacks *s)
{
	bool only_cpu = s->report.rows.times.cpu;
	int err;

	if (s->engine == ENGINE_READ ||
	    (s->engine == ENGINE_AUTO &&
	     (s->follow || (!only_cpu && !s->native && s->rate > RATE_BOTH_MAX))))
		return 0;
	if (s->follow)
		return scry_fail(-EINVAL, "--engine=bpf does not follow children; fix: without -f, "
					  "or --engine=read");
	err = scry_clock_open(&s->samples, s->rate, &s->clock);
	if (err && s->engine == ENGINE_AUTO && s->native)
		return scry_fail(
			err,
			"native frames of threads that run need eBPF, which cannot be had: "
			"%s; or: --engine=read, which has those of threads that wait",
			scry_error());
	if (err && s->engine == ENGINE_AUTO) {
		scry_log_detail("stacks are read from outside, as eBPF cannot be had: %s",
				scry_error());
		scry_error_clear();
		return 0;
	}
	s->only_clock = !err && only_cpu;
	return err;
}

/* What of the native frames is not there. */
static void note_native(struct stacks *s)
{
	const struct scry_samples_native_sums sums = scry_samples_native_sums(s->samples.native);
	char text[240];

	snprintf(text, sizeof(text),
		 "native frames: of %" PRIu64 " stacks that were read %" PRIu64
		 " have all, %" PRIu64 " lack the oldest, %" PRIu64 " have none%s, %" PRIu64
		 " did not fit Ruby's and were left out",
		 sums.whole + sums.cut + sums.none + sums.apart, sums.whole, sums.cut, sums.none,
		 s->clock ? "" : " (who runs has some with --engine=bpf only)", sums.apart);
	note(s, text);
}

static int start_clock(struct stacks *s)
{
	char text[160];
	int err = scry_clock_attach(s->clock);

	if (err && err != -ESRCH && s->engine == ENGINE_AUTO) { /* Linux before 5.13 */
		scry_log_detail("stacks are read from outside: %s", scry_error());
		scry_error_clear();
		scry_clock_close(s->clock);
		s->clock = NULL;
		s->only_clock = false;
		return 0;
	}
	if (!err && s->only_clock)
		note(s, "only what was running was sampled (--cpu, by eBPF): the recording knows "
			"nothing of waiting");
	if (!err && scry_clock_missing(s->clock)) {
		snprintf(text, sizeof(text),
			 "%zu threads were started while the clock was put on; some may be missing",
			 scry_clock_missing(s->clock));
		note(s, text);
	}
	return err;
}

/*
 * Who reads stacks reads names within microseconds, and the program needs not be touched. By eBPF
 * they come some milliseconds later. Where the probe was not asked for and cannot be, memory alone
 * is asked.
 */
static int open_probe(struct stacks *s)
{
	int err;

	if (s->names == NAMES_READ || (s->names == NAMES_AUTO && !s->clock))
		return 0;
	err = scry_iseq_probe_open(&s->probe, s->ruby);
	if (err && s->names == NAMES_AUTO) {
		scry_log_detail("names are read from memory only: %s", scry_error());
		scry_error_clear();
		return 0;
	}
	if (s->probe.bpf)
		s->samples.symbols.births = &s->probe.births;
	return err;
}

static int watch(struct stacks *s)
{
	int err = scry_samples_init(&s->samples, s->ruby, s->writer);

	if (err)
		return scry_fail(err, "no memory to sample");
	if (s->native)
		err = scry_samples_with_native(&s->samples);
	if (!err)
		err = choose_engine(s);
	if (!err)
		err = open_probe(s);
	if (err) {
		scry_clock_close(s->clock);
		scry_samples_done(&s->samples);
		return err;
	}
	/* On a machine with more work than processors samples would come late, and when the work
	 * lets them. Where it may not be, it is late, and counted. */
	setpriority(PRIO_PROCESS, 0, SAMPLER_NICE);
	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	s->cpu_began_ns = own_cpu_ns();
	s->began_ns = scry_now_ns();
	s->kin_run = (struct scry_kin_run){.writer = s->writer,
					   .began_ns = s->began_ns,
					   .slot_ns = 1000000000u / s->rate,
					   .rate = (uint32_t)s->rate};
	write_head(s);
	scry_writer_flush(s->writer);
	if (s->follow && scry_kin_open(&s->kin_run, s->ruby, &s->kin))
		return scry_fail(-ENOMEM, "no memory to follow children");
	s->seed = s->began_ns | 1;
	if (!s->quiet && !s->command && !s->duration_ns)
		scry_log_say("watching process %d; ^C stops and reports", (int)s->pid);
	err = s->clock ? start_clock(s) : 0;
	if (!err)
		err = sample(s);
	if (!err && s->native)
		note_native(s);
	if (!err)
		err = write_end(s);
	scry_clock_close(s->clock);
	scry_kin_close(s->kin);
	scry_samples_done(&s->samples);
	scry_iseq_probe_close(&s->probe);
	return err;
}

/* --- the command ------------------------------------------------------------------------------ */

static int show(struct stacks *s)
{
	int err = scry_writer_close(s->writer);

	s->writer = NULL;
	if (err)
		return err;
	if (!s->out) {
		scry_log_say("recorded to '%s'; scry report %s shows it", s->output, s->output);
		return 0;
	}
	err = scry_report_fd(s->rec_fd, &s->report, s->out);
	if (fflush(s->out) && !err)
		err = scry_fail(-errno, "cannot write the report: %s", strerror(errno));
	return err;
}

static int run(struct stacks *s)
{
	int err = open_files(s);

	if (!err && s->command)
		err = start_program(s);
	if (!err)
		err = open_target(s);
	if (!err)
		err = watch(s);
	if (!err && s->child) /* it goes on when the watch is over */
		while (!has_child_ended(s))
			rest(BOOT_LOOK_NS);
	if (!err)
		err = show(s);
	scry_writer_close(s->writer);
	scry_ruby_free(s->ruby);
	if (s->proc.pid)
		scry_proc_close(&s->proc);
	return err;
}

/* The program's own status, whatever became of the watch; 125 when that failed. */
static int program_status(struct stacks *s, int err)
{
	while (!s->child_ended && waitpid(s->child, &s->child_status, 0) < 0)
		if (errno != EINTR)
			return SCRY_EXIT_OWN;
	if (WIFEXITED(s->child_status) && (WEXITSTATUS(s->child_status) == SCRY_EXIT_NOT_FOUND ||
					   WEXITSTATUS(s->child_status) == SCRY_EXIT_CANNOT_RUN))
		return WEXITSTATUS(s->child_status);
	if (err)
		return SCRY_EXIT_OWN;
	return WIFSIGNALED(s->child_status) ? 128 + WTERMSIG(s->child_status)
					    : WEXITSTATUS(s->child_status);
}

static int check(struct stacks *s, int argc, char **argv, int rest_at)
{
	size_t at = (size_t)snprintf(s->command_line, sizeof(s->command_line), "scry");

	for (int i = 0; i < argc && at < sizeof(s->command_line); i++)
		at += (size_t)snprintf(s->command_line + at, sizeof(s->command_line) - at, " %s",
				       argv[i]);
	if (rest_at < argc)
		s->command = argv + rest_at;
	if (!s->pids.count == !s->command)
		return scry_fail(-EINVAL, s->pids.count ? "either -p PID or a command, not both"
							: "say what to watch: -p PID, or -- CMD");
	if (s->pids.count > 1)
		return scry_fail(-EINVAL, "one process at a time; fix: a scry for each");
	if (s->pids.count && (!s->pids.values[0] || s->pids.values[0] > 4194304))
		return scry_fail(-EINVAL, "%llu is not a process id",
				 (unsigned long long)s->pids.values[0]);
	if (!s->rate || s->rate > RATE_MAX)
		return scry_fail(-EINVAL, "--rate is from 1 to %u samples a second", RATE_MAX);
	if (s->follow && s->native)
		return scry_fail(-EINVAL, "-f has no --native; fix: one of them");
	s->pid = s->pids.count ? (pid_t)s->pids.values[0] : 0;
	return scry_report_opts_check(&s->report, s->output);
}

int scry_cmd_stacks(int argc, char **argv)
{
	static const char usage[] = "scry stacks [OPTIONS] -p PID | -- CMD...";
	struct stacks s = {
		.rate = 1000, .rec_fd = -1, .report = SCRY_REPORT_OPTS_DEFAULT, .proc.pidfd = -1};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_U64_LIST, &s.pids, "PID", "watch this live process", NULL},
		{'d', "duration", SCRY_OPT_DURATION, &s.duration_ns, "TIME",
		 "stop after 30s, 5m, ...", NULL},
		{'r', "rate", SCRY_OPT_U64, &s.rate, "N", "samples a second (default 1000)", NULL},
		{0, "engine", SCRY_OPT_CHOICE, &s.engine, "NAME",
		 "who takes the samples: auto, read (from outside), bpf (in the kernel)",
		 "auto|read|bpf"},
		{'f', "follow", SCRY_OPT_FLAG, &s.follow, NULL,
		 "sample its child processes too, and what they run", NULL},
		{'o', "output", SCRY_OPT_STRING, &s.output, "FILE",
		 "keep the recording (x.scry), or render at once (x.html, x.folded, x.json, x.txt)",
		 NULL},
		{0, "native", SCRY_OPT_FLAG, &s.native, NULL,
		 "native frames too, of C code, woven with Ruby's", NULL},
		{0, "force", SCRY_OPT_FLAG, &s.force, NULL, "replace FILE if it exists", NULL},
		{0, "max-size", SCRY_OPT_SIZE, &s.max_size, "SIZE", "limit of the recording", NULL},
		{0, "names", SCRY_OPT_CHOICE, &s.names, NULL,
		 "of code: read from memory, or told by a probe of the kernel's when it is made",
		 "auto|read|probe"},
		SCRY_VIEW_STACKS_OPT_ROWS(&s.report.rows),
		{0, "top", SCRY_OPT_U64, &s.report.rows.top, "N",
		 "show N rows, 0 all (default 30; all in JSON)", NULL},
		{0, "grep", SCRY_OPT_STRING, &s.report.rows.grep, "TEXT",
		 "only rows whose \"file:line method\" contains TEXT, or matches /REGEX/", NULL},
		{0, "stacks", SCRY_OPT_FLAG, &s.report.rows.stacks, NULL,
		 "one row for each stack, and not for each line", NULL},
		{0, "folded", SCRY_OPT_FLAG, &s.report.folded, NULL,
		 "print one line per stack, for flame graph tools", NULL},
		{0, "json", SCRY_OPT_FLAG, &s.report.json, NULL, "print JSON instead of text",
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
	return s.child ? program_status(&s, err) : scry_front_status(err);
}
