/* See malloc_replay.h: a recording's calls made again under several allocators, and which of them
 * suits. Runs are interleaved, each a process of its own (replan/run); what they say becomes a
 * document (view/malloc_replay). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/malloc.h"
#include "cmd/malloc_compare.h"
#include "cmd/malloc_print.h"
#include "cmd/malloc_notes.h"
#include "cmd/malloc_progress.h"
#include "cmd/malloc_replay.h"
#include "replan/source.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "replan/allocators.h"
#include "replan/check.h"
#include "replan/rss.h"
#include "replan/work.h"
#include "view/malloc_replay.h"

#define STUCK_NS UINT64_C(60000000000)
#define SPAN_NS UINT64_C(1000000000) /* shorter ones: nothing is given back by time */
#define SAMPLE_EVERY 61u	     /* a prime: no rhythm of the program meets it */
#define SPREAD_PERCENT 10
#define ALL (SCRY_MALLOC_ALLOCATORS_MAX + 1) /* the last: no allocator */

struct measured { /* of one run */
	uint64_t cpu_ns, kernel_ns, faults, rss_peak, rss_end, rss_drained, elapsed_ns;
	uint64_t real_cpu_ns, real_wall_ns, real_rss; /* of the program itself */
	uint32_t point_count;
	struct scry_replay_point *points;
};

struct replay_job {
	const struct scry_replay_opts *opts;
	struct scry_malloc_allocators allocators;
	struct scry_malloc_recording recording;
	struct scry_malloc_feed *feed;
	struct measured *runs[ALL]; /* opts->runs of each; the last row: no allocator */
	bool has_failed[ALL];
	struct scry_malloc_result result; /* of the run before */
	struct scry_replay_row rows[SCRY_MALLOC_ALLOCATORS_MAX];
	char served[SCRY_MALLOC_ALLOCATORS_MAX][1024];
	struct scry_malloc_notes notes;
	bool is_bad; /* the exit status says so */
	struct scry_malloc_checked program;
	struct scry_malloc_progress progress;
	int real_status; /* of the first real run */
	bool has_real_status;
	bool is_reported[SCRY_MALLOC_ALLOCATORS_MAX]; /* of its real runs, that one ended badly */
	bool is_unserved[SCRY_MALLOC_ALLOCATORS_MAX]; /* another one served, or may have */
	bool is_out[SCRY_MALLOC_ALLOCATORS_MAX];      /* its real runs are not the others' */
};

static const struct scry_malloc_allocator no_allocator = {.label = "no allocator", .is_null = true};
enum pace { PACE_THINK, PACE_NONE, PACE_RECORDED };
static const char *const pace_names[] = {"think", "none", "recorded"};
static const char *const touch_names[] = {"none", "first", "all", "recorded"};

static struct scry_malloc_run_opts run_opts(const struct replay_job *j, enum scry_replay_mode mode)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(j->feed);
	struct scry_malloc_run_opts o = {
		.mode = mode,
		.touch = (enum scry_replay_touch)j->opts->touch,
		.sample_every = f->calls < 1000000 ? 7 : SAMPLE_EVERY,
		.rss_every_ns = j->opts->rss_every_ns,
		.memory = j->opts->memory,
		.stuck_ns = STUCK_NS,
		.is_paced = j->opts->pace == PACE_RECORDED && mode == SCRY_REPLAY_TIMED,
		.is_thinking = mode == SCRY_REPLAY_TIMED,
	};

	if (o.is_paced)
		o.stuck_ns += f->span_ns;
	/* Some two hundred samples, of a short recording too: 50 ns a call is what is usual. */
	if (!o.rss_every_ns)
		o.rss_every_ns = f->calls / 4;
	if (o.rss_every_ns < 200000)
		o.rss_every_ns = 200000;
	if (!j->opts->rss_every_ns && o.rss_every_ns > 10000000)
		o.rss_every_ns = 10000000;
	return o;
}

static int keep(struct replay_job *j, struct measured *m)
{
	const struct scry_malloc_result *r = &j->result;

	*m = (struct measured){.cpu_ns = r->cpu_ns,
			       .kernel_ns = r->kernel_ns,
			       .faults = r->faults,
			       .rss_peak = r->rss_peak,
			       .rss_end = r->rss_end,
			       .rss_drained = r->rss_drained,
			       .elapsed_ns = r->elapsed_ns,
			       .point_count = r->point_count};
	m->points = calloc(r->point_count + 1, sizeof(*m->points));
	if (!m->points)
		return scry_no_memory("");
	for (uint32_t i = 0; i < r->point_count; i++)
		m->points[i] = (struct scry_replay_point){r->points[i].position, r->points[i].live};
	return 0;
}

/* An allocator that cannot be replayed with is left out; the recording's own errors end all. */
static int failed(struct replay_job *j, uint32_t at, int err)
{
	if (at == ALL - 1 ||
	    (err != -EINVAL && err != -ECHILD && err != -ETIMEDOUT && err != -ENOBUFS))
		return err;
	scry_malloc_note(&j->notes, "%s", scry_error());
	scry_error_clear();
	j->has_failed[at] = j->is_bad = true;
	return 0;
}

/* One replay, unless one with that allocator has failed before. */
static int run(struct replay_job *j, uint32_t at, enum scry_replay_mode mode)
{
	const struct scry_malloc_allocator *a =
		at == ALL - 1 ? &no_allocator : &j->allocators.rows[at];
	struct scry_malloc_run_opts o = run_opts(j, mode);
	int err;

	o.is_paced &= !a->is_null;
	scry_malloc_progress_run(&j->progress, a->label);
	err = j->has_failed[at] ? 0 : scry_malloc_run(j->feed, a, &o, &j->result);
	return err ? failed(j, at, err) : 0;
}

static int measure(struct replay_job *j, uint64_t round)
{
	uint32_t count = j->allocators.count;

	/* Begins with another one each round, so that none is always the first. */
	for (uint32_t i = 0; i <= count; i++) {
		uint32_t turn = (uint32_t)((i + round) % (count + 1)), at = turn;
		int err;

		if (turn == count)
			at = ALL - 1;
		err = run(j, at, SCRY_REPLAY_TIMED);
		if (err)
			return err;
		if (j->has_failed[at])
			continue;
		err = keep(j, &j->runs[at][round]);
		if (err)
			return err;
		if (at < count) {
			memcpy(j->served[at], j->result.served, sizeof(j->served[at]));
			j->rows[at].failed = j->result.failed;
		}
	}
	return 0;
}

static void fill_kind(struct replay_job *j, struct scry_replay_kind_row *k,
		      const uint64_t *histogram, uint64_t calls)
{
	k->calls = calls;
	for (uint32_t i = 0; i < SCRY_REPLAY_BUCKETS; i++)
		k->samples += histogram[i];
	k->p50_ns = scry_malloc_percentile(&j->result, histogram, 0.5);
	k->p99_ns = scry_malloc_percentile(&j->result, histogram, 0.99);
	k->p999_ns = scry_malloc_percentile(&j->result, histogram, 0.999);
}

/* One more replay of each, in which single calls are timed. */
static int sample(struct replay_job *j)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(j->feed);

	_Static_assert((int)SCRY_REPLAY_KINDS == SCRY_REPLAY_KIND_ROWS, "a row for each kind");
	for (uint32_t at = 0; at < j->allocators.count; at++) {
		uint64_t all[SCRY_REPLAY_BUCKETS] = {0};
		int err = run(j, at, SCRY_REPLAY_SAMPLED);

		if (err)
			return err;
		if (j->has_failed[at])
			continue;
		for (uint32_t k = 0; k < SCRY_REPLAY_KINDS; k++) {
			fill_kind(j, &j->rows[at].kinds[k], j->result.histogram[k], f->by_kind[k]);
			for (uint32_t i = 0; i < SCRY_REPLAY_BUCKETS; i++)
				all[i] += j->result.histogram[k][i];
		}
		fill_kind(j, &j->rows[at].all, all, f->calls);
	}
	return 0;
}

/* And one in which system calls are counted, which takes time and is not timed. */
static int count_syscalls(struct replay_job *j)
{
	bool is_reported = false;

	_Static_assert((int)SCRY_REPLAY_SYSCALLS == SCRY_REPLAY_CALL_ROWS, "a field for each");
	for (uint32_t at = 0; at < j->allocators.count; at++) {
		struct scry_replay_row *row = &j->rows[at];
		int err = run(j, at, SCRY_REPLAY_COUNTED);

		if (err)
			return err;
		if (j->has_failed[at])
			continue;
		row->has_syscalls = j->result.has_syscalls;
		memcpy(row->syscalls, j->result.syscalls, sizeof(row->syscalls));
		if (!row->has_syscalls && !is_reported)
			scry_malloc_note(
				&j->notes,
				"system calls were not counted: this kernel, or the sandbox of "
				"this process, does not allow a seccomp listener");
		is_reported |= !row->has_syscalls;
	}
	return 0;
}

static int verify(struct replay_job *j)
{
	for (uint32_t at = 0; at < j->allocators.count; at++) {
		int err = run(j, at, SCRY_REPLAY_VERIFY);

		if (err)
			return err;
		if (j->has_failed[at])
			continue;
		if (j->result.wrong) {
			scry_malloc_note(&j->notes,
					 "%s gave %llu blocks that are wrong; the first: %s",
					 j->allocators.rows[at].label,
					 (unsigned long long)j->result.wrong, j->result.why);
			j->is_bad = true;
		} else {
			scry_malloc_note(&j->notes, "%s: verified, no block was wrong",
					 j->allocators.rows[at].label);
		}
	}
	return 0;
}

/* One that ended otherwise than the first has done something else: its figures compare with none.
 */
static void judge_end(struct replay_job *j, uint32_t at, int status)
{
	bool is_other = j->has_real_status && status != j->real_status;

	if (!j->has_real_status)
		j->real_status = status;
	j->has_real_status = true;
	if ((status || is_other) && !j->is_reported[at]) {
		scry_malloc_note(&j->notes, "'%s' under %s %s %d%s", j->opts->command[0],
				 j->allocators.rows[at].label,
				 WIFSIGNALED(status) ? "was ended by signal" : "ended with status",
				 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
				 is_other ? ", in its first run otherwise: not compared" : "");
		j->is_reported[at] = true;
	}
	j->is_out[at] |= is_other;
	j->is_bad |= is_other;
}

/* Another one served, though this one was preloaded: its figures are that one's. */
static void judge_served(struct replay_job *j, uint32_t at, const struct scry_malloc_real *real)
{
	struct scry_malloc_why why;

	if (real->is_served || j->is_unserved[at] ||
	    (!real->is_seen && !j->allocators.rows[at].path))
		return;
	scry_malloc_check_why(real, j->allocators.rows[at].label, j->opts->command[0], &why);
	scry_malloc_note(&j->notes, "%s", why.text);
	j->is_unserved[at] = true;
	j->is_out[at] |= real->is_seen;
}

/* The program itself once under an allocator. */
static int run_real(struct replay_job *j, uint32_t at, uint64_t round)
{
	struct measured *m = &j->runs[at][round];
	struct scry_malloc_real real;
	int err;

	scry_malloc_progress_run(&j->progress, j->allocators.rows[at].label);
	err = scry_malloc_check(&j->program, &j->allocators.rows[at], &real);
	if (err)
		return err;
	m->real_cpu_ns = real.cpu_ns;
	m->real_wall_ns = real.wall_ns;
	m->real_rss = real.rss_peak;
	judge_end(j, at, real.status);
	judge_served(j, at, &real);
	j->rows[at].has_real = !j->is_out[at];
	return 0;
}

static int check_real(struct replay_job *j)
{
	uint32_t count = j->allocators.count;
	int err = 0;

	for (uint64_t round = 0; round < j->opts->runs; round++)
		for (uint32_t i = 0; i < count && !err; i++) {
			uint32_t at = (uint32_t)((i + round) % count);

			err = j->has_failed[at] || j->is_out[at] ? 0 : run_real(j, at, round);
		}
	return err;
}

/* Of one field over the runs, what the replay itself takes left out. */
static struct scry_replay_spread spread(const struct replay_job *j, uint32_t at, size_t offset,
					uint64_t less)
{
	struct scry_replay_spread s = {.count = (uint32_t)j->opts->runs};

	for (uint32_t i = 0; i < s.count; i++) {
		uint64_t v = *(const uint64_t *)((const char *)&j->runs[at][i] + offset);

		s.sorted[i] = v > less ? v - less : 0;
	}
	scry_replay_spread(&s);
	return s;
}

#define SPREAD(at, field, less) spread(j, at, offsetof(struct measured, field), less)

static void fill_row(struct replay_job *j, uint32_t at, uint64_t null_cpu_ns)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(j->feed);
	struct scry_replay_row *row = &j->rows[at];

	row->label = j->allocators.rows[at].label;
	row->served = j->served[at];
	if (j->has_failed[at])
		return;
	row->runs = (uint32_t)j->opts->runs;
	row->cpu_ns = SPREAD(at, cpu_ns, null_cpu_ns);
	row->kernel_ns = SPREAD(at, kernel_ns, 0);
	row->faults = SPREAD(at, faults, 0);
	row->rss_peak = SPREAD(at, rss_peak, 0);
	row->rss_end = SPREAD(at, rss_end, 0);
	row->rss_drained = SPREAD(at, rss_drained, 0);
	row->real_cpu_ns = SPREAD(at, real_cpu_ns, 0);
	row->real_wall_ns = SPREAD(at, real_wall_ns, 0);
	row->real_rss = SPREAD(at, real_rss, 0);
	if (scry_replay_is_poor(row, f->calls))
		scry_malloc_note(
			&j->notes, "%s gave no memory for %llu of %llu calls: not compared",
			row->label, (unsigned long long)row->failed, (unsigned long long)f->calls);
	for (uint64_t i = 0; i < j->opts->runs; i++)
		if (j->runs[at][i].rss_peak == row->rss_peak.sorted[row->runs / 2]) {
			row->points = j->runs[at][i].points;
			row->point_count = j->runs[at][i].point_count;
		}
}

static void report_notes(struct replay_job *j)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(j->feed);
	const struct scry_malloc_recording *r = &j->recording;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t took = 0; /* the longest timed one */

	for (uint32_t at = 0; at < j->allocators.count; at++)
		for (uint64_t i = 0; i < j->opts->runs; i++)
			if (j->runs[at][i].elapsed_ns > took)
				took = j->runs[at][i].elapsed_ns;
	if (r->other_calls)
		scry_malloc_note(&j->notes,
				 "only process %u is replayed; %llu calls are of others: --pid",
				 r->part.pid, (unsigned long long)r->other_calls);
	if (f->unknown || f->strange)
		scry_malloc_note(
			&j->notes,
			"%llu calls name blocks that the recording does not know: not replayed",
			(unsigned long long)(f->unknown + f->strange));
	if (f->threads_peak > processors)
		scry_malloc_note(
			&j->notes,
			"%u threads at once on %ld processors: times include that they wait for "
			"each other's turn",
			f->threads_peak, processors);
	if (j->opts->pace != PACE_RECORDED && f->span_ns > SPAN_NS && took < f->span_ns / 2)
		scry_malloc_note(
			&j->notes,
			"%.1f s were replayed in %.1f s: what allocators give back after a while "
			"(jemalloc, mimalloc) they may not have given back; fix: --pace recorded",
			(double)f->span_ns / 1e9, (double)took / 1e9);
	if (j->opts->threads)
		scry_malloc_note(&j->notes,
				 "all calls are made by one thread, as --threads 1 asks");
	if (j->rows[0].has_real &&
	    r->rss_anon_peak > j->rows[0].real_rss.most / 100 * (100 + SPREAD_PERCENT))
		scry_malloc_note(
			&j->notes,
			"the program had %llu KiB of anonymous memory when it was recorded, and "
			"not "
			"more than %llu in its runs under %s: replays are of what was recorded",
			(unsigned long long)(r->rss_anon_peak >> 10),
			(unsigned long long)(j->rows[0].real_rss.most >> 10),
			j->allocators.rows[0].label);
	if (r->has_memory && j->rows[0].runs && r->rss_anon_peak > j->rows[0].rss_peak.median * 2)
		scry_malloc_note(&j->notes,
				 "the program had %llu MiB of anonymous memory, of which replays "
				 "under %s come "
				 "to %llu MiB: the rest it maps itself or had before, or gaps "
				 "between blocks",
				 (unsigned long long)(r->rss_anon_peak >> 20),
				 j->allocators.rows[0].label,
				 (unsigned long long)(j->rows[0].rss_peak.median >> 20));
}

/* What differs by itself cannot be predicted closer than that. */
static void report_spread(struct replay_job *j, uint32_t at, const struct scry_replay_spread *s,
			  const char *whose)
{
	uint64_t percent = s->median ? (s->most - s->least) * 100 / s->median : 0;

	if (percent > SPREAD_PERCENT)
		scry_malloc_note(&j->notes,
				 "%s under %s differ by %llu %% in peak memory: less is noise",
				 whose, j->allocators.rows[at].label, (unsigned long long)percent);
}

/* One thread has no other that its work would hold up: it does without. */
static enum pace pace_of(const struct replay_job *j)
{
	enum pace asked = (enum pace)j->opts->pace;

	if (asked == PACE_THINK && !scry_malloc_feed_stats(j->feed)->think_ns)
		return PACE_NONE;
	return asked;
}

/* The row of the allocator that the program had, by its name; NULL: none, or the program's memory
 * was not looked at once it had most. */
static const struct scry_replay_row *row_of_recorded(const struct replay_job *j)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(j->feed);
	const struct scry_malloc_recording *r = &j->recording;
	const char *name = NULL;

	if (r->allocator_str && f->looked_bytes > f->peak_bytes / 100 * 95)
		name = scry_reader_string(r->first, r->allocator_str, NULL);
	for (uint32_t i = 0; name && i < j->allocators.count; i++)
		if (!strncmp(name, j->rows[i].label, strcspn(name, " ")) &&
		    !j->rows[i].label[strcspn(name, " ")] && !j->has_failed[i])
			return &j->rows[i];
	return NULL;
}

static int fill_report(struct replay_job *j, struct scry_replay_report *ret_report,
		       struct scry_replay_point *live)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(j->feed);
	const struct scry_replay_spread null = SPREAD(ALL - 1, cpu_ns, 0);

	for (uint32_t i = 0; i < j->allocators.count; i++) {
		fill_row(j, i, null.median);
		report_spread(j, i, &j->rows[i].rss_peak, "replays");
		report_spread(j, i, &j->rows[i].real_rss, "real runs");
	}
	for (uint32_t i = 0; i < f->point_count; i++)
		live[i] = (struct scry_replay_point){f->points[i].position, f->points[i].live};
	report_notes(j);
	*ret_report = (struct scry_replay_report){
		.rows = j->rows,
		.count = j->allocators.count,
		.touch = touch_names[j->opts->touch],
		.pace = pace_names[pace_of(j)],
		.think_ns = f->think_ns,
		.span_ns = f->span_ns,
		.is_one_thread = j->opts->threads,
		.calls = f->calls,
		.words = f->position,
		.threads = j->opts->threads ? 1 : f->threads,
		.threads_peak = f->threads_peak,
		.crossed = f->crossed,
		.live_peak_bytes = f->peak_bytes,
		.live_end_bytes = f->live_bytes,
		.live_end_blocks = f->live_blocks,
		.null_cpu_ns = null.median,
		.null_spread_ns = null.most - null.least,
		.program_cpu_ns = j->recording.cpu_ns,
		.program_rss_peak = j->recording.rss_anon_peak,
		.recorded = row_of_recorded(j),
		.recorded_rss = j->recording.rss_anon_most,
		.processors = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN),
		.live = live,
		.live_count = f->point_count,
		.quality = j->recording.is_read ? &j->recording.quality : NULL,
		.notes = j->notes.list,
		.note_count = j->notes.count,
	};
	return 0;
}

static void report_pace(const struct replay_job *j)
{
	double span = (double)scry_malloc_feed_stats(j->feed)->span_ns / 1e9;

	fprintf(stderr, "scry: %llu replays of each allocator at the recorded pace: %.0f s\n",
		(unsigned long long)j->opts->runs,
		span * (double)j->opts->runs * j->allocators.count);
}

/* How long threads work between their calls: of the program alone where it may be run. */
static int settle_work(struct replay_job *j)
{
	struct scry_malloc_run_opts o = run_opts(j, SCRY_REPLAY_TIMED);
	struct scry_malloc_real real = {0};
	uint64_t program_ns = scry_malloc_work_unrecorded(j->feed, j->recording.cpu_ns);
	int err = 0;

	if (j->opts->pace != PACE_THINK || scry_malloc_feed_stats(j->feed)->threads_peak < 2)
		return 0;
	if (j->opts->check)
		err = scry_malloc_check(&j->program, &j->allocators.rows[0], &real);
	if (!err && real.cpu_ns && !real.status)
		program_ns = real.cpu_ns;
	if (!err)
		err = scry_malloc_work_settle(j->feed, &j->allocators.rows[0], &o, program_ns,
					      &j->result);
	return err ? failed(j, 0, err) : 0;
}

/* Of each allocator: timed ones, one whose calls are timed, one with system calls, and those asked
 * for. */
static uint64_t count_runs(const struct replay_job *j)
{
	const struct scry_replay_opts *o = j->opts;
	uint64_t each = o->runs + 2 + o->verify + (o->check ? o->runs : 0);

	return j->allocators.count * each + o->runs;
}

static int replay(struct replay_job *j)
{
	struct scry_replay_report report;
	static struct scry_replay_point live[SCRY_MALLOC_CURVE];
	int err = 0;

	for (uint32_t i = 0; i < ALL && !err; i++) {
		if (i >= j->allocators.count && i != ALL - 1)
			continue;
		j->runs[i] = calloc(j->opts->runs, sizeof(*j->runs[i]));
		err = j->runs[i] ? 0 : scry_no_memory("");
	}
	/* Once without an allocator: reads the recording, and warms what is common to all. */
	if (!err)
		err = run(j, ALL - 1, SCRY_REPLAY_TIMED);
	if (!err && j->opts->pace == PACE_RECORDED)
		report_pace(j);
	if (!err && !scry_malloc_feed_stats(j->feed)->calls)
		err = scry_fail(-EINVAL, "it has no call of a malloc function by %s",
				j->opts->pid ? "that process" : "any process");
	if (!err)
		err = settle_work(j);
	scry_malloc_progress_begin(&j->progress, count_runs(j));
	for (uint64_t round = 0; round < j->opts->runs && !err; round++)
		err = measure(j, round);
	if (!err)
		err = sample(j);
	if (!err)
		err = count_syscalls(j);
	if (!err && j->opts->verify)
		err = verify(j);
	if (!err && j->opts->check)
		err = check_real(j);
	scry_malloc_progress_end(&j->progress);
	if (!err)
		err = fill_report(j, &report, live);
	return err ? err
		   : scry_malloc_print(&report, j->opts->output, j->opts->json, j->opts->force);
}

static void done(struct replay_job *j)
{
	for (uint32_t i = 0; i < ALL; i++) {
		for (uint64_t k = 0; j->runs[i] && k < j->opts->runs; k++)
			free(j->runs[i][k].points);
		free(j->runs[i]);
	}
	scry_malloc_feed_free(j->feed);
	scry_malloc_recording_done(&j->recording);
	scry_malloc_allocators_done(&j->allocators);
	free(j);
}

int scry_malloc_replay_file(const struct scry_replay_opts *opts, int fd, bool *ret_is_bad)
{
	struct scry_malloc_feed_opts feed = {.one_thread = opts->threads,
					     .is_paced = opts->pace == PACE_RECORDED,
					     .is_thinking =
						     opts->pace == PACE_THINK && !opts->threads,
					     .live_max = opts->memory};
	struct replay_job *j = calloc(1, sizeof(*j));
	int err;

	if (!j)
		return scry_no_memory("");
	j->opts = opts;
	j->program.command = opts->command;
	err = scry_malloc_notes_allocators(&j->notes, &opts->with, &j->allocators);
	scry_malloc_recording_init(&j->recording, fd, (uint32_t)opts->pid);
	if (!err)
		err = scry_malloc_feed_new(&j->recording.source, &feed, &j->feed);
	if (!err)
		err = replay(j);
	*ret_is_bad = j->is_bad;
	done(j);
	return err;
}
