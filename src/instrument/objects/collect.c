/* See collect.h. */
#include "instrument/objects/collect.h"

#include <time.h>

#include "instrument/objects/asks.h"
#include "instrument/objects/own.h"
#include "sys/ticks.h"
#include "wire/account.h"

#define FORCE_GC_NS 2000000000ull
#define ASK_AGAIN_NS 100000000ull
#define ENDS_NS 100000000ull

static struct scry_objects_account *account(const struct scry_watch *w)
{
	return &scry_account_of(w->inj->control)->objects;
}

static bool is_gc_done(const struct scry_watch *w)
{
	return __atomic_load_n(&account(w)->forced_gcs, __ATOMIC_ACQUIRE) == account(w)->force_gcs;
}

static bool wait_for_gc(const struct scry_watch *w, uint64_t ns)
{
	uint64_t until = scry_now_ns() + ns;

	while (!is_gc_done(w) && scry_now_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	return is_gc_done(w);
}

static void want(const struct scry_watch *w, bool is_wanted)
{
	__atomic_store_n(&account(w)->force_gcs, account(w)->forced_gcs + is_wanted,
			 __ATOMIC_RELEASE);
}

bool scry_objects_collect(struct scry_watch *w, uint64_t now_ns)
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	struct scry_objects_watch *o = w->state;

	if (opts->gc_slices && !scry_objects_is_armed(w))
		o->full_before = UINT64_MAX; /* nothing is counted yet */
	if (!opts->gc_slices || !scry_objects_is_armed(w))
		return true;
	if (!o->collecting_ns) {
		struct scry_objects_totals t;

		scry_objects_totals(o->names, &t);
		o->full_before = t.full_gcs;
		o->collecting_ns = now_ns;
		o->collect_again_ns = 0;
		want(w, true);
	}
	if (!o->is_collected && now_ns < o->collecting_ns + FORCE_GC_NS) {
		o->is_collected = is_gc_done(w);
		if (!o->is_collected && now_ns >= o->collect_again_ns) {
			scry_objects_ask(w, SCRY_ASK_ALL, wait_for_gc);
			o->collect_again_ns = scry_now_ns() + ASK_AGAIN_NS;
		}
		return false; /* also when it was done just now: what it freed is still to come */
	}
	o->is_collected = false;
	if (!is_gc_done(w))
		want(w, false);
	o->collecting_ns = 0;
	return true;
}

/* What the target says, as long as it can be true. */
static uint64_t forced_ns(uint64_t tsc, const struct scry_ticks_pair *began,
			  const struct scry_ticks_pair *ended)
{
	return tsc <= ended->tsc - began->tsc ? scry_ticks_by(began, ended, tsc) : 0;
}

/* A VM that has been taken down collects without an event, and its process is about to end; so may
 * be a fork child that is not followed: both have asked for a look. */
static bool has_ended(const struct scry_watch *w, bool has_looked)
{
	uint64_t until = scry_now_ns() + (has_looked ? ENDS_NS : 0);

	while (scry_proc_is_alive(&w->proc) && scry_now_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return !scry_proc_is_alive(&w->proc);
}

void scry_objects_collect_last(struct scry_watch *w, int (*drain)(struct scry_watch *w))
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	struct scry_objects_watch *o = w->state;
	const struct scry_ticks_pair began = scry_ticks_look();
	struct scry_objects_totals before, after;
	struct scry_ticks_pair ended;
	uint64_t until = scry_now_ns() + FORCE_GC_NS, lost;
	const uint32_t looks = o->looks;

	if (!opts->force_gc || !scry_objects_is_armed(w))
		return;
	lost = w->inj->control->lost;
	drain(w);
	scry_objects_totals(o->names, &before);
	want(w, true);
	while (!scry_objects_ask(w, SCRY_ASK_ALL, wait_for_gc) &&
	       !wait_for_gc(w, SCRY_ASK_EVERY_NS) && scry_now_ns() < until)
		drain(w);
	while (!wait_for_gc(w, 1000000) && scry_now_ns() < until && scry_proc_is_alive(&w->proc))
		drain(w);
	ended = scry_ticks_look();
	drain(w);
	scry_objects_totals(o->names, &after);
	if (is_gc_done(w) && after.full_gcs != before.full_gcs)
		o->forced = SCRY_FORCED_MADE;
	else if (has_ended(w, o->looks != looks))
		o->forced = SCRY_FORCED_ENDED;
	else if (!is_gc_done(w))
		o->forced = SCRY_FORCED_NO_SAFEPOINT;
	else
		o->forced =
			w->inj->control->lost == lost ? SCRY_FORCED_REFUSED : SCRY_FORCED_UNSEEN;
	if (o->forced == SCRY_FORCED_MADE)
		o->forced_gc_ns = forced_ns(account(w)->forced_gc_tsc, &began, &ended);
	if (!is_gc_done(w))
		want(w, false);
}
