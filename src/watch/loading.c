/* See loading.h. */
#include "watch/loading.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/loads.h"
#include "hook/shadow.h"
#include "watch/ask.h"
#include "watch/group.h"

#define SETTLE_NS 5000000000ull /* where threads are in vfork a look takes a second */
#define LOOK_NS 100000000ull
#define STALE_TRIES 20
#define STEPS 1000 /* instructions */
#define STEPS_MAX 300000

/*
 * glibc's loader has a list of objects when it has relocated them, musl's makes it a little later,
 * without a system call at which it could be met: it goes on to there one instruction at a time.
 */
int scry_loading_open(struct scry_watch *w, struct scry_hooks *h)
{
	int r = scry_hooks_open(h, &w->proc);

	for (int i = 0; i < STEPS_MAX && r == -EFAULT && w->held; i += STEPS) {
		scry_hooks_close(h);
		r = scry_tracee_step(w->held, STEPS);
		if (r < 0)
			return scry_fail(r, "process %d cannot be followed in its start",
					 w->proc.pid);
		scry_error_clear();
		r = scry_hooks_open(h, &w->proc);
	}
	return r;
}

static int plan(struct scry_watch *w, struct scry_hooks *h,
		int (*want)(struct scry_hooks *h, void *arg), void *arg)
{
	int r = scry_loading_open(w, h);

	if (r == 0)
		r = want(h, arg);
	return r == 0 ? scry_hooks_plan(h) : r;
}

int scry_loading_plan(struct scry_watch *w, struct scry_hooks *h,
		      int (*want)(struct scry_hooks *h, void *arg), void *arg)
{
	int r = plan(w, h, want, arg);

	for (int i = 0; i < STALE_TRIES && r == -ENOTSUP && scry_hooks_are_stale(h); i++) {
		scry_hooks_close(h);
		*h = (struct scry_hooks){0};
		scry_error_clear();
		r = plan(w, h, want, arg);
	}
	return r;
}

bool scry_loading_is_met(const struct scry_hooks *h, size_t request)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->rows[i].request == request)
			return true;
	return h->request_to[request].is_found; /* other requests have its functions */
}

static void around_stops(void *arg, bool is_over)
{
	if (is_over)
		scry_watch_trace_again(arg);
	else
		scry_watch_untrace(arg);
}

/* -EAGAIN: what could not be put on yet is tried again by the turns to come. */
static int follow(struct scry_watch *w, struct scry_hooks *h)
{
	const uint64_t end_ns = scry_now_ns() + SETTLE_NS;
	struct scry_loads_stats stats;
	int r = scry_loads_follow(h, w->inj, w->held);

	scry_watch_hurry();
	if (r == 0)
		w->wake_fd = scry_loads_fd(h);
	scry_loads_around_stops(h, around_stops, w);
	/* A program that is held has a loader in the midst of its work: what it has loaded is
	 * planned, the next turns look again. */
	while (r == 0 && !w->held) {
		scry_group_drain_others(w);
		r = scry_loads_turn(h, w->inj);
		if (scry_loads_is_settled(h) || scry_now_ns() > end_ns)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	scry_loads_stats(h, &stats);
	if (r == 0 && stats.failed)
		return scry_fail(-EBUSY, "%s", stats.why);
	if (r == 0 && !w->held && !scry_loads_is_settled(h))
		return scry_fail(-EAGAIN, "%s", stats.why);
	return r;
}

int scry_loading_put_on(struct scry_watch *w, struct scry_hooks *h)
{
	int on, r;

	scry_group_drain_others(w);
	on = scry_hooks_on(h, w->inj, w->held);
	/* A library that was planned for may have gone meanwhile. */
	if (on < 0 && (h->is_on || !h->waits || (on != -EFAULT && on != -EBUSY)))
		return on;
	r = follow(w, h);
	if (r < 0 && on < 0)
		return r == -EAGAIN ? -EBUSY : r;
	if (r < 0 && r != -EAGAIN && !h->objects.is_static)
		scry_watch_note(w, "libraries loaded later are not watched: %s", scry_error());
	scry_error_clear();
	return 0;
}

/* As it was asked for, and what was not done. */
static const char *shown(const struct scry_hooks *h, size_t q)
{
	return h->requests[q] + (*h->requests[q] == '+');
}

static const char *missing(const struct scry_hooks *h, size_t q)
{
	return h->request_to[q].way == SCRY_WAY_CALLS ? "calls" : "defines";
}

int scry_loading_refuse(struct scry_watch *w, struct scry_hooks *fresh)
{
	int r = scry_shadow_refuse(fresh);

	if (r != -ENOTSUP)
		return r;
	if (!scry_shadow_lacks(fresh)) { /* none of them can be followed */
		scry_error_clear();
		return 0;
	}
	scry_shadow_pause(w->inj);
	w->enough = "an unwinder was loaded that cannot be hooked";
	scry_watch_note(w, "the watch ended before its time: %s", w->enough);
	return r;
}

void scry_loading_look(struct scry_watch *w, const struct scry_hooks *h,
		       struct scry_loading_look *look)
{
	const char *why;

	if (w->enough || scry_now_ns() < look->at_ns)
		return;
	look->at_ns = scry_now_ns() + LOOK_NS;
	why = scry_shadow_newcomer(h);
	if (why && look->is_suspicious) {
		w->enough = why;
		scry_shadow_pause(w->inj);
		scry_watch_note(w, "the watch ended before its time: %s", why);
	}
	look->is_suspicious = why != NULL;
}

void scry_loading_describe(const struct scry_hooks *h, size_t first, FILE *out)
{
	for (size_t q = first; q < h->request_count; q++)
		if (!h->request_to[q].is_guard && !scry_loading_is_met(h, q))
			fprintf(out, "  wait        for an object that defines %s\n",
				scry_text_shown(h->requests[q]).text);
}

void scry_loading_report_waiting(struct scry_watch *w, struct scry_hooks *h, size_t first)
{
	char text[512];

	for (size_t q = first; q < h->request_count; q++) {
		if (h->request_to[q].is_guard || scry_loading_is_met(h, q))
			continue;
		snprintf(text, sizeof(text), "%s: no loaded object %s it yet; waiting%s",
			 shown(h, q), missing(h, q),
			 scry_symbols_ask(&h->objects, shown(h, q)).text);
		scry_send_news(w->session, SCRY_NEWS_SAY, 0, text);
	}
}

int scry_loading_report_unmet(struct scry_watch *w, const struct scry_hooks *h, size_t first,
			      const char *done)
{
	size_t unmet = 0, asked = 0, last = 0;

	for (size_t q = first; q < h->request_count; q++) {
		asked += !h->request_to[q].is_guard;
		if (h->request_to[q].is_guard || scry_loading_is_met(h, q))
			continue;
		scry_watch_note(w, "%s: no object that %s it was ever loaded", shown(h, q),
				missing(h, q));
		unmet++;
		last = q;
	}
	if (!unmet || unmet < asked)
		return 0;
	return scry_fail(-ENOTSUP,
			 "nothing was %s: process %d never loaded an object that defines '%s'",
			 done, w->proc.pid, shown(h, last));
}

void scry_loading_report(struct scry_watch *w, const struct scry_hooks *h)
{
	const struct scry_hook *unguarded = scry_shadow_unguarded(h);
	struct scry_loads_stats stats;
	char text[256];

	if (unguarded)
		scry_watch_note(
			w,
			"%s in %s cannot be guarded (%s): if a followed function ended in a "
			"call of it, it did not find its true caller",
			unguarded->symbol, unguarded->module, unguarded->why);
	scry_loads_stats(h, &stats);
	if (stats.late)
		scry_watch_note(w,
				"%llu time%s a library was loaded or unloaded before scry was "
				"ready: calls from its constructors may be missing",
				(unsigned long long)stats.late, scry_text_s(stats.late));
	if (stats.failed)
		scry_watch_note(w, "%llu time%s what was loaded could not be hooked: %s",
				(unsigned long long)stats.failed, scry_text_s(stats.failed),
				stats.why);
	if (!stats.asked)
		return;
	snprintf(text, sizeof(text),
		 "process %d: %llu objects loaded, %llu unloaded; its loader waited "
		 "%llu times, for %.2f ms at most",
		 w->proc.pid, (unsigned long long)stats.loaded, (unsigned long long)stats.unloaded,
		 (unsigned long long)stats.asked, (double)stats.answer_max_ns / 1e6);
	scry_send_news(w->session, SCRY_NEWS_DETAIL, 0, text);
}

uint64_t scry_loading_by_children(const struct scry_watch *speaker)
{
	return speaker->session->loads;
}
