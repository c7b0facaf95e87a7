/* What a whole session has to say of what it missed: processes that were not watched, or late. */
#include "base/text.h"
#include "watch/group.h"
#include "watch/programs.h"
#include "watch/session.h"

static void write_missing(struct scry_watch *any, uint64_t count, uint32_t flags, const char *why)
{
	const uint32_t most = SCRY_LOST_PERHAPS - 1;
	struct scry_ev_lost lost = {.processes = (count < most ? (uint32_t)count : most) | flags};

	if (!count)
		return;
	lost.why_str = scry_watch_string(any, why);
	scry_watch_event(any, SCRY_EVENT_LOST, &lost, sizeof(lost));
}

/* For line one, and for programs that count. The notes say why, and which came late: such are in
 * it, and many of them were there before the watch. Children of a Ruby that are not Rubies are not
 * asked for. */
static void write_all_missing(struct scry_session *s, struct scry_watch *any)
{
	write_missing(any, s->refused, 0, "all child buffers were taken");
	write_missing(any, s->not_entered, 0, "they could not be entered");
	write_missing(any, s->nameless, 0, "they could not be distinguished from others");
	write_missing(any, s->preload ? s->strangers.count : 0, 0, "they are not preloaded");
	write_missing(any, s->spawns.refused, 0, "too many at once");
	write_missing(any, s->missed, 0, "they had ended before they could be entered");
	write_missing(any, s->instrument->wants ? 0 : s->unknown, SCRY_LOST_PERHAPS,
		      "they had ended before scry could read them");
}

void scry_session_count(struct scry_session *s, const struct scry_watch *w)
{
	s->refused += w->pool.head ? w->pool.head->refused : 0;
	s->loads += w->pool.head ? w->pool.head->loads : 0;
}

/* What the report must say of children. */
void scry_session_notes(struct scry_session *s, struct scry_watch *any)
{
	write_all_missing(s, any);
	if (s->refused)
		scry_watch_note(
			any,
			"%llu fork child%s not watched: all child buffers that there is room "
			"for were taken",
			(unsigned long long)s->refused, s->refused == 1 ? " was" : "ren were");
	if (s->late || s->unknown || s->not_entered || s->missed)
		scry_watch_lost_some(any, "what started programs did before scry noticed them");
	if (s->late)
		scry_watch_note(any,
				"%llu program%s started under scry %s noticed late: what was done "
				"before is not counted",
				(unsigned long long)s->late, scry_text_s(s->late),
				scry_text_were(s->late));
	if (s->not_entered)
		scry_watch_note(any, "%llu %s%sprogram%s could not be entered and %s not watched",
				(unsigned long long)s->not_entered,
				s->instrument->wants ? s->instrument->wanted : "",
				s->instrument->wants ? " " : "", scry_text_s(s->not_entered),
				scry_text_were(s->not_entered));
	if (s->unknown)
		scry_watch_note(any,
				"%llu program%s that a watched one started or became ended before "
				"scry could look: whether to be watched is not known",
				(unsigned long long)s->unknown, scry_text_s(s->unknown));
	scry_programs_note(s, any);
	if (s->nameless)
		scry_watch_note(
			any,
			"%zu process%s could not be distinguished from others and %s not recorded: "
			"ended at once, or in another pid namespace",
			s->nameless, s->nameless == 1 ? "" : "es", scry_text_were(s->nameless));
	if (s->preload && s->strangers.count)
		scry_watch_note(
			any,
			"%zu program%s that recorded processes ran (exec) did not load what "
			"was preloaded, and %s not recorded: static, with gained rights, "
			"or in another environment",
			s->strangers.count, scry_text_s(s->strangers.count),
			scry_text_were(s->strangers.count));
	if (s->spawns.refused)
		scry_watch_note(any, "%zu started process%s not followed: too many at once",
				s->spawns.refused, s->spawns.refused == 1 ? " was" : "es were");
}

void scry_session_unfollowed(struct scry_watch *w, const char *what)
{
	const struct scry_instrument *all = w->session->instrument;
	struct scry_watch *one;

	for (size_t i = 0; (one = scry_group_at(scry_group_first(w), i)); i++) {
		scry_watch_lost_some(
			one, "what a watched process did after it ran another program (exec)");
		scry_watch_note(one, "process %d %s%s", (int)w->proc.pid, what,
				all->adopt ? "; fix: -f" : "");
	}
}
