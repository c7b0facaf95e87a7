/* See pause.h. */
#include "sample/pause.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

#define HOLD_MAX_NS 50000000u /* until a thread stops */

int scry_samples_pause_open(pid_t pid, struct scry_samples_pause **ret)
{
	struct scry_samples_pause *p = calloc(1, sizeof(*p));
	int err = p ? scry_pause_open(&p->hold, pid) : -ENOMEM;

	if (err) {
		free(p);
		return err;
	}
	p->sums.pid = (uint32_t)pid;
	*ret = p;
	return 0;
}

void scry_samples_pause_close(struct scry_samples_pause *p)
{
	if (!p)
		return;
	scry_pause_close(&p->hold);
	free(p);
}

/* The length's step: the highest bit and those behind it. */
static size_t step_of(uint64_t ns)
{
	size_t high = 63 - (size_t)__builtin_clzll(ns | SCRY_SAMPLES_PAUSE_STEPS);

	return (high - 4) * SCRY_SAMPLES_PAUSE_STEPS +
	       (ns >> (high - 4)) % SCRY_SAMPLES_PAUSE_STEPS;
}

/* The longest of a step. */
static uint64_t end_of(size_t step)
{
	size_t high = step / SCRY_SAMPLES_PAUSE_STEPS + 4;
	uint64_t low = step % SCRY_SAMPLES_PAUSE_STEPS + SCRY_SAMPLES_PAUSE_STEPS;

	return ((low + 1) << (high - 4)) - 1;
}

/* It is not held any more: how long was that? */
static void count(struct scry_samples_pause *p)
{
	uint64_t ns = p->hold.last_ns;

	p->sums.total_ns += ns;
	if (ns > p->sums.longest_ns)
		p->sums.longest_ns = ns;
	if (p->hold.held > p->sums.threads)
		p->sums.threads = p->hold.held;
	p->not_before_ns = scry_now_ns() + ns * (SCRY_SAMPLES_PAUSE_SHARE - 1);
}

/* No look: what it stood for is the next one's. */
static int put_off(struct scry_samples_pause *p, uint64_t stands_ns, int err)
{
	p->owed_ns = stands_ns;
	if (err == -ESRCH || err == -ENOMEM)
		return err;
	scry_error_clear();
	p->sums.late++;
	return 0;
}

int scry_samples_pause_begin(struct scry_samples_pause *p, uint64_t *stands_ns)
{
	uint64_t stands = *stands_ns + p->owed_ns;
	int err;

	if (scry_now_ns() < p->not_before_ns) {
		p->sums.spared++;
		p->owed_ns = stands;
		return 0;
	}
	err = scry_pause_hold(&p->hold, HOLD_MAX_NS);
	if (err) {
		if (err != -ESRCH)
			count(p);
		return put_off(p, stands, err);
	}
	p->owed_ns = 0;
	p->rounds = 0;
	*stands_ns = stands;
	return 1;
}

int scry_samples_pause_holds(struct scry_samples_pause *p, uint64_t stands_ns)
{
	int r = scry_pause_settle(&p->hold, HOLD_MAX_NS);

	/* One that wakes again and again and never runs when it is asked for. */
	if (r > 0 && ++p->rounds == SCRY_SAMPLES_PAUSE_ROUNDS) {
		scry_pause_release(&p->hold);
		r = -EBUSY;
	}
	if (r < 0) {
		count(p);
		r = put_off(p, stands_ns, r);
		return r ? r : 2;
	}
	p->sums.again += r != 0;
	return !r;
}

void scry_samples_pause_end(struct scry_samples_pause *p)
{
	scry_pause_release(&p->hold);
	count(p);
	p->sums.count++;
	p->lengths[step_of(p->hold.last_ns)]++;
}

/*
 * A thread that was on a processor stops there. One that was not is put on one first: it was made
 * to wait by others, and goes on with what it did; or what it had waited for had come, and it has
 * not begun.
 */
static bool had_waited(const struct scry_pause_task *t)
{
	return t->is_held && t->tracee.stopped &&
	       scry_syscall_find((int64_t)t->tracee.regs.orig_rax) &&
	       scry_task_has_switched(&t->task, &t->now);
}

void scry_samples_pause_task(const struct scry_samples_pause *p, pid_t tid,
			     struct scry_task_now *ret)
{
	const struct scry_pause_task *t = scry_pause_find(&p->hold, tid);

	*ret = t ? t->now : (struct scry_task_now){.is_gone = true, .nr = -2};
	if (t && ret->is_running)
		ret->is_ready = had_waited(t);
}

const struct user_regs_struct *scry_samples_pause_registers(const struct scry_samples_pause *p,
							    pid_t tid)
{
	const struct scry_pause_task *t = scry_pause_find(&p->hold, tid);

	return t && t->is_held ? &t->tracee.regs : NULL;
}

struct scry_ev_pauses scry_samples_pause_sums(const struct scry_samples_pause *p)
{
	struct scry_ev_pauses sums = p->sums;
	uint64_t below = 0;

	for (size_t i = 0; i < sizeof(p->lengths) / sizeof(p->lengths[0]) && sums.count; i++) {
		below += p->lengths[i];
		if (2 * below < sums.count)
			continue;
		sums.median_ns = end_of(i) < sums.longest_ns ? end_of(i) : sums.longest_ns;
		break;
	}
	return sums;
}
