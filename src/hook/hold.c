/* See hold.h. A thread that turns out to be of no use is released at once. */
#include "hook/hold.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "hook/own.h"
#include "sys/hurry.h"
#include "sys/stack.h"

#define WAIT_NS 5000000000ull
#define NAP_NS 20000000
#define SPARE_NS 200000000ull /* then one on any stack will do, if it has one of its own */
#define ASKED_FIRST 16
#define REST_SHARE 4 /* of a pause: what is done around one descriptor is not cut */
#define REST_NS 10000000
#define REST_MAX_NS 3000000000ull /* until it is back where a call can be made */

static bool is_on(const struct scry_tracee *t, uint64_t end)
{
	return t->regs.rsp > end - SCRY_CALL_STACK_BYTES && t->regs.rsp <= end;
}

/* A thread that still has to stop keeps its loan for that. */
static void let_go(struct scry_tracee *t)
{
	if (t->stopped) {
		scry_hurry_recall(t->tid);
		scry_hurry_settle();
	}
	scry_tracee_release(t);
	scry_hurry_recall(t->tid);
}

/* A thread that was released in the midst of a call, perhaps by a scry that died: is it back? */
static bool is_back(struct scry_inject *inj, pid_t tid, uint64_t end)
{
	struct scry_tracee t;
	bool answer;

	if (scry_tracee_seize(&t, inj->proc->pid, tid) < 0)
		return false;
	scry_hurry_lend(tid, SCRY_HURRY_NAPS);
	answer = scry_tracee_stop(&t, scry_now_ns() + inj->max_pause_ns) == 0 && !is_on(&t, end);
	if (t.stopped)
		scry_tracee_mend(&t);
	let_go(&t);
	scry_inject_count_pause(inj, t.held_ns, 1);
	return answer;
}

/* The stack for calls; 0: there is none yet, or a thread is on it. Before any other thread is held.
 */
static uint64_t call_stack(struct scry_inject *inj, const struct scry_tracee *held)
{
	const uint64_t end =
		inj->has_call_stack ? scry_agent_call_stack(&inj->header) : inj->spare_stack;
	uint64_t tid;

	if (!end || scry_mem_u64(&inj->mem, end - sizeof(tid), &tid) < 0)
		return 0;
	if (!tid || tid > 1u << 22 || !scry_proc_task_state(inj->proc->pid, (pid_t)tid))
		return end;
	if (held)
		return held->tid == (pid_t)tid && !is_on(held, end) ? end : 0;
	return is_back(inj, (pid_t)tid, end) ? end : 0;
}

static bool has_room(const struct scry_inject *inj, const struct scry_tracee *t)
{
	return scry_stack_room(t, &inj->mem, &inj->maps) >= SCRY_CALL_ROOM;
}

/* The kernel says "not permitted" of these, too. */
static bool is_ending(pid_t pid, pid_t tid)
{
	char state = scry_proc_task_state(pid, tid);

	return !state || state == 'Z' || state == 'X';
}

struct wish {
	uint64_t stack;
	bool may_spare; /* the unused end of a thread's own stack will do, too: `stack` then */
	bool any;	/* with a restart block, too */
	bool *is_far;	/* set: a thread was on a stack that is not known */
	int refused;	/* so many were held in vain */
};

static int refuse_dispatch(const struct scry_inject *inj, pid_t tid)
{
	return scry_fail(-ENOTSUP,
			 "process %d dispatches its own system calls (Syscall User Dispatch, "
			 "as Wine does; thread %d): one that scry makes in it may end it",
			 inj->proc->pid, tid);
}

/* Later, and to take out, another thread will do. */
static bool may_refuse(const struct scry_inject *inj)
{
	return !inj->only_adopt && !inj->is_entered;
}

/* Each thread has it for itself alone, and only a stopped one can be asked. */
static pid_t find_dispatcher(const struct scry_stw *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].stopped && scry_tracee_is_dispatched(&w->threads[i]))
			return w->threads[i].tid;
	return 0;
}

int scry_hold_all(struct scry_inject *inj, struct scry_stw *w)
{
	int r = scry_inject_stop(inj, w);
	pid_t tid = r < 0 ? 0 : find_dispatcher(w);

	if (tid && may_refuse(inj)) {
		scry_inject_go(inj, w);
		return refuse_dispatch(inj, tid);
	}
	if (tid && inj->control) { /* as if it had said so: hook/calling.h */
		__atomic_store_n(&inj->control->quiet, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&inj->control->filtered, 1, __ATOMIC_RELAXED);
	}
	return r;
}

/* Holds thread `tid` if a call can be made in it. -EAGAIN: not now, or not in this one. */
static int hold(struct scry_inject *inj, struct scry_tracee *t, pid_t tid, struct wish *wish)
{
	int r = scry_tracee_seize(t, inj->proc->pid, tid);

	if (r < 0 && (r == -ESRCH || is_ending(inj->proc->pid, tid)))
		return -EAGAIN;
	if (r < 0)
		return r;
	r = scry_proc_is_alive(inj->proc) ? 0 : -ESRCH; /* else its number may be another's */
	if (r == 0)
		scry_hurry_lend(tid, SCRY_HURRY_NAPS);
	if (r == 0)
		r = scry_tracee_stop(t, scry_now_ns() + inj->max_pause_ns);
	if (r == 0 && may_refuse(inj) && scry_tracee_is_dispatched(t))
		r = refuse_dispatch(inj, tid);
	if (r == 0 && scry_tracee_can_call(t) && (wish->any || !scry_tracee_has_restart(t))) {
		if (wish->stack || has_room(inj, t))
			return 0;
		if (wish->may_spare)
			wish->stack = scry_stack_spare(t, &inj->mem, &inj->maps);
		inj->lent_stack = wish->stack;
		if (wish->stack)
			return 0;
		*wish->is_far = true;
	}
	if (r == 0)
		scry_tracee_mend(t);
	let_go(t);
	scry_inject_count_pause(inj, t->held_ns, 1);
	wish->refused++;
	return r == -ENOTSUP ? r : -EAGAIN;
}

/* The best thread for a call: sleeping, without a restart block; then any; in the end any at all.
 * Of many that all sleep for a time not each is asked first. */
static int hold_best(struct scry_inject *inj, struct scry_tracee *t, struct wish *wish)
{
	pid_t *tids;
	ssize_t n = scry_proc_tasks(inj->proc->pid, &tids);
	int r = n < 0 ? (int)n : -EAGAIN;

	for (int pass = 0; pass < 3 && r == -EAGAIN; pass++) {
		wish->any = pass == 2;
		for (ssize_t i = 0; i < n && r == -EAGAIN; i++) {
			if (pass < 2 && wish->refused >= ASKED_FIRST)
				break;
			char state = scry_proc_task_state(inj->proc->pid, tids[i]);

			if (state && state != 'Z' && state != 'D' && (pass || state == 'S'))
				r = hold(inj, t, tids[i], wish);
		}
	}
	if (n >= 0)
		free(tids);
	return r;
}

static int refuse(const struct scry_inject *inj, bool is_far)
{
	if (is_far)
		return scry_fail(-EBUSY,
				 "no thread of process %d reached a stack with known ends within "
				 "%d s: each is on a coroutine's stack, and what lies below may be "
				 "the program's data; fix: try again",
				 inj->proc->pid, (int)(WAIT_NS / 1000000000));
	return scry_fail(-EBUSY,
			 "no thread of process %d could be held within %llu ms at a place where it "
			 "can map memory (vfork in flight, or waiting in the kernel); fix: try "
			 "again",
			 inj->proc->pid, (unsigned long long)(inj->max_pause_ns / 1000000));
}

static int read_maps(struct scry_inject *inj)
{
	scry_maps_done(&inj->maps);
	return scry_maps_read(inj->proc->pid, &inj->maps);
}

int scry_hold_one(struct scry_inject *inj, struct scry_tracee *t, uint64_t *ret_stack)
{
	const uint64_t began_ns = scry_now_ns(), deadline_ns = began_ns + WAIT_NS;
	bool is_far = false;
	struct wish wish = {.is_far = &is_far};
	int r = scry_own_check(inj);

	if (r < 0)
		return r;
	for (;;) {
		scry_tracee_poll_lingering();
		wish.stack = call_stack(inj, NULL);
		wish.refused = 0;
		wish.may_spare = is_far && scry_now_ns() > began_ns + SPARE_NS;
		r = read_maps(inj);
		if (r == 0)
			r = hold_best(inj, t, &wish);
		if (r != -EAGAIN)
			break;
		if (scry_now_ns() > deadline_ns)
			return refuse(inj, is_far);
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	*ret_stack = wish.stack;
	return r;
}

int scry_hold_thread(struct scry_inject *inj, pid_t tid, struct scry_tracee *t, uint64_t *ret_stack)
{
	bool is_far = false;
	struct wish wish = {.stack = call_stack(inj, NULL), .any = true, .is_far = &is_far};
	int r = read_maps(inj);

	*ret_stack = wish.stack;
	return r < 0 ? r : hold(inj, t, tid, &wish);
}

int scry_hold_check(struct scry_inject *inj, const struct scry_tracee *held, uint64_t *ret_stack)
{
	int r = may_refuse(inj) && scry_tracee_is_dispatched(held) ? refuse_dispatch(inj, held->tid)
								   : read_maps(inj);

	if (r < 0)
		return r;
	*ret_stack = call_stack(inj, held);
	if (*ret_stack || has_room(inj, held))
		return 0;
	return scry_fail(-EAGAIN, "thread %d of process %d is on a small stack", held->tid,
			 inj->proc->pid);
}

static bool can_go_on(struct scry_inject *inj, const struct scry_tracee *t,
		      const struct scry_call *how)
{
	return t->stopped && scry_tracee_can_call(t) &&
	       (how->stack || (read_maps(inj) == 0 && has_room(inj, t)));
}

int scry_hold_rest(struct scry_tracee *t, const struct scry_call *how)
{
	struct scry_inject *inj = how->rests;
	const uint64_t now = scry_now_ns();
	int r;

	if (!inj || now - t->stopped_at_ns < inj->max_pause_ns / REST_SHARE)
		return 0;
	r = scry_tracee_finish(t, how);
	while (r == 0) {
		scry_hurry_recall(t->tid);
		scry_hurry_settle();
		scry_inject_count_pause(inj, scry_now_ns() - t->stopped_at_ns, 1);
		r = t->group_stopped ? -ETIMEDOUT : scry_tracee_run(t, scry_now_ns() + REST_NS);
		scry_hurry_lend(t->tid, SCRY_HURRY_NAPS);
		if (r == 0 && !t->stopped)
			r = scry_tracee_stop(t, now + REST_MAX_NS);
		if (r < 0 || can_go_on(inj, t, how))
			break;
		scry_tracee_mend(t);
		r = scry_now_ns() > now + REST_MAX_NS ? -ETIMEDOUT : 0;
	}
	t->ran_ns += scry_now_ns() - now;
	return r;
}

int scry_hold_calls(struct scry_tracee *t, const struct scry_call *how, const uint64_t (*calls)[7],
		    size_t n)
{
	int64_t value = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		r = scry_hold_rest(t, how);
		if (r == 0)
			r = scry_tracee_syscall(t, how, calls[i], &value);
		if (r == 0 && value < 0 && value > -4096)
			r = (int)value;
	}
	return r;
}
