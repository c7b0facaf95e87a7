/*
 * See hurry.h. The trick is FUTEX_CMP_REQUEUE_PI: a lender waits for `turn`, which is no lock; to
 * lend is to write the borrower's tid into `owner` and to have the kernel move the lender to that
 * word. So no lender has to run for a loan to begin. Once there it comes back for a signal without
 * being restarted; before that a restart finds another turn.
 */
#include "sys/hurry.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PRIORITY_LENT 1
#define PRIORITY 2 /* whoever runs by a loan does not keep us from the processor */
#define LOAN_S 1
#define STACK_BYTES (256u << 10) /* the thread-local storage of all of scry is part of it */
#define NAP_NS 10000
#define OVER 0u /* a turn: the lender ends */

struct lender {
	pthread_t thread;
	uint32_t turn;
	uint32_t owner;
	uint32_t seen; /* the last turn that it has come to: no loan of an earlier one is left */
	pid_t to;      /* 0: nobody */
};

static struct {
	struct lender at[SCRY_LENDERS_MAX];
	size_t count;
} lenders;

static void wakes(int signal)
{
	(void)signal;
}

static long futex(uint32_t *word, int op, uint32_t value, const void *limit, uint32_t *other,
		  uint32_t expected)
{
	return syscall(SYS_futex, word, op, value, limit, other, expected);
}

/* If the borrower ends, the lock is ours: nobody else knows of it, so nothing is to be done. */
static void *lends(void *arg)
{
	struct lender *l = arg;
	struct timespec end;
	uint32_t turn;

	while ((turn = __atomic_load_n(&l->turn, __ATOMIC_ACQUIRE)) != OVER) {
		__atomic_store_n(&l->seen, turn, __ATOMIC_RELEASE);
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_sec += LOAN_S;
		futex(&l->turn, FUTEX_WAIT_REQUEUE_PI, turn, &end, &l->owner, 0);
	}
	__atomic_store_n(&l->seen, OVER, __ATOMIC_RELEASE);
	return NULL;
}

static int start(struct lender *l)
{
	const struct sched_param lent = {.sched_priority = PRIORITY_LENT};
	pthread_attr_t attr;
	int r;

	*l = (struct lender){.turn = OVER + 1};
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_RR);
	pthread_attr_setschedparam(&attr, &lent);
	r = pthread_create(&l->thread, &attr, lends, l);
	pthread_attr_destroy(&attr);
	return r;
}

static void start_lenders(size_t n)
{
	const struct sigaction wake = {.sa_handler = wakes};
	sigset_t all, old;

	sigaction(SIGRTMIN, &wake, NULL);
	sigfillset(&all);
	sigdelset(&all, SIGRTMIN);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (lenders.count < n && lenders.count < SCRY_LENDERS_MAX &&
	       start(&lenders.at[lenders.count]) == 0)
		lenders.count++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void wake(struct lender *l, uint32_t turn)
{
	__atomic_store_n(&l->turn, turn, __ATOMIC_RELEASE);
	pthread_kill(l->thread, SIGRTMIN);
	l->to = 0;
}

static bool is_back(const struct lender *l)
{
	return l->to || __atomic_load_n(&l->seen, __ATOMIC_ACQUIRE) == l->turn;
}

void scry_hurry_settle(void)
{
	for (size_t i = 0, naps = 0; i < lenders.count && naps < SCRY_HURRY_NAPS; i++)
		for (; !is_back(&lenders.at[i]) && naps < SCRY_HURRY_NAPS; naps++)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void end_lenders(void)
{
	const struct sched_param none = {0};

	for (size_t i = 0; i < lenders.count; i++)
		wake(&lenders.at[i], OVER);
	scry_hurry_settle();
	for (size_t i = 0; i < lenders.count; i++) {
		/* Its borrower, let go of already, keeps it from the processor: no more, then. */
		if (!is_back(&lenders.at[i]))
			pthread_setschedparam(lenders.at[i].thread, SCHED_OTHER, &none);
		pthread_join(lenders.at[i].thread, NULL);
	}
	lenders.count = 0;
}

static bool take(int priority)
{
	const struct sched_param param = {.sched_priority = priority};

	return sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param) == 0;
}

void scry_hurry_begin(struct scry_hurry *h, size_t n)
{
	h->policy = sched_getscheduler(0);
	h->is_on = (h->policy & ~SCHED_RESET_ON_FORK) == SCHED_OTHER &&
		   (take(PRIORITY) || take(PRIORITY_LENT));
	if (h->is_on && n)
		start_lenders(n);
}

void scry_hurry_end(struct scry_hurry *h)
{
	const struct sched_param none = {0};

	if (h->is_on)
		end_lenders();
	/* Who has the priority by RLIMIT_RTPRIO alone may not take the reset on fork off. */
	if (h->is_on && sched_setscheduler(0, h->policy, &none) < 0)
		sched_setscheduler(0, h->policy | SCHED_RESET_ON_FORK, &none);
	h->is_on = false;
}

static struct lender *of(pid_t tid)
{
	for (size_t i = 0; i < lenders.count; i++)
		if (lenders.at[i].to == tid)
			return &lenders.at[i];
	return NULL;
}

/* One that is not back yet does not wait for its turn: another may. */
static bool lend(pid_t tid, bool *ret_is_free)
{
	for (size_t i = 0; i < lenders.count; i++) {
		struct lender *l = &lenders.at[i];

		if (l->to)
			continue;
		*ret_is_free = true;
		l->owner = (uint32_t)tid;
		if (futex(&l->turn, FUTEX_CMP_REQUEUE_PI, 1, NULL, &l->owner, l->turn) != 1)
			continue;
		l->to = tid;
		return true;
	}
	return false;
}

bool scry_hurry_lend(pid_t tid, unsigned int naps)
{
	for (unsigned int i = 0; !of(tid); i++) {
		bool is_free = false;

		if (lend(tid, &is_free))
			break;
		if (!is_free || i >= naps)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	return true;
}

void scry_hurry_recall(pid_t tid)
{
	struct lender *l = of(tid);

	if (l)
		wake(l, l->turn + 1);
}
