/*
 * The life of a fiber: made with a stack, run, ended, joined. The trick is in its end: the stack it
 * runs on is put aside as the scheduler's spare, not into the pool, so that its memory is not given
 * back while it is still in use; a fiber that is made next takes it as it is. That makes a spawn
 * and an exit as cheap as two switches.
 */
#include "fiber/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL_WORDS 0x0000037f00001f80ull /* x87 word, MXCSR: psABI 3.4.1 */
#define STATE_OF(fiber) ((fiber)->state & SCRY_STATE_MASK)

/* What lies at sp of a fiber that does not run: fiber.h. */
struct saved {
	uint64_t control_words;
	uint64_t r15, r14, r13, r12, rbx, rbp;
	void *goes_on;
};

struct scry_fiber scry_fiber_nobody = {.timer = -1};
__thread struct scry_fiber *scry_fiber_current = &scry_fiber_nobody;

struct scry_fiber *scry_fiber_self(void)
{
	return scry_fiber_current->sched == NULL ? NULL : scry_fiber_current;
}

static void set_state(struct scry_fiber *fiber, uint32_t state)
{
	fiber->state = state | fiber->sched->keep;
}

/* A program watches, and wants to know of stacks. */
static bool is_watched(const struct scry_fiber_sched *sched)
{
	return sched->is_on_valgrind || (sched->keep & SCRY_KEEP_NOTIFIED) != 0;
}

static const char *why_no_pool(int error)
{
	return error == -EAGAIN
		       ? "no more stacks: a process has 256 pools at most, and each size of "
			 "each scheduler is one"
	       : error == -ENOMEM ? "no memory for another pool of stacks"
				  : "a stack and its guard have 1 GiB at most, each";
}

/* The pool of a size: made when it is first wanted. */
static int pool_of(struct scry_fiber_sched *sched, size_t size_bytes,
		   struct scry_stack_pool **ret_pool)
{
	struct scry_stack_attr attr = {
		.size_bytes = size_bytes != 0 ? size_bytes : sched->attr.size_bytes,
		.guard_bytes = sched->attr.guard_bytes,
		.is_measured = (sched->attr.flags & SCRY_FIBER_MEASURED) != 0,
		.report_fd = sched->attr.report_fd,
		.on_overflow = scry_fiber_overflowed,
		.arg = sched,
	};
	/* 0 is for the default: of no other size, however small */
	unsigned class = attr.size_bytes == 0	? 0
			 : attr.size_bytes <= 2 ? 1
						: 64 - __builtin_clzl(attr.size_bytes - 1);
	int error;

	if (class >= SCRY_CLASSES) {
		strcpy(sched->note, "a stack has 1 GiB at most");
		return -EINVAL;
	}
	if (sched->pools[class] == NULL) {
		error = scry_stack_pool_make(&attr, sizeof(struct scry_fiber),
					     &sched->pools[class]);
		if (error != 0) {
			strcpy(sched->note, why_no_pool(error));
			return error;
		}
	}
	*ret_pool = sched->pools[class];
	return 0;
}

/* A fiber with a stack of its own; what remains the same when the spare is used again. */
static int make_on_stack(struct scry_fiber_sched *sched, size_t size_bytes,
			 struct scry_fiber **ret_fiber)
{
	struct scry_stack_pool *pool;
	struct scry_stack stack;
	struct scry_fiber *fiber;
	int error = pool_of(sched, size_bytes, &pool);

	if (error != 0)
		return error;
	error = scry_stack_get(pool, &stack);
	if (error != 0) {
		strcpy(sched->note, scry_stack_pool_note(pool));
		return error;
	}
	fiber = scry_slot_extra(pool, stack.id);
	memset(fiber, 0, sizeof(*fiber));
	fiber->stack = stack;
	fiber->pool = pool;
	fiber->slot = scry_slot_of(pool, stack.id);
	fiber->sched = sched;
	fiber->magic = SCRY_FIBER_MAGIC;
	*ret_fiber = fiber;
	return 0;
}

/* The stack of the one that ended last, if it fits; NULL. Not for an ended fiber that goes through
 * its mail: it is on the spare. */
static inline struct scry_fiber *take_spare(struct scry_fiber_sched *sched, size_t size_bytes)
{
	struct scry_fiber *fiber = sched->spare;

	if (fiber == NULL || size_bytes != 0 || fiber->pool != sched->plain_pool ||
	    fiber == scry_fiber_current || sched->pool_is_measured)
		return NULL;
	sched->spare = NULL;
	if (is_watched(sched))
		scry_fiber_report_free(fiber);
	return fiber;
}

/* One that has its stack begins as a new one. */
static inline void set_up(struct scry_fiber_sched *sched, struct scry_fiber *fiber,
			  const struct scry_fiber_attr *attr, scry_fiber_fn *entry, void *arg)
{
	struct saved *saved = (struct saved *)fiber->stack.top - 1;
	const char *name = attr != NULL ? attr->name : NULL;

	*saved = (struct saved){
		.control_words = CONTROL_WORDS,
		.r12 = (uint64_t)fiber,
		.goes_on = (void *)scry_fiber_begin,
	};
	fiber->sp = saved;
	fiber->entry = entry;
	fiber->arg = arg;
	fiber->name = name;
	fiber->is_detached = attr != NULL && attr->is_detached;
	fiber->resumer = NULL;
	fiber->joiner = NULL;
	fiber->error = 0;
	fiber->is_woken = 0;
	fiber->is_parked = 0;
	/* it is 0 already, as nobody may wake one that has ended; not by an exchange, which is slow
	 */
	atomic_store_explicit(&fiber->is_mailed, 0, memory_order_relaxed);
	fiber->timer = -1;
	fiber->is_on_descriptor = 0;
	fiber->preempted = 0;
	fiber->cxa[0] = fiber->cxa[1] = 0;
	fiber->slot->name = name;
	fiber->slot->entry = (const void *)entry;
	fiber->state = SCRY_STATE_IDLE | sched->keep;
	if (is_watched(sched))
		scry_fiber_report_new(fiber);
	sched->live++;
	sched->held++;
}

/* By a call, which the usual way does without. */
static __attribute__((noinline)) int make_other(struct scry_fiber_sched *sched, size_t size_bytes,
						struct scry_fiber **ret_fiber)
{
	int error = make_on_stack(sched, size_bytes, ret_fiber);

	if (error == 0 && size_bytes == 0)
		sched->plain_pool = (*ret_fiber)->pool;
	return error;
}

static inline int make(struct scry_fiber_sched *sched, const struct scry_fiber_attr *attr,
		       scry_fiber_fn *entry, void *arg, struct scry_fiber **ret_fiber)
{
	const size_t size_bytes = attr != NULL ? attr->size_bytes : 0;
	struct scry_fiber *fiber = take_spare(sched, size_bytes);

	if (__builtin_expect(fiber == NULL, 0)) {
		int error = make_other(sched, size_bytes, &fiber);

		if (error != 0)
			return error;
	}
	set_up(sched, fiber, attr, entry, arg);
	*ret_fiber = fiber;
	return 0;
}

int scry_fiber_make(struct scry_fiber_sched *sched, const struct scry_fiber_attr *attr,
		    scry_fiber_fn *entry, void *arg, struct scry_fiber **ret_fiber)
{
	return make(sched, attr, entry, arg, ret_fiber);
}

int scry_fiber_new(const struct scry_fiber_attr *attr, scry_fiber_fn *entry, void *arg,
		   struct scry_fiber **ret_fiber)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;
	int error;

	if (sched == NULL)
		return -EPERM;
	scry_fiber_enter(sched);
	error = make(sched, attr, entry, arg, ret_fiber);
	sched->busy = 0;
	return error;
}

int scry_fiber_check(const struct scry_fiber_sched *sched, const struct scry_fiber *fiber)
{
	if (sched == NULL)
		return -EPERM;
	if (fiber->sched == sched)
		return 0;
	return fiber->sched->is_lost ? -ESRCH : -EXDEV;
}

/* 0: the fiber is of this thread, idle, and not the running one. */
static int check_idle(const struct scry_fiber *fiber)
{
	int error = scry_fiber_check(scry_fiber_current->sched, fiber);

	if (error == 0 && (STATE_OF(fiber) != SCRY_STATE_IDLE || fiber == scry_fiber_current))
		error = -EBUSY;
	return error;
}

int scry_fiber_start(struct scry_fiber *fiber)
{
	int error = check_idle(fiber);

	if (error == 0)
		scry_fiber_queue(fiber->sched, fiber);
	return error;
}

int scry_fiber_spawn(const struct scry_fiber_attr *attr, scry_fiber_fn *entry, void *arg,
		     struct scry_fiber **ret_fiber)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;
	struct scry_fiber *fiber;
	int error;

	if (sched == NULL)
		return -EPERM;
	scry_fiber_enter(sched);
	error = make(sched, attr, entry, arg, &fiber);
	if (error == 0) {
		scry_fiber_queue(sched, fiber);
		if (ret_fiber != NULL)
			*ret_fiber = fiber;
	}
	sched->busy = 0;
	return error;
}

/* It is on no stack of this thread: the ended fiber has switched away. */
void scry_fiber_put_spare(struct scry_fiber_sched *sched)
{
	struct scry_fiber *spare = sched->spare;

	if (spare == NULL)
		return;
	sched->spare = NULL;
	if (is_watched(sched))
		scry_fiber_report_free(spare);
	scry_stack_put(spare->pool, &spare->stack);
}

/* An ended fiber's stack is the next to be used; the one that was goes to its pool. */
static inline void put_aside(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	if (atomic_load_explicit(&fiber->is_mailed, memory_order_acquire))
		scry_fiber_mail_forget(sched, fiber);
	set_state(fiber, SCRY_STATE_FREE);
	sched->held--;
	if (sched->spare != NULL)
		scry_fiber_put_spare(sched);
	sched->spare = fiber;
}

/* Does not return. */
static void end(struct scry_fiber *fiber, void *value, int error)
{
	struct scry_fiber_sched *sched = fiber->sched;
	struct scry_fiber *resumer = fiber->resumer;

	scry_fiber_enter(sched);
	sched->live--;
	fiber->value = value;
	fiber->error = error;
	set_state(fiber, SCRY_STATE_ENDED);
	if (fiber->joiner != NULL) {
		scry_fiber_timer_remove(sched, fiber->joiner);
		if (STATE_OF(fiber->joiner) == SCRY_STATE_WAITING) /* its time may just be over */
			scry_fiber_queue(sched, fiber->joiner);
	}
	if (fiber->is_detached)
		put_aside(sched, fiber);
	if (resumer != NULL) {
		resumer->wait_result = 1;
		set_state(resumer, SCRY_STATE_IDLE);
	} else {
		resumer = scry_fiber_next(sched);
	}
	if (__builtin_expect(resumer->state & SCRY_KEEP_NOTIFIED, 0))
		scry_fiber_report_switch(fiber, resumer);
	else
		scry_fiber_leave(fiber, resumer);
	__builtin_unreachable();
}

void scry_fiber_main(struct scry_fiber *fiber)
{
	if (fiber->state & SCRY_KEEP_NOTIFIED)
		scry_fiber_report_begin(fiber);
	end(fiber, fiber->entry(fiber->arg), 0);
}

/* Where an overflowing fiber goes on: its stack is empty again, and it ends. */
static void end_overflowed(struct scry_fiber *fiber)
{
	uint16_t word;

	/* what it left in the x87 registers is no fiber's; the control word stays */
	__asm__ volatile("fnstcw %0; fninit; fldcw %0" : "=m"(word)::"st", "memory");
	end(fiber, NULL, -EOVERFLOW);
}

int scry_fiber_overflowed(struct scry_stack_overflow *overflow, void *arg)
{
	struct scry_fiber_sched *sched = arg;
	struct scry_fiber *fiber = scry_fiber_current;

	/* while the scheduler is at work, what it holds is not whole */
	if (sched->attr.on_overflow == NULL || fiber->sched != sched || sched->busy ||
	    STATE_OF(fiber) != SCRY_STATE_IDLE || fiber->stack.id != overflow->id ||
	    (uintptr_t)fiber->stack.top != overflow->top ||
	    sched->attr.on_overflow(overflow, sched->attr.arg) == 0)
		return 0;
	if (is_watched(sched))
		scry_fiber_report_emptied(fiber);
	overflow->resume_ip = (uintptr_t)end_overflowed;
	overflow->resume_sp = overflow->top - 8;
	overflow->resume_argument = (uintptr_t)fiber;
	return 1;
}

/* 0: the fiber is one that the caller may join, or detach. */
static int check_joinable(const struct scry_fiber *fiber)
{
	int error = scry_fiber_check(scry_fiber_current->sched, fiber);

	if (error == 0 && (fiber == fiber->sched->main || fiber->is_detached ||
			   fiber->joiner != NULL || STATE_OF(fiber) == SCRY_STATE_FREE))
		error = -EINVAL;
	return error;
}

/* Until the fiber ends, or the time is over. */
static int wait_for_end(struct scry_fiber *fiber, int64_t timeout_ns)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;
	int error = 0;

	if (timeout_ns == 0)
		return -ETIMEDOUT;
	if (timeout_ns > 0)
		error = scry_fiber_timer_add(sched, self, scry_fiber_after(timeout_ns));
	if (error != 0)
		return error;
	fiber->joiner = self;
	set_state(self, SCRY_STATE_WAITING);
	scry_fiber_go_on(sched);
	sched->busy = 1;
	fiber->joiner = NULL;
	return STATE_OF(fiber) == SCRY_STATE_ENDED ? 0 : -ETIMEDOUT;
}

int scry_fiber_join_within(struct scry_fiber *fiber, void **ret_value, int64_t timeout_ns)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;
	int error = scry_fiber_check(sched, fiber);

	if (error != 0)
		return error;
	if (fiber == scry_fiber_current || fiber == sched->main)
		return -EDEADLK;
	error = check_joinable(fiber);
	if (error != 0)
		return error;
	scry_fiber_enter(sched);
	if (STATE_OF(fiber) != SCRY_STATE_ENDED)
		error = wait_for_end(fiber, timeout_ns);
	if (error == 0) {
		error = fiber->error;
		if (ret_value != NULL)
			*ret_value = fiber->value;
		put_aside(sched, fiber);
	}
	sched->busy = 0;
	return error;
}

int scry_fiber_join(struct scry_fiber *fiber, void **ret_value)
{
	return scry_fiber_join_within(fiber, ret_value, SCRY_FIBER_FOREVER);
}

int scry_fiber_detach(struct scry_fiber *fiber)
{
	int error = check_joinable(fiber);

	if (error != 0)
		return error;
	scry_fiber_enter(fiber->sched);
	fiber->is_detached = 1;
	if (STATE_OF(fiber) == SCRY_STATE_ENDED)
		put_aside(fiber->sched, fiber);
	fiber->sched->busy = 0;
	return 0;
}

int scry_fiber_resume(struct scry_fiber *fiber)
{
	struct scry_fiber *self = scry_fiber_current;
	int error = check_idle(fiber);

	/* the fiber that has resumed it still waits for its yield, though it has parked or
	 * transferred since
	 */
	if (error == 0 && fiber->resumer != NULL)
		error = -EBUSY;
	if (error != 0)
		return error;
	scry_fiber_enter(self->sched);
	fiber->resumer = self;
	self->wait_result = 0;
	set_state(self, SCRY_STATE_RESUMING);
	scry_fiber_change(self, fiber);
	return self->wait_result;
}

void scry_fiber_yield(void)
{
	struct scry_fiber *self = scry_fiber_current, *resumer = self->resumer;
	struct scry_fiber_sched *sched = self->sched;

	if (sched == NULL)
		return;
	scry_fiber_enter(sched);
	if (resumer != NULL) {
		self->resumer = NULL;
		set_state(resumer, SCRY_STATE_IDLE);
		scry_fiber_change(self, resumer);
		return;
	}
	sched->is_due = 0;
	scry_fiber_queue(sched, self);
	scry_fiber_go_on(sched);
}

int scry_fiber_transfer_slow(struct scry_fiber *to)
{
	struct scry_fiber *self = scry_fiber_current;
	int error = scry_fiber_check(self->sched, to);

	if (error != 0)
		return error;
	if (STATE_OF(to) != SCRY_STATE_IDLE)
		return -EBUSY;
	if (to == self)
		return 0;
	scry_fiber_enter(self->sched);
	scry_fiber_change(self, to);
	return 0;
}

int scry_fiber_park_within(int64_t timeout_ns)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;
	int error = 0;

	if (sched == NULL)
		return -EPERM;
	if (!self->is_woken) {
		if (timeout_ns == 0)
			return -ETIMEDOUT;
		scry_fiber_enter(sched);
		if (timeout_ns > 0)
			error = scry_fiber_timer_add(sched, self, scry_fiber_after(timeout_ns));
		if (error != 0) {
			sched->busy = 0;
			return error;
		}
		self->is_parked = 1;
		scry_fiber_go_on(sched);
		self->is_parked = 0;
		if (timeout_ns > 0 && self->timer < 0 && !self->is_woken)
			return -ETIMEDOUT;
		scry_fiber_timer_remove(sched, self);
	}
	self->is_woken = 0;
	return 0;
}

int scry_fiber_park(void)
{
	return scry_fiber_park_within(SCRY_FIBER_FOREVER);
}

size_t scry_fiber_count(void)
{
	const struct scry_fiber_sched *sched = scry_fiber_current->sched;

	return sched == NULL ? 0 : sched->live;
}

int scry_fiber_advise(FILE *out)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;
	int error = -ENODATA;

	if (sched == NULL)
		return -EPERM;
	scry_fiber_put_spare(sched); /* it was not measured yet */
	for (int i = 0; i < SCRY_CLASSES; i++)
		if (sched->pools[i] != NULL && scry_stack_advise(sched->pools[i], out) == 0)
			error = 0;
	return error;
}

const char *scry_fiber_note(void)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;

	return sched == NULL ? scry_fiber_open_note : sched->note;
}
