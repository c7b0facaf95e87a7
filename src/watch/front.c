/*
 * The front of a watch: forks the keeper, starts the program for `-- CMD`, and waits for both. It
 * enters nothing itself, and shows nothing: see front.h.
 */
#include "watch/front.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "sys/become.h"
#include "sys/inherited.h"
#include "sys/proc.h"
#include "watch/news.h"
#include "watch/preload.h"
#include "watch/signals.h"

/* The program may exec, with what it is to preload, if anything. */
static bool let_go(struct scry_front *f, const char *preload)
{
	size_t size = strlen(preload) + 1; /* a pipe takes that at once */

	return write(f->go_fd, preload, size) == (ssize_t)size;
}

/* All of it; false when the keeper is gone. ^C in the midst of a message is not an end of it. */
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
static bool take_news(struct scry_front *f)
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
		if (f->on_entered)
			f->on_entered(f->arg);
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
	case SCRY_NEWS_LACKS:
		f->lacks = f->lacks ? f->lacks : head.value;
		break;
	case SCRY_NEWS_DONE:
		f->is_done = true;
		break;
	}
	return true;
}

/* The program that is started: waits for the keeper to follow it, then execs. */
static void run_program(struct scry_front *f, int go, int fault)
{
	char preload[PIPE_BUF];
	ssize_t size;
	int err;

	scry_inherited_give_back();
	if (f->opts->user && scry_user_become(f->opts->user) < 0) {
		err = errno;
		if (write(fault, &err, sizeof(err)) < 0)
			_exit(SCRY_EXIT_OWN);
		_exit(SCRY_EXIT_CANNOT_RUN);
	}
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

static int start_program(struct scry_front *f)
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

static int start_keeper(struct scry_front *f)
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

static bool has_program_ended(const struct scry_front *f)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)f->child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == f->child;
}

void scry_front_stop(struct scry_front *f)
{
	char order = SCRY_ORDER_STOP;

	if (!f->is_stopping)
		send(f->fd, &order, 1, MSG_NOSIGNAL);
	f->is_stopping = true;
}

/* Stopped (SIGSTOP) while it traces any thread: a thread that is held, or gets a signal, would be
 * stopped for as long as it is. */
static void wake_keeper(const struct scry_front *f)
{
	siginfo_t info = {0};
	pid_t held;

	if (waitid(P_PID, (id_t)f->keeper, &info, WSTOPPED | WNOHANG) < 0 || !info.si_pid)
		return;
	held = scry_proc_traced_by(f->keeper);
	if (!held)
		return;
	scry_log_say("scry-keeper (process %d) was stopped while it traced process %d, which would "
		     "be stopped with it: it goes on",
		     f->keeper, held);
	kill(f->keeper, SIGCONT);
}

/* One turn; false: the keeper has ended. ^C is passed on as an order; a program that was started
 * gets its own from the tty, unless it has ended and only its children are still watched. */
bool scry_front_turn(struct scry_front *f, int timeout_ms)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN};

	if (f->is_gone)
		return false;
	if (scry_front_program > 0 && has_program_ended(f))
		scry_front_program = 0; /* its children are still watched: signals are for us */
	if (scry_front_interrupts && (!f->opts->command || has_program_ended(f)))
		scry_front_stop(f);
	wake_keeper(f);
	if (poll(&p, 1, timeout_ms) > 0 && !take_news(f))
		f->is_gone = true;
	return !f->is_gone;
}

static void wait_for_keeper(struct scry_front *f)
{
	while (scry_front_turn(f, 200))
		;
	close(f->fd);
	while (waitpid(f->keeper, NULL, 0) < 0 && errno == EINTR)
		;
}

static int wait_for_program(struct scry_front *f)
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

int scry_front_start(struct scry_front *f)
{
	int32_t child;
	int r;

	f->fd = f->go_fd = f->fault_fd = -1;
	scry_front_catch_signals();
	r = start_keeper(f);
	if (r == 0 && f->opts->command)
		r = start_program(f);
	if (r < 0)
		return r;
	child = f->child;
	if (send(f->fd, &child, sizeof(child), MSG_NOSIGNAL) != sizeof(child) && !f->opts->command)
		return scry_fail(-EIO, "the keeper died at once");
	return 0;
}

int scry_front_wait(struct scry_front *f)
{
	wait_for_keeper(f);
	return f->opts->command ? wait_for_program(f) : 0;
}
