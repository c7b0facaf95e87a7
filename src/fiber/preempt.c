/*
 * Ticks. The handler only decides: it changes where the thread goes on to the trampoline, and
 * returns, so that no switch happens within a signal handler and the mask is as it was. The
 * trampoline (trampoline.S) saves all and calls scry_preempt_leave.
 *
 * Forbidden are ticks while the scheduler is at work (sched->busy, which the handler itself sets
 * until the switch), in code that was not allowed, within other handlers, and where the stack has
 * no room.
 */
#include "fiber/queue.h"
#include "fiber/scry_preempt.h"

#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define RANGES 64
#define RED_ZONE 128
#define LEAST_SLICE_NS 10000
#define ROOM 4096	     /* beside the registers: for the scheduler's frames */
#define HANDLER_REACH 16384u /* above the stack pointer: how far a signal's frame is looked for */
#define TICK SIGURG	     /* ignored by default: one that comes late does no harm */

struct range {
	uintptr_t begin, end;
};

void scry_preempt_trampoline(void);
void scry_preempt_leave(void);

__attribute__((visibility("hidden"))) uint64_t scry_preempt_xsave_bytes;
__attribute__((visibility("hidden"))) int scry_preempt_has_xsavec;

static uintptr_t restorer; /* where handlers return to: of libc */
static struct range ranges[RANGES];
static _Atomic uint32_t range_count;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;

/* The size of all that may have to be saved: SDM volume 1, 13.2. */
static bool learn_xsave(void)
{
	unsigned eax, ebx, ecx, edx;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_OSXSAVE) == 0)
		return false;
	__cpuid_count(0xd, 1, eax, ebx, ecx, edx);
	scry_preempt_has_xsavec = (eax & 2) != 0;
	if (!scry_preempt_has_xsavec)
		__cpuid_count(0xd, 0, eax, ebx, ecx, edx);
	/* compacted areas are aligned within, and the header is always there */
	scry_preempt_xsave_bytes = (ebx < 576 ? 576 : ebx) + 64;
	return true;
}

int scry_preempt_allow(const void *begin, const void *end)
{
	int error = 0;

	if (begin >= end)
		return -EINVAL;
	pthread_mutex_lock(&ranges_lock);
	if (range_count == RANGES) {
		error = -ENOSPC;
	} else {
		ranges[range_count] = (struct range){(uintptr_t)begin, (uintptr_t)end};
		range_count++; /* after it is filled in: a handler may be reading */
	}
	pthread_mutex_unlock(&ranges_lock);
	return error;
}

static bool is_allowed(uintptr_t ip)
{
	for (uint32_t i = 0; i < range_count; i++)
		if (ip >= ranges[i].begin && ip < ranges[i].end)
			return true;
	return false;
}

/*
 * Is it in a handler of its own? Nearly all are known by the signal that is blocked meanwhile; one
 * with SA_NODEFER and an empty mask only by what the kernel has put above it (asm/sigframe.h):
 *
 *     restorer | ucontext_t: uc_flags | uc_link: 0 | ... registers, with rsp, from above it
 *
 * What an earlier handler left looks the same, in room that a function has and did not write to:
 * the tick is kept then, which does no harm.
 */
__attribute__((no_sanitize("address", "thread"))) static bool is_in_handler(uintptr_t sp,
									    uintptr_t high)
{
	const uintptr_t last = high - sp < HANDLER_REACH ? high : sp + HANDLER_REACH;

	/* the frame's end, and so its beginning, is 8 more than a multiple of 16 */
	for (uintptr_t at = ((sp + 7) & ~(uintptr_t)15) + 8;
	     at + 8 + offsetof(ucontext_t, uc_sigmask) <= last; at += 16) {
		const ucontext_t *context = (const ucontext_t *)(at + 8);

		if (*(const uintptr_t *)at == restorer && context->uc_link == NULL &&
		    (uintptr_t)context->uc_mcontext.gregs[REG_RSP] > at &&
		    (uintptr_t)context->uc_mcontext.gregs[REG_RSP] <= high)
			return true;
	}
	return false;
}

/* On the running fiber's own stack, with room for all that the trampoline saves, and in no handler.
 */
static bool may_leave(const struct scry_fiber_sched *sched, const struct scry_fiber *fiber,
		      uintptr_t sp)
{
	uintptr_t low = (uintptr_t)fiber->stack.low, high = (uintptr_t)fiber->stack.top;
	bool is;

	if (fiber == sched->main) {
		low = sched->preempt.main_low;
		high = sched->preempt.main_high;
	}
	if (sp > high || sp <= low || sp - low <= scry_preempt_xsave_bytes + ROOM)
		return false;
	scry_fiber_report_search(sched, true);
	is = !is_in_handler(sp, high);
	scry_fiber_report_search(sched, false);
	return is;
}

static void on_tick(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	greg_t *registers = context->uc_mcontext.gregs;
	struct scry_fiber *fiber = scry_fiber_current;
	struct scry_fiber_sched *sched = fiber->sched;
	uint64_t *top;

	if (sched == NULL || !sched->preempt.is_on)
		return;
	sched->preempt.counts.ticks++;
	if (info->si_code == SI_TIMER)
		sched->preempt.counts.missed += info->si_overrun;
	if (sched->busy || !is_allowed(registers[REG_RIP]) ||
	    memcmp(&context->uc_sigmask, &sched->preempt.mask, SCRY_KERNEL_MASK) != 0 ||
	    !may_leave(sched, fiber, registers[REG_RSP])) {
		sched->preempt.counts.kept++;
		sched->is_due = 1;
		return;
	}
	if (sched->head == NULL && sched->waiting == 0 && sched->timer_count == 0 &&
	    sched->mails == NULL && sched->woken == NULL) {
		sched->preempt.counts.alone++;
		return;
	}
	sched->preempt.counts.switched++;
	sched->busy = 1;
	top = (uint64_t *)(registers[REG_RSP] - RED_ZONE) - 1;
	*top = registers[REG_RIP];
	registers[REG_RSP] = (greg_t)top;
	registers[REG_RIP] = (greg_t)scry_preempt_trampoline;
}

/* By the trampoline, on the fiber's stack, while the scheduler is marked as busy: others run, then
 * this one again. */
void scry_preempt_leave(void)
{
	struct scry_fiber *self = scry_fiber_current;
	int error = errno;

	self->preempted++;
	self->sched->is_due = 0;
	self->sched->turns = SCRY_TURNS_DUE;
	scry_fiber_queue(self->sched, self);
	scry_fiber_go_on(self->sched);
	errno = error;
}

void scry_preempt_point(void)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;

	if (sched == NULL || !sched->is_due)
		return;
	scry_fiber_enter(sched);
	sched->is_due = 0;
	sched->turns = SCRY_TURNS_DUE;
	scry_fiber_queue(sched, self);
	scry_fiber_go_on(sched);
}

/* The kernel's struct sigaction (asm/signal.h), which glibc does not show. */
struct kernel_action {
	void *handler;
	unsigned long flags;
	uintptr_t restorer;
	uint64_t mask;
};

static int install(void)
{
	struct kernel_action installed = {0};
	struct sigaction action = {.sa_sigaction = on_tick,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART},
			 now;
	int error = 0;

	sigfillset(&action.sa_mask); /* no other handler leaves it by a jump */
	pthread_mutex_lock(&install_lock);
	if (sigaction(TICK, NULL, &now) != 0) {
		error = -errno;
	} else if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_tick) {
		if ((now.sa_flags & SA_SIGINFO) != 0 ||
		    (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN))
			error = -EBUSY; /* the program uses the signal itself */
		else if (sigaction(TICK, &action, NULL) != 0)
			error = -errno;
	}
	/* other handlers have the same one */
	if (syscall(SYS_rt_sigaction, TICK, NULL, &installed, SCRY_KERNEL_MASK) == 0)
		restorer = installed.restorer;
	pthread_mutex_unlock(&install_lock);
	return error;
}

/* The bounds of the thread's own stack, which the main fiber runs on. */
static int learn_main_stack(struct scry_fiber_sched *sched)
{
	pthread_attr_t attr;
	void *low;
	size_t size;
	int error = pthread_getattr_np(pthread_self(), &attr);

	if (error != 0)
		return -error;
	error = pthread_attr_getstack(&attr, &low, &size);
	pthread_attr_destroy(&attr);
	sched->preempt.main_low = (uintptr_t)low;
	sched->preempt.main_high = (uintptr_t)low + size;
	return -error;
}

int scry_preempt_start(int64_t slice_ns)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TICK};
	struct itimerspec each;
	int error;

	if (sched == NULL)
		return -EPERM;
	if (sched->preempt.is_on)
		return -EBUSY;
	if (slice_ns < LEAST_SLICE_NS)
		return -EINVAL;
	if (!learn_xsave())
		return -EOPNOTSUPP;
	error = learn_main_stack(sched);
	if (error == 0)
		error = install();
	if (error != 0)
		return error;
	event._sigev_un._tid = syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &event, &sched->preempt.timer) != 0)
		return -errno;
	pthread_sigmask(SIG_SETMASK, NULL, &sched->preempt.mask);
	memset(&sched->preempt.counts, 0, sizeof(sched->preempt.counts));
	sched->preempt.began_ns = scry_fiber_now();
	sched->preempt.is_on = 1;
	each.it_interval = (struct timespec){slice_ns / 1000000000, slice_ns % 1000000000};
	each.it_value = each.it_interval;
	if (timer_settime(sched->preempt.timer, 0, &each, NULL) != 0) {
		error = -errno;
		scry_preempt_stop();
	}
	return error;
}

int scry_preempt_stop(void)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;

	if (sched == NULL)
		return -EPERM;
	if (!sched->preempt.is_on)
		return 0;
	/* first the mark: a signal that is on its way is dropped */
	sched->preempt.is_on = 0;
	sched->preempt.counts.elapsed_ns = scry_fiber_now() - sched->preempt.began_ns;
	sched->is_due = 0;
	return timer_delete(sched->preempt.timer) == 0 ? 0 : -errno;
}

int scry_preempt_count(struct scry_preempt_counts *ret_counts)
{
	struct scry_fiber_sched *sched = scry_fiber_current->sched;

	if (sched == NULL)
		return -EPERM;
	*ret_counts = sched->preempt.counts;
	if (sched->preempt.is_on)
		ret_counts->elapsed_ns = scry_fiber_now() - sched->preempt.began_ns;
	return 0;
}
