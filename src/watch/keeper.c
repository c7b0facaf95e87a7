/*
 * The keeper: forked before anything is entered, in its own session, deaf to the terminal. It holds
 * the pidfds, the mem fds and the rings; when the front's socket closes it ends the recording and
 * undoes.
 *
 * Its turn: the lease, orders of the front, programs that start (sys/spawn), children
 * (descendants.c), then every watched process is drained, and ended when it is gone (watch.c).
 * Where a recording may have no holes, a thread keeps the lease in a long turn (hook/heartbeat).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "sys/child_news.h"
#include "sys/family.h"
#include "sys/fd.h"
#include "sys/ticks.h"
#include "watch/group.h"
#include "watch/preload.h"
#include "watch/programs.h"
#include "watch/session.h"
#include "wire/preload.h"

#define LEASE_END_NS 60000000000ull /* then they take themselves off */
#define LEASE_EVERY_NS 100000000ull
#define EXEC_EVERY_NS 10000000ull /* of a started program: a look into /proc */
#define TURN_MS 5
#define IMAGELESS_NS 500000000ull
#define WRAPPER_NS 10000000000ull /* scripts that exec another program do so sooner */
#define FOLLOW_EVERY_NS 500000ull /* not in each turn of a start, which waits for nothing */
#define KEEPER_NICE (-10)
#define OTHER_FDS 3 /* that are polled beside those of watches */

static struct {
	int fd;
	int child_fd;		 /* an eventfd: a thread that is followed has stopped */
	struct scry_ticks ticks; /* since its birth */
} keeper;

static uint64_t tsc_after(uint64_t ns)
{
	struct scry_ticks_pair now = scry_ticks_look();
	uint64_t end;

	while (!(end = scry_ticks_after(&keeper.ticks, &now, ns))) {
		nanosleep(&(struct timespec){.tv_nsec = SCRY_TICKS_LEAST_NS}, NULL);
		now = scry_ticks_look();
	}
	return end;
}

void scry_session_lease(struct scry_session *s, uint64_t ns)
{
	scry_heartbeat_beat(s->heartbeat);
	if (!s->count) /* it is not needed, and the rate of ticks need not be known yet */
		return;
	s->lease_end_tsc = tsc_after(LEASE_END_NS);
	s->lease_tsc = tsc_after(ns);
	for (size_t i = 0; i < s->count; i++)
		scry_watch_lease(s->watches[i]);
}

/* Said once, when it happens: the watch goes on, its recording does not. */
static void report_short_recording(struct scry_session *s)
{
	struct scry_writer_stats stats;
	uint64_t lost = 0;
	char text[256];

	for (uint32_t i = 0; i < s->section_count; i++) {
		scry_writer_stats(s->sections[i].writer, &stats);
		lost += stats.lost;
	}
	if (!lost || s->is_short)
		return;
	s->is_short = true;
	snprintf(text, sizeof(text),
		 "the recording ends at %llu bytes: %s; what it has is intact; the watch goes on "
		 "to its end",
		 (unsigned long long)stats.size,
		 stats.error != -EFBIG ? strerror(-stats.error)
		 : s->opts->max_size   ? "--max-size is reached"
				       : "ulimit -f is reached");
	scry_send_news(s, SCRY_NEWS_SAY, 0, text);
}

/* Orders of the front and the end of things. Returns NULL to go on, or the reason to stop. */
static const char *wait_turn(struct scry_session *s, int timeout_ms)
{
	struct pollfd fds[OTHER_FDS + 3 * SCRY_WATCHES_MAX] = {
		{.fd = s->fd, .events = POLLIN},
		{.fd = keeper.child_fd, .events = POLLIN},
		{.fd = scry_family_fd(s->family), .events = POLLIN}};
	struct scry_watch *who[OTHER_FDS + 2 * SCRY_WATCHES_MAX];
	nfds_t ends, execs;
	nfds_t n = OTHER_FDS;
	char order;
	ssize_t got;

	for (size_t i = 0; i < s->count; i++) {
		if (s->watches[i]->proc.pidfd < 0 || s->watches[i]->is_over)
			continue;
		who[n] = s->watches[i];
		fds[n++] = (struct pollfd){.fd = s->watches[i]->proc.pidfd, .events = POLLIN};
	}
	ends = n;
	for (size_t i = 0; i < s->count; i++) {
		if (s->watches[i]->execs.fd < 0 || s->watches[i]->is_over)
			continue;
		who[n] = s->watches[i];
		fds[n++] = (struct pollfd){.fd = s->watches[i]->execs.fd, .events = POLLIN};
	}
	execs = n;
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->wake_fd && !s->watches[i]->is_over)
			fds[n++] = (struct pollfd){.fd = s->watches[i]->wake_fd, .events = POLLIN};
	if (poll(fds, n, timeout_ms) < 0 && errno != EINTR)
		return "poll failed";
	if (fds[0].revents) {
		got = recv(s->fd, &order, 1, MSG_DONTWAIT);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			return "the front went away";
		if (got == 1 && order == SCRY_ORDER_STOP)
			return "interrupt";
	}
	if (fds[1].revents)
		scry_child_news_take(keeper.child_fd);
	for (nfds_t i = OTHER_FDS; i < ends; i++)
		if (fds[i].revents)
			who[i]->target_gone = true;
	for (nfds_t i = ends; i < execs; i++) {
		who[i]->may_have_execed |= fds[i].revents != 0;
		if (fds[i].revents)
			scry_execs_take(&who[i]->execs);
		if (fds[i].revents & ~POLLIN) /* the thread that was looked at has ended */
			scry_execs_close(&who[i]->execs);
	}
	return NULL;
}

/* Is it watched on when it runs another program? */
static bool goes_on(const struct scry_session *s, const struct scry_watch *w)
{
	return s->instrument->follows_exec &&
	       (s->opts->follow || (s->leader && w->proc.pid == s->leader));
}

struct change { /* of the program that a process runs */
	bool is_there;
	pid_t pid;
	int caught; /* 0: held, relocated; 1: held in its start, -errno: not held */
	struct scry_tracee *t;
	char why[96];
};

/* It runs another program: that is held before it has come far, then the old one is written. */
static void look_for_change(struct scry_session *s, struct scry_watch *w, struct change *c)
{
	struct scry_proc_stat st = {0};

	w->may_have_execed = false;
	if (!scry_watch_has_execed(w))
		return;
	if (scry_proc_stat(w->proc.pid, &st) < 0)
		st.state = 'X';
	/* Ending, or in its exec: seen soon. Of one that may not be looked at, never. */
	if (!st.image && st.state != 'Z' && st.state != 'X' &&
	    (!w->imageless_ns || scry_now_ns() < w->imageless_ns + IMAGELESS_NS)) {
		w->imageless_ns = w->imageless_ns ? w->imageless_ns : scry_now_ns();
		w->may_have_execed = true;
		return;
	}
	w->target_gone = true;
	if (st.state == 'Z' || st.state == 'X')
		return;
	*c = (struct change){.is_there = true, .pid = w->proc.pid, .caught = -ENOTSUP};
	if (scry_spawns_has(&s->spawns, c->pid))
		c->caught = 1;
	else if (goes_on(s, w))
		c->caught = scry_spawns_catch(&s->spawns, c->pid, &c->t);
	snprintf(c->why, sizeof(c->why), "the process ran another program (exec) after %llu ms%s",
		 (unsigned long long)(scry_now_ns() - w->began_ns) / 1000000,
		 c->caught >= 0 || s->opts->follow ? "" : ", which is not followed");
	scry_error_clear();
}

static void report_change(struct scry_session *s, struct scry_watch *w, const struct change *c)
{
	if (c->caught < 0 && !s->opts->follow)
		scry_session_unfollowed(w, c->why + strlen("the process "));
}

/* Relocated already when it was held: it is entered like any other running program, and late. */
static void enter_changed(struct scry_session *s, struct change *c)
{
	struct scry_watch *w = scry_watch_new(s);
	int r = w ? scry_proc_open(&w->proc, c->pid) : -ENOMEM;

	scry_spawns_let_go(&s->spawns, c->t);
	if (r == 0) {
		w->is_caught = true;
		r = scry_watch_enter(w);
	}
	if (r < 0 && w) {
		scry_watch_note(w, "process %d ran a program that is not recorded: %s", c->pid,
				scry_error());
		scry_watch_free(w);
		s->not_entered++;
		scry_programs_settled(s, c->pid, scry_now_ns());
	}
	scry_error_clear();
}

/* Of several instruments some look at a VM that may not be up yet: held, as a child that became
 * another program. */
static void enter_held(struct scry_session *s, struct change *c)
{
	s->is_catching = true;
	if (scry_session_image(s, c->t) == 0)
		scry_spawns_let_go(&s->spawns, c->t);
	s->is_catching = false;
	scry_error_clear();
}

/* Fork children that record in its child buffers, ended ones too: they use what is its. */
static bool has_child_buffers(const struct scry_session *s, const struct scry_watch *w)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->root == w)
			return true;
	return false;
}

/* Those that are gone are written, and forgotten when their child buffers are out of use. */
static int reap(struct scry_session *s, bool look_for_exec)
{
	int r = 0;

	for (size_t i = s->count; i-- > 0;) {
		struct scry_watch *w = i < s->count ? s->watches[i] : NULL;
		struct change change = {0};
		pid_t pid = w ? w->proc.pid : 0;

		if (!w) /* it was freed with the one whose process it watched */
			continue;

		/* a preloaded process itself reports that it is another program */
		if (!w->is_over && !w->target_gone && pid && !scry_preload_has(w) &&
		    (look_for_exec || w->may_have_execed || goes_on(s, w)))
			look_for_change(s, w, &change);
		if (!w->is_over && w->target_gone &&
		    (change.is_there || !scry_watch_must_wait(w))) {
			int e;

			if (change.is_there)
				report_change(s, w, &change);
			e = scry_watch_end(w, change.is_there ? change.why : SCRY_REASON_ENDED);
			r = r ? r : e;
			if (!change.is_there)
				scry_programs_look_back(s, w);
			scry_inject_unlock(w->inj);
			if (s->opts->follow && !s->preload &&
			    !(change.is_there && change.caught >= 0))
				scry_follow_exec(s, pid);
		}
		/* Its children may still be born into its pool while they live that share it. */
		if (w->is_over && w != s->preload && !w->first && !scry_group_goes_on(w) &&
		    !has_child_buffers(s, w) && !scry_follow_has_hooked_children(w)) {
			scry_session_count(s, w);
			scry_watch_free(w);
		}
		if (change.is_there && change.caught == 0 && s->section_count > 1)
			enter_held(s, &change);
		else if (change.is_there && change.caught == 0)
			enter_changed(s, &change);
	}
	return r;
}

static bool has_short_recording(const struct scry_session *s)
{
	struct scry_writer_stats stats;

	scry_writer_stats(s->writer, &stats);
	return stats.error != 0;
}

/* Is another one watched, that has nothing to do with what befell this one? */
static bool has_others(const struct scry_session *s, const struct scry_watch *w)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i] != w && !s->watches[i]->is_over && s->watches[i] != s->preload)
			return true;
	return false;
}

/* What a target is, or does, ends its own watch. The others go on. The report says why already.
 * Its process may not be known yet: it is to be left, too, once it is found. */
static void end_one(struct scry_session *s, struct scry_watch *w, const char *why)
{
	char text[512];

	if (!w->proc.pid) {
		w->ends = why;
		return;
	}
	snprintf(text, sizeof(text), "the watch of %s%sprocess %d ended before its time: %s",
		 s->section_count > 1 ? w->instrument->name : "",
		 s->section_count > 1 ? " in " : "", w->proc.pid, why);
	scry_send_news(s, SCRY_NEWS_SAY, 0, text);
	if (scry_watch_end_alone(w, why) < 0)
		scry_error_clear();
	if (!scry_group_goes_on(w))
		scry_inject_unlock(w->inj);
}

/* --until holds for all. NULL: the watch goes on. */
static const char *enough(struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct scry_watch *w = s->watches[i];

		if (!w->enough || w->is_over)
			continue;
		if (s->opts->until.quantity || !has_others(s, w))
			return w->enough;
		end_one(s, w, w->enough);
	}
	return NULL;
}

/* Any of its descendants can write in a child buffer: its words are believed no more. */
static void end_damaged(struct scry_session *s, struct scry_watch *w)
{
	static const char why[] = "its records make no sense";

	scry_watch_note(w, "the watch%s ended before its time: %s",
			w->root && !w->proc.pid ? " of a fork child" : "",
			*scry_error() ? scry_error() : why);
	scry_error_clear();
	if (w->root)
		scry_pool_burn(&scry_group_first(w)->root->pool, w->child_buffer);
	end_one(s, w, why);
}

static int drain(struct scry_session *s)
{
	int fill = 0;

	if (s->instrument->follows_exec)
		scry_spawns_drop_older(&s->spawns, scry_now_ns() - WRAPPER_NS);
	for (size_t i = 0; i < s->count; i++) {
		struct scry_watch *w = s->watches[i];
		int f = 0;

		if (w->ends && !w->is_over && w->proc.pid)
			end_one(s, w, w->ends);
		if (w->ends)
			continue;
		scry_group_turn_to(w);
		if (!w->is_over && !w->target_gone)
			scry_watch_seccomp(w);
		if (!w->is_over && !w->target_gone && w->instrument->turn)
			w->instrument->turn(w);
		if (!w->is_over)
			f = scry_watch_drain(w);

		if (f < 0 && !w->is_over && has_others(s, w) && !has_short_recording(s)) {
			end_damaged(s, w);
			continue;
		}
		if (f < 0 && !w->root && !s->opts->follow)
			return f;
		fill = f > fill ? f : fill;
	}
	return fill;
}

/* It has become another program: what it was is written. */
static void end_older(struct scry_session *s, pid_t pid)
{
	struct change change = {0};

	for (size_t i = s->count; i-- > 0;) {
		struct scry_watch *w = s->watches[i];

		if (w->proc.pid != pid || w->is_over)
			continue;
		look_for_change(s, w, &change);
		w->target_gone = true;
		scry_watch_end(w, change.is_there ? change.why : SCRY_REASON_ENDED);
		scry_inject_unlock(w->inj);
	}
}

/* Returns for how long it was held. A program that may be a wrapper is held when it execs. */
static uint64_t let_run(struct scry_session *s, struct scry_watch *w, struct scry_tracee *t)
{
	uint64_t since = t->stopped_at_ns, now = scry_now_ns();

	if (!w || !goes_on(s, w))
		return scry_spawns_let_go(&s->spawns, t);
	scry_spawns_keep(&s->spawns, t);
	return since ? now - since : 0;
}

/* With autogroup a nice value counts within a session only: a keeper, alone in its own, waited for
 * seconds. Doctor runs in the user's session, whose weight is not ours to change. */
void scry_watch_hurry(void)
{
	FILE *f = getsid(0) == getpid() ? fopen("/proc/self/autogroup", "we") : NULL;

	setpriority(PRIO_PROCESS, 0, KEEPER_NICE);
	if (!f)
		return;
	fprintf(f, "%d", KEEPER_NICE);
	fclose(f);
}

int scry_session_image(struct scry_session *s, struct scry_tracee *t)
{
	const pid_t pid = t->pid;
	bool is_wanted, is_late = scry_spawn_is_late(t);
	struct scry_maps maps = {0};
	struct scry_watch *w;
	uint64_t held;
	int r;

	if (s->instrument->wants) {
		is_wanted = scry_maps_read(pid, &maps) == 0 && s->instrument->wants(pid, &maps);
		scry_maps_done(&maps);
		if (!is_wanted)
			return 0;
	}
	end_older(s, pid);
	w = scry_watch_new(s);
	r = w ? scry_proc_open(&w->proc, pid) : -ENOMEM;
	if (is_late)
		scry_spawns_let_go(&s->spawns, t);
	if (r == 0) {
		w->held = is_late ? NULL : t;
		w->is_caught = is_late || s->is_catching;
		r = scry_watch_enter(w);
		w->held = NULL;
		scry_session_lease(s, SCRY_LEASE_NS); /* entering may have taken longer */
	}
	held = is_late ? 0 : let_run(s, r < 0 && !s->entered ? NULL : w, t);
	if (r < 0 && w) {
		if (s->entered && s->instrument->follows_exec)
			scry_watch_note(w, "it ran a program that is not recorded: %s",
					scry_error());
		scry_watch_free(w);
		s->not_entered++;
		scry_programs_settled(s, pid, scry_now_ns());
	}
	for (size_t i = 0; r == 0 && scry_group_at(w, i); i++)
		scry_group_at(w, i)->start_ns = held; /* a wait before it began, no cost */
	return r < 0 ? r : 1;
}

/* Programs that are being started. -errno: the one that was to be watched cannot be. */
static int start_turn(struct scry_session *s)
{
	struct scry_tracee *t;
	int r = 0;

	while (r == 0 && (t = scry_spawns_step(&s->spawns))) {
		r = scry_session_image(s, t);
		if (r == 0)
			scry_spawns_go_on(&s->spawns, t);
		else if (r < 0 && s->entered && s->instrument->follows_exec)
			r = 0; /* said; what was recorded until then is kept */
		else if (r > 0 && s->entered == 1)
			scry_send_news(s, SCRY_NEWS_ENTERED, 0, "");
		if (r > 0 || s->opts->follow) /* a failure is counted, others may follow */
			r = 0;
	}
	return r;
}

/* Is there anything left to watch, or to wait for? */
static bool remains(const struct scry_session *s)
{
	if (s->spawns.count)
		return true;
	if (s->preload)
		return scry_preload_remains(s);
	return s->count || (s->opts->follow &&
			    (scry_follow_expects(s) ||
			     (s->leader && scry_proc_is_running(s->leader, s->leader_start))));
}

static int turn_ms(const struct scry_session *s, int fill)
{
	if (fill > 100)
		return 0;
	return fill > 20 || s->spawns.count || s->preload || scry_follow_is_busy(s) ? 1 : TURN_MS;
}

/* Until the reason to stop. */
static int run(struct scry_session *s, const char **ret_why)
{
	uint64_t end = s->opts->duration_ns ? s->began_ns + s->opts->duration_ns : UINT64_MAX;
	uint64_t next_lease = 0, next_follow = 0, next_exec = 0;
	const char *why = NULL;
	int fill = 0, r = 0, e;

	while (!why && r == 0) {
		uint64_t now = scry_now_ns();
		bool is_lease = now >= next_lease;

		if (is_lease) {
			next_lease = now + LEASE_EVERY_NS;
			scry_session_lease(s, SCRY_LEASE_NS);
			for (uint32_t i = 0; i < s->section_count; i++)
				scry_writer_flush(s->sections[i].writer);
			report_short_recording(s);
		}
		why = now >= end && s->entered ? "duration" : wait_turn(s, turn_ms(s, fill));
		scry_tracee_poll_lingering();
		scry_programs_turn(s);
		r = start_turn(s);
		if (s->preload) {
			scry_preload_turn(s);
		} else if (s->opts->follow && now >= next_follow) {
			scry_follow_turn(s);
			next_follow = scry_now_ns() + FOLLOW_EVERY_NS;
		}
		fill = drain(s);
		/* A wrapper execs soon after its start, and what it runs may be short. */
		e = reap(s, is_lease || s->opts->follow || (s->leader && now >= next_exec));
		next_exec = now >= next_exec ? now + EXEC_EVERY_NS : next_exec;
		r = r ? r : e;
		if (!why && fill < 0)
			why = "the ring is damaged";
		if (!why)
			why = enough(s);
		if (!why && !remains(s))
			why = SCRY_REASON_ENDED;
		if (end == UINT64_MAX || s->opts->pids.count || !s->entered)
			continue;
		if (!s->began_ns) { /* a started program is watched from its entry on */
			s->began_ns = scry_now_ns(); /* learning it took its time, too */
			end = s->began_ns + s->opts->duration_ns;
		}
	}
	*ret_why = why ? why : "entering failed";
	return r;
}

static bool is_in(const struct scry_watch *w)
{
	return !w->is_over && !w->target_gone && w->proc.pid;
}

/* What is to be said of all, in each section. */
static int close_section(struct scry_session *s, uint32_t i, bool is_well)
{
	const struct scry_section *section = &s->sections[i];
	struct scry_watch speaker = {.session = s,
				     .writer = section->writer,
				     .opts = &section->opts,
				     .instrument = section->instrument};

	speaker.inj = &speaker.own;
	scry_session_notes(s, &speaker);
	if (s->entered && !section->own && !section->others_count && section->instrument->unseen)
		scry_watch_note(&speaker, "%s", section->instrument->unseen);
	return is_well && s->entered && section->instrument->close
		       ? section->instrument->close(&speaker)
		       : 0;
}

/* Every process is left, whatever happened; children first, they use their root's pool. */
static int leave_all(struct scry_session *s, const char *why)
{
	int r = 0, e;

	if (s->preload)
		scry_pool_follow(&s->preload->pool, 0);
	if (s->preload)
		scry_preload_turn(s);
	else if (s->opts->follow)
		scry_follow_end(s);
	for (size_t i = 0; i < s->count; i++)
		if (is_in(s->watches[i]))
			scry_watch_conclude(s->watches[i]);
	scry_spawns_done(&s->spawns);	      /* else those that are followed could not be held */
	for (size_t i = 0; i < s->count; i++) /* all at once, before one is waited for */
		if (is_in(s->watches[i]))
			scry_inject_want(s->watches[i]->inj, 0);
	for (int roots = 0; roots < 2; roots++)
		for (size_t i = s->count; i-- > 0;) {
			struct scry_watch *w = s->watches[i];

			if (w->is_over || (w->root ? 0 : 1) != roots)
				continue;
			e = scry_watch_end(w, why);
			r = r ? r : e;
			if (w->target_gone)
				scry_programs_look_back(s, w);
		}
	if (s->opts->follow && !s->preload)
		scry_follow_leave_hooked_children(s);
	for (int roots = 0; roots < 2; roots++)
		for (size_t i = s->count; i-- > 0;) {
			struct scry_watch *w = i < s->count ? s->watches[i] : NULL;

			if (!w || w->first || (w->root ? 0 : 1) != roots)
				continue;
			scry_session_count(s, w);
			scry_watch_free(w);
		}
	scry_programs_end(s);
	scry_spawns_done(&s->spawns);
	e = scry_session_end(s);
	r = r ? r : e;
	for (uint32_t i = 0; i < s->section_count; i++) {
		e = close_section(s, i, r == 0);
		r = r ? r : e;
	}
	return r;
}

/* No process may be entered here, or none is to be. */
static int preload(struct scry_session *s, pid_t child)
{
	char text[1100];
	int r;

	if (s->opts->preload)
		return scry_preload_start(s, child);
	snprintf(text, sizeof(text), "%s; what records is preloaded instead, as by --preload",
		 scry_error());
	r = scry_preload_check(s->opts->command);
	if (r < 0)
		return r;
	scry_send_news(s, SCRY_NEWS_SAY, 0, text);
	scry_error_clear();
	return scry_preload_start(s, child);
}

static int start(struct scry_session *s, pid_t child)
{
	int r;

	s->spawns.follows = s->opts->follow;
	s->leader = child;
	s->leader_start = scry_proc_start_ticks(child);
	r = s->opts->preload ? -EPERM : scry_spawns_add(&s->spawns, child);
	if (r == 0)
		scry_send_news(s, SCRY_NEWS_GO, 0, "");
	else if ((r == -EPERM || r == -EACCES) && s->instrument->preloads)
		r = preload(s, child);
	return r;
}

/* -p: each of them. One that cannot be entered is reported; none: that is the failure. */
static int enter_all(struct scry_session *s)
{
	const struct scry_opt_list *pids = &s->opts->pids;
	int r = 0;

	scry_session_lease(s, SCRY_LEASE_NS);
	for (size_t i = 0; i < pids->count; i++) {
		struct scry_watch *w = scry_watch_new(s);
		int e = w ? scry_proc_open(&w->proc, (pid_t)pids->values[i]) : -ENOMEM;

		if (e == 0)
			e = scry_watch_enter(w);
		if (e == 0)
			continue;
		if (w && pids->count > 1) {
			scry_watch_note(w, "%s", scry_error());
			scry_send_news(s, SCRY_NEWS_SAY, 0, scry_error());
			scry_send_news(s, SCRY_NEWS_LACKS, e, "");
		}
		if (w)
			scry_watch_free(w);
		r = e;
	}
	if (s->entered)
		scry_send_news(s, SCRY_NEWS_ENTERED, 0, "");
	return s->entered ? 0 : r;
}

/* The front says which process to start with: 0 for -p. */
static pid_t read_child(void)
{
	int32_t pid = 0;

	return recv(keeper.fd, &pid, sizeof(pid), MSG_WAITALL) == sizeof(pid) ? pid : -1;
}

static void become_keeper(int fd)
{
	static const int deaf[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE,
				   SIGTSTP, SIGTTOU, SIGTTIN, SIGXFSZ};
	const struct scry_ticks_pair birth = scry_ticks_look();

	setsid();
	for (size_t i = 0; i < sizeof(deaf) / sizeof(deaf[0]); i++)
		signal(deaf[i], SIG_IGN);
	keeper.child_fd = scry_child_news_open();
	scry_fd_raise_limit(); /* four a process */
	prctl(PR_SET_NAME, SCRY_PRELOAD_KEEPER);
	openlog("scry", LOG_PID, LOG_DAEMON);
	keeper.fd = fd;
	scry_ticks_mark(&keeper.ticks, &birth);
}

static int not_entered(const struct scry_session *s, const char *why)
{
	if (strcmp(why, SCRY_REASON_ENDED))
		return scry_fail(-EINTR, "stopped before the program was entered: %s", why);
	return scry_fail(-ENOENT, "%s",
			 s->instrument->unseen ? s->instrument->unseen
					       : "the program ended before it could be entered");
}

static int keep(struct scry_session *s, pid_t child)
{
	const char *why = "entering failed";
	int r, e;

	scry_group_begin(s);
	scry_programs_open(s, child);
	scry_session_lease(s, SCRY_LEASE_NS);
	r = child > 0 ? start(s, child) : enter_all(s);
	if (child <= 0)
		s->began_ns = scry_now_ns();
	if (r == 0)
		r = run(s, &why);
	if (r == 0 && !s->entered && s->preload)
		r = scry_fail(-ENOENT,
			      "nothing was recorded: in no program that ran there was what was "
			      "preloaded; is it static, or did it gain rights?");
	else if (r == 0 && !s->entered && child > 0)
		r = *scry_error() ? -EIO : not_entered(s, why);
	e = leave_all(s, why);
	return r ? r : e;
}

void scry_keeper_run(const struct scry_watch_opts *opts, const struct scry_instrument *instrument,
		     int fd, int rec_fd)
{
	static struct scry_session s;
	pid_t child;
	int r;

	become_keeper(fd);
	s.opts = opts;
	s.instrument = instrument;
	s.fd = fd;
	scry_follow_begin(&s);
	s.rec_fd = rec_fd;
	child = read_child();
	r = child < 0 ? -EINTR : scry_writer_open(rec_fd, opts->max_size, &s.writer);
	if (r == 0)
		r = scry_group_open(&s);
	if (r == 0 && s.instrument->waits)
		r = scry_heartbeat_new(SCRY_PATIENCE_NS, &s.heartbeat);
	if (r == 0)
		r = keep(&s, child);
	scry_heartbeat_free(s.heartbeat);
	scry_programs_close(&s);
	if (r < 0)
		scry_send_news(&s, SCRY_NEWS_FAILED, r,
			       *scry_error() ? scry_error() : strerror(-r));
	if (s.writer) {
		report_short_recording(&s);
		scry_group_close(&s);
		if (scry_writer_close(s.writer) < 0) {
			s.is_short = true;
			scry_send_news(&s, SCRY_NEWS_SAY, 0, scry_error());
		}
	}
	if (r == 0 && s.is_short && !opts->max_size)
		scry_send_news(&s, SCRY_NEWS_SHORT, 0, "");
	if (r == 0 && s.gone && !s.left)
		scry_send_news(&s, SCRY_NEWS_GONE, 0, "");
	if (r == 0)
		scry_send_news(&s, SCRY_NEWS_DONE, 0, "");
	_exit(r < 0 ? 1 : 0);
}
