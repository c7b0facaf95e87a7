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
#include "sys/tracee.h"
#include "watch/ask.h"

#define WATCHES_MAX 4096u
#define FAMILY_MAX (1u << 16)
#define EARLY_MAX 4096u
#define LOOK_NS 100000000u

struct scry_calls_signals {
	uint32_t users; /* watches */
	struct scry_signals *source;
	struct scry_map watches;   /* pid -> struct scry_calls_watch */
	struct scry_map family;	   /* forked by a process that is watched, or by one of these */
	struct scry_signal *early; /* of these, before they are watched; in order */
	size_t early_count;
	uint64_t unshown; /* that gave way to others there */
	uint64_t crowded; /* of processes that are watched: what waits fills the limit of memory */
};

/* A child that has none yet gets its root's. */
static struct scry_calls_signals *signals_of(const struct scry_calls_watch *t)
{
	return t->signals || !t->root ? t->signals : t->root->signals;
}

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

static void use(struct scry_calls_watch *t, struct scry_calls_signals *s)
{
	s->users += t->signals != s;
	t->signals = s;
}

/* Signals of process `pid` are its from now on; 0: no process's. */
static void own(struct scry_calls_watch *t, uint32_t pid)
{
	struct scry_map *watches = &t->signals->watches;
	uint64_t owner;

	if (pid == t->signals_pid)
		return;
	if (scry_map_get(watches, t->signals_pid, &owner) && owner == (uintptr_t)t)
		scry_map_remove(watches, t->signals_pid, NULL);
	t->signals_pid = pid && scry_map_put(watches, pid, (uintptr_t)t) == 0 ? pid : 0;
}

void scry_calls_signals_open(struct scry_calls_watch *t)
{
	struct scry_calls_signals *s = find(t->watch);
	const pid_t pid = t->watch->proc.pid;

	t->signals_error = 0;
	t->own_number = (uint32_t)scry_proc_tid_inside(pid, pid);
	if (t->own_number == (uint32_t)pid)
		t->own_number = 0;
	if (!s) {
		s = calloc(1, sizeof(*s));
		t->signals_error = s ? scry_signals_open(&s->source) : -ENOMEM;
		if (s) {
			scry_map_init(&s->watches, WATCHES_MAX);
			scry_map_init(&s->family, FAMILY_MAX);
		}
	}
	if (t->signals_error) {
		free(s);
		return;
	}
	use(t, s);
	own(t, (uint32_t)pid);
}

/* What is missing, of the whole run: a child may get after its parent's end what waited for it. */
static void note_missing(struct scry_watch *w, const struct scry_calls_signals *s)
{
	const unsigned long long unshown = s->unshown + s->early_count,
				 lost = scry_signals_lost(s->source);

	if (unshown)
		scry_watch_note(w,
				"%llu signal%s of children that were not yet watched ha%s no line",
				unshown, unshown == 1 ? "" : "s", unshown == 1 ? "s" : "ve");
	scry_watch_lost(w, s->crowded, "signals that found no room");
	if (!lost)
		return;
	scry_watch_lost_some(w, "signals of all processes that found no room");
	scry_watch_note(w, "some signals have no lines: %llu, of all processes, found no room",
			lost);
}

void scry_calls_signals_close(struct scry_calls_watch *t)
{
	struct scry_calls_signals *s = t->signals;

	if (!s)
		return;
	own(t, 0);
	t->signals = NULL;
	if (--s->users)
		return;
	note_missing(t->watch, s);
	scry_signals_close(s->source);
	scry_map_done(&s->watches);
	scry_map_done(&s->family);
	free(s->early);
	free(s);
}

/* As the process numbers its threads; the main one's number is known when it has ended, too. */
static uint32_t tid_inside(const struct scry_calls_watch *t, uint32_t tid)
{
	const struct scry_calls_watch *root = t->root ? t->root : t;

	if (!root->own_number)
		return tid;
	if (tid == (uint32_t)t->watch->proc.pid)
		return t->root ? t->child_pid : t->own_number;
	return (uint32_t)scry_proc_tid_inside(t->watch->proc.pid, (pid_t)tid);
}

/* A fork child says itself which it is, before it is found. 0: not yet. */
static uint32_t pid_of(const struct scry_calls_watch *t)
{
	if (t->watch->proc.pid)
		return (uint32_t)t->watch->proc.pid;
	return t->root && !t->root->own_number ? t->child_pid : 0;
}

/* NULL: it is not watched, or it has not said which it is. One that asks may be at its end. */
static const struct scry_calls_watch *watch_of(const struct scry_calls_watch *taker, uint32_t pid)
{
	const struct scry_calls_watch *t;
	uint64_t owner;

	if (!scry_map_get(&signals_of(taker)->watches, pid, &owner))
		return NULL;
	t = (const struct scry_calls_watch *)(uintptr_t)owner;
	return t->calls && (!t->watch->is_over || t == taker) ? t : NULL;
}

/* Where what waits fills the limit of memory it is dropped: the room is for calls. */
static bool emit(const struct scry_calls_watch *taker, const struct scry_signal *signal)
{
	const struct scry_calls_watch *t = watch_of(taker, signal->pid);

	if (t && scry_stream_bytes(scry_calls_stream(t->calls)) > t->watch->opts->memory)
		signals_of(taker)->crowded++;
	else if (t && scry_calls_signal(t->calls, tid_inside(t, signal->tid), signal->tsc,
					signal->number) < 0)
		scry_error_clear(); /* no memory: the calls say so */
	return t != NULL;
}

/* It is a descendant until it ends, or another process has its number. */
static void on_fork_or_end(const struct scry_calls_watch *taker, const struct scry_signal *of)
{
	struct scry_map *family = &signals_of(taker)->family;
	uint64_t known;

	if (of->parent && (watch_of(taker, of->parent) || scry_map_get(family, of->parent, &known)))
		scry_map_put(family, of->pid, 1);
	else
		scry_map_remove(family, of->pid, NULL);
}

/* Of a child that is not watched yet: it waits until it is. Most are by then, or never: the older
 * half gives way to newer ones. */
static void wait_for_watch(struct scry_calls_signals *s, const struct scry_signal *signal)
{
	if (!s->early)
		s->early = calloc(EARLY_MAX, sizeof(*s->early));
	if (!s->early) {
		s->unshown++;
		return;
	}
	if (s->early_count == EARLY_MAX) {
		s->early_count /= 2;
		s->unshown += s->early_count;
		memcpy(s->early, s->early + s->early_count, s->early_count * sizeof(*s->early));
	}
	s->early[s->early_count++] = *signal;
}

/* Those of the one that takes. */
static void emit_early(const struct scry_calls_watch *taker)
{
	struct scry_calls_signals *s = signals_of(taker);
	size_t left = 0;

	for (size_t i = 0; i < s->early_count; i++)
		if (s->early[i].pid != taker->signals_pid || !emit(taker, &s->early[i]))
			s->early[left++] = s->early[i];
	s->early_count = left;
}

static void give(void *arg, const struct scry_signal *signal)
{
	const struct scry_calls_watch *taker = arg;
	uint64_t known;

	if (!signal->number)
		on_fork_or_end(taker, signal);
	else if (!emit(taker, signal) && taker->watch->opts->follow &&
		 scry_map_get(&signals_of(taker)->family, signal->pid, &known))
		wait_for_watch(signals_of(taker), signal);
}

/* Without a source: would there have been lines? */
static void look_for_handlers(struct scry_calls_watch *t, bool is_last)
{
	const uint64_t now = scry_now_ns();

	if (t->handles_signals || (!is_last && now - t->handlers_ns < LOOK_NS))
		return;
	t->handlers_ns = now;
	t->handles_signals = scry_proc_has_handlers(t->watch->proc.pid);
}

void scry_calls_signals_take(struct scry_calls_watch *t, bool is_last, uint64_t *watermark)
{
	const struct scry_signals_take how = {.give = give, .arg = t};
	uint64_t until;

	if (t->signals_error)
		look_for_handlers(t, is_last);
	if (!signals_of(t))
		return;
	if (is_last) /* then the newest are there */
		nanosleep(&(struct timespec){.tv_nsec = 2 * SCRY_SIGNALS_LAG_NS}, NULL);
	use(t, signals_of(t));
	own(t, pid_of(t));
	emit_early(t);
	scry_signals_take(signals_of(t)->source, &how, &until);
	if (!is_last && until < *watermark)
		*watermark = until;
}

void scry_calls_signals_note(struct scry_calls_watch *t)
{
	if (t->signals_error && t->handles_signals)
		scry_watch_note(t->watch,
				"signals have no lines: the tracepoint signal_deliver cannot be "
				"read (%s); fix: run scry as root",
				strerror(-t->signals_error));
}
