/* See cpu.h. */
#include "sample/cpu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sys/proc.h"

#define TIDS_MAX (1u << 16) /* threads that have come and gone */

void scry_samples_cpu_init(struct scry_samples_cpu *c)
{
	struct timespec t = {0};

	*c = (struct scry_samples_cpu){0};
	scry_map_init(&c->ran, TIDS_MAX);
	clock_gettime(CLOCK_BOOTTIME, &t);
	c->began_ticks = ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) /
			 (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

void scry_samples_cpu_done(struct scry_samples_cpu *c)
{
	free(c->threads);
	scry_map_done(&c->ran);
	*c = (struct scry_samples_cpu){0};
}

/* A native thread may have run for another thread of the VM before, or have been an idle one of the
 * VM's: only what it ran since, or of a new one all, is this thread's. */
static uint64_t began(const struct scry_samples_cpu *c, pid_t tid, const struct scry_task_now *now)
{
	uint64_t before;

	if (!c->has_begun)
		return now->run_ns;
	if (scry_map_get(&c->ran, (uint64_t)tid, &before) && before <= now->run_ns)
		return before;
	return scry_proc_start_ticks(tid) > c->began_ticks ? 0 : now->run_ns;
}

int scry_samples_cpu_hit(struct scry_samples_cpu *c, pid_t tid, const struct scry_task_now *now)
{
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 16;
		struct scry_samples_cpu_thread *more =
			reallocarray(c->threads, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->threads = more;
		c->room = room;
	}
	c->threads[c->count++] = (struct scry_samples_cpu_thread){
		.began_ns = now->is_gone ? UINT64_MAX : began(c, tid, now)};
	scry_samples_cpu_ran(c, (uint32_t)c->count, now);
	return 0;
}

void scry_samples_cpu_task(struct scry_samples_cpu *c, uint32_t number, pid_t tid,
			   const struct scry_task_now *now)
{
	struct scry_samples_cpu_thread *t = &c->threads[number - 1];
	uint64_t from = now->is_gone ? UINT64_MAX : began(c, tid, now);

	/* what it ran with the task before counts on */
	t->began_ns = from != UINT64_MAX && from >= t->ran_ns ? from - t->ran_ns : UINT64_MAX;
	scry_samples_cpu_ran(c, number, now);
}

void scry_samples_cpu_ran(struct scry_samples_cpu *c, uint32_t number,
			  const struct scry_task_now *now)
{
	struct scry_samples_cpu_thread *t = &c->threads[number - 1];

	if (!now->is_gone && now->run_ns >= t->began_ns)
		t->ran_ns = now->run_ns - t->began_ns;
}

void scry_samples_cpu_leave(struct scry_samples_cpu *c, uint32_t number, pid_t tid)
{
	const struct scry_samples_cpu_thread *t = &c->threads[number - 1];

	if (t->began_ns != UINT64_MAX) /* where there is no room it is as one that was never met */
		scry_map_put(&c->ran, (uint64_t)tid, t->began_ns + t->ran_ns);
}

void scry_samples_cpu_seen(struct scry_samples_cpu *c, uint32_t number, uint64_t stands_ns,
			   bool is_ready)
{
	struct scry_samples_cpu_thread *t = &c->threads[number - 1];

	t->seen_ns += is_ready ? 0 : stands_ns;
	t->ready_ns += stands_ns;
	t->ready++;
}

/* Of what was run, as much as can be placed. */
static double placeable(const struct scry_samples_cpu_thread *t)
{
	double chance = 1 + 1 / sqrt((double)t->ready),
	       most = (double)t->ready_ns * chance * chance;

	return most < (double)t->ran_ns ? most : (double)t->ran_ns;
}

uint64_t scry_samples_cpu_place(struct scry_samples_cpu *c, uint32_t number, uint64_t seen_ns)
{
	struct scry_samples_cpu_thread *t = &c->threads[number - 1];
	uint64_t ns, left = t->ran_ns - t->placed_ns;

	if (!t->seen_ns)
		return 0;
	ns = (uint64_t)(placeable(t) * ((double)seen_ns / (double)t->seen_ns) + 0.5);
	ns = ns < left ? ns : left;
	t->placed_ns += ns;
	return ns;
}

uint64_t scry_samples_cpu_unknown(const struct scry_samples_cpu *c, uint32_t number)
{
	const struct scry_samples_cpu_thread *t = &c->threads[number - 1];

	return t->ran_ns - t->placed_ns;
}
