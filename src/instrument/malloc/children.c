/* See children.h. */
#include "instrument/malloc/children.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "hook/threads.h"
#include "sys/spawn.h"
#include "watch/ask.h"

struct scry_malloc_child {
	uint32_t pid;
	uint32_t image;
	uint64_t start_ticks;	   /* 0: it was gone when its parent's fork was merged */
	struct scry_malloc *calls; /* with its parent's blocks; NULL: there was no room for them */
	uint64_t bytes;
};

#define CHILDREN_MAX 4096u /* the oldest have exec'ed or ended, most likely */
#define FORK_TRIES 100	   /* ms; it is there at once, but where its parent has no processor */
#define CHILD_WAIT_NS 3000000000ull /* until its parent's fork is merged; then it is on its own */
#define CHILD_LOOK_NS 20000000ull   /* between two looks no more counts: we were not there */

/* Of a fork child that took a child buffer: as it says; 0: not yet. */
static uint32_t child_pid(const struct scry_watch *w)
{
	return w->root && w->channel.control
		       ? (uint32_t)__atomic_load_n(&w->channel.control->child_pid, __ATOMIC_ACQUIRE)
		       : 0;
}

/* What a fork child did ends: what follows with its pid is another program. */
static void end_part(struct scry_watch *w, uint32_t pid, uint32_t image, const char *why)
{
	struct scry_ev_detach end = {.pid = pid, .verified = 1, .part = image + 1};

	end.reason_str = scry_watch_string(w, why);
	scry_watch_event(w, SCRY_EVENT_DETACH, &end, sizeof(end));
}

static void take_row(struct scry_malloc_watch *m, size_t i)
{
	m->child_count--;
	memmove(m->children + i, m->children + i + 1, (m->child_count - i) * sizeof(*m->children));
}

/* Its number is given out: that of what comes later with its pid is the next. */
static void drop_calls(struct scry_watch *w, struct scry_malloc_child *child)
{
	if (!child->calls)
		return;
	scry_malloc_free(child->calls);
	child->calls = NULL;
	child->bytes = 0;
	end_part(w, child->pid, child->image, "it was not seen to call malloc");
}

static void drop_child(struct scry_watch *w, size_t i)
{
	struct scry_malloc_watch *m = w->state;

	drop_calls(w, &m->children[i]);
	take_row(m, i);
}

static void drain_others(struct scry_watch *w)
{
	struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(w, i)); i++)
		if (other != w && !other->is_over && other->instrument->drain(other) < 0)
			scry_error_clear();
}

/* A fork child that has not recorded, with its parent's blocks, is dropped; false: it is not known.
 */
static bool drop_child_of(const struct scry_watch *w, uint32_t pid)
{
	struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(w, i)); i++) {
		const struct scry_malloc_watch *m = other->root ? NULL : other->state;

		for (size_t k = 0; m && k < m->child_count; k++)
			if (m->children[k].pid == pid) {
				drop_child(other, k);
				return true;
			}
	}
	return false;
}

/* It may be a fork child's next program: then what that did is a part that ends before this one
 * begins, found or not, and whether it called malloc or not. */
void scry_malloc_children_next(struct scry_watch *w)
{
	const uint32_t pid = (uint32_t)w->proc.pid;
	struct scry_watch *other;
	/* of vfork nothing is emitted: it would be waited for in vain */
	const int tries = w->held && scry_spawn_is_vforked(w->held) ? 1 : FORK_TRIES;
	bool is_found = false;

	for (int i = 0; i < tries && scry_watch_beside(w, 1) && w->opts->follow && !is_found; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		scry_watch_let_others_on(w); /* its parent may be in a stop of ours */
		/* it may have one that was not looked at yet */
		scry_watch_take_up_child_buffers(w);
		for (size_t k = 0; (other = scry_watch_beside(w, k)); k++) {
			if (other == w || other->is_over || other->proc.pid ||
			    child_pid(other) != pid)
				continue;
			scry_watch_end_other(other, "it ran another program (exec)");
			return;
		}
		drain_others(w);
		is_found = drop_child_of(w, pid);
	}
}

static uint64_t children_bytes(const struct scry_malloc_watch *m)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < m->child_count; i++)
		bytes += m->children[i].bytes;
	return bytes;
}

/* All that wait have together what one process may have. */
static void keep_within(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;
	uint64_t limit = w->opts->memory ? w->opts->memory : UINT64_MAX;

	if (m->child_count > CHILDREN_MAX || children_bytes(m) > limit)
		scry_malloc_children_look(w);
	while (m->child_count > CHILDREN_MAX)
		drop_child(w, 0);
	for (size_t i = 0; i < m->child_count && children_bytes(m) > limit; i++) {
		drop_calls(w, &m->children[i]);
		if (!m->has_dropped)
			scry_watch_note(w,
					"more fork children waited for their first call of malloc "
					"than --memory has room for: what the oldest have of "
					"their parent is not known in this recording; fix: "
					"--memory SIZE");
		m->has_dropped = true;
	}
}

/* It was not waited for: it ran another program, or made calls, before its parent's fork was known.
 * A child that is at the start of its next program, not entered yet, waits for just that. */
static bool has_begun(const struct scry_watch *w, uint32_t pid)
{
	const struct scry_watch *other;

	for (size_t i = 0; (other = scry_watch_beside(w, i)); i++) {
		const struct scry_malloc_watch *m = other->state;

		if (!other->is_over &&
		    (other->root ? m && m->calls && child_pid(other) == pid
				 : other->inj->control && (uint32_t)other->proc.pid == pid))
			return true;
	}
	return false;
}

struct scry_malloc_opts scry_malloc_children_opts(struct scry_watch *entered, uint32_t pid,
						  uint64_t start_ticks)
{
	const struct scry_malloc_watch *m = entered->state;
	const struct scry_inject *inj = entered->inj;

	return (struct scry_malloc_opts){
		.producer = {.pid = pid, .start_ticks = start_ticks},
		.writer = entered->writer,
		.memory = entered->opts->memory,
		.own_start = inj->header.text,
		.own_end = inj->header.shared + inj->header.shared_size,
		.is_glibc = m->functions.is_glibc && !*m->functions.prefix,
		.is_closed = entered->opts->preload,
		.has_stacks = m->has_stacks,
		.on_fork = scry_watch_pool(entered) ? scry_malloc_children_fork : NULL,
		.on_fork_arg = entered,
	};
}

void scry_malloc_children_allocator(struct scry_watch *entered, uint32_t pid,
				    const struct scry_ev_allocator *ev)
{
	const struct scry_malloc_watch *m = entered->state;
	struct scry_ev_allocator whole = ev ? *ev : (struct scry_ev_allocator){0};

	if (!*m->functions.module)
		return;
	whole.pid = pid;
	whole.flags = m->older.is_partial ? SCRY_ALLOCATOR_OLDER_PARTIAL : 0;
	whole.module_str = scry_watch_string(entered, m->functions.module);
	if (*m->functions.name)
		whole.name_str = scry_watch_string(entered, m->functions.name);
	scry_watch_event(entered, SCRY_EVENT_ALLOCATOR, &whole, sizeof(whole));
}

/* A process has forked: what it has now, its child has too. */
int scry_malloc_children_fork(void *arg, struct scry_malloc *parent, uint32_t pid)
{
	struct scry_watch *w = arg;
	struct scry_malloc_watch *root = w->state;
	struct scry_malloc_child child = {.pid = pid,
					  .start_ticks = scry_proc_start_ticks((pid_t)pid)};
	struct scry_malloc_opts opts = scry_malloc_children_opts(w, pid, child.start_ticks);
	struct scry_malloc_stats stats;
	struct scry_malloc_child *more;
	int r;

	if (has_begun(w, pid))
		return 0;
	more = reallocarray(root->children, root->child_count + 1, sizeof(*more));
	if (!more)
		return scry_no_memory("the children");
	root->children = more;
	opts.producer.ring = child.image = scry_watch_part(w, pid);
	r = scry_malloc_fork(parent, &opts, &child.calls);
	if (r < 0) {
		end_part(w, pid, child.image, "there was no memory for it");
		return r;
	}
	scry_malloc_stats(child.calls, &stats);
	child.bytes = stats.memory;
	more[root->child_count++] = child;
	keep_within(w);
	return 0;
}

/* Has it ended, and without a call? A process that is gone takes no child buffer any more. */
static bool will_not_come(const struct scry_watch *w, const struct scry_malloc_child *child)
{
	const struct scry_pool *pool = scry_watch_pool(w);

	if (scry_proc_is_running((pid_t)child->pid, child->start_ticks))
		return false;
	for (uint32_t i = 0; pool && i < SCRY_CHILD_BUFFERS; i++)
		if (scry_pool_owner(pool, i) == (pid_t)child->pid)
			return false;
	return true;
}

void scry_malloc_children_look(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;

	if (!m->child_count || scry_proc_tid_inside(w->proc.pid, w->proc.pid) != w->proc.pid)
		return; /* in a pid namespace: their numbers are others' here */
	for (size_t i = m->child_count; i-- > 0;) {
		if (!will_not_come(w, &m->children[i]))
			continue;
		drop_child(w, i);
	}
}

/* Since the last look. A keeper that is held up has not waited: its parent's calls are there, and
 * not merged yet. */
static uint64_t look_ns(struct scry_malloc_watch *m)
{
	uint64_t now = scry_now_ns(), passed = now - m->looked_ns;

	m->looked_ns = now;
	return passed < CHILD_LOOK_NS ? passed : CHILD_LOOK_NS;
}

static bool has_waited(struct scry_malloc_watch *m)
{
	m->waited_ns += look_ns(m);
	return m->waited_ns >= CHILD_WAIT_NS;
}

/* The calls of the process that has this child buffer: as its parent left them, once that is known.
 */
int scry_malloc_child_take_up(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;
	struct scry_malloc_watch *root = w->root->state;
	/* once: others may write there */
	const bool is_preloaded = __atomic_load_n(
		&scry_account_of(w->channel.control)->malloc.preloaded, __ATOMIC_RELAXED);
	uint32_t pid = child_pid(w);
	struct scry_malloc_opts opts;

	if (is_preloaded && !w->proc.pid && !w->target_gone)
		return 0; /* what its process ran before ends first */
	for (size_t i = root->child_count; i-- > 0 && pid;) {
		if (root->children[i].pid != pid || is_preloaded)
			continue;
		m->calls = root->children[i].calls;
		w->image = root->children[i].image;
		take_row(root, i);
		if (m->calls) {
			scry_malloc_children_allocator(w->root, pid, NULL);
			return 0;
		}
		m->waited_ns = CHILD_WAIT_NS;
	}
	if (!pid || (!has_waited(m) && !is_preloaded))
		return 0; /* else it began here, and is not a child, or is one whose blocks are not
			   * known
			   */
	opts = scry_malloc_children_opts(w->root, pid, scry_proc_start_ticks((pid_t)pid));
	opts.producer.ring = w->image = scry_watch_part(w, pid);
	opts.origin = is_preloaded ? NULL : root->calls;
	scry_malloc_children_allocator(w->root, pid, NULL);
	return scry_malloc_new(&opts, &m->calls);
}

/* A fork child that records in a child buffer already. */
int scry_malloc_child_adopt(struct scry_watch *w)
{
	struct scry_malloc_watch *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	w->state = m;
	if (!w->root) /* of a pool that others join */
		return 0;
	m->looked_ns = scry_now_ns();
	r = scry_thread_buffers_new(w->channel.control, w->channel.ring, 0, false, &m->buffers);
	if (r == 0)
		scry_thread_buffers_ask(m->buffers, scry_threads_tid, w->inj);
	return r;
}

/* A child that ended before its parent's fork was merged: that is soon, but not while we are held
 * up, as its parent may be too, in a stop that it is for us to end. */
bool scry_malloc_child_must_wait(const struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;

	return w->root && m && m->buffers && !m->calls && !has_waited(m);
}

int scry_malloc_child_take_late(struct scry_watch *w)
{
	const uint64_t patience_ns = scry_watch_patience_ns(w);
	struct scry_malloc_watch *m = w->state;
	uint64_t waited_ns = 0;
	bool is_last = false;
	int r = 0;

	m->looked_ns = scry_now_ns();
	for (int i = 0; r == 0 && !m->calls && !is_last; i++) {
		is_last = waited_ns >= patience_ns;
		if (is_last)
			m->waited_ns = CHILD_WAIT_NS; /* on its own, then */
		else if (i)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		scry_watch_let_others_on(w);
		drain_others(w);
		waited_ns += look_ns(m);
		r = scry_malloc_child_take_up(w);
	}
	if (is_last)
		scry_watch_waited_in_vain(w, waited_ns);
	return r;
}

void scry_malloc_child_lines(struct scry_watch *w)
{
	const struct scry_ruby_lines *l = &((struct scry_malloc_watch *)w->root->state)->lines;
	struct scry_malloc_watch *m = w->state;
	bool is_proven = l->ruby && !l->is_booting;

	if (m->ruby == l->ruby && m->is_proven == is_proven)
		return;
	scry_malloc_ruby(m->calls, l->ruby, is_proven);
	m->ruby = l->ruby;
	m->is_proven = is_proven;
}

void scry_malloc_child_end(struct scry_watch *w)
{
	uint32_t pid = child_pid(w);

	if (pid)
		end_part(w, pid, w->image, "it ended, or ran another program");
}

void scry_malloc_children_done(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;

	while (m->child_count)
		drop_child(w, m->child_count - 1);
	free(m->children);
	m->children = NULL;
}
