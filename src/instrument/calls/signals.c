/* See signals.h. */
#include "instrument/calls/signals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "sys/proc.h"
#include "sys/signals.h"
#include "watch/ask.h"

struct scry_calls_signals {
	uint32_t users; /* watches */
	struct scry_signals *source;
};

/* That another watch of the run has. */
static struct scry_calls_signals *find(const struct scry_watch *w)
{
	const struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(w, i)); i++) {
		const struct scry_calls_watch *t = other->state;

		if (t && t->signals)
			return t->signals;
	}
	return NULL;
}

void scry_calls_signals_open(struct scry_calls_watch *t)
{
	struct scry_calls_signals *s = find(t->watch);
	const pid_t pid = t->watch->proc.pid;

	t->signals_error = 0;
	t->has_own_numbers = scry_proc_tid_inside(pid, pid) != pid;
	if (!s) {
		s = calloc(1, sizeof(*s));
		t->signals_error = s ? scry_signals_open(&s->source) : -ENOMEM;
	}
	if (t->signals_error) {
		free(s);
		return;
	}
	s->users++;
	t->signals = s;
}

void scry_calls_signals_close(struct scry_calls_watch *t)
{
	struct scry_calls_signals *s = t->signals;

	t->signals = NULL;
	if (!s || --s->users)
		return;
	scry_signals_close(s->source);
	free(s);
}

/* As the process numbers its threads. */
static uint32_t tid_inside(const struct scry_calls_watch *t, uint32_t tid)
{
	const pid_t pid = t->watch->proc.pid;

	return t->has_own_numbers ? (uint32_t)scry_proc_tid_inside(pid, (pid_t)tid) : tid;
}

static void give(void *arg, const struct scry_signal *signal)
{
	const struct scry_calls_watch *taker = arg;
	const struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(taker->watch, i)); i++) {
		const struct scry_calls_watch *t = other->state;

		if ((uint32_t)other->proc.pid != signal->pid || !t || !t->calls || other->is_over)
			continue;
		if (scry_calls_signal(t->calls, tid_inside(t->root ? t->root : t, signal->tid),
				      signal->tsc, signal->number) < 0)
			scry_error_clear(); /* no memory: the calls say so */
		return;
	}
}

void scry_calls_signals_take(struct scry_calls_watch *t, bool is_last, uint64_t *watermark)
{
	const struct scry_signals_take how = {.give = give, .arg = t};
	uint64_t until;

	if (!t->signals)
		return;
	if (is_last) /* then the newest are there */
		nanosleep(&(struct timespec){.tv_nsec = 2 * SCRY_SIGNALS_LAG_NS}, NULL);
	scry_signals_take(t->signals->source, &how, &until);
	if (!is_last && until < *watermark)
		*watermark = until;
}

void scry_calls_signals_note(struct scry_calls_watch *t)
{
	if (t->signals_error)
		scry_watch_note(t->watch,
				"signals have no lines: the tracepoint signal_deliver cannot be "
				"read (%s); as root they have",
				strerror(-t->signals_error));
	if (t->signals && scry_signals_lost(t->signals->source))
		scry_watch_note(t->watch,
				"some signals have no lines: %llu, of all processes, found no room",
				(unsigned long long)scry_signals_lost(t->signals->source));
}
