/* See people.h. */
#include "instrument/gvl/people.h"

#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "base/err.h"
#include "instrument/gvl/past.h"
#include "instrument/gvl/ractors.h"
#include "sys/task.h"
#include "vm/ruby_locks.h"

#define LOOK_NS 50000000ull
#define LOOK_PART 50	       /* or, of many threads, after so many times what a look takes */
#define FRESH_LOOKS 4	       /* until a new thread has its tid and name */
#define LINGER_NS 250000000ull /* a native thread whose thread has ended is gone by then */

/* From 3.3 on threads may take turns on native threads, whose tids and names are then no thread's.
 */
static void look_for_turns(struct scry_gvl *g, const struct scry_ruby_thread *threads, size_t n)
{
	for (size_t i = 0; i < n && g->ruby->layout.gvl.hands_over && !g->are_turns; i++)
		for (size_t k = 0; k < i && threads[i].tid > 0; k++)
			g->are_turns |=
				threads[k].tid == threads[i].tid &&
				(threads[k].ractor == g->lock || threads[i].ractor == g->lock);
}

static bool is_task(const struct scry_gvl *g, uint32_t tid)
{
	const pid_t pid = g->watch->proc.pid;
	pid_t *tids = NULL;
	ssize_t n = scry_proc_tasks(pid, &tids);
	bool is = false;

	for (ssize_t i = 0; i < n && !is; i++)
		is = (g->tids_are_ours ? tids[i] : scry_proc_tid_inside(pid, tids[i])) ==
		     (pid_t)tid;
	if (n >= 0)
		free(tids);
	return is;
}

/* A native thread that a thread has left and that lives on has run it for a turn. Where each thread
 * has its own it ends with it: then a new thread only looks like the old one. */
static void look_for_movers(struct scry_gvl *g)
{
	const uint64_t now = scry_now_ns();

	if (g->are_turns || !g->ruby->layout.gvl.hands_over)
		return;
	if (g->mover && now - g->mover_ns >= LINGER_NS) {
		g->are_turns = is_task(g, g->mover);
		g->mover = 0;
	}
	if (g->mover || g->moves == g->table->moves)
		return;
	g->moves = g->table->moves;
	g->mover = (uint32_t)g->table->moved_from;
	g->mover_ns = now;
}

static struct scry_gvl_person *make_person(struct scry_gvl *g, uint64_t th)
{
	uint64_t *at = scry_map_ref(&g->by_th, th);

	if (!at)
		return NULL;
	if (!*at && g->count == g->room) {
		size_t room = g->room ? 2 * g->room : 64;
		struct scry_gvl_person *more =
			room <= SCRY_GVL_THREADS ? reallocarray(g->people, room, sizeof(*more))
						 : NULL;

		if (!more)
			return NULL;
		g->people = more;
		g->room = room;
	}
	if (!*at) {
		g->people[g->count++] = (struct scry_gvl_person){.th = th};
		*at = g->count;
	}
	return &g->people[*at - 1];
}

struct scry_gvl_person *scry_gvl_person_of(const struct scry_gvl *g, uint64_t th)
{
	uint64_t at;

	return scry_map_get(&g->by_th, th, &at) && at ? &g->people[at - 1] : NULL;
}

/* A thread may be new. */
static uint64_t births_of(const struct scry_gvl *g)
{
	const struct scry_gvl *lock;
	uint64_t births = 0;

	for (size_t i = 0; (lock = scry_gvl_ractors_at(g, i)); i++)
		births += lock->table->births + (lock->are_turns ? 0 : lock->table->moves);
	return births + scry_gvl_ractors_met(g);
}

/* What the program named it; else what its native thread is named. Either may change, and one that
 * has ended keeps the last. */
static void look_at_name(const struct scry_gvl *g, const struct scry_ruby_thread *t,
			 struct scry_gvl_person *p)
{
	char name[SCRY_GVL_NAME];

	p->has_own_name = scry_ruby_thread_name(g->ruby, t, name, sizeof(name)) > 0;
	if (!p->has_own_name && t->tid <= 0)
		return;
	if (!p->has_own_name)
		scry_task_name(g->watch->proc.pid, t->tid, name, sizeof(name));
	memcpy(p->name, name, sizeof(name));
}

/* Its own, of all threads. */
static void look_at_lock(struct scry_gvl *g, const struct scry_ruby_thread *threads, size_t n,
			 uint64_t began_tsc)
{
	look_for_movers(g);
	look_for_turns(g, threads, n);
	for (size_t i = 0; i < g->count; i++) {
		g->people[i].is_alive = false;
		g->people[i].looks_gone++;
	}
	for (size_t i = 0; i < n; i++) {
		struct scry_gvl_person *p =
			threads[i].ractor == g->lock ? make_person(g, threads[i].th) : NULL;

		if (!p)
			continue;
		p->is_alive = true;
		p->looks_gone = 0;
		if (threads[i].tid > 0)
			p->tid = threads[i].tid;
		look_at_name(g, &threads[i], p);
	}
	g->looks_tsc[1] = g->looks_tsc[0];
	g->looks_tsc[0] = began_tsc;
}

void scry_gvl_look_at_people(struct scry_gvl *g)
{
	const uint64_t began = scry_now_ns(), began_tsc = __rdtsc(), births = births_of(g);
	struct scry_ruby_thread *threads;
	ssize_t n = scry_ruby_threads(g->ruby, &threads);
	struct scry_gvl *lock;
	uint64_t took;

	if (n > 0)
		scry_gvl_ractors_see(g, threads, (size_t)n);
	for (size_t i = 0; n > 0 && (lock = scry_gvl_ractors_at(g, i)); i++)
		look_at_lock(lock, threads, (size_t)n, began_tsc);
	if (n >= 0)
		free(threads);
	scry_error_clear();
	g->fresh = births != g->births ? FRESH_LOOKS : g->fresh ? g->fresh - 1 : 0;
	g->births = births;
	took = scry_now_ns() - began;
	g->look_ns = began + took + (LOOK_PART * took > LOOK_NS ? LOOK_PART * took : LOOK_NS);
	g->soon_ns = began + took + SCRY_GVL_LOOK_SHARE * took;
}

void scry_gvl_look_at_processors(struct scry_gvl *g, bool is_end)
{
	for (size_t i = 0; i < g->count; i++) {
		struct scry_gvl_person *p = &g->people[i];
		struct scry_task task;
		struct scry_task_now now = {.is_gone = true};

		if (!p->is_alive || p->tid <= 0)
			continue;
		scry_task_open(&task, g->watch->proc.pid, p->tid);
		if (task.schedstat_fd >= 0)
			scry_task_read(&task, &now);
		scry_task_close(&task);
		p->has_cpu = !now.is_gone && (!is_end || p->has_cpu || !p->was_there);
		*(is_end ? &p->cpu_ended_ns : &p->cpu_began_ns) = now.run_ns;
		if (is_end)
			p->ran = scry_holders_ran(scry_gvl_ractors_first(g), p->tid);
	}
}

bool scry_gvl_is_look_due(const struct scry_gvl *g)
{
	const uint64_t now = scry_now_ns();
	const bool is_fresh = g->fresh || births_of(g) != g->births;

	return now >= g->look_ns ||
	       (is_fresh && (now >= g->soon_ns || scry_gvl_past_is_pressed(g) ||
			     scry_gvl_ractors_are_pressed(g)));
}
