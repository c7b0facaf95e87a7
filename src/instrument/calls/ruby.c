/* See ruby.h. */
#include "instrument/calls/ruby.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "watch/ask.h"
#include "wire/call_ring.h"

#define PATIENCE_NS 2000000000ull

int scry_calls_ruby_plan(struct scry_calls_ruby *k, struct scry_watch *w)
{
	k->stacks = scry_ruby_stacks_new();
	if (!k->stacks)
		return scry_no_memory("Ruby stacks");
	k->lines.user = SCRY_USER_CALLS;
	scry_ruby_lines_plan(&k->lines, w);
	scry_ruby_stacks_ruby(k->stacks, k->lines.ruby);
	return 0;
}

int scry_calls_ruby_want(const struct scry_calls_ruby *k, struct scry_hooks *h)
{
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_CALL, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_timed"};
	char request[32];
	int r;

	if (!k->lines.ruby)
		return 0;
	snprintf(request, sizeof(request), "%#llx", (unsigned long long)k->lines.down);
	r = scry_hooks_want(h, "free@*", &to);
	if (r == 0)
		r = scry_hooks_want(h, request, &to);
	return r < 0 ? r : (int)SCRY_CALLS_RUBY_GUARDS;
}

uint32_t scry_calls_ruby_guard(const struct scry_calls_ruby *k, const struct scry_hook *row)
{
	if (!k->lines.ruby)
		return 0;
	if (row->address == k->lines.down)
		return SCRY_CALL_IS_DOWN;
	return !strcmp(row->symbol, "free") ? SCRY_CALL_IS_FREE : 0;
}

void scry_calls_ruby_check(struct scry_calls_ruby *k, const struct scry_hooks *h)
{
	char why[200];
	bool is_seen = false;

	for (size_t i = 0; k->lines.ruby && i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];

		if (scry_calls_ruby_guard(k, row) != SCRY_CALL_IS_FREE)
			continue;
		is_seen |= row->way == SCRY_WAY_ENTRY;
		if (row->way == SCRY_WAY_ENTRY)
			continue;
		snprintf(why, sizeof(why), "the end of code cannot be seen: free of %s: %s",
			 row->module, row->why ? row->why : "its entry cannot be hooked");
		scry_ruby_lines_leave_out(&k->lines, why);
	}
	if (k->lines.ruby && !is_seen)
		scry_ruby_lines_leave_out(&k->lines,
					  "the end of code cannot be seen: it has no free");
	scry_ruby_lines_check(&k->lines, h);
	if (!k->lines.ruby)
		scry_ruby_stacks_ruby(k->stacks, NULL);
}

int scry_calls_ruby_report(struct scry_calls_ruby *k)
{
	int r = scry_ruby_lines_report(&k->lines);

	if (!k->lines.ruby)
		scry_ruby_stacks_ruby(k->stacks, NULL);
	return r;
}

bool scry_calls_ruby_turn(struct scry_calls_ruby *k, bool is_last)
{
	uint64_t now;

	if (!k->stacks || !k->lines.ruby || !k->lines.is_booting)
		return true;
	if (scry_ruby_lines_judge(&k->lines)) {
		scry_ruby_stacks_ruby(k->stacks, k->lines.ruby);
		return true;
	}
	now = scry_now_ns();
	k->since_ns = k->since_ns ? k->since_ns : now;
	if (!is_last && now - k->since_ns < PATIENCE_NS)
		return false;
	k->is_late = true;
	return true;
}

void scry_calls_ruby_note(const struct scry_calls_ruby *k)
{
	struct scry_watch *w = k->lines.watch;

	if (!k->stacks || !w) /* of a child its parent says it */
		return;
	if (k->lines.why[0])
		scry_watch_note(w, "-k shows no stacks: %s", k->lines.why);
	else if (!k->lines.ruby && w->events)
		scry_watch_note(w, "-k shows no stacks: process %d is not a Ruby", w->proc.pid);
	if (k->lines.is_unseen && w->events)
		scry_watch_note(w, "-k: %s", SCRY_RUBY_LINES_UNSEEN);
	if (k->is_late)
		scry_watch_note(w, "-k: stacks of the first calls were not looked at, as its VM "
				   "was not up");
}

void scry_calls_ruby_done(struct scry_calls_ruby *k)
{
	scry_ruby_stacks_free(k->stacks);
	scry_ruby_lines_done(&k->lines);
	*k = (struct scry_calls_ruby){0};
}
