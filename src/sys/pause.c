/*
 * See pause.h. A thread that runs is seized and asked to stop, then all are waited for: a pause is
 * one wait long. A thread may be born while the others are on their way to stop: the kernel says
 * how many there are as the link count of the folder of tasks, which is a tenth of the price of
 * listing it.
 */
#include "sys/pause.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/proc.h"

#define ROUNDS 64 /* of looking for threads that woke */
#define SPINS 20
#define LOST_LOOKS 8u /* until a thread that was lost has run its program */
#define WAITS_FOR_PROCESSOR 10u

static int add(struct scry_pause *p, pid_t tid)
{
	struct scry_pause_task *t;

	if (p->count == p->room) {
		size_t room = p->room ? 2 * p->room : 16;
		struct scry_pause_task *more = reallocarray(p->tasks, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->tasks = more;
		p->room = room;
	}
	t = &p->tasks[p->count++];
	*t = (struct scry_pause_task){.tid = tid, .is_here = true};
	scry_task_open(&t->task, p->pid, tid);
	scry_task_read(&t->task, &t->now);
	return 0;
}

static struct scry_pause_task *find(const struct scry_pause *p, pid_t tid)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->tasks[i].tid == tid)
			return &p->tasks[i];
	return NULL;
}

const struct scry_pause_task *scry_pause_find(const struct scry_pause *p, pid_t tid)
{
	return find(p, tid);
}

static void forget(struct scry_pause_task *t)
{
	if (t->is_held)
		scry_tracee_release(&t->tracee);
	scry_task_close(&t->task);
}

/* The tasks that there are now; what is known of the others is forgotten. How many are new, or
 * -errno. */
static int list(struct scry_pause *p)
{
	pid_t *tids;
	ssize_t n = scry_proc_tasks(p->pid, &tids);
	size_t kept = 0;
	int fresh = 0, err = 0;

	if (n < 0)
		return (int)n;
	for (size_t i = 0; i < p->count; i++)
		p->tasks[i].is_here = false;
	for (ssize_t i = 0; i < n && !err; i++) {
		struct scry_pause_task *t = find(p, tids[i]);

		if (t && !t->now.is_gone) {
			t->is_here = true;
			continue;
		}
		err = add(p, tids[i]); /* a number may have been given again */
		fresh++;
	}
	free(tids);
	for (size_t i = 0; i < p->count; i++) {
		if (p->tasks[i].is_here)
			p->tasks[kept++] = p->tasks[i];
		else
			forget(&p->tasks[i]);
	}
	p->count = kept;
	return err ? err : fresh;
}

/* 0; -errno: it cannot be held. A task that is about to end is gone. */
static int seize(struct scry_pause *p, struct scry_pause_task *t)
{
	int err;

	err = scry_tracee_seize(&t->tracee, p->pid, t->tid);
	if (!err && (err = scry_tracee_interrupt(&t->tracee)) != 0) {
		scry_tracee_release(&t->tracee);
		p->lost = LOST_LOOKS;
	}
	t->is_held = !err;
	p->held += !err;
	if (err && (err == -ESRCH || scry_proc_task_state(p->pid, t->tid) == 'Z' ||
		    !scry_proc_task_state(p->pid, t->tid))) {
		scry_error_clear();
		t->now.is_gone = true;
		err = 0;
	}
	return err;
}

/* One look at threads that have not stopped yet. How many have not, or -errno. */
static int poll_stops(struct scry_pause *p)
{
	int late = 0;

	/* Where all end, the first one's end is reported when the others' have been. */
	for (size_t i = p->count; i > 0; i--) {
		struct scry_pause_task *t = &p->tasks[i - 1];
		int err =
			!t->is_held || t->tracee.stopped ? 0 : scry_tracee_wait_stop(&t->tracee, 0);

		if (err == -ESRCH) { /* it has ended */
			scry_tracee_release(&t->tracee);
			t->is_held = false;
			t->now.is_gone = true;
			p->lost = LOST_LOOKS;
		} else if (err == -ETIMEDOUT) {
			late++;
		} else if (err) {
			return err;
		}
	}
	return late;
}

static bool one_stands(const struct scry_pause *p)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->tasks[i].is_held && p->tasks[i].tracee.stopped)
			return true;
	return false;
}

/* A thread that has no processor to stop on keeps only us waiting; one that is stopped waits for
 * all. */
static int wait_for_stops(struct scry_pause *p, uint64_t max_ns)
{
	uint64_t began = scry_now_ns(), before = began, now;
	int late;

	for (unsigned int turns = 0;; turns++, before = now) {
		now = scry_now_ns();
		late = poll_stops(p);
		if (!p->began_ns && one_stands(p))
			p->began_ns = before;
		if (late <= 0)
			return late;
		if (now - began > (p->began_ns ? max_ns : WAITS_FOR_PROCESSOR * max_ns))
			return -EBUSY;
		if (turns > SPINS)
			nanosleep(&(struct timespec){.tv_nsec = turns > 10 * SPINS ? 50000 : 10000},
				  NULL);
	}
}

/* Holds all that run and are not held. 0 or -errno. */
static int hold_running(struct scry_pause *p, uint64_t max_ns)
{
	int err = 0;

	for (size_t i = 0; i < p->count && !err; i++)
		if (!p->tasks[i].is_held && !p->tasks[i].now.is_gone && p->tasks[i].now.is_running)
			err = seize(p, &p->tasks[i]);
	return err ? err : wait_for_stops(p, max_ns);
}

/* Whether one that is not held has run since it was read. */
static bool has_woken(struct scry_pause_task *t)
{
	if (t->is_held || t->now.is_gone || scry_task_rests(&t->task, &t->now))
		return false;
	scry_task_read(&t->task, &t->now);
	return true;
}

static int settle(struct scry_pause *p, uint64_t max_ns)
{
	bool changed = false;
	int r = 0;

	for (size_t i = 0; i < p->count; i++)
		changed |= has_woken(&p->tasks[i]);
	if (changed || scry_proc_task_count(p->pid) != p->count)
		r = list(p);
	if (r < 0)
		return r;
	changed |= r > 0;
	r = changed ? hold_running(p, max_ns) : 0;
	return r < 0 ? r : changed;
}

int scry_pause_settle(struct scry_pause *p, uint64_t max_ns)
{
	int r = settle(p, max_ns);

	if (r < 0)
		scry_pause_release(p);
	return r;
}

/* A thread that ran another program on its way to stop has become the process's first, and is ours
 * under that number: it is stopped, and says so there. */
static void let_go_of_lost(struct scry_pause *p)
{
	struct scry_tracee first = {.pid = p->pid, .tid = p->pid, .seized = true};

	if (!p->lost)
		return;
	p->lost--;
	if (scry_proc_tracer(p->pid, p->pid) != getpid())
		return;
	scry_tracee_release(&first);
	p->lost = 0;
}

int scry_pause_hold(struct scry_pause *p, uint64_t max_ns)
{
	sigset_t stops;
	int r;

	p->began_ns = p->last_ns = 0;
	p->held = 0;
	let_go_of_lost(p);
	r = list(p);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p->count; i++)
		scry_task_read(&p->tasks[i].task, &p->tasks[i].now);
	sigemptyset(&stops);
	sigaddset(&stops, SIGTSTP);
	sigaddset(&stops, SIGTTIN);
	sigaddset(&stops, SIGTTOU);
	sigprocmask(SIG_BLOCK, &stops, &p->mask);
	scry_hurry_begin(&p->hurry, 0, 0, 4 * max_ns);
	p->is_on = true;
	r = hold_running(p, max_ns);
	/* Threads that were woken, or made, by threads that are stopped now. */
	for (int round = 0; r == 0 && round < ROUNDS; round++)
		if ((r = settle(p, max_ns)) == 0)
			return 0;
		else if (r > 0)
			r = 0;
	scry_pause_release(p);
	return r < 0 ? r : -EBUSY;
}

/* Those that are stopped first: the others are waited for. */
void scry_pause_release(struct scry_pause *p)
{
	for (int late = 0; late < 2; late++)
		for (size_t i = 0; i < p->count; i++) {
			struct scry_pause_task *t = &p->tasks[i];

			if (!t->is_held || (!late && !t->tracee.stopped))
				continue;
			scry_tracee_mend(&t->tracee);
			scry_tracee_release(&t->tracee);
			t->is_held = false;
		}
	let_go_of_lost(p);
	if (p->is_on)
		p->last_ns = p->began_ns ? scry_now_ns() - p->began_ns : 0;
	scry_hurry_end(&p->hurry);
	if (p->is_on)
		sigprocmask(SIG_SETMASK, &p->mask, NULL);
	p->is_on = false;
}

int scry_pause_open(struct scry_pause *p, pid_t pid)
{
	int r;

	*p = (struct scry_pause){.pid = pid};
	r = list(p);
	for (size_t i = 0; i < p->count && r >= 0; i++) {
		pid_t tracer = scry_proc_tracer(pid, p->tasks[i].tid);

		if (tracer)
			r = scry_fail(-EPERM,
				      "process %d cannot be stopped for samples: process %d traces "
				      "its thread %d already; fix: end that tracer, or without "
				      "--pause",
				      pid, tracer, p->tasks[i].tid);
	}
	if (r < 0)
		scry_pause_close(p);
	return r < 0 ? r : 0;
}

void scry_pause_close(struct scry_pause *p)
{
	if (p->is_on)
		scry_pause_release(p);
	for (size_t i = 0; i < p->count; i++)
		forget(&p->tasks[i]);
	free(p->tasks);
	*p = (struct scry_pause){0};
}
