/*
 * Which Mutex, Monitor, Queue, condition or thread a thread waits for, and who holds it. See
 * dump.h.
 *
 * The newest method says what kind of thing it waits for, its self which one. A cycle of threads
 * that wait for each other counts only when it stood still: none of them has run from before the
 * first word of it was read again until after the last.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/dump.h"
#include "vm/ruby_locks.h"

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

static size_t thread_with(const struct scry_dump *d, const struct scry_ruby_thread *threads,
			  size_t count, uint64_t object)
{
	uint64_t self;

	for (size_t i = 0; i < count; i++)
		if (!scry_mem_u64(&d->ruby->mem, threads[i].th + d->ruby->layout.th_self, &self) &&
		    self == object)
			return i;
	return count;
}

/* Who keeps thread `at` waiting. */
static void find_owner(const struct scry_dump *d, const struct scry_ruby_thread *threads,
		       size_t count, struct scry_dump_lock *lock)
{
	uint64_t mutex = lock->object;
	struct scry_ruby_owner owner = {.thread = count};

	lock->owner = count;
	if (lock->kind == SCRY_DUMP_LOCK_THREAD) {
		lock->owner = thread_with(d, threads, count, lock->object);
		lock->why = lock->owner == count ? "that thread has ended" : NULL;
		return;
	}
	if (lock->kind == SCRY_DUMP_LOCK_MONITOR &&
	    scry_ruby_monitor_mutex(d->ruby, lock->object, &mutex)) {
		lock->why = "no one Mutex was found in it";
		return;
	}
	if (lock->kind != SCRY_DUMP_LOCK_MUTEX && lock->kind != SCRY_DUMP_LOCK_MONITOR)
		return;
	scry_ruby_mutex_owner(d->ruby, threads, count, mutex, &owner);
	lock->owner = owner.thread;
	lock->why = owner.why;
	lock->is_free = owner.is_free;
	lock->is_other_fiber = owner.is_other_fiber;
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
static bool waits_still(const struct scry_dump *d, const struct scry_ruby_thread *threads,
			size_t count, size_t at)
{
	const struct scry_dump_thread *t = &d->threads[at];
	struct scry_dump_lock again = t->lock;
	uint64_t cfp;

	if (scry_mem_u64(&d->ruby->mem, t->ruby.ec + d->ruby->layout.ec_cfp, &cfp) ||
	    cfp != t->lock.cfp || scry_mem_u64(&d->ruby->mem, t->lock.self_at, &again.object) ||
	    again.object != t->lock.object)
		return false;
	find_owner(d, threads, count, &again);
	return again.owner == t->lock.owner;
}

/* Of the cycle that `first` is in. */
static bool stands(const struct scry_dump *d, const struct scry_ruby_thread *threads, size_t count,
		   size_t first)
{
	struct stand *all = calloc(count, sizeof(*all));
	bool does = all != NULL;
	size_t i = 0, at = first;

	do {
		if (!all)
			return false;
		scry_task_open(&all[i].task, d->proc.pid, threads[at].tid);
		scry_task_read(&all[i].task, &all[i].now);
		does &= threads[at].tid && !all[i].now.is_running;
		i++;
		at = d->threads[at].lock.owner;
	} while (at != first);
	for (size_t j = 0; j < i; j++, at = d->threads[at].lock.owner)
		does &= waits_still(d, threads, count, at);
	while (i > 0) {
		i--;
		does &= scry_task_rests(&all[i].task, &all[i].now);
		scry_task_close(&all[i].task);
	}
	free(all);
	return does;
}

/* Marks the threads of each cycle with its first one. */
static void find_cycles(struct scry_dump *d, const struct scry_ruby_thread *threads, size_t count,
			bool is_held)
{
	for (size_t i = 0; i < count; i++) {
		size_t at = i, steps = 0;

		do
			at = next_of(d, count, at);
		while (at < count && at != i && ++steps < count);
		if (at != i || d->threads[i].lock.is_in_cycle)
			continue;
		if (!is_held && !stands(d, threads, count, i))
			continue;
		d->cycles++;
		do {
			d->threads[at].lock.is_in_cycle = true;
			d->threads[at].lock.cycle = i;
			at = d->threads[at].lock.owner;
		} while (at != i);
	}
}

void scry_dump_lock_owners(struct scry_dump *d, bool is_held)
{
	struct scry_ruby_thread *threads = calloc(d->count + 1, sizeof(*threads));
	size_t count = 0;

	if (!threads)
		return;
	while (count < d->count && !d->threads[count].is_other) {
		threads[count] = d->threads[count].ruby;
		count++;
	}
	for (size_t i = 0; i < count; i++)
		if (d->threads[i].lock.kind != SCRY_DUMP_LOCK_NONE)
			find_owner(d, threads, count, &d->threads[i].lock);
	find_cycles(d, threads, count, is_held || d->core);
	free(threads);
}
