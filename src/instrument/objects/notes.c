/* What a watch of objects has to say besides its counts: see own.h. */
#include "instrument/objects/own.h"

#include "base/text.h"
#include "watch/ask.h"

bool scry_objects_is_armed(const struct scry_watch *w)
{
	return __atomic_load_n(&w->inj->control->armed, __ATOMIC_ACQUIRE) == w->watch;
}

/* --force-gc, and why what lives may be garbage all the same. */
static void note_forced(struct scry_watch *w, const struct scry_objects_watch *o)
{
	static const char *const why[] = {
		[SCRY_FORCED_NO_SAFEPOINT] = "the program did not come to a safepoint within 2 s; "
					     "no GC was made",
		[SCRY_FORCED_REFUSED] = "the VM made no GC: the program has switched its "
					"collector off",
		[SCRY_FORCED_UNSEEN] = "events were lost: whether the VM made the GC is not known",
		[SCRY_FORCED_ENDED] = "no GC was made: the program ended before that",
	};

	if (o->forced == SCRY_FORCED_NOT_ASKED && o->uncollected)
		scry_watch_note(w, "--force-gc: no GC was made: %s",
				w->target_gone ? "the program ended before the watch did"
					       : "it was too late to ask for one");
	else if (why[o->forced])
		scry_watch_note(w, "--force-gc: %s", why[o->forced]);
}

void scry_objects_note_all(struct scry_watch *w, const struct scry_objects_watch *o,
			   const struct scry_objects_totals *t)
{
	if (!o->armed_ns && !scry_objects_is_armed(w) && o->booting)
		scry_watch_note(w, "%s before the program's Ruby VM was up: nothing was watched",
				w->target_gone ? "the program ended" : "the watch was over");
	else if (!o->armed_ns && !scry_objects_is_armed(w) && o->table_full)
		scry_watch_note(
			w, "the watch did not begin: this Ruby's table of 32 postponed jobs is "
			   "full; fix: restart the program");
	else if (!o->armed_ns && !scry_objects_is_armed(w) && !o->refused)
		scry_watch_note(w, "no Ruby thread ran while scry watched: the watch begins when "
				   "one wakes, and none "
				   "did; fix: watch longer, or while there is work");
	else if (o->armed_ns > w->began_ns + 100000000 && !w->held && o->registered)
		scry_watch_note(w,
				"the program was idle: the watch took hold %.1f s after scry came",
				(double)(o->armed_ns - w->began_ns) / 1e9);
	if (o->unbelieved)
		scry_watch_note(w,
				"the program ended before its layout, which was kept from an "
				"earlier run, could be validated on it: nothing is counted; %s",
				o->is_missed
					? "scry had no processor while it waited; fix: try again"
					: "the next run learns it anew");
	if (scry_objects_ractors_unseen(&o->ractors, o->ruby, t))
		scry_objects_ractors_say(&o->ractors, w, t);
	if (t->untracked)
		scry_watch_note(
			w, "%llu object%s beyond --memory: made counted, not followed to the end",
			(unsigned long long)t->untracked, scry_text_s(t->untracked));
	if (scry_account_of(w->inj->control)->objects.ended)
		scry_objects_note_ended(w, o->ruby, o->hooks.plan.on);
	if (t->nowhere)
		scry_watch_note(w,
				"%llu object%s %s made at places beyond the first million: "
				"counted, not named",
				(unsigned long long)t->nowhere, scry_text_s(t->nowhere),
				scry_text_were(t->nowhere));
	if (t->out_of_sight)
		scry_watch_note(w,
				"%llu living object%s %s lost sight of in a GC compaction: "
				"counted as made, neither as live nor as freed",
				(unsigned long long)t->out_of_sight, scry_text_s(t->out_of_sight),
				scry_text_were(t->out_of_sight));
	if (t->found_free)
		scry_watch_note(w,
				"%llu object%s counted as live had been freed by the time sizes "
				"were read, and their slots may be in use again: bytes of live "
				"objects may be too few or too many",
				(unsigned long long)t->found_free, scry_text_s(t->found_free));
	note_forced(w, o);
	if (o->slices_missed)
		scry_watch_note(w,
				"--gc-slices: %llu slice%s ended without a collection: the program "
				"did not come to a safepoint within 2 s, or has switched its "
				"collector off",
				(unsigned long long)o->slices_missed,
				scry_text_s(o->slices_missed));
	if (o->forced == SCRY_FORCED_MADE && w->opts->every_ns &&
	    !((const struct scry_objects_opts *)w->opts->instrument_opts)->gc_slices)
		scry_watch_note(w, "--force-gc: the end is after a forced collection; slices count "
				   "as live what none had freed yet, so from a slice to the end "
				   "less has grown than shows between two slices");
	if (o->unfollowed)
		scry_watch_note(w,
				"%llu sample%s beyond the agent's table: made counted, not "
				"followed to the end; fix: sample fewer",
				(unsigned long long)o->unfollowed, scry_text_s(o->unfollowed));
	if (t->unfollowed > o->unfollowed)
		scry_watch_note(w,
				"%llu sample%s may have died in a GC compaction, which this Ruby "
				"does not say: counted as made, neither as live nor as freed",
				(unsigned long long)(t->unfollowed - o->unfollowed),
				scry_text_s(t->unfollowed - o->unfollowed));
	if (t->replaced && o->ruby->layout.recycles)
		scry_watch_note(w,
				"%llu object%s %s taken back by the VM without an event: freed, as "
				"counted here, when the slot was used again",
				(unsigned long long)t->replaced, scry_text_s(t->replaced),
				scry_text_were(t->replaced));
	if (o->unseen)
		scry_watch_note(w,
				"the VM counted %llu object%s that no hook has shown; fix: "
				"--source event",
				(unsigned long long)o->unseen, scry_text_s(o->unseen));
	if (o->busy)
		scry_watch_note(w,
				"%llu event%s came while the handler ran (a signal handler that "
				"allocates) and %s not recorded",
				(unsigned long long)o->busy, scry_text_s(o->busy),
				scry_text_were(o->busy));
}

void scry_objects_note_waits(struct scry_watch *w, const struct scry_objects_watch *o)
{
	const struct {
		uint64_t ns;
		const char *why;
	} waits[] = {
		{o->judge_ns, "at its first code, until the layout was validated"},
		{o->look_ns, "at its end, until the living were measured"},
	};

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]) && w->proc.pid; i++) {
		struct scry_ev_pause pause = {.duration_ns = waits[i].ns, .threads = 1};

		if (!pause.duration_ns)
			continue;
		pause.why_str = scry_watch_string(w, waits[i].why);
		scry_watch_event(w, SCRY_EVENT_PAUSE, &pause, sizeof(pause));
	}
}
