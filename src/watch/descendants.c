/*
 * Children. Two ways lead to one.
 *
 * A fork child that makes an object takes a lane by itself (wire/lanes.h); we see the lane taken,
 * read it from then on, and look for whose it is. It may be gone before it is found: then nobody in
 * /proc says that the lane is his, and what was read is counted without a name.
 *
 * Whatever appears below a watched process and has no lane is a *candidate*: it may exec a Ruby. It
 * is polled; the first image that is a Ruby is entered, before its VM is up if it was seen in time.
 * New processes are found by their numbers, which the kernel gives in one row.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "watch/session.h"

#define SCAN_NS 20000000ull /* between two looks at all processes, at least */
#define NEW_MAX 4096	    /* numbers looked at one by one; more: all of /proc */
#define YOUNG_NS 300000000ull
#define POLL_NS 20000000ull /* between two looks at a candidate that is settled */
#define HEIR_YOUNG_MS 1000  /* in that time numbers of processes do not come round */

/* ---- lanes ---- */

static void take_up_lane(struct scry_watch *root, uint32_t lane)
{
	struct scry_watch *w = scry_watch_new(root->session);

	if (!w) { /* its words wait in the ring until there is room */
		scry_error_clear();
		return;
	}
	w->root = root;
	w->lane = lane;
	w->watch = root->watch;
	w->inj.control = scry_pool_control(&root->pool, lane);
	w->inj.ring = (uint64_t *)w->inj.control + SCRY_PAGE / 8;
	w->inj.is_borrowed = true;
	w->began_ns = scry_now_ns();
	if (root->instrument->adopt(w) < 0) {
		scry_error_clear();
		scry_watch_free(w);
		return;
	}
	root->in_lane[lane] = w;
	root->lanes_taken++;
	root->session->entered++;
}

void scry_follow_lanes(struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct scry_watch *root = s->watches[i];

		for (uint32_t lane = 0; root->pool.head && lane < SCRY_LANES; lane++)
			if (!root->in_lane[lane] && scry_pool_is_taken(&root->pool, lane))
				take_up_lane(root, lane);
	}
}

static bool is_stray(const struct scry_watch *w)
{
	return w->root && !w->proc.pid && !w->is_over;
}

static size_t count_strays(const struct scry_session *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->count; i++)
		n += is_stray(s->watches[i]);
	return n;
}

static void forget_candidate(struct scry_session *s, pid_t pid)
{
	for (size_t i = 0; i < s->candidate_count; i++)
		if (s->candidates[i].pid == pid)
			s->candidates[i] = s->candidates[--s->candidate_count];
}

/* A vfork child shows its parent's memory: then the parent is meant. */
static pid_t owner_of(const struct scry_pool *pool, pid_t pid, uint32_t owned)
{
	struct scry_proc_stat st;
	struct scry_claim claim;

	for (int i = 0; i < 8 && scry_proc_stat(pid, &st) == 0; i++) {
		if (scry_pool_ask(pool, st.ppid, &claim) < 0 || claim.owned != owned)
			break;
		pid = st.ppid;
	}
	return pid;
}

/* The stray `w` is process `pid`. When that fails it stays a stray, until it is gone or found. */
static void identify(struct scry_watch *w, pid_t pid)
{
	struct scry_session *s = w->session;
	struct scry_control *c = w->inj.control;
	uint64_t *ring = w->inj.ring;
	struct scry_claim claim;
	int r;

	pid = owner_of(&w->root->pool, pid, w->lane + 1);
	r = scry_proc_open(&w->proc, pid);
	/* now that it is pinned: is it still the one that was asked? */
	if (r == 0 &&
	    (scry_pool_ask(&w->root->pool, pid, &claim) < 0 || claim.owned != w->lane + 1))
		r = -ESRCH;
	if (r == 0)
		r = scry_inject_lock(&w->inj, &w->proc);
	if (r == 0)
		r = scry_inject_follow(&w->inj, &w->root->inj, (uint64_t *)c);
	if (r < 0) {
		scry_inject_done(&w->inj);
		scry_proc_close(&w->proc);
		w->proc.pid = 0;
		w->inj.control = c;
		w->inj.ring = ring;
		w->inj.is_borrowed = true;
		scry_error_clear();
		return;
	}
	forget_candidate(s, pid);
	w->instrument->identified(w);
	scry_watch_introduce(w);
	scry_error_clear();
}

/* What `pid` says to each family with a stray. Bits of the lanes that it has, or tries to get. */
static void ask(struct scry_session *s, pid_t pid)
{
	for (size_t i = 0; i < s->count; i++) {
		struct scry_watch *root = s->watches[i], *w;
		struct scry_claim claim;
		int r = -ENOENT;

		if (root->pool.head && root->lanes_taken)
			r = scry_pool_ask(&root->pool, pid, &claim);
		if (r == -EAGAIN)
			s->is_blind = true;
		if (r < 0)
			continue;
		if (claim.trying && claim.trying <= SCRY_LANES)
			root->lanes_seen |= 1ull << (claim.trying - 1);
		if (!claim.owned || claim.owned > SCRY_LANES)
			return;
		root->lanes_seen |= 1ull << (claim.owned - 1);
		w = root->in_lane[claim.owned - 1];
		if (w && is_stray(w))
			identify(w, pid);
		return;
	}
}

static void each_process(struct scry_session *s, void (*what)(struct scry_session *, pid_t))
{
	DIR *dir = opendir("/proc");
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			what(s, (pid_t)atoi(d->d_name));
	if (dir)
		closedir(dir);
}

/*
 * Asks every process. A lane that was taken before we began and that nobody has, or tries to get,
 * is a dead one's: who lives through the whole look is seen in it.
 */
static void scan(struct scry_session *s)
{
	uint64_t began = scry_now_ns(), took;

	for (size_t i = 0; i < s->count; i++) {
		s->watches[i]->lanes_seen = 0;
		s->watches[i]->is_sought = is_stray(s->watches[i]);
	}
	s->is_blind = false;
	each_process(s, ask);
	for (size_t i = s->is_blind ? 0 : s->count; i-- > 0;) {
		struct scry_watch *w = s->watches[i];

		if (!w->is_sought || !is_stray(w) || w->root->lanes_seen >> w->lane & 1 ||
		    scry_watch_must_wait(w))
			continue;
		w->target_gone = true;
		scry_watch_end(w, "the process ended");
	}
	took = scry_now_ns() - began;
	s->scan_ns = scry_now_ns() + (10 * took > SCAN_NS ? 10 * took : SCAN_NS);
}

static struct scry_watch *heirs_of; /* for each_process */
static size_t heirs;
static pid_t heirs_after; /* their numbers are greater */

/* Numbers are given in one row, so those of its children are greater, unless they came round since
 * it began, a moment ago. 0: they may have. */
static pid_t heirs_first(const struct scry_watch *w)
{
	struct timespec t;
	uint64_t now, start = w->proc.start_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);

	if (w->proc.pid <= 0 || clock_gettime(CLOCK_BOOTTIME, &t))
		return 0;
	now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	return now < start + HEIR_YOUNG_MS && scry_proc_newest() >= w->proc.pid ? w->proc.pid : 0;
}

static void count_heir(struct scry_session *s, pid_t pid)
{
	struct scry_claim claim;

	(void)s;
	if (!heirs && pid > heirs_after)
		heirs = scry_pool_ask(&heirs_of->pool, pid, &claim) != -ENOENT;
}

bool scry_follow_has_heirs(struct scry_watch *w)
{
	uint64_t began = scry_now_ns();

	if (!w->pool.head)
		return false;
	if (began < w->heirs_ns)
		return true;
	heirs_of = w;
	heirs = 0;
	heirs_after = heirs_first(w);
	each_process(w->session, count_heir);
	w->heirs_ns = began + 20 * (scry_now_ns() - began) + SCAN_NS;
	/* After that: who is gone by now may have left words in a lane that we have not seen yet.
	 */
	for (uint32_t lane = 0; lane < SCRY_LANES && !heirs; lane++)
		heirs = scry_pool_is_taken(&w->pool, lane);
	return heirs;
}

static bool is_crowded(const struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->lanes_taken > SCRY_LANES / 2)
			return true;
	return false;
}

static void find_owners(struct scry_session *s)
{
	if (!count_strays(s))
		return;
	for (size_t i = s->candidate_count; i-- > 0;)
		if (i < s->candidate_count)
			ask(s, s->candidates[i].pid);
	if (count_strays(s) && (scry_now_ns() >= s->scan_ns || is_crowded(s)))
		scan(s);
}

/* ---- candidates ---- */

static bool is_watched(const struct scry_session *s, pid_t pid)
{
	if (pid <= 0)
		return false;
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->proc.pid == pid && !s->watches[i]->is_over)
			return true;
	return false;
}

static bool is_suspect(const struct scry_session *s, pid_t pid)
{
	for (size_t i = 0; i < s->candidate_count; i++)
		if (s->candidates[i].pid == pid)
			return true;
	return false;
}

static void add_suspect(struct scry_session *s, pid_t pid, const struct scry_proc_stat *st)
{
	struct scry_candidate *more;

	if (is_suspect(s, pid) || s->candidate_count == SCRY_CANDIDATES_MAX)
		return;
	more = reallocarray(s->candidates, s->candidate_count + 1, sizeof(*more));
	if (!more)
		return;
	s->candidates = more;
	s->candidates[s->candidate_count++] = (struct scry_candidate){
		.pid = pid,
		.start_ticks = st->start_ticks,
		.image = st->image,
		.since_ns = s->last_pid ? scry_now_ns() : 0, /* 0: it was there before us */
		.is_followed =
			scry_spawns_has(&s->spawns, pid) || scry_spawns_has(&s->spawns, st->ppid),
	};
}

/* Is the process that has this number now one of ours? Numbers are given out again. */
static bool is_ours(const struct scry_session *s, pid_t pid)
{
	if (pid <=
	    0) /* the number of a lane whose process was not found yet, and of init's parent */
		return false;
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->proc.pid == pid && !s->watches[i]->is_over)
			return scry_proc_is_alive(&s->watches[i]->proc);
	for (size_t i = 0; i < s->candidate_count; i++)
		if (s->candidates[i].pid == pid)
			return scry_proc_start_ticks(pid) == s->candidates[i].start_ticks;
	return false;
}

static bool is_process(pid_t pid)
{
	struct scry_proc p;
	int r = scry_proc_open(&p, pid);

	if (r == 0)
		scry_proc_close(&p);
	scry_error_clear();
	return r == 0; /* and no thread */
}

static void look_at_new(struct scry_session *s, pid_t pid)
{
	struct scry_proc_stat st;

	if (scry_proc_stat(pid, &st) < 0 || st.state == 'Z' || st.state == 'X' ||
	    is_watched(s, pid) || is_suspect(s, pid) || !is_ours(s, st.ppid) || !is_process(pid))
		return;
	add_suspect(s, pid, &st);
}

static void find_new(struct scry_session *s)
{
	pid_t newest = scry_proc_newest(), last = (pid_t)s->last_pid;
	size_t known = 0;

	if (newest == last)
		return;
	while (!last && known < s->candidate_count + 1) { /* those that are there, and theirs */
		known = s->candidate_count + 1;
		each_process(s, look_at_new);
	}
	s->last_pid = (uint64_t)newest;
	if (!last)
		return;
	if (newest < last || newest - last > NEW_MAX) {
		each_process(s, look_at_new);
		return;
	}
	for (pid_t pid = last + 1; pid <= newest; pid++)
		look_at_new(s, pid);
}

static bool is_family(const struct scry_session *s, pid_t pid)
{
	struct scry_claim claim;

	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->pool.head &&
		    scry_pool_ask(&s->watches[i]->pool, pid, &claim) == 0)
			return true;
	return false;
}

static bool has_libc(const struct scry_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (strstr(maps->entries[i].path, "/libc.so.") ||
		    strstr(maps->entries[i].path, "/libc-2."))
			return true;
	return false;
}

/* Which is known when glibc is there: the loader maps what a program needs besides before. */
static bool is_wanted(const struct scry_session *s, struct scry_candidate *p)
{
	struct scry_maps maps;
	bool r;

	if (scry_maps_read(p->pid, &maps) < 0)
		return false;
	r = !s->instrument->wants || s->instrument->wants(p->pid, &maps);
	p->is_known |= r || has_libc(&maps);
	scry_maps_done(&maps);
	return r;
}

/* A child that was there before the watch is entered as its parent was. */
static bool enter_live(struct scry_session *s, const struct scry_candidate *p)
{
	struct scry_watch *w = scry_watch_new(s);
	int r = w ? scry_proc_open(&w->proc, p->pid) : -ENOMEM;

	if (r == 0 && w->proc.start_ticks != p->start_ticks)
		r = -ESRCH;
	if (r == 0)
		r = scry_watch_enter(w);
	if (r < 0 && w)
		scry_watch_free(w);
	s->not_entered += r < 0 && r != -ESRCH;
	scry_error_clear();
	return true;
}

/*
 * An image that is wanted, held until it is entered. What lies before its boot is followed to
 * the right moment. Later it is entered where it stands: then either the boot slot leads to the
 * agent, or the VM is up and the instrument finds another way. False: not now.
 */
static bool enter_image(struct scry_session *s, const struct scry_candidate *p)
{
	struct scry_tracee *t;
	int r;

	if (!p->since_ns)
		return enter_live(s, p);
	if (scry_proc_start_ticks(p->pid) != p->start_ticks)
		return true; /* gone */
	r = scry_spawns_catch(&s->spawns, p->pid, &t);
	if (r == 0) {
		s->is_catching = true;
		scry_session_image(s, t);
		s->is_catching = false;
	} /* 1: its image will come */
	scry_error_clear();
	return r != -EAGAIN;
}

/* What is it now? */
static void look(struct scry_session *s, size_t i, uint64_t now)
{
	struct scry_candidate *p = &s->candidates[i];
	pid_t pid = p->pid;

	if (is_family(s, pid)) { /* forked, or about to exec: its image tells */
		p->look_ns = UINT64_MAX;
		p->is_known = true;
	} else if (!is_wanted(s, p)) {
		p->look_ns = now < p->since_ns + YOUNG_NS ? now : UINT64_MAX;
	} else if (!enter_image(s, p)) {
		p->look_ns = now;
	} else {
		p->look_ns = UINT64_MAX;
		if (is_watched(s, pid))
			forget_candidate(s, pid);
	}
	scry_error_clear();
}

/* Still the same image? False: gone. */
static bool is_there(struct scry_session *s, size_t i, uint64_t now)
{
	struct scry_candidate *p = &s->candidates[i];
	struct scry_proc_stat st;

	p->is_followed |= scry_spawns_has(&s->spawns, p->pid);
	if (now < p->poll_ns)
		return true;
	if (scry_proc_stat(p->pid, &st) < 0 || st.start_ticks != p->start_ticks ||
	    st.state == 'Z' || st.state == 'X' || is_watched(s, p->pid))
		return false;
	if (st.image != p->image) {
		p->image = st.image;
		p->is_known = false;
		p->since_ns = now;
		p->look_ns = 0;
	}
	p->poll_ns = now < p->since_ns + 4 * YOUNG_NS ? 0 : now + POLL_NS;
	return true;
}

static void look_at_suspects(struct scry_session *s)
{
	uint64_t now = scry_now_ns();

	for (size_t i = s->candidate_count; i-- > 0;) {
		if (i >= s->candidate_count)
			continue;
		if (!is_there(s, i, now)) {
			s->unknown += !s->candidates[i].is_known && !s->candidates[i].is_followed &&
				      !is_watched(s, s->candidates[i].pid);
			s->candidates[i] = s->candidates[--s->candidate_count];
		} else if (now >= s->candidates[i].look_ns)
			look(s, i, now);
	}
}

void scry_follow_exec(struct scry_session *s, pid_t pid)
{
	struct scry_proc_stat st;

	if (scry_proc_stat(pid, &st) == 0 && st.state != 'Z' && st.state != 'X')
		add_suspect(s, pid, &st);
}

bool scry_follow_expects(const struct scry_session *s)
{
	uint64_t now = scry_now_ns();

	for (size_t i = 0; i < s->candidate_count; i++)
		if (now < s->candidates[i].since_ns + 4 * YOUNG_NS)
			return true;
	return false;
}

bool scry_follow_is_busy(const struct scry_session *s)
{
	return count_strays(s) != 0;
}

void scry_follow_turn(struct scry_session *s)
{
	find_new(s);
	scry_follow_lanes(s);
	find_owners(s);
	look_at_suspects(s);
}

void scry_follow_end(struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->pool.head)
			scry_pool_follow(&s->watches[i]->pool, 0);
	scry_follow_lanes(s);
	if (count_strays(s))
		scan(s);
}

/* A fork child that made no object: it holds our memory and perhaps a hook, and is left as if it
 * had been watched. What cannot be taken out now has no effect; scry undo -f takes it out later. */
static void leave_heir(struct scry_session *s, pid_t pid)
{
	struct scry_watch *root = NULL, *w;
	struct scry_undo_report undo;
	uint64_t left;
	int r;

	for (size_t i = 0; i < s->count && !root; i++)
		if (s->watches[i]->pool.head && scry_pool_is_heir(&s->watches[i]->pool, pid))
			root = s->watches[i];
	w = root && !is_watched(s, pid) ? scry_watch_new(s) : NULL;
	if (!w)
		return;
	w->root = root;
	w->watch = UINT32_MAX; /* none that is on */
	r = scry_proc_open(&w->proc, pid);
	if (r == 0)
		r = scry_inject_lock(&w->inj, &w->proc);
	if (r == 0)
		r = scry_inject_check(&w->proc);
	w->inj.max_pause_ns = s->opts->max_pause_ns;
	w->inj.purpose = s->instrument->name;
	w->inj.only_adopt = true;
	if (r == 0)
		r = scry_inject_enter(&w->inj, 0, NULL);
	if (r == 0)
		r = s->instrument->adopt(w);
	if (r == 0) {
		s->instrument->identified(w);
		s->instrument->leave(w);
		scry_inject_leave(&w->inj, &undo, &left);
	}
	scry_watch_free(w);
	scry_error_clear();
}

void scry_follow_leave_heirs(struct scry_session *s)
{
	each_process(s, leave_heir);
}
