/*
 * Children. Two ways lead to one.
 *
 * A fork child that makes an object takes a child buffer by itself (wire/child_buffers.h); we see
 * the child buffer taken, read it from then on, and look for whose it is. It may be gone before it
 * is found: then no process in /proc says that the child buffer is its own, and what was read is
 * counted without a name.
 *
 * Whatever appears below a watched process and has no child buffer is a *candidate*: it may exec a
 * Ruby. It is polled (sys/descendant_table); the first image that is a Ruby is entered, before its
 * VM is up if it was seen in time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "hook/enter_check.h"
#include "sys/family.h"
#include "watch/group.h"
#include "watch/programs.h"

#define SCAN_NS 20000000ull /* between two looks at all processes, at least */
#define YOUNG_NS 300000000ull
#define EXPECTED_NS 1200000000ull /* so long it may still become what is wanted */
#define CHILD_YOUNG_MS 1000	  /* in that time numbers of processes do not come round */

struct candidate {	  /* a relative's own */
	bool is_known;	  /* what this image is */
	bool is_followed; /* by its system calls: an exec would have been seen */
};

/* ---- child buffers ---- */

static void take_up_child_buffer(struct scry_watch *root, uint32_t child_buffer)
{
	struct scry_watch *w = scry_watch_new(root->session);

	if (!w) { /* its words wait in the ring until there is room */
		scry_error_clear();
		return;
	}
	w->root = root;
	w->child_buffer = child_buffer;
	w->watch = root->watch;
	w->inj->control = scry_pool_control(&root->pool, child_buffer);
	w->inj->ring = (uint64_t *)w->inj->control + SCRY_SHARED_HEAD / 8;
	w->inj->is_borrowed = true;
	w->began_ns = scry_now_ns();
	if (scry_group_adopt(w) < 0) {
		scry_error_clear();
		scry_watch_free(w);
		return;
	}
	root->in_child_buffer[child_buffer] = w;
	root->child_buffers_taken++;
	root->session->entered++;
}

void scry_follow_child_buffers(struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct scry_watch *root = s->watches[i];

		for (uint32_t child_buffer = 0;
		     root->pool.head && child_buffer < SCRY_CHILD_BUFFERS; child_buffer++)
			if (!root->in_child_buffer[child_buffer] &&
			    scry_pool_is_taken(&root->pool, child_buffer))
				take_up_child_buffer(root, child_buffer);
	}
}

static bool is_unidentified(const struct scry_watch *w)
{
	return w->root && !w->first && !w->proc.pid && !w->is_over;
}

static size_t count_unidentified(const struct scry_session *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->count; i++)
		n += is_unidentified(s->watches[i]);
	return n;
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

/* The unidentified process `w` is process `pid`. When that fails it stays an unidentified process,
 * until it is gone or found. */
static void identify(struct scry_watch *w, pid_t pid)
{
	struct scry_session *s = w->session;
	struct scry_control *c = w->inj->control;
	struct scry_watch *one;
	uint64_t *ring = w->inj->ring;
	struct scry_claim claim;
	int r;

	pid = owner_of(&w->root->pool, pid, w->child_buffer + 1);
	r = scry_proc_open(&w->proc, pid);
	/* now that it is pinned: is it still the one that was asked? */
	if (r == 0 &&
	    (scry_pool_ask(&w->root->pool, pid, &claim) < 0 || claim.owned != w->child_buffer + 1))
		r = -ESRCH;
	if (r == 0)
		r = scry_inject_lock(w->inj, &w->proc);
	if (r == 0)
		r = scry_inject_follow(w->inj, w->root->inj, (uint64_t *)c);
	if (r < 0) {
		scry_inject_done(w->inj);
		scry_proc_close(&w->proc);
		w->proc.pid = 0;
		w->inj->control = c;
		w->inj->ring = ring;
		w->inj->is_borrowed = true;
		scry_error_clear();
		return;
	}
	scry_descendant_table_forget(&s->descendants, pid);
	scry_group_identified(w);
	for (size_t i = 0; (one = scry_group_at(w, i)); i++)
		scry_watch_introduce(one);
	scry_error_clear();
}

/* What `pid` says to each watch with an unidentified process. Bits of the child buffers that it
 * has, or tries to get. */
static void ask(void *arg, pid_t pid)
{
	struct scry_session *s = arg;

	for (size_t i = 0; i < s->count; i++) {
		struct scry_watch *root = s->watches[i], *w;
		struct scry_claim claim;
		int r = -ENOENT;

		if (root->pool.head && root->child_buffers_taken)
			r = scry_pool_ask(&root->pool, pid, &claim);
		if (r == -EAGAIN)
			s->is_blind = true;
		if (r < 0)
			continue;
		if (claim.trying && claim.trying <= SCRY_CHILD_BUFFERS)
			root->child_buffers_seen |= 1ull << (claim.trying - 1);
		if (!claim.owned || claim.owned > SCRY_CHILD_BUFFERS)
			return;
		root->child_buffers_seen |= 1ull << (claim.owned - 1);
		w = root->in_child_buffer[claim.owned - 1];
		if (w && is_unidentified(w))
			identify(w, pid);
		return;
	}
}

/*
 * Asks every process. A child buffer that was taken before we began and that no process has, or
 * tries to get, is a dead one's: a process that lives through the whole look is seen in it.
 */
static void scan(struct scry_session *s)
{
	uint64_t began = scry_now_ns(), took;

	for (size_t i = 0; i < s->count; i++) {
		s->watches[i]->child_buffers_seen = 0;
		s->watches[i]->is_sought = is_unidentified(s->watches[i]);
	}
	s->is_blind = false;
	scry_descendant_table_each_process(ask, s);
	for (size_t i = s->is_blind ? 0 : s->count; i-- > 0;) {
		struct scry_watch *w = s->watches[i];

		if (!w->is_sought || !is_unidentified(w) ||
		    w->root->child_buffers_seen >> w->child_buffer & 1 || scry_watch_must_wait(w))
			continue;
		w->target_gone = true;
		scry_watch_end(w, "the process ended");
	}
	took = scry_now_ns() - began;
	s->scan_ns = scry_now_ns() + (10 * took > SCAN_NS ? 10 * took : SCAN_NS);
}

struct hooked_children {
	const struct scry_watch *of;
	pid_t after; /* their numbers are greater */
	bool is_one;
};

/* Numbers are given in one row, so those of its children are greater, unless they came round since
 * it began, a moment ago. 0: they may have. */
static pid_t first_descendant(const struct scry_watch *w)
{
	struct timespec t;
	uint64_t now, start = w->proc.start_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);

	if (w->proc.pid <= 0 || clock_gettime(CLOCK_BOOTTIME, &t))
		return 0;
	now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	return now < start + CHILD_YOUNG_MS && scry_proc_newest() >= w->proc.pid ? w->proc.pid : 0;
}

static void look_for_hooked(void *arg, pid_t pid)
{
	struct hooked_children *h = arg;
	struct scry_claim claim;

	if (!h->is_one && pid > h->after)
		h->is_one = scry_pool_ask(&h->of->pool, pid, &claim) != -ENOENT;
}

bool scry_follow_has_hooked_children(struct scry_watch *w)
{
	struct hooked_children hooked_children = {.of = w, .after = first_descendant(w)};
	uint64_t began = scry_now_ns();

	if (!w->pool.head)
		return false;
	if (began < w->hooked_children_ns)
		return true;
	scry_descendant_table_each_process(look_for_hooked, &hooked_children);
	w->hooked_children_ns = began + 20 * (scry_now_ns() - began) + SCAN_NS;
	/* After that: one that is gone by now may have left words in a child buffer that we have
	 * not seen yet.
	 */
	for (uint32_t child_buffer = 0;
	     child_buffer < SCRY_CHILD_BUFFERS && !hooked_children.is_one; child_buffer++)
		hooked_children.is_one = scry_pool_is_taken(&w->pool, child_buffer);
	return hooked_children.is_one;
}

static bool is_crowded(const struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->child_buffers_taken > SCRY_CHILD_BUFFERS / 2)
			return true;
	return false;
}

static void find_owners(struct scry_session *s)
{
	if (!count_unidentified(s))
		return;
	for (size_t i = s->descendants.count; i-- > 0;)
		if (i < s->descendants.count)
			ask(s, s->descendants.rows[i]->pid);
	if (count_unidentified(s) && (scry_now_ns() >= s->scan_ns || is_crowded(s)))
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

static bool is_member(void *arg, pid_t pid)
{
	const struct scry_session *s = arg;

	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->proc.pid == pid && !s->watches[i]->is_over)
			return scry_proc_is_alive(&s->watches[i]->proc);
	return false;
}

static void came(void *arg, struct scry_relative *row, const struct scry_proc_stat *st)
{
	struct scry_session *s = arg;
	struct candidate *c = row->own;

	c->is_followed =
		scry_spawns_has(&s->spawns, row->pid) || scry_spawns_has(&s->spawns, st->ppid);
	s->untraced += !c->is_followed && !row->was_there;
	scry_family_add(s->family, row->pid, row->since_ns);
}

static void execed(void *arg, struct scry_relative *row)
{
	struct candidate *c = row->own;

	(void)arg;
	c->is_known = false;
}

static void gone(void *arg, struct scry_relative *row)
{
	struct scry_session *s = arg;
	const struct candidate *c = row->own;

	if (!c->is_known && !c->is_followed && !is_watched(s, row->pid))
		scry_programs_unknown(s);
}

static bool is_descendant(const struct scry_session *s, pid_t pid)
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
static bool is_wanted(const struct scry_session *s, const struct scry_relative *p)
{
	struct candidate *c = p->own;
	struct scry_maps maps;
	bool r;

	if (scry_maps_read(p->pid, &maps) < 0)
		return false;
	r = !s->instrument->wants || s->instrument->wants(p->pid, &maps);
	c->is_known |= r || has_libc(&maps);
	scry_maps_done(&maps);
	return r;
}

/* A child that was there before the watch is entered as its parent was. */
static bool enter_live(struct scry_session *s, const struct scry_relative *p)
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
 * An image that is wanted, held until it is entered. What lies before its boot is followed to the
 * right moment. Later it is entered where it is: then either the boot slot leads to the agent, or
 * the VM is up and the instrument finds another way. False: not now.
 */
static bool enter_image(struct scry_session *s, const struct scry_relative *p)
{
	struct scry_tracee *t;
	int r;

	if (p->was_there && !p->execs)
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
static void look(void *arg, struct scry_relative *p, uint64_t now)
{
	struct scry_session *s = arg;
	struct candidate *c = p->own;

	c->is_followed |= scry_spawns_has(&s->spawns, p->pid);
	p->look_ns = SCRY_DESCENDANT_TABLE_KNOWN;
	if (is_watched(s, p->pid)) {
		p->is_taken = true;
	} else if (is_descendant(s, p->pid)) { /* forked, or about to exec: its image shows */
		c->is_known = true;
	} else if (!is_wanted(s, p)) {
		if (now < p->since_ns + YOUNG_NS)
			p->look_ns = now;
	} else if (!enter_image(s, p)) {
		p->look_ns = now;
	} else {
		p->is_taken = is_watched(s, p->pid);
	}
	scry_error_clear();
}

static const struct scry_descendant_table_kind kind = {
	.is_member = is_member,
	.came = came,
	.execed = execed,
	.look = look,
	.gone = gone,
	.own_bytes = sizeof(struct candidate),
};

void scry_follow_begin(struct scry_session *s)
{
	scry_descendant_table_init(&s->descendants, &kind, s);
}

void scry_follow_exec(struct scry_session *s, pid_t pid)
{
	scry_descendant_table_add(&s->descendants, pid);
}

bool scry_follow_expects(const struct scry_session *s)
{
	uint64_t now = scry_now_ns();

	for (size_t i = 0; i < s->descendants.count; i++) {
		const struct scry_relative *p = s->descendants.rows[i];

		if ((!p->was_there || p->execs) && now < p->since_ns + EXPECTED_NS)
			return true;
	}
	return false;
}

bool scry_follow_is_busy(const struct scry_session *s)
{
	return count_unidentified(s) != 0;
}

void scry_follow_turn(struct scry_session *s)
{
	scry_descendant_table_scan(&s->descendants);
	scry_follow_child_buffers(s);
	find_owners(s);
	scry_descendant_table_turn(&s->descendants, scry_now_ns());
}

void scry_follow_end(struct scry_session *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i]->pool.head)
			scry_pool_follow(&s->watches[i]->pool, 0);
	scry_follow_child_buffers(s);
	if (count_unidentified(s))
		scan(s);
}

/* A fork child that made no object: it holds our memory and perhaps a hook, and is left as if it
 * had been watched. What cannot be taken out now has no effect; scry undo -f takes it out later. */
static void leave_hooked(void *arg, pid_t pid)
{
	struct scry_session *s = arg;
	struct scry_watch *root = NULL, *w;
	struct scry_undo_report undo;
	uint64_t left;
	int r;

	for (size_t i = 0; i < s->count && !root; i++)
		if (s->watches[i]->pool.head && scry_pool_is_descendant(&s->watches[i]->pool, pid))
			root = s->watches[i];
	w = root && !is_watched(s, pid) ? scry_watch_new(s) : NULL;
	if (!w)
		return;
	w->root = root;
	w->watch = UINT32_MAX; /* none that is on */
	r = scry_proc_open(&w->proc, pid);
	if (r == 0)
		r = scry_inject_lock(w->inj, &w->proc);
	if (r == 0)
		r = scry_inject_check(&w->proc);
	w->inj->max_pause_ns = s->opts->max_pause_ns;
	w->inj->purpose = s->instrument->name;
	w->inj->only_adopt = true;
	if (r == 0)
		r = scry_inject_enter(w->inj, 0, NULL);
	if (r == 0)
		r = scry_group_adopt(w);
	if (r == 0) {
		scry_group_identified(w);
		scry_group_leave(w);
		scry_inject_leave(w->inj, &undo, &left);
	}
	scry_watch_free(w);
	scry_error_clear();
}

void scry_follow_leave_hooked_children(struct scry_session *s)
{
	scry_descendant_table_each_process(leave_hooked, s);
}
