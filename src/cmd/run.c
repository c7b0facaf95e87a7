/* See run.h. */
#include "cmd/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "cmd/undo.h"
#include "cmd/watch_opts.h"
#include "watch/front.h"
#include "watch/signals.h"

#define SHORT "the recording lacks its end"
#define LIVE_MS 50 /* the keeper writes each 100 ms */
#define GIVE_BACK_BYTES (1u << 20)

struct run {
	struct scry_front front;
	struct scry_output output;
	FILE *live_out;
	int live_result;
	uint64_t given_back; /* bytes of the recording */
};

/* Something will be recorded: the file gets its name. */
static void keep_recording(void *arg)
{
	struct run *f = arg;

	if ((!f->output.out || f->front.opts->is_live) && scry_output_keep(&f->output))
		scry_log_error("%s", scry_error());
}

/* For the reader of a recording that is being written. What was shown of one that is not kept is
 * given back. */
static int wait_for_more(void *arg, uint64_t offset, bool is_end)
{
	struct run *f = arg;

	if (offset - f->given_back >= GIVE_BACK_BYTES) {
		fallocate(f->front.rec_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)f->given_back, (off_t)(offset - f->given_back));
		f->given_back = offset;
	}
	if (is_end)
		fflush(f->live_out);
	return scry_front_turn(&f->front, is_end ? LIVE_MS : 0) && !ferror(f->live_out);
}

/* The report, while the watch goes on. 0 or -errno with a sentence. */
static int show_live(struct run *f, FILE *out, const struct scry_report_opts *report)
{
	const struct scry_report_live live = {wait_for_more, f};
	static char buffer[65536]; /* a line is shorter, mostly */
	int r;

	f->live_out = out;
	setvbuf(out, buffer, _IOFBF, sizeof(buffer));
	while (!f->front.entered && scry_front_turn(&f->front, LIVE_MS))
		;
	if (!f->front.entered)
		return 0;
	r = scry_report_live(f->front.rec_fd, report, out, &live);
	if (!f->front.is_gone)
		scry_front_stop(&f->front); /* it is read no more */
	return r;
}

static int show(struct run *f, const struct scry_report_opts *report)
{
	FILE *out = f->output.out;
	int r = f->live_result;

	if (!f->front.is_done)
		return f->front.failed
			       ? f->front.failed
			       : scry_fail(-EIO,
					   "the keeper ended early; what it recorded is kept");
	if (out && !f->live_out)
		r = scry_report_fd(f->front.rec_fd, report, out);
	else if (!out)
		scry_log_say("recorded to '%s'; scry report %s shows it", f->front.opts->output,
			     f->front.opts->output);
	if (out && !f->live_out && r == 0)
		r = scry_flush(out, "the report");
	if (r == -EPIPE)
		r = 0;
	r = scry_output_close(&f->output, r);
	if (r == 0 && f->front.is_short)
		r = scry_fail(-ENOSPC, SHORT);
	return r;
}

/* What had to stay is taken out when that can be: until then, or until it is to stop. */
static int await_nothing_left(const struct scry_watch_opts *opts)
{
	int r = 0;

	scry_log_say("waiting until nothing of scry is mapped any more; Ctrl-C ends the wait");
	for (size_t i = 0; i < opts->pids.count && r == 0; i++)
		r = scry_undo_await((pid_t)opts->pids.values[i], opts->max_pause_ns);
	return r == -EINTR ? 0 : r;
}

int scry_run(struct scry_watch_opts *opts, const struct scry_instrument *instrument,
	     const struct scry_report_opts *report)
{
	struct run f = {.front = {.opts = opts,
				  .instrument = instrument,
				  .on_entered = keep_recording,
				  .arg = &f}};
	int program, r;

	if (opts->dry_run)
		return scry_dry_run(opts, instrument);
	if (report->flame && strcmp(instrument->name, "malloc")) {
		scry_fail(-EINVAL,
			  "'%s': only scry stacks and scry malloc draw pictures; fix: x.txt or "
			  "x.json",
			  opts->output);
		return SCRY_EXIT_USAGE;
	}
	if (scry_report_check_kept(report, opts->output) < 0)
		return SCRY_EXIT_USAGE;
	scry_front_catch_signals();
	r = scry_output_recording(&f.output, opts->output, opts->force, &f.front.rec_fd);
	if (r < 0)
		return opts->command ? SCRY_EXIT_OWN : scry_front_status(r);
	opts->gives_back = opts->is_live && f.output.out;
	r = scry_front_start(&f.front);
	if (r < 0) {
		scry_output_close(&f.output, r);
		return opts->command ? SCRY_EXIT_OWN : scry_front_status(r);
	}
	if (opts->gives_back)
		f.live_result = show_live(&f, f.output.out, report);
	program = scry_front_wait(&f.front);
	r = scry_output_close(&f.output, show(&f, report));
	if (r == 0 && opts->wait && !opts->command)
		r = await_nothing_left(opts);
	if (r == -ENOSPC && f.front.is_short && opts->command)
		scry_fail(r, "%s; the program ended with status %d", SHORT, program);
	if (f.front.failed && !opts->command)
		scry_error_clear(); /* printed when it came */
	else if (program == SCRY_EXIT_NOT_FOUND || program == SCRY_EXIT_CANNOT_RUN)
		scry_error_clear(); /* scry_front_wait has said what is the matter */
	else if (f.front.failed)
		scry_fail(f.front.failed, "%s", f.front.sentence);
	if (f.front.failed && opts->command && *scry_error())
		scry_log_say("the program ran on%s, and ended with status %d",
			     f.front.entered ? "" : " without scry", program);
	if (opts->command)
		return program == SCRY_EXIT_NOT_FOUND || program == SCRY_EXIT_CANNOT_RUN || r == 0
			       ? program
			       : SCRY_EXIT_OWN;
	if (r == 0)
		r = f.front.lacks;
	return scry_front_status(
		r < 0 ? r : scry_front_is_gone(f.front.is_target_gone && opts->duration_ns));
}
