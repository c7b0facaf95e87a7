/* See programs.h. */
#include "watch/programs.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/text.h"
#include "sys/family.h"
#include "watch/group.h"

#define END_NS 300000 /* until the newest news are there */

void scry_programs_open(struct scry_session *s, pid_t leader)
{
	const struct scry_instrument *in = s->instrument;

	if (in->wants || s->opts->preload || !(s->opts->follow || (leader && in->follows_exec)))
		return;
	s->wants_programs = true;
	s->family_error = scry_family_open(s->opts->follow, &s->family);
	scry_family_add(s->family, leader, scry_now_ns());
}

void scry_programs_close(struct scry_session *s)
{
	scry_family_close(s->family);
	s->family = NULL;
}

static void forked(void *arg, pid_t pid)
{
	struct scry_session *s = arg;

	if (s->descendants.has_begun)
		scry_descendant_table_add(&s->descendants, pid);
}

static struct scry_watch *watch_of(const struct scry_session *s, pid_t pid)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->proc.pid == pid && !s->watches[i]->is_over)
			return s->watches[i];
	return NULL;
}

/* A watched one is looked at in this turn; another one now, while its loader runs. */
static void execed(void *arg, pid_t pid)
{
	struct scry_session *s = arg;
	struct scry_watch *w = watch_of(s, pid);
	struct scry_relative *row;

	if (w)
		w->may_have_execed = true;
	if (w || scry_spawns_has(&s->spawns, pid) || !s->opts->follow || !s->descendants.has_begun)
		return;
	row = scry_descendant_table_add(&s->descendants, pid);
	if (row)
		scry_descendant_table_look(&s->descendants, row, scry_now_ns());
}

void scry_programs_turn(struct scry_session *s)
{
	const struct scry_family_take how = {.forked = forked, .execed = execed, .arg = s};

	if (s->preload) /* what it records says itself which programs it runs in */
		scry_programs_close(s);
	scry_family_take(s->family, &how);
}

void scry_programs_watched(const struct scry_watch *w)
{
	const struct scry_session *s = w->session;

	scry_family_add(s->family, w->proc.pid, w->began_ns);
	scry_family_settled(s->family, w->proc.pid, w->began_ns);
}

void scry_programs_settled(const struct scry_session *s, pid_t pid, uint64_t ns)
{
	scry_family_settled(s->family, pid, ns);
}

void scry_programs_unknown(struct scry_session *s)
{
	s->unknown += !s->family; /* else it is counted there */
}

void scry_programs_look_back(struct scry_session *s, struct scry_watch *w)
{
	struct scry_execs *execs = &scry_group_first(w)->execs;

	scry_execs_take(execs); /* its end may have been seen before them */
	if (!execs->count)
		return;
	if (s->opts->follow || (s->instrument->follows_exec && w->proc.pid == s->leader))
		scry_programs_unknown(s);
	else
		scry_session_unfollowed(w, "ran another program (exec) shortly before it ended, "
					   "which is not followed");
}

static void ignore(void *arg, pid_t pid)
{
	(void)arg;
	(void)pid;
}

void scry_programs_end(struct scry_session *s)
{
	const struct scry_family_take how = {.forked = ignore, .execed = ignore};
	bool is_all;

	if (s->preload)
		return;
	if (s->family)
		nanosleep(&(struct timespec){.tv_nsec = END_NS}, NULL);
	scry_family_take(s->family, &how);
	s->missed = s->family ? scry_family_missed(s->family, &s->missed_parent, &is_all)
			      : s->spawns.missed;
	if (s->family && !is_all)
		s->missed_parent = 0;
}

/* Have processes come and gone unseen, which may be those of one that ptrace did not follow? */
static bool is_unseen(const struct scry_session *s)
{
	return s->descendants.unseen && (s->opts->pids.count || s->spawns.dropped);
}

void scry_programs_note(const struct scry_session *s, struct scry_watch *any)
{
	char whose[48] = "watched processes";

	if (s->missed_parent)
		snprintf(whose, sizeof(whose), "process %d", (int)s->missed_parent);
	if (s->missed)
		scry_watch_note(any,
				"%llu program%s that %s started or became ended before scry could "
				"enter %s, and %s not recorded",
				(unsigned long long)s->missed, scry_text_s(s->missed), whose,
				s->missed == 1 ? "it" : "them", scry_text_were(s->missed));
	if (s->opts->follow && scry_family_lost(s->family)) /* they are of all the machine */
		scry_watch_lost_some(any, "programs of which the kernel's news found no room");
	if (!s->family_error || !s->opts->follow || !(s->untraced || is_unseen(s)))
		return;
	scry_watch_lost_some(any, "programs that were too short to be seen");
	scry_watch_note(any,
			"programs that ended within some milliseconds may be missing, as scry may "
			"not read the kernel's news of them (%s); fix: run scry as root",
			strerror(-s->family_error));
}
