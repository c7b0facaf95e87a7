/*
 * Schedulers: opened by a thread, left behind by fork or by the thread's end, and what comes to
 * them from other threads.
 * Mail is a list that any thread pushes on and the owner takes whole; the event descriptor is
 * written only when the owner sleeps.
 *
 * No call is a point of cancellation: a thread that ended in the middle of one would leave a wake
 * half done, and `senders` too high for ever. So system calls that glibc makes such points of
 * (read, write, nanosleep, poll, epoll_wait) are made by syscall(2), here and elsewhere, or while
 * cancellation is disabled (close).
 */
#include "fiber/queue.h"
#include "fiber/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ARCH_SHSTK_STATUS 0x5005 /* arch/x86/include/uapi/asm/prctl.h */

/* C++ has it: Itanium C++ ABI, section 2.4.2. */
void *__cxa_get_globals(void) __attribute__((weak));

static struct scry_fiber_sched
	*scheds[SCRY_SCHEDS]; /* for the child of a fork, and for debuggers */
static pthread_mutex_t scheds_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key; /* its destructor is called when a thread ends */
static bool has_thread_key;

__attribute__((visibility("default"))) extern struct scry_fiber_registry scry_fiber_registry;
struct scry_fiber_registry scry_fiber_registry = {
	.magic = SCRY_FIBER_MAGIC,
	.version = SCRY_FIBER_REGISTRY_VERSION,
	.capacity = SCRY_SCHEDS,
	.scheds = scheds,
	.sched_main = offsetof(struct scry_fiber_sched, main),
	.sched_tid = offsetof(struct scry_fiber_sched, tid),
	.sched_pools = offsetof(struct scry_fiber_sched, pools),
	.classes = SCRY_CLASSES,
	.pool_slab_slots = offsetof(struct scry_stack_pool, slab_slots),
	.pool_slab_count = offsetof(struct scry_stack_pool, slab_count),
	.pool_slabs = offsetof(struct scry_stack_pool, slabs),
	.pool_size = offsetof(struct scry_stack_pool, size),
	.extra = SCRY_SLAB_EXTRA,
	.fiber_bytes = sizeof(struct scry_fiber),
	.fiber_sp = offsetof(struct scry_fiber, sp),
	.fiber_state = offsetof(struct scry_fiber, state),
	.fiber_name = offsetof(struct scry_fiber, name),
	.fiber_entry = offsetof(struct scry_fiber, entry),
	.fiber_low = offsetof(struct scry_fiber, stack.low),
	.fiber_top = offsetof(struct scry_fiber, stack.top),
	.fiber_magic = offsetof(struct scry_fiber, magic),
	.fiber_sched = offsetof(struct scry_fiber, sched),
	.sched_is_lost = offsetof(struct scry_fiber_sched, is_lost),
};

/* A number that no scheduler of this process has, nor had lately: those that a fork left are not
 * listed. */
static uint32_t take_number(void)
{
	static uint16_t last;
	int i;

	do {
		last = last == UINT16_MAX ? 1 : last + 1;
		for (i = 0; i < SCRY_SCHEDS; i++)
			if (scheds[i] != NULL && scheds[i]->keep >> SCRY_TAG_SHIFT == last)
				break;
	} while (i < SCRY_SCHEDS);
	return (uint32_t)last << SCRY_TAG_SHIFT;
}

static int enlist(struct scry_fiber_sched *sched)
{
	int error = -EAGAIN;

	pthread_mutex_lock(&scheds_lock);
	for (int i = 0; i < SCRY_SCHEDS && error != 0; i++) {
		if (scheds[i] == NULL) {
			sched->keep |= take_number();
			scheds[i] = sched;
			error = 0;
		}
	}
	pthread_mutex_unlock(&scheds_lock);
	return error;
}

static void strike(const struct scry_fiber_sched *sched)
{
	pthread_mutex_lock(&scheds_lock);
	for (int i = 0; i < SCRY_SCHEDS; i++)
		if (scheds[i] == sched)
			scheds[i] = NULL;
	pthread_mutex_unlock(&scheds_lock);
}

static void before_fork(void)
{
	pthread_mutex_lock(&scheds_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&scheds_lock);
}

/*
 * The child has the forking fiber alone. It gets a scheduler of its own; all others keep pointing
 * to schedulers that are marked as lost, which needs no look at any of them.
 */
static void after_fork_in_child(void)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *was = self->sched, *now = NULL;

	if (was != NULL)
		now = malloc(sizeof(*now));
	for (int i = 0; i < SCRY_SCHEDS; i++) {
		if (scheds[i] != NULL)
			scheds[i]->is_lost = true;
		scheds[i] = NULL;
	}
	pthread_mutex_init(&scheds_lock, NULL);
	if (was == NULL || now == NULL)
		return;
	*now = *was;
	now->is_lost = false;
	now->tid = syscall(SYS_gettid);
	now->preempt.is_on = 0; /* timers are not inherited: timer_create(2) */
	now->is_due = 0;
	now->head = now->tail = now->spare = NULL;
	now->timer_count = 0;
	now->waiting = 0;
	now->mails = NULL;
	now->woken = NULL;
	now->is_asleep = 0;
	now->senders = 0;
	now->live = now->held = self != was->main;
	if (self != was->main)
		now->main = NULL;
	for (int i = 0; i < SCRY_CLASSES; i++)
		if (now->pools[i] != NULL)
			now->pools[i]->attr.arg = now;
	if (now->watches != NULL)
		memset(now->watches, 0, now->watch_room * sizeof(*now->watches));
	was->timers = NULL;
	was->watches = NULL;
	self->sched = now;
	self->resumer = NULL;
	self->joiner = NULL;
	self->timer = -1;
	atomic_store(&self->is_mailed, 0); /* a wake that was under way is the parent's */
	now->keep = (was->keep & ((1u << SCRY_TAG_SHIFT) - 1)) | take_number();
	self->state = SCRY_STATE_IDLE | now->keep;
	scheds[0] = now;
	scry_fiber_poll_close(was);
	scry_fiber_poll_open(now); /* without it nothing can be waited for: -EBADF */
}

/* Who is in such a call still reads the scheduler, though its mail is here already; a yield would
 * keep one of a lower real-time priority from the processor. */
static void wait_for_senders(struct scry_fiber_sched *sched)
{
	while (atomic_load(&sched->senders) > 0)
		syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 20000}, NULL);
}

/*
 * Its thread has ended, and there are fibers in it that did not. Their stacks stay: other threads
 * may have addresses of what lies on them. All else is given back.
 */
static void abandon(struct scry_fiber_sched *sched)
{
	const int fd = sched->attr.report_fd == 0 ? STDERR_FILENO : sched->attr.report_fd;
	char said[240];
	int length =
		snprintf(said, sizeof(said),
			 "scry_fiber: thread %d ended before its scheduler was closed, and %zu "
			 "of its fibers did not end: their stacks stay, and nothing runs them; "
			 "fix: join them, then call scry_fiber_close\n",
			 sched->tid, sched->live);

	scry_preempt_stop();
	atomic_store(&sched->is_lost, true);
	wait_for_senders(sched);
	if (scry_fiber_current != sched->main) /* its frames are gone */
		scry_fiber_current->state = SCRY_STATE_ENDED | sched->keep;
	scry_fiber_current = &scry_fiber_nobody;
	scry_fiber_poll_close(sched);
	free(sched->timers);
	free(sched->watches);
	sched->timers = NULL;
	sched->watches = NULL;
	scry_stack_unwatch();
	if (fd >= 0)
		length = syscall(SYS_write, fd, said, length); /* what fails here has no reader */
}

/* Also in the middle of a fiber, by pthread_exit: it stands on the thread's own stack then. */
static void thread_ends(void *arg)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;

	if (sched == NULL || sched->is_lost)
		return;
	if (self == sched->main && !sched->busy && sched->live == 0) {
		sched->held = 0; /* nobody can join those that have ended any more */
		if (scry_fiber_close() == 0)
			return;
	}
	abandon(sched);
}

static void prepare(void)
{
	has_thread_key = pthread_key_create(&thread_key, thread_ends) == 0;
	scry_fiber_registry.current_tls =
		(char *)&scry_fiber_current - (char *)__builtin_thread_pointer();
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static bool has_shadow_stack(void)
{
	unsigned long features = 0;

	return syscall(SYS_arch_prctl, ARCH_SHSTK_STATUS, &features) == 0 && (features & 1) != 0;
}

__thread const char *scry_fiber_open_note = "this thread has no scheduler";

static int open_parts(struct scry_fiber_sched *sched, struct scry_fiber *first)
{
	int error = scry_stack_watch();

	if (error != 0) {
		scry_fiber_open_note =
			"the handlers for overflows, or their stack, could not be set";
		return error;
	}
	error = scry_fiber_report_open(sched, first);
	if (error == 0) {
		scry_fiber_open_note = "no descriptor for epoll, or for events: see ulimit -n";
		error = scry_fiber_poll_open(sched);
	}
	if (error == 0) {
		scry_fiber_open_note =
			"a process has 1,024 schedulers at most, with those of threads that ended "
			"before their fibers";
		error = enlist(sched);
		if (error != 0)
			scry_fiber_poll_close(sched);
	}
	if (error != 0)
		scry_stack_unwatch();
	else
		scry_fiber_open_note = "this thread has no scheduler";
	return error;
}

int scry_fiber_open(const struct scry_fiber_sched_attr *attr, struct scry_fiber_sched **ret_sched)
{
	struct scry_fiber_sched *sched;
	struct scry_fiber *first;
	int error;

	if (scry_fiber_current->sched != NULL)
		return -EEXIST;
	if (has_shadow_stack()) {
		scry_fiber_open_note = "a shadow stack is on";
		return -EOPNOTSUPP;
	}
	pthread_once(&prepared, prepare);
	sched = calloc(1, sizeof(*sched));
	first = aligned_alloc(64, sizeof(*first));
	if (sched == NULL || first == NULL) {
		scry_fiber_open_note = "no memory for a scheduler";
		free(sched);
		free(first);
		return -ENOMEM;
	}
	memset(first, 0, sizeof(*first));
	if (attr != NULL)
		sched->attr = *attr;
	sched->pool_is_measured = (sched->attr.flags & SCRY_FIBER_MEASURED) != 0;
	sched->keep |= (sched->attr.flags & SCRY_FIBER_NO_FP) ? 0 : SCRY_KEEP_FP;
	if (__cxa_get_globals != NULL) {
		sched->cxa = __cxa_get_globals();
		sched->keep |= SCRY_KEEP_CXA;
	}
	first->sched = sched;
	first->timer = -1;
	first->name = "main";
	first->magic = SCRY_FIBER_MAGIC;
	sched->main = first;
	sched->tid = syscall(SYS_gettid);
	error = open_parts(sched, first); /* from here on others see it */
	if (error != 0) {
		free(sched);
		free(first);
		return error;
	}
	first->state = SCRY_STATE_IDLE | sched->keep;
	scry_fiber_current = first;
	if (has_thread_key) /* where there is none, its thread has to close it */
		pthread_setspecific(thread_key, sched);
	if (ret_sched != NULL)
		*ret_sched = sched;
	return 0;
}

int scry_fiber_close(void)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;

	if (sched == NULL || self != sched->main)
		return -EPERM;
	wait_for_senders(sched);
	scry_fiber_mail_take(sched); /* what others have spawned here is not lost */
	if (sched->held > 0 || atomic_load(&sched->mails) != NULL)
		return -EBUSY;
	scry_preempt_stop();
	if (has_thread_key)
		pthread_setspecific(thread_key, NULL);
	strike(sched);
	scry_fiber_current = &scry_fiber_nobody;
	scry_fiber_poll_close(sched);
	scry_fiber_put_spare(sched);
	for (int i = 0; i < SCRY_CLASSES; i++)
		scry_stack_pool_free(sched->pools[i]);
	free(sched->timers);
	free(sched->watches);
	free(sched);
	free(self);
	scry_stack_unwatch();
	return 0;
}

/* The memory of one that is lost is never freed; it is asked when whoever waits for senders sees
 * this one. */
static bool enter_from_outside(struct scry_fiber_sched *sched)
{
	atomic_fetch_add(&sched->senders, 1);
	if (!atomic_load(&sched->is_lost))
		return true;
	atomic_fetch_sub(&sched->senders, 1);
	return false;
}

int scry_fiber_spawn_on(struct scry_fiber_sched *sched, scry_fiber_fn *entry, void *arg)
{
	struct scry_mail *mail = malloc(sizeof(*mail));

	if (mail == NULL)
		return -ENOMEM;
	if (!enter_from_outside(sched)) {
		free(mail);
		return -ESRCH;
	}
	mail->entry = entry;
	mail->arg = arg;
	mail->next = atomic_load(&sched->mails);
	while (!atomic_compare_exchange_weak(&sched->mails, &mail->next, mail))
		;
	scry_fiber_mail_ring(sched);
	atomic_fetch_sub(&sched->senders, 1); /* from here on it may be closed */
	return 0;
}

/* By its own thread: a parked fiber becomes ready, be it the one that looks for the next; any other
 * does not park next time. */
static void wake_here(struct scry_fiber *fiber)
{
	if (fiber->is_parked && (fiber->state & SCRY_STATE_MASK) == SCRY_STATE_IDLE)
		scry_fiber_queue(fiber->sched, fiber);
	fiber->is_woken = 1;
}

int scry_fiber_wake(struct scry_fiber *fiber)
{
	struct scry_fiber_sched *sched = fiber->sched;
	struct scry_fiber *head;

	if (sched == scry_fiber_current->sched) {
		wake_here(fiber);
		return 0;
	}
	if (!enter_from_outside(sched))
		return -ESRCH;
	if (!atomic_exchange(&fiber->is_mailed, 1)) {
		head = atomic_load(&sched->woken);
		do
			fiber->mail_next = head;
		while (!atomic_compare_exchange_weak(&sched->woken, &head, fiber));
		scry_fiber_mail_ring(sched);
	}
	atomic_fetch_sub(&sched->senders, 1);
	return 0;
}

/* Those that other threads woke, in the order in which they came. */
static void take_woken(struct scry_fiber_sched *sched)
{
	struct scry_fiber *woken = NULL, *last = atomic_exchange(&sched->woken, NULL);

	while (last != NULL) {
		struct scry_fiber *next = last->mail_next;

		last->mail_next = woken;
		woken = last;
		last = next;
	}
	while (woken != NULL) {
		struct scry_fiber *fiber = woken;

		woken = fiber->mail_next;
		atomic_store(&fiber->is_mailed, 0);
		wake_here(fiber);
	}
}

void scry_fiber_mail_forget(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	while (atomic_load(&fiber->is_mailed)) {
		take_woken(sched);
		if (atomic_load(&fiber->is_mailed)) /* its waker is just about to put it there */
			sched_yield();
	}
}

/* In the order in which they came. */
void scry_fiber_mail_take(struct scry_fiber_sched *sched)
{
	struct scry_mail *mails = NULL, *newest;

	if (atomic_load_explicit(&sched->mails, memory_order_relaxed) == NULL &&
	    atomic_load_explicit(&sched->woken, memory_order_relaxed) == NULL)
		return;
	sched->is_mail_stuck = false;
	newest = atomic_exchange(&sched->mails, NULL);
	while (newest != NULL) {
		struct scry_mail *next = newest->next;

		newest->next = mails;
		mails = newest;
		newest = next;
	}
	while (mails != NULL) {
		struct scry_mail *mail = mails;
		struct scry_fiber *fiber;

		if (scry_fiber_make(sched, &(struct scry_fiber_attr){.is_detached = 1}, mail->entry,
				    mail->arg, &fiber) != 0)
			break; /* no stack now: those that are left are tried again */
		scry_fiber_queue(sched, fiber);
		mails = mail->next;
		free(mail);
	}
	sched->is_mail_stuck = mails != NULL;
	while (mails != NULL) {
		struct scry_mail *mail = mails;

		mails = mail->next;
		mail->next = atomic_load(&sched->mails);
		while (!atomic_compare_exchange_weak(&sched->mails, &mail->next, mail))
			;
	}
	take_woken(sched);
}

void scry_fiber_mail_ring(struct scry_fiber_sched *sched)
{
	uint64_t one = 1;
	long written;

	if (!atomic_load(&sched->is_asleep))
		return;
	written = syscall(SYS_write, sched->event, &one, sizeof(one));
	(void)written; /* it fails only when it is full, and then the owner wakes anyway */
}
