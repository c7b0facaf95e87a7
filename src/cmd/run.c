/*
 * The front of every watching command: opens the output, forks the keeper, starts the program for
 * `-- CMD`, waits, and shows the report from the recording. It enters nothing itself.
 *
 * First ^C: the keeper is told to stop and everything is put back, written and reported. Second:
 * the front leaves at once; the keeper sees its socket close and undoes. An attached target is
 * never killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/front.h"
#include "cmd/output.h"
#include "cmd/preload.h"
#include "cmd/report.h"
#include "cmd/undo.h"
#include "cmd/watch.h"

#define SHORT "the recording lacks its end"
#define LIVE_MS 50 /* the keeper writes each 100 ms */
#define GIVE_BACK_BYTES (1u << 20)

struct front {
	struct scry_watch_opts *opts;
	const struct scry_instrument *instrument;
	int fd; /* the keeper's socket */
	int rec_fd;
	struct scry_output output;
	pid_t keeper, child;
	int go_fd;    /* what lets the program exec */
	int fault_fd; /* errno of a failed exec comes here */
	int failed;   /* -errno that the keeper reported */
	char sentence[1024];
	bool is_done, is_short;
	bool is_target_gone;
	bool entered;
	bool is_told, is_gone; /* the keeper: to stop; it has ended */
	FILE *live_out;
	int live_result;
	uint64_t given_back; /* bytes of the recording */
};

/* The program may exec, with what it is to preload, if anything. */
static bool let_go(struct front *f, const char *preload)
{
	size_t size = strlen(preload) + 1; /* a pipe takes that at once */

	return write(f->go_fd, preload, size) == (ssize_t)size;
}

/* All of it; false when the keeper is gone. ^C in the midst of a message is no end of it. */
static bool receive(int fd, void *to, size_t size)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = recv(fd, (char *)to + got, size - got, 0);

		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		got += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* One message; false when the keeper is gone. */
static bool take_news(struct front *f)
{
	struct scry_news_head head;
	char text[4096] = "";

	if (!receive(f->fd, &head, sizeof(head)) || head.size >= sizeof(text) ||
	    !receive(f->fd, text, head.size))
		return false;
	switch (head.kind) {
	case SCRY_NEWS_SAY:
		scry_log_say("%s", text);
		break;
	case SCRY_NEWS_DETAIL:
		scry_log_detail("%s", text);
		break;
	case SCRY_NEWS_ENTERED:
		f->entered = true;
		if ((!f->output.out || f->opts->is_live) && scry_output_keep(&f->output))
			scry_log_error("%s", scry_error());
		if (!f->opts->command && !f->opts->duration_ns)
			scry_log_say("watching process %llu%s; ^C stops and reports",
				     (unsigned long long)f->opts->pids.values[0],
				     f->opts->pids.count > 1 ? " and others"
				     : f->opts->follow	     ? " and its children"
							     : "");
		break;
	case SCRY_NEWS_FAILED:
		f->failed = head.value ? head.value : -EIO;
		if (f->opts->command) /* said when it is known how the program ended */
			snprintf(f->sentence, sizeof(f->sentence), "%s", text);
		else
			scry_log_error("%s", text);
		break;
	case SCRY_NEWS_GO:
		if (let_go(f, text))
			close(f->go_fd), f->go_fd = -1;
		break;
	case SCRY_NEWS_SHORT:
		f->is_short = true;
		break;
	case SCRY_NEWS_GONE:
		f->is_target_gone = true;
		break;
	case SCRY_NEWS_DONE:
		f->is_done = true;
		break;
	}
	return true;
}

/* The program that is started: waits for the keeper to follow it, then execs. */
static void run_program(struct front *f, int go, int fault)
{
	char preload[PIPE_BUF];
	ssize_t size;
	int err;

	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	prctl(PR_SET_PTRACER, f->keeper, 0, 0, 0); /* for Yama; no effect where it is not */
	size = read(go, preload, sizeof(preload));
	if (size <= 0 || preload[size - 1] || (*preload && scry_preload_environ(preload) < 0))
		_exit(SCRY_EXIT_OWN);
	execvp(f->opts->command[0], f->opts->command);
	err = errno;
	if (write(fault, &err, sizeof(err)) < 0)
		_exit(SCRY_EXIT_OWN);
	_exit(err == ENOENT ? SCRY_EXIT_NOT_FOUND : SCRY_EXIT_CANNOT_RUN);
}

static int start_program(struct front *f)
{
	int go[2], fault[2];

	if (pipe2(go, O_CLOEXEC) < 0 || pipe2(fault, O_CLOEXEC) < 0)
		return scry_fail(-errno, "cannot make a pipe: %s", strerror(errno));
	f->child = fork();
	if (f->child < 0)
		return scry_fail(-errno, "cannot fork: %s", strerror(errno));
	if (f->child == 0) {
		close(go[1]);
		run_program(f, go[0], fault[1]);
	}
	scry_front_program = f->child;
	close(go[0]);
	close(fault[1]);
	f->go_fd = go[1];
	f->fault_fd = fault[0];
	return 0;
}

static int start_keeper(struct front *f)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return scry_fail(-errno, "cannot make a socket: %s", strerror(errno));
	fflush(NULL);
	f->keeper = fork();
	if (f->keeper < 0)
		return scry_fail(-errno, "cannot fork: %s", strerror(errno));
	if (f->keeper == 0) {
		close(pair[0]);
		scry_keeper_run(f->opts, f->instrument, pair[1], f->rec_fd);
	}
	close(pair[1]);
	f->fd = pair[0];
	return 0;
}

static bool has_program_ended(const struct front *f)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)f->child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == f->child;
}

static void tell_to_stop(struct front *f)
{
	char order = SCRY_ORDER_STOP;

	if (!f->is_told)
		send(f->fd, &order, 1, MSG_NOSIGNAL);
	f->is_told = true;
}

/* One turn; false: the keeper has ended. ^C is passed on as an order; a program that was started
 * gets its own from the tty, unless it has ended and only its children are still watched. */
static bool wait_for_news(struct front *f, int timeout_ms)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN};

	if (f->is_gone)
		return false;
	if (scry_front_program > 0 && has_program_ended(f))
		scry_front_program = 0; /* its children are still watched: signals are for us */
	if (scry_front_interrupts && (!f->opts->command || has_program_ended(f)))
		tell_to_stop(f);
	if (poll(&p, 1, timeout_ms) > 0 && !take_news(f))
		f->is_gone = true;
	return !f->is_gone;
}

/* For the reader of a recording that is being written. What was shown of one that nobody keeps is
 * given back. */
static int wait_for_more(void *arg, uint64_t offset, bool is_end)
{
	struct front *f = arg;

	if (offset - f->given_back >= GIVE_BACK_BYTES) {
		fallocate(f->rec_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)f->given_back, (off_t)(offset - f->given_back));
		f->given_back = offset;
	}
	if (is_end)
		fflush(f->live_out);
	return wait_for_news(f, is_end ? LIVE_MS : 0) && !ferror(f->live_out);
}

/* The report, while the watch goes on. 0 or -errno with a sentence. */
static int show_live(struct front *f, FILE *out, const struct scry_report_opts *report)
{
	const struct scry_report_live live = {wait_for_more, f};
	static char buffer[65536]; /* a line is shorter, mostly */
	int r;

	f->live_out = out;
	setvbuf(out, buffer, _IOFBF, sizeof(buffer));
	while (!f->entered && wait_for_news(f, LIVE_MS))
		;
	if (!f->entered)
		return 0;
	r = scry_report_live(f->rec_fd, report, out, &live);
	if (!f->is_gone)
		tell_to_stop(f); /* nobody reads it any more */
	return r;
}

static void wait_for_keeper(struct front *f)
{
	while (wait_for_news(f, 200))
		;
	close(f->fd);
	while (waitpid(f->keeper, NULL, 0) < 0 && errno == EINTR)
		;
}

static int wait_for_program(struct front *f)
{
	int status, err = 0;

	if (f->go_fd >= 0) { /* the keeper failed before: run the program all the same */
		if (!let_go(f, ""))
			scry_log_error("cannot start '%s'", f->opts->command[0]);
		close(f->go_fd);
	}
	while (waitpid(f->child, &status, 0) < 0)
		if (errno != EINTR)
			return SCRY_EXIT_OWN;
	if (read(f->fault_fd, &err, sizeof(err)) == sizeof(err)) {
		scry_log_error("cannot run '%s': %s", f->opts->command[0], strerror(err));
		return err == ENOENT ? SCRY_EXIT_NOT_FOUND : SCRY_EXIT_CANNOT_RUN;
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int show(struct front *f, const struct scry_report_opts *report)
{
	FILE *out = f->output.out;
	int r = f->live_result;

	if (!f->is_done)
		return f->failed ? f->failed
				 : scry_fail(-EIO,
					     "the keeper ended early; what it recorded is kept");
	if (out && !f->live_out)
		r = scry_report_fd(f->rec_fd, report, out);
	else if (!out)
		scry_log_say("recorded to '%s'; scry report %s shows it", f->opts->output,
			     f->opts->output);
	if (out && !f->live_out && r == 0)
		r = scry_flush(out, "the report");
	if (r == -EPIPE)
		r = 0;
	r = scry_output_close(&f->output, r);
	if (r == 0 && f->is_short)
		r = scry_fail(-ENOSPC, SHORT);
	return r;
}

/* What had to stay is taken out when that can be: until then, or until somebody says stop. */
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
	struct front f = {
		.opts = opts, .instrument = instrument, .fd = -1, .go_fd = -1, .fault_fd = -1};
	int32_t child = 0;
	int program = 0, r;

	if (report->flame) {
		scry_fail(-EINVAL, "'%s': only scry stacks draws pictures; fix: x.txt or x.json",
			  opts->output);
		return SCRY_EXIT_USAGE;
	}
	if ((report->json || report->folded) && opts->output &&
	    !scry_output_renders(opts->output)) {
		scry_fail(-EINVAL,
			  "--%s is a form of a report, and '%s' keeps the recording; fix: -o "
			  "x.json, or --%s with scry report",
			  report->json ? "json" : "folded", opts->output,
			  report->json ? "json" : "folded");
		return SCRY_EXIT_USAGE;
	}
	scry_front_catch_signals();
	r = scry_output_recording(&f.output, opts->output, opts->force, &f.rec_fd);
	if (r < 0)
		return opts->command ? SCRY_EXIT_OWN : scry_front_status(r);
	r = start_keeper(&f);
	if (r == 0 && opts->command)
		r = start_program(&f);
	if (r == 0) {
		child = f.child;
		if (send(f.fd, &child, sizeof(child), MSG_NOSIGNAL) != sizeof(child) &&
		    !opts->command)
			r = scry_fail(-EIO, "the keeper died at once");
	}
	if (r < 0) {
		scry_output_close(&f.output, r);
		return opts->command ? SCRY_EXIT_OWN : scry_front_status(r);
	}
	if (opts->is_live && f.output.out)
		f.live_result = show_live(&f, f.output.out, report);
	wait_for_keeper(&f);
	if (opts->command)
		program = wait_for_program(&f);
	r = scry_output_close(&f.output, show(&f, report));
	if (r == 0 && opts->wait && !opts->command)
		r = await_nothing_left(opts);
	if (r == -ENOSPC && f.is_short && opts->command)
		scry_fail(r, "%s; the program ended with status %d", SHORT, program);
	if (f.failed && !opts->command)
		scry_error_clear(); /* the keeper's sentence was printed when it came */
	else if (program == SCRY_EXIT_NOT_FOUND || program == SCRY_EXIT_CANNOT_RUN)
		scry_error_clear(); /* wait_for_program has said what is the matter */
	else if (f.failed)
		scry_fail(f.failed, "%s", f.sentence);
	if (f.failed && opts->command && *scry_error())
		scry_log_say("the program ran on without scry, and ended with status %d", program);
	if (opts->command)
		return program == SCRY_EXIT_NOT_FOUND || program == SCRY_EXIT_CANNOT_RUN || r == 0
			       ? program
			       : SCRY_EXIT_OWN;
	return scry_front_status(r < 0 ? r
				       : scry_front_is_gone(f.is_target_gone && opts->duration_ns));
}
