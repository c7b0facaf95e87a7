/*
 * What instruments have in common whose functions may be defined by libraries that are loaded
 * later: patch and calls.
 */
#ifndef SCRY_WATCH_LOADING_H
#define SCRY_WATCH_LOADING_H

#include "hook/hooks.h"
#include "watch/watch.h"

/*
 * In `prepare`: scry_hooks_open. A program that is held in its start goes on, if need be, until its
 * loader has a list of objects; no constructor has run yet.
 */
int scry_loading_open(struct scry_watch *w, struct scry_hooks *h);

/*
 * In `prepare`: opens the set, lets `want` say what is wanted, and plans; anew when an object was
 * unloaded between the reading of the list and of its code. As scry_hooks_plan.
 */
int scry_loading_plan(struct scry_watch *w, struct scry_hooks *h,
		      int (*want)(struct scry_hooks *h, void *arg), void *arg);

/* Is there, or was there ever, a function that the request names? */
bool scry_loading_is_met(const struct scry_hooks *h, size_t request);

/*
 * In `enter`: puts the hooks on, also those of libraries that are loaded from now on, and what has
 * changed since it was planned. 0, or -errno with a sentence: nothing is counted.
 */
int scry_loading_put_on(struct scry_watch *w, struct scry_hooks *h);

/*
 * Where returns are followed (hook/shadow.h): `fresh` was loaded; rows that cannot be followed have
 * no way any more. -ENOTSUP with a sentence: it has an unwinder that cannot be hooked and must not
 * meet a followed call, and the watch ends.
 */
int scry_loading_refuse(struct scry_watch *w, struct scry_hooks *fresh);
/* Each turn: ends the watch when something was loaded that unwinds and knows nothing of us. Looks
 * each 100 ms, and twice, as what is new is hooked a moment later than it is mapped. */
struct scry_loading_look {
	uint64_t at_ns;
	bool is_suspicious;
};
void scry_loading_look(struct scry_watch *w, const struct scry_hooks *h,
		       struct scry_loading_look *look);

/* For --dry-run: which of them wait for their library. */
void scry_loading_describe(const struct scry_hooks *h, size_t first, FILE *out);
/* Says which of the requests from `first` on wait for their library. */
void scry_loading_report_waiting(struct scry_watch *w, struct scry_hooks *h, size_t first);
/* In `finish`: which of them were never met. -ENOTSUP, none was: nothing was `done` ("counted"). */
int scry_loading_report_unmet(struct scry_watch *w, const struct scry_hooks *h, size_t first,
			      const char *done);

/* In `close`: how often fork children have loaded or unloaded libraries, of which nothing is hooked
 * there. Without those that have left a watched process, or are left behind by it. */
uint64_t scry_loading_by_children(const struct scry_watch *speaker);

/* In `finish`: libraries that came too early, or could not be hooked. */
void scry_loading_report(struct scry_watch *w, const struct scry_hooks *h);

#endif
