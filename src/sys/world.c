/* Seize everybody first (nobody stops yet), interrupt everybody, wait: so the pause is one wait
 * long. */
#include "sys/world.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "sys/edit.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"

#define TRIES 5
#define ROUNDS 64 /* of looking for new threads within a try */

static int add_thread(struct scry_world *w, pid_t tid)
{
	struct scry_tracee *more;
	int r;

	if (w->count == w->capacity) {
		size_t capacity = w->capacity ? 2 * w->capacity : 32;

		more = realloc(w->threads, capacity * sizeof(*more));
		if (!more)
			return -ENOMEM;
		w->threads = more;
		w->capacity = capacity;
	}
	r = scry_tracee_seize(&w->threads[w->count], w->pid, tid);
	if (r == 0)
		w->count++;
	return r;
}

static int is_known(const struct scry_world *w, pid_t tid)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].tid == tid)
			return 1;
	return 0;
}

/* Seizes threads not seen yet; returns how many, or -errno. Zombies and the dying are passed over.
 */
static int seize_new(struct scry_world *w)
{
	pid_t *tids;
	ssize_t n = scry_proc_tasks(w->pid, &tids);
	int fresh = 0, r = 0;

	if (n < 0)
		return (int)n;
	for (ssize_t i = 0; i < n && r >= 0; i++) {
		if (is_known(w, tids[i]))
			continue;
		r = add_thread(w, tids[i]);
		if (r == 0)
			fresh++;
		else if (r == -ESRCH || scry_proc_task_state(w->pid, tids[i]) == 'Z' ||
			 !scry_proc_task_state(w->pid, tids[i]))
			r = 0;
	}
	free(tids);
	return r < 0 ? r : fresh;
}

static int stop_known(struct scry_world *w, uint64_t deadline_ns, pid_t *ret_late)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].seized && !w->threads[i].stopped)
			scry_tracee_interrupt(&w->threads[i]);
	for (size_t i = 0; i < w->count; i++) {
		if (!w->threads[i].seized || w->threads[i].stopped)
			continue;
		if (scry_tracee_wait_stop(&w->threads[i], deadline_ns) == -ETIMEDOUT) {
			*ret_late = w->threads[i].tid;
			return -EBUSY;
		}
	}
	return 0;
}

static int stop_once(struct scry_world *w, uint64_t max_pause_ns, pid_t *ret_late)
{
	uint64_t deadline;
	int r = seize_new(w);

	w->began_ns = scry_now_ns();
	deadline = w->began_ns + max_pause_ns;
	for (int round = 0; r > 0 && round < ROUNDS; round++) {
		r = stop_known(w, deadline, ret_late);
		if (r == 0)
			r = seize_new(w);
	}
	if (r > 0)
		return -EBUSY;
	return r < 0 ? r : w->count ? 0 : -ESRCH;
}

int scry_world_stop(struct scry_world *w, pid_t pid, uint64_t max_pause_ns)
{
	uint64_t longest = 0;
	pid_t late = 0;
	int r = 0;

	for (int i = 0; i < TRIES; i++) {
		*w = (struct scry_world){.pid = pid};
		r = stop_once(w, max_pause_ns, &late);
		w->pause_ns = longest;
		if (r == 0)
			return 0;
		scry_world_release(w);
		longest = w->pause_ns;
		if (r != -EBUSY)
			return r == -ESRCH ? scry_fail(r, "process %d is gone", pid) : r;
		nanosleep(&(struct timespec){.tv_nsec = 20000000L * (i + 1)}, NULL);
	}
	return scry_fail(-EBUSY,
			 "thread %d of process %d would not stop within %llu ms, %d times (vfork "
			 "in flight, or "
			 "waiting in the kernel); fix: try again, or a longer --max-pause",
			 late, pid, (unsigned long long)(max_pause_ns / 1000000), TRIES);
}

void scry_world_release(struct scry_world *w)
{
	uint64_t pause;

	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].stopped)
			scry_tracee_release(&w->threads[i]);
	for (size_t i = 0; i < w->count; i++)
		scry_tracee_release(&w->threads[i]);
	pause = w->began_ns ? scry_now_ns() - w->began_ns : 0;
	if (pause > w->pause_ns)
		w->pause_ns = pause;
	free(w->threads);
	free(w->saved);
	w->threads = NULL;
	w->saved = NULL;
	w->count = w->capacity = w->saved_count = w->saved_capacity = 0;
}

#define LOOK_BYTES (256u << 10)
#define FRAME_IP 176 /* asm/sigframe.h: return address, uc head, 16 registers */
#define FRAME_CS 192

static int add_saved(struct scry_world *w, uint64_t at, uint64_t ip)
{
	if (w->saved_count == w->saved_capacity) {
		size_t capacity = w->saved_capacity ? 2 * w->saved_capacity : 16;
		struct scry_saved_ip *more = realloc(w->saved, capacity * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->saved = more;
		w->saved_capacity = capacity;
	}
	w->saved[w->saved_count++] = (struct scry_saved_ip){at, ip};
	return 0;
}

static int look_through(struct scry_world *w, const unsigned char *stack, size_t size,
			uint64_t address, const uint64_t *restorers, size_t restorer_count)
{
	int r = 0;

	for (size_t at = 0; at + FRAME_CS + 8 <= size && r == 0; at += 8) {
		uint64_t word, ip;
		uint16_t cs;

		memcpy(&word, stack + at, 8);
		for (size_t i = 0; i < restorer_count && r == 0; i++) {
			if (word != restorers[i] || !word)
				continue;
			memcpy(&ip, stack + at + FRAME_IP, 8);
			memcpy(&cs, stack + at + FRAME_CS, 2);
			if (cs == 0x33)
				r = add_saved(w, address + at + FRAME_IP, ip);
		}
	}
	return r;
}

int scry_world_look(struct scry_world *w, const struct scry_mem *mem, const struct scry_maps *maps,
		    const uint64_t *restorers, size_t restorer_count)
{
	unsigned char *stack = malloc(LOOK_BYTES);
	int r = stack ? 0 : -ENOMEM;

	w->saved_count = 0;
	for (size_t i = 0; i < w->count && r == 0; i++) {
		uint64_t rsp = w->threads[i].regs.rsp & ~7ull;
		const struct scry_map_entry *m = scry_maps_at(maps, rsp);
		uint64_t size = m ? m->end - rsp : LOOK_BYTES;
		ssize_t n;

		if (!w->threads[i].stopped)
			continue;
		n = scry_mem_read_some(mem, rsp, stack, size < LOOK_BYTES ? size : LOOK_BYTES);
		if (n > 0)
			r = look_through(w, stack, (size_t)n, rsp, restorers, restorer_count);
	}
	free(stack);
	return r < 0 ? scry_fail(r, "not enough memory to look at stacks") : 0;
}

bool scry_world_inside(const struct scry_world *w, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct scry_tracee *t = &w->threads[i];

		if (t->stopped && t->regs.rip >= start && t->regs.rip < end)
			return true;
	}
	for (size_t i = 0; i < w->saved_count; i++)
		if (w->saved[i].ip >= start && w->saved[i].ip < end)
			return true;
	return false;
}

int scry_world_move(struct scry_world *w, int mem_fd, uint64_t (*to)(const void *arg, uint64_t ip),
		    const void *arg)
{
	int moved = 0;

	for (size_t i = 0; i < w->count; i++) {
		struct scry_tracee *t = &w->threads[i];
		uint64_t ip = t->stopped ? to(arg, t->regs.rip) : t->regs.rip;
		int r = ip == t->regs.rip ? 0 : scry_tracee_move(t, ip);

		if (r < 0)
			return r;
		moved += r;
	}
	for (size_t i = 0; i < w->saved_count; i++) {
		uint64_t ip = to(arg, w->saved[i].ip);
		int r = ip == w->saved[i].ip
				? 0
				: scry_edit_poke(mem_fd, w->saved[i].at, &ip, sizeof(ip));

		if (r < 0)
			return scry_fail(r, "cannot write a signal frame of process %d", w->pid);
		moved += ip != w->saved[i].ip;
		w->saved[i].ip = ip;
	}
	return moved;
}

struct scry_tracee *scry_world_caller(const struct scry_world *w, const struct scry_maps *maps)
{
	struct scry_tracee *second = NULL;

	for (size_t i = 0; i < w->count; i++) {
		struct scry_tracee *t = &w->threads[i];

		if (!t->stopped || !scry_tracee_can_call(t, maps))
			continue;
		if (!scry_tracee_has_restart(t))
			return t;
		second = t;
	}
	return second;
}
