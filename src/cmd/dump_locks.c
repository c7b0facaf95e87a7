/*
 * Which Mutex, Monitor, Queue, condition or thread a thread waits for, and which thread holds it.
 * See dump.h.
 *
 * The newest method says what kind of thing it waits for, its self which one. A cycle of threads
 * that wait for each other counts only when it stood still: none of them has run from before the
 * first word of it was read again until after the last.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/dump.h"
#include "vm/ruby_locks.h"

#define TRIES 3 /* a cycle's thread may wake for a moment */

static const struct method {
	const char *class, *name;
	enum scry_dump_lock_kind kind;
} methods[] = {
	{"Mutex", "lock", SCRY_DUMP_LOCK_MUTEX},
	{"Mutex", "synchronize", SCRY_DUMP_LOCK_MUTEX},
	{"Mutex", "sleep", SCRY_DUMP_LOCK_SLEEP},
	{"Monitor", "enter", SCRY_DUMP_LOCK_MONITOR},
	{"Monitor", "synchronize", SCRY_DUMP_LOCK_MONITOR},
	{"Queue", "pop", SCRY_DUMP_LOCK_QUEUE},
	{"SizedQueue", "pop", SCRY_DUMP_LOCK_QUEUE},
	{"SizedQueue", "push", SCRY_DUMP_LOCK_ROOM},
	{"ConditionVariable", "wait", SCRY_DUMP_LOCK_CONDITION},
	{"Thread", "join", SCRY_DUMP_LOCK_THREAD},
	{"Thread", "value", SCRY_DUMP_LOCK_THREAD},
};

/* "Thread::Queue#pop"; up to Ruby 3.0 "Queue#pop". */
static const struct method *find_method(const char *name)
{
	static const char module[] = "Thread::";
	const char *class =
		strncmp(name, module, sizeof(module) - 1) ? name : name + sizeof(module) - 1;
	const char *mark = strchr(class, '#');

	for (size_t i = 0; mark && i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strlen(methods[i].class) == (size_t)(mark - class) &&
		    !strncmp(methods[i].class, class, (size_t)(mark - class)) &&
		    !strcmp(methods[i].name, mark + 1))
			return &methods[i];
	return NULL;
}

/* Is a call of Timeout.timeout among the frames? It raises in the thread, whatever that waits for.
 */
static bool is_timed(const struct scry_walk *w, const struct scry_dump_frame *frames)
{
	for (size_t i = 0; i < w->count; i++)
		if (frames[i].name && (!strcmp(frames[i].name, "Timeout.timeout") ||
				       !strcmp(frames[i].name, "Timeout#timeout")))
			return true;
	return false;
}

/* Index of the next frame from `i` on that is shown; w->count: none. */
static size_t shown(const struct scry_walk *w, const struct scry_dump_frame *frames, size_t i)
{
	while (i < w->count && !frames[i].name)
		i++;
	return i;
}

void scry_dump_lock_find(struct scry_dump *d, const struct scry_walk *w,
			 const struct scry_dump_frame *frames, struct scry_dump_thread *t)
{
	const struct scry_ruby_layout *l = &d->ruby->layout;
	size_t i = shown(w, frames, 0), below;
	const struct method *m;

	t->lock = (struct scry_dump_lock){.kind = SCRY_DUMP_LOCK_NONE};
	if ((t->state != SCRY_STATE_BLOCKED && t->state != SCRY_STATE_SLEEPING) || w->is_cut ||
	    t->verdict != SCRY_WALK_VALID || i == w->count || !(m = find_method(frames[i].name)))
		return;
	if (m->kind == SCRY_DUMP_LOCK_SLEEP) {
		const struct method *caller;

		below = shown(w, frames, i + 1);
		caller = below < w->count ? find_method(frames[below].name) : NULL;
		if (!caller || caller->kind != SCRY_DUMP_LOCK_CONDITION)
			return;
		m = caller;
		i = below;
	}
	t->lock.self_at = w->end - (w->count - i) * l->frame_size + l->frame_self;
	if (scry_mem_u64(&d->ruby->mem, t->lock.self_at, &t->lock.object))
		return;
	t->lock.kind = m->kind;
	t->lock.is_timed = is_timed(w, frames);
	t->lock.cfp = w->end - w->count * l->frame_size;
	t->lock.class_length = strcspn(frames[i].name, "#");
	t->lock.class = frames[i].name;
}

/* --- owners ----------------------------------------------------------------------------------- */

/* Which thread keeps thread `at` waiting. */
static void find_owner(const struct scry_dump *d, const struct scry_ruby_thread_index *index,
		       struct scry_dump_lock *lock)
{
	uint64_t mutex = lock->object;
	struct scry_ruby_owner owner;

	lock->owner = index->count;
	if (lock->kind == SCRY_DUMP_LOCK_THREAD) {
		lock->owner = scry_ruby_thread_with_self(index, lock->object);
		lock->why = lock->owner == index->count ? "that thread has ended" : NULL;
		return;
	}
	if (lock->kind == SCRY_DUMP_LOCK_MONITOR &&
	    scry_ruby_monitor_mutex(d->ruby, lock->object, &mutex)) {
		lock->why = "no one Mutex was found in it";
		return;
	}
	if (lock->kind != SCRY_DUMP_LOCK_MUTEX && lock->kind != SCRY_DUMP_LOCK_MONITOR)
		return;
	scry_ruby_mutex_owner(d->ruby, index, mutex, &owner);
	lock->owner = owner.thread;
	lock->why = owner.why;
	lock->is_free = owner.is_free;
	lock->is_other_fiber = owner.is_other_fiber;
	lock->is_any_fiber = owner.is_any_fiber;
}

/* --- cycles ----------------------------------------------------------------------------------- */

/* The thread that `at` waits for, in a way that ends only when that one goes on; `count`: none. */
static size_t next_of(const struct scry_dump *d, size_t count, size_t at)
{
	const struct scry_dump_thread *t = &d->threads[at];

	if (t->lock.kind == SCRY_DUMP_LOCK_NONE || t->lock.owner >= count)
		return count;
	if (t->lock.kind == SCRY_DUMP_LOCK_THREAD && t->state != SCRY_STATE_BLOCKED)
		return count; /* Thread#join with a limit */
	return t->lock.owner;
}

struct stand {
	struct scry_task task;
	struct scry_task_now now;
};

/* Is the thread where it was, and waits for the same? */
static bool waits_still(const struct scry_dump *d, const struct scry_ruby_thread_index *index,
			size_t at)
{
	const struct scry_dump_thread *t = &d->threads[at];
	struct scry_dump_lock again = t->lock;
	uint64_t cfp;

	if (scry_mem_u64(&d->ruby->mem, t->ruby.ec + d->ruby->layout.ec_cfp, &cfp) ||
	    cfp != t->lock.cfp || scry_mem_u64(&d->ruby->mem, t->lock.self_at, &again.object) ||
	    again.object != t->lock.object)
		return false;
	find_owner(d, index, &again);
	return again.owner == t->lock.owner;
}

/* Of the cycle of `length` that `first` is in. */
static bool stands(const struct scry_dump *d, const struct scry_ruby_thread_index *index,
		   size_t first, size_t length)
{
	struct stand *all = calloc(length, sizeof(*all));
	bool does = all != NULL;
	size_t at = first;

	for (size_t i = 0; i < length && all; i++, at = d->threads[at].lock.owner) {
		scry_task_open(&all[i].task, d->proc.pid, index->threads[at].tid);
		scry_task_read(&all[i].task, &all[i].now);
		does &= index->threads[at].tid && !all[i].now.is_running;
	}
	for (size_t i = 0; i < length && does; i++, at = d->threads[at].lock.owner)
		does &= waits_still(d, index, at);
	for (size_t i = 0; i < length && all; i++) {
		does &= scry_task_rests(&all[i].task, &all[i].now);
		scry_task_close(&all[i].task);
	}
	free(all);
	return does;
}

/* Marks the threads of the cycle that `at` is in with its first one, if it is still one. */
static void take_cycle(struct scry_dump *d, const struct scry_ruby_thread_index *index, size_t at,
		       bool is_held)
{
	const size_t start = at;
	size_t first = at, length = 0;
	bool does = is_held;

	do {
		first = at < first ? at : first;
		length++;
		at = d->threads[at].lock.owner;
	} while (at != start);
	for (int try = 0; try < TRIES && !does; try++)
		does = stands(d, index, first, length);
	if (!does)
		return;
	d->cycles++;
	do {
		d->threads[at].lock.is_in_cycle = true;
		d->threads[at].lock.cycle = first;
		at = d->threads[at].lock.owner;
	} while (at != start);
}

/* Each thread is passed once: `turn` says from which one it was reached first. */
static int find_cycles(struct scry_dump *d, const struct scry_ruby_thread_index *index,
		       bool is_held)
{
	size_t *turn = calloc(index->count + 1, sizeof(*turn));

	if (!turn)
		return -ENOMEM;
	for (size_t i = 0; i < index->count; i++) {
		size_t at = i;

		while (at < index->count && !turn[at]) {
			turn[at] = i + 1;
			at = next_of(d, index->count, at);
		}
		if (at < index->count && turn[at] == i + 1)
			take_cycle(d, index, at, is_held);
	}
	free(turn);
	return 0;
}

/* What was found for the first that waits for an object holds for all that do. */
static int find_owners(struct scry_dump *d, const struct scry_ruby_thread_index *index)
{
	struct scry_map firsts; /* by object: index + 1 */
	int err = 0;

	scry_map_init(&firsts, index->count);
	for (size_t i = 0; i < index->count && !err; i++) {
		struct scry_dump_lock *lock = &d->threads[i].lock, *same;
		uint64_t *first;

		if (lock->kind == SCRY_DUMP_LOCK_NONE)
			continue;
		first = scry_map_ref(&firsts, lock->object);
		if (!first) {
			err = -ENOMEM;
			break;
		}
		*first = *first ? *first : i + 1;
		lock->first = (size_t)*first - 1;
		same = &d->threads[lock->first].lock;
		same->waiters++;
		if (same == lock || same->kind != lock->kind) {
			find_owner(d, index, lock);
			continue;
		}
		lock->owner = same->owner;
		lock->why = same->why;
		lock->is_free = same->is_free;
		lock->is_other_fiber = same->is_other_fiber;
		lock->is_any_fiber = same->is_any_fiber;
	}
	scry_map_done(&firsts);
	return err;
}

int scry_dump_lock_owners(struct scry_dump *d, bool is_held)
{
	struct scry_ruby_thread *threads = calloc(d->count + 1, sizeof(*threads));
	struct scry_ruby_thread_index index;
	size_t count = 0;
	int err;

	if (!threads)
		return -ENOMEM;
	while (count < d->count && !d->threads[count].is_other) {
		threads[count] = d->threads[count].ruby;
		count++;
	}
	err = scry_ruby_thread_index_init(d->ruby, threads, count, &index);
	if (!err)
		err = find_owners(d, &index);
	if (!err)
		err = find_cycles(d, &index, is_held || d->core);
	scry_ruby_thread_index_done(&index);
	free(threads);
	return err;
}
