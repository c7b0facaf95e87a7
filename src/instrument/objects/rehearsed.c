/*
 * What a child of the same Ruby has borne (instrument/objects/rehearsal), this process may bear: a
 * way of watching that went wrong there is refused, and one that went wrong at a step ends before
 * that step.
 */
#include <errno.h>

#include "base/err.h"
#include "instrument/objects/objects.h"
#include "instrument/objects/rehearsal.h"
#include "watch/ask.h"

static uint32_t way_of(const struct scry_watch *w, bool hooks)
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;

	return (opts->stacks ? SCRY_RUBY_WAY_STACKS : 0) |
	       (opts->sample.every || opts->sample.bytes ? SCRY_RUBY_WAY_SAMPLED : 0) |
	       (hooks ? SCRY_RUBY_WAY_HOOKS : 0);
}

/* Hooks that were not asked for by name give way to events. */
static int rehearse(const struct scry_watch *w, struct scry_ruby *ruby,
		    struct scry_objects_hooks *hooks)
{
	const struct scry_objects_opts *opts = w->opts->instrument_opts;
	int r = scry_rehearse(ruby, &w->proc, way_of(w, hooks->plan.on));

	if (r == 0 || !hooks->plan.on || opts->source != SCRY_SOURCE_AUTO)
		return r;
	scry_watch_detail(w, "%s", scry_error());
	scry_error_clear();
	scry_objects_source_done(hooks);
	return scry_rehearse(ruby, &w->proc, way_of(w, false));
}

int scry_objects_rehearse(struct scry_watch *w, struct scry_ruby *ruby,
			  struct scry_objects_hooks *hooks, struct scry_agent_ruby *plan)
{
	int r = rehearse(w, ruby, hooks);
	uint32_t without = ruby->layout.rehearsed[way_of(w, hooks->plan.on)].without;
	bool is_single = ruby->layout.hooks_break_ractors || (without & SCRY_RUBY_WITHOUT_RACTORS);

	if (r < 0)
		return r;
	if (without & SCRY_RUBY_WITHOUT_COMPACTION) {
		plan->data_wrap = 0; /* no hidden object, by which they are seen */
		plan->ends_at_compaction = ruby->layout.gc_stat_compact;
	}
	if (is_single || hooks->plan.on) /* hooks: there is one ring */
		plan->ractor_class = scry_ruby_symbol(ruby, "rb_cRactor");
	if (!is_single || (plan->ractor_class && (w->held || scry_ruby_ractors(ruby) <= 1)))
		return 0;
	return scry_fail(-ENOTSUP,
			 "process %d has several ractors, and this Ruby (%s) may crash when "
			 "a ractor starts while events are on; fix: %s",
			 w->proc.pid, ruby->description,
			 ruby->layout.hooks_break_ractors ? "Ruby 3.1.4 or later"
							  : "another version of Ruby");
}

void scry_objects_note_ended(struct scry_watch *w, const struct scry_ruby *ruby, bool hooks)
{
	const struct scry_ruby_rehearsal *known = &ruby->layout.rehearsed[way_of(w, hooks)];

	scry_watch_lost_some(w, "what the program did after the watch had to end");
	if (scry_account_of(w->inj->control)->objects.ended == SCRY_ENDED_COMPACTION)
		scry_watch_note(w,
				"the watch ended when the program compacted its heap: with this "
				"Ruby that went wrong in a child (%s)",
				known->why[0]);
	else if (hooks)
		scry_watch_note(w,
				"the watch ended when the program made a ractor: hooks see objects "
				"of one ractor");
	else if (known->without & SCRY_RUBY_WITHOUT_RACTORS)
		scry_watch_note(w,
				"the watch ended when the program made a ractor: with this Ruby "
				"that went wrong in a child (%s)",
				known->why[1]);
	else
		scry_watch_note(w, "the watch ended when the program made a ractor: this Ruby may "
				   "crash when one starts while events are on; fix: Ruby 3.1.4 or "
				   "later");
}
