/* See malloc_servers.h. Runs of the allocators are interleaved; each is a server of its own. */
#include "cmd/malloc_servers.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/malloc_notes.h"
#include "cmd/malloc_progress.h"
#include "cmd/malloc_replay.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "replan/allocators.h"
#include "replan/check.h"
#include "replan/server.h"
#include "view/malloc_servers.h"

#define READY_NS 30000000000u

struct servers_job {
	const struct scry_replay_opts *opts;
	struct scry_malloc_server server;
	struct scry_malloc_allocators allocators;
	struct scry_malloc_progress progress;
	struct scry_replay_row rows[SCRY_MALLOC_ALLOCATORS_MAX];
	bool is_reported[SCRY_MALLOC_ALLOCATORS_MAX], is_out[SCRY_MALLOC_ALLOCATORS_MAX];
	struct scry_malloc_notes notes;
};

bool scry_malloc_servers_are(const struct scry_malloc_servers *s)
{
	return s->start || s->ready || s->load || s->stop || s->work || s->ready_ns;
}

int scry_malloc_servers_check(const struct scry_malloc_servers *s, bool has_command)
{
	if (has_command)
		return scry_fail(-EINVAL, "a server is started by --start, and a program that "
					  "ends follows --; fix: give one of them");
	if (!s->start || !s->ready || !s->load)
		return scry_fail(-EINVAL,
				 "a server needs --start CMD, --ready CMD, which succeeds "
				 "when it can be used, and --load CMD, which gives it "
				 "work; %s is missing",
				 !s->start   ? "--start"
				 : !s->ready ? "--ready"
					     : "--load");
	return 0;
}

/* Another one served: its figures are that one's. */
static void judge_served(struct servers_job *j, uint32_t at,
			 const struct scry_malloc_server_run *run)
{
	const struct scry_malloc_real real = {.is_seen = true, .serves = run->serves};
	const char *label = j->allocators.rows[at].label;
	struct scry_malloc_why why;

	if (run->is_served || j->is_out[at])
		return;
	if (run->is_seen)
		scry_malloc_check_why(&real, label, j->server.start, &why);
	else
		snprintf(why.text, sizeof(why.text),
			 "which allocator serves '%s' under %s cannot be read (fix: as root): its "
			 "runs are not compared",
			 j->server.start, label);
	scry_malloc_note(&j->notes, "%s", why.text);
	j->is_out[at] = true;
}

static void add(struct scry_replay_spread *s, uint64_t value)
{
	s->sorted[s->count++] = value;
}

static int run(struct servers_job *j, uint32_t at)
{
	struct scry_replay_row *row = &j->rows[at];
	struct scry_malloc_server_run run;
	int err;

	scry_malloc_progress_run(&j->progress, j->allocators.rows[at].label);
	err = scry_malloc_server_run(&j->server, &j->allocators.rows[at], &run);
	if (err)
		return err;
	judge_served(j, at, &run);
	if (run.was_killed && !j->is_reported[at])
		scry_malloc_note(
			&j->notes,
			"under %s the server did not end within 10 s of %s%s, and was killed",
			j->allocators.rows[at].label, j->server.stop ? "--stop" : "SIGTERM",
			run.has_stop_failed ? ", which failed" : "");
	else if (run.has_stop_failed && !j->is_reported[at])
		scry_malloc_note(
			&j->notes,
			"under %s --stop failed, though the server ended; -v shows what it prints",
			j->allocators.rows[at].label);
	j->is_reported[at] |= run.was_killed || run.has_stop_failed;
	add(&row->real_cpu_ns, run.cpu_ns);
	add(&row->real_wall_ns, run.load_ns);
	add(&row->real_rss, run.rss_peak);
	return 0;
}

static int run_all(struct servers_job *j)
{
	uint32_t count = j->allocators.count;
	int err = 0;

	scry_malloc_progress_begin(&j->progress, count * j->opts->runs);
	for (uint64_t round = 0; round < j->opts->runs; round++)
		for (uint32_t i = 0; i < count && !err; i++) {
			uint32_t at = (uint32_t)((i + round) % count);

			err = j->is_out[at] ? 0 : run(j, at);
		}
	scry_malloc_progress_end(&j->progress);
	for (uint32_t at = 0; at < count; at++) {
		struct scry_replay_row *row = &j->rows[at];

		row->label = j->allocators.rows[at].label;
		row->runs = row->real_cpu_ns.count;
		row->has_real = row->runs && !j->is_out[at];
		if (!row->runs)
			continue;
		scry_replay_spread(&row->real_cpu_ns);
		scry_replay_spread(&row->real_wall_ns);
		scry_replay_spread(&row->real_rss);
	}
	return err;
}

static int print(const struct servers_job *j)
{
	const struct scry_replay_report report = {.rows = j->rows,
						  .count = j->allocators.count,
						  .notes = j->notes.list,
						  .note_count = j->notes.count};
	struct scry_report_opts form = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_doc doc = {.view = "malloc-servers", .schema = 1, .talk = stderr};
	struct scry_output o;
	int err = scry_output_stream(&o, j->opts->output, j->opts->force);

	if (err)
		return err;
	form.json = j->opts->json || scry_output_is(j->opts->output, ".json");
	doc.out = o.out;
	err = scry_report_open(&doc, &form);
	if (!err) {
		scry_servers_push(&report, j->opts->servers.work ? j->opts->servers.work : 1, &doc);
		err = scry_doc_end(&doc);
	}
	return scry_output_close(&o, err);
}

int scry_malloc_servers(const struct scry_replay_opts *opts)
{
	const struct scry_malloc_servers *s = &opts->servers;
	static struct servers_job j;
	bool is_bad = false;
	int err;

	j.opts = opts;
	j.server = (struct scry_malloc_server){.start = s->start,
					       .ready = s->ready,
					       .load = s->load,
					       .stop = s->stop,
					       .ready_ns = s->ready_ns ? s->ready_ns : READY_NS,
					       .is_loud = opts->verbose};
	err = scry_malloc_notes_allocators(&j.notes, &opts->with, &j.allocators);
	if (!err)
		err = run_all(&j);
	if (!err)
		err = print(&j);
	for (uint32_t at = 0; at < j.allocators.count; at++)
		is_bad |= j.is_out[at];
	scry_malloc_allocators_done(&j.allocators);
	return err || is_bad ? SCRY_EXIT_FAILURE : 0;
}
