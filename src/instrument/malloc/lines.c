/* See lines.h. */
#include "instrument/malloc/lines.h"

#include <stdio.h>

#include "agent/line_tables.h"
#include "base/text.h"
#include "watch/ask.h"

int scry_malloc_lines_want(const struct scry_ruby_lines *l, struct scry_hooks *hooks)
{
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_CALL, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_lines_end"};
	char request[32];

	if (!l->ruby)
		return 0;
	snprintf(request, sizeof(request), "%#llx", (unsigned long long)l->down);
	return scry_hooks_want(hooks, request, &to);
}

void scry_malloc_lines_read(struct scry_ruby_lines *l, struct scry_malloc *calls)
{
	scry_malloc_ruby(calls, l->ruby, !l->is_booting);
}

void scry_malloc_lines_turn(struct scry_ruby_lines *l, struct scry_malloc *calls)
{
	if (scry_ruby_lines_judge(l))
		scry_malloc_lines_read(l, calls);
}

void scry_malloc_lines_note(const struct scry_ruby_lines *l, const struct scry_malloc_stats *calls)
{
	const struct scry_control *c = l->watch->inj->control;
	uint64_t full = c ? scry_account_of(c)->lines.full : 0;

	if (l->why[0])
		scry_watch_note(l->watch, "callers are native code only, not lines of Ruby: %s",
				l->why);
	if (l->is_booting && calls->lines)
		scry_watch_note(l->watch, "callers are native code only, not lines of Ruby: the "
					  "watch ended before its VM could be examined");
	if (l->is_unseen && calls->lines)
		scry_watch_note(l->watch, "%s", SCRY_RUBY_LINES_UNSEEN);
	if (calls->lines_gone)
		scry_watch_note(l->watch,
				"%llu of %llu callers are lines of Ruby whose code could not be "
				"read: they are shown as native code",
				(unsigned long long)calls->lines_gone,
				(unsigned long long)calls->lines);
	if (full)
		scry_watch_note(l->watch,
				"%llu call%s came from other lines of Ruby than the first %u that "
				"called: shown as native code",
				(unsigned long long)full, scry_text_s(full), SCRY_LINES);
}
