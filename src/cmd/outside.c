/* See outside.h. */
#include "cmd/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/watch_opts.h"
#include "sys/inherited.h"
#include "sys/tracee.h"

#define REST_NS 3000000u

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t = {0};

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void scry_outside_rest(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

/* --- the recording ---------------------------------------------------------------------------- */

int scry_outside_files(struct scry_outside *o)
{
	int err = scry_output_recording(&o->out, o->output, o->force, &o->rec_fd);

	return err ? err : scry_writer_open(o->rec_fd, o->max_size, &o->writer);
}

uint32_t scry_outside_string(struct scry_outside *o, const char *text)
{
	uint32_t id = 0;

	scry_writer_string(o->writer, text, strlen(text), &id);
	return id;
}

void scry_outside_event(struct scry_outside *o, uint16_t type, const void *payload, size_t size)
{
	scry_writer_payload(
		o->writer, &(struct scry_event){.time_ns = clock_ns(CLOCK_MONOTONIC), .type = type},
		payload, size);
}

void scry_outside_head(struct scry_outside *o, const char *instrument)
{
	struct scry_ev_session session = {0};
	struct utsname un;

	uname(&un);
	session.instrument_str = scry_outside_string(o, instrument);
	session.command_str = scry_outside_string(o, scry_command_line());
	session.version_str = scry_outside_string(o, SCRY_VERSION);
	session.host_str = scry_outside_string(o, un.nodename);
	session.wall_ns = clock_ns(CLOCK_REALTIME);
	scry_outside_event(o, SCRY_EVENT_SESSION, &session, sizeof(session));
}

void scry_outside_note(struct scry_outside *o, const char *text)
{
	struct scry_ev_note ev = {.text_str = scry_outside_string(o, text)};

	scry_outside_event(o, SCRY_EVENT_NOTE, &ev, sizeof(ev));
}

/* --- the program ------------------------------------------------------------------------------ */

static void become(struct scry_outside *o, int gate, int fault)
{
	char byte;
	int err;

	scry_inherited_give_back();
	if (gate >= 0 && read(gate, &byte, 1) != 1) /* scry has died before it began */
		_exit(SCRY_EXIT_OWN);
	execvp(o->command[0], o->command);
	err = errno;
	if (write(fault, &err, sizeof(err)) < 0)
		_exit(SCRY_EXIT_OWN);
	_exit(err == ENOENT ? SCRY_EXIT_NOT_FOUND : SCRY_EXIT_CANNOT_RUN);
}

static void close_both(const int *pipe)
{
	close(pipe[0]);
	close(pipe[1]);
}

/* What it says when it cannot run; nothing: it does. */
static int hear(struct scry_outside *o, int fault)
{
	int err = 0;

	if (read(fault, &err, sizeof(err)) == sizeof(err))
		scry_fail(-err, "cannot run '%s': %s", o->command[0], strerror(err));
	else
		err = 0;
	close(fault);
	return -err;
}

int scry_outside_start(struct scry_outside *o, bool gated)
{
	int fault[2], gate[2] = {-1, -1};

	if (pipe2(fault, O_CLOEXEC) < 0)
		return scry_fail(-errno, "cannot make a pipe: %s", strerror(errno));
	if (gated && pipe2(gate, O_CLOEXEC) < 0) {
		close_both(fault);
		return scry_fail(-errno, "cannot make a pipe: %s", strerror(errno));
	}
	fflush(NULL);
	signal(SIGCHLD, SIG_DFL); /* ignored, the end of a child is not reported */
	o->child = fork();
	if (o->child < 0) {
		o->child = 0;
		return scry_fail(-errno, "cannot fork: %s", strerror(errno));
	}
	if (o->child == 0) {
		if (gated)
			close(gate[1]); /* or it would wait for itself */
		become(o, gate[0], fault[1]);
	}
	scry_front_program = o->child;
	close(fault[1]);
	if (!gated)
		return hear(o, fault[0]);
	close(gate[0]);
	o->gate = gate[1];
	o->fault = fault[0];
	return 0;
}

int scry_outside_let_go(struct scry_outside *o)
{
	ssize_t n = write(o->gate, "", 1);

	close(o->gate);
	o->gate = -1;
	if (n != 1)
		return scry_fail(-EPIPE, "'%s' could not be started", o->command[0]);
	return hear(o, o->fault);
}

bool scry_outside_has_ended(struct scry_outside *o)
{
	scry_tracee_poll_lingering(); /* what was held may end before it */
	if (o->child && !o->child_ended && scry_tracee_has_ended(o->child, &o->child_status))
		o->child_ended = true;
	if (o->child_ended)
		scry_front_program = 0;
	return o->child_ended;
}

int scry_outside_status(struct scry_outside *o, int err)
{
	const int *status = &o->child_status;

	if (o->gate >= 0) /* it never ran */
		close(o->gate);
	o->gate = -1;
	while (!scry_outside_has_ended(o))
		scry_outside_rest(REST_NS);
	if (WIFEXITED(*status) && (WEXITSTATUS(*status) == SCRY_EXIT_NOT_FOUND ||
				   WEXITSTATUS(*status) == SCRY_EXIT_CANNOT_RUN))
		return WEXITSTATUS(*status);
	if (err)
		return SCRY_EXIT_OWN;
	return WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
}

/* --- the report ------------------------------------------------------------------------------- */

int scry_outside_show(struct scry_outside *o)
{
	int err = scry_writer_close(o->writer);

	o->writer = NULL;
	if (err)
		return err;
	if (!o->out.out) {
		scry_log_say("recorded to '%s'; scry report %s shows it", o->output, o->output);
		return 0;
	}
	err = scry_report_fd(o->rec_fd, &o->report, o->out.out);
	if (!err)
		err = scry_flush(o->out.out, "the report");
	return err == -EPIPE ? 0 : err;
}

int scry_outside_close(struct scry_outside *o, int err)
{
	scry_writer_close(o->writer);
	o->writer = NULL;
	return scry_output_close(&o->out, err);
}
