/* See signals.h. */
#include "instrument/calls/signals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/map.h"
#include "sys/proc.h"
#include "sys/signals.h"
#include "watch/ask.h"

#define FAMILY_MAX (1u << 16)
#define EARLY_MAX 4096u

struct scry_calls_signals {
	uint32_t users; /* watches */
	struct scry_signals *source;
	struct scry_map family;	   /* forked by a process that is watched, or by one of these */
	struct scry_signal *early; /* of those, before anybody watches them; in order */
	size_t early_count;
	uint64_t unshown; /* that found no room there */
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
		if (s)
			scry_map_init(&s->family, FAMILY_MAX);
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
	scry_map_done(&s->family);
	free(s->early);
	free(s);
}

/* As the process numbers its threads. */
static uint32_t tid_inside(const struct scry_calls_watch *t, uint32_t tid)
{
	const pid_t pid = t->watch->proc.pid;

	return t->has_own_numbers ? (uint32_t)scry_proc_tid_inside(pid, (pid_t)tid) : tid;
}

/* A fork child says itself who it is, before it is found. */
static bool is_of(const struct scry_watch *w, const struct scry_calls_watch *t, uint32_t pid)
{
	return (uint32_t)w->proc.pid == pid ||
	       (!w->proc.pid && t->root && !t->root->has_own_numbers && t->child_pid == pid);
}

/* NULL: nobody watches it, or it has not said who it is. One that asks may be at its end. */
static const struct scry_calls_watch *watch_of(const struct scry_calls_watch *beside, uint32_t pid)
{
	const struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(beside->watch, i)); i++) {
		const struct scry_calls_watch *t = other->state;

		if (t && t->calls && (!other->is_over || t == beside) && is_of(other, t, pid))
			return t;
	}
	return NULL;
}

static bool tell(const struct scry_calls_watch *taker, const struct scry_signal *signal)
{
	const struct scry_calls_watch *t = watch_of(taker, signal->pid);

	if (t && scry_calls_signal(t->calls, tid_inside(t->root ? t->root : t, signal->tid),
				   signal->tsc, signal->number) < 0)
		scry_error_clear(); /* no memory: the calls say so */
	return t != NULL;
}

/* Children have those of their root. */
static struct scry_calls_signals *signals_of(const struct scry_calls_watch *t)
{
	return t->root ? t->root->signals : t->signals;
}

/* It is the family's as long as nobody else's process has its number. */
static void on_fork(const struct scry_calls_watch *taker, const struct scry_signal *fork)
{
	struct scry_map *family = &signals_of(taker)->family;
	uint64_t known;

	if (watch_of(taker, fork->parent) || scry_map_get(family, fork->parent, &known))
		scry_map_put(family, fork->pid, 1);
	else
		scry_map_remove(family, fork->pid, NULL);
}

/* Of a child that is not watched yet: it waits until it is. */
static void wait_for_watch(struct scry_calls_signals *s, const struct scry_signal *signal)
{
	if (!s->early)
		s->early = calloc(EARLY_MAX, sizeof(*s->early));
	if (!s->early || s->early_count == EARLY_MAX)
		s->unshown++;
	else
		s->early[s->early_count++] = *signal;
}

static void tell_early(const struct scry_calls_watch *taker)
{
	struct scry_calls_signals *s = signals_of(taker);
	size_t left = 0;

	for (size_t i = 0; i < s->early_count; i++)
		if (!tell(taker, &s->early[i]))
			s->early[left++] = s->early[i];
	s->early_count = left;
}

static void give(void *arg, const struct scry_signal *signal)
{
	const struct scry_calls_watch *taker = arg;
	uint64_t known;

	if (!signal->number)
		on_fork(taker, signal);
	else if (!tell(taker, signal) && taker->watch->opts->follow &&
		 scry_map_get(&signals_of(taker)->family, signal->pid, &known))
		wait_for_watch(signals_of(taker), signal);
}

void scry_calls_signals_take(struct scry_calls_watch *t, bool is_last, uint64_t *watermark)
{
	const struct scry_signals_take how = {.give = give, .arg = t};
	uint64_t until;

	if (!signals_of(t))
		return;
	if (is_last) /* then the newest are there */
		nanosleep(&(struct timespec){.tv_nsec = 2 * SCRY_SIGNALS_LAG_NS}, NULL);
	tell_early(t);
	scry_signals_take(signals_of(t)->source, &how, &until);
	if (!is_last && until < *watermark)
		*watermark = until;
}

void scry_calls_signals_note(struct scry_calls_watch *t)
{
	uint64_t unshown;

	if (t->signals_error)
		scry_watch_note(t->watch,
				"signals have no lines: the tracepoint signal_deliver cannot be "
				"read (%s); as root they have",
				strerror(-t->signals_error));
	if (!t->signals)
		return;
	unshown = t->signals->unshown + t->signals->early_count;
	if (unshown)
		scry_watch_note(t->watch,
				"%llu signal%s of children that were not yet watched ha%s no line",
				(unsigned long long)unshown, unshown == 1 ? "" : "s",
				unshown == 1 ? "s" : "ve");
	if (scry_signals_lost(t->signals->source))
		scry_watch_note(t->watch,
				"some signals have no lines: %llu, of all processes, found no room",
				(unsigned long long)scry_signals_lost(t->signals->source));
}
