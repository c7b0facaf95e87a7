/*
 * See hurry.h. A lender makes the loan itself: it asks for a lock (FUTEX_LOCK_PI) whose word says
 * that the borrower has it. Whoever asks may be kept in the kernel for as long as a borrower that
 * ends takes to clean up its robust futexes, deaf even to SIGKILL; that may be for ever, where
 * those lie in memory that no process serves. So it is never the thread that holds others, no
 * thread waits for a lender without end, and one that does not come back is the last: no more is
 * lent.
 *
 * To recall is to set the word free and to interrupt the wait. The kernel begins it again, and then
 * the lock is the lender's; no other thread knows of it. To pass a loan on is to write the next
 * borrower into the word instead; the wait for the one before ends before that for the next begins.
 */
#include "sys/hurry.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys/guard.h"
#include "sys/proc.h"

#define SLACK_NS 5000000000ull /* until we are taken for one that waits for ever */
#define PRIORITY_LENT 1
#define PRIORITY 2 /* whoever runs by a loan does not keep us from the processor */
#define LOAN_S 1
#define STACK_BYTES (256u << 10) /* the thread-local storage of all of scry is part of it */
#define NAP_NS 10000
#define END_S 1
#define OVER 0u	    /* a turn: the lender ends */
#define LOCK_PI2 13 /* linux/futex.h of 5.14: FUTEX_LOCK_PI whose limit is of CLOCK_MONOTONIC */

struct lender {
	pthread_t thread;
	uint32_t turn; /* one more for each loan; a futex */
	uint32_t owner;
	uint32_t seen; /* the last turn whose loan has ended */
	pid_t to;      /* 0: nobody */
};

static struct {
	struct lender *at[SCRY_LENDERS_MAX];
	size_t count;
	bool has_lost; /* one that did not come back */
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

/* Until it is recalled, the borrower has ended, or the time is over. */
static void lend_now(uint32_t *owner)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += LOAN_S;
	if (futex(owner, LOCK_PI2, 0, &end, NULL, 0) == 0 || errno != ENOSYS)
		return;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += LOAN_S;
	futex(owner, FUTEX_LOCK_PI, 0, &end, NULL, 0);
}

static void *lends(void *arg)
{
	struct lender *l = arg;
	uint32_t turn, done = OVER + 1;

	while ((turn = __atomic_load_n(&l->turn, __ATOMIC_ACQUIRE)) != OVER) {
		if (turn == done) {
			futex(&l->turn, FUTEX_WAIT, turn, NULL, NULL, 0);
			continue;
		}
		lend_now(&l->owner);
		done = turn;
		__atomic_store_n(&l->seen, done, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&l->seen, OVER, __ATOMIC_RELEASE);
	return NULL;
}

static struct lender *start(void)
{
	const struct sched_param lent = {.sched_priority = PRIORITY_LENT};
	struct lender *l = calloc(1, sizeof(*l));
	pthread_attr_t attr;

	if (!l)
		return NULL;
	l->turn = l->seen = OVER + 1;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_RR);
	pthread_attr_setschedparam(&attr, &lent);
	if (pthread_create(&l->thread, &attr, lends, l)) {
		free(l);
		l = NULL;
	}
	pthread_attr_destroy(&attr);
	return l;
}

size_t scry_hurry_most(void)
{
	cpu_set_t cpus[8]; /* 8,192 of them */
	size_t n;

	if (sched_getaffinity(0, sizeof(cpus), cpus) < 0)
		return 0;
	n = (size_t)CPU_COUNT_S(sizeof(cpus), cpus);
	n = n <= 2 ? n - 1 : (n - 1) / 2;
	return n < SCRY_LENDERS_MAX ? n : SCRY_LENDERS_MAX;
}

static void start_lenders(size_t n)
{
	const struct sigaction wake = {.sa_handler = wakes};
	sigset_t all, old;

	sigaction(SIGRTMIN, &wake, NULL);
	sigfillset(&all);
	sigdelset(&all, SIGRTMIN);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	n = n < scry_hurry_most() ? n : scry_hurry_most();
	while (lenders.count < n && (lenders.at[lenders.count] = start()))
		lenders.count++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void set_owner(struct lender *l, pid_t tid)
{
	__atomic_store_n(&l->owner, (uint32_t)tid, __ATOMIC_RELEASE);
	pthread_kill(l->thread, SIGRTMIN);
	l->to = tid;
}

static void recall(struct lender *l)
{
	set_owner(l, 0);
}

static bool is_back(const struct lender *l)
{
	return l->to || __atomic_load_n(&l->seen, __ATOMIC_ACQUIRE) == l->turn;
}

void scry_hurry_settle(void)
{
	for (size_t i = 0, naps = 0; i < lenders.count && naps < SCRY_HURRY_NAPS; i++)
		for (; !is_back(lenders.at[i]) && naps < SCRY_HURRY_NAPS; naps++)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* What a lost one has stays its own. */
static void join(struct lender *l, const struct timespec *end)
{
	const struct sched_param none = {0};

	/* Its borrower, released already, keeps it from the processor: no more, then. */
	if (!is_back(l))
		pthread_setschedparam(l->thread, SCHED_OTHER, &none);
	if (pthread_timedjoin_np(l->thread, NULL, end) == 0) {
		free(l);
		return;
	}
	pthread_detach(l->thread);
	lenders.has_lost = true;
}

static void end_lenders(void)
{
	struct timespec end;

	for (size_t i = 0; i < lenders.count; i++) {
		struct lender *l = lenders.at[i];

		__atomic_store_n(&l->turn, OVER, __ATOMIC_RELEASE);
		futex(&l->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
		recall(l);
	}
	scry_hurry_settle();
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += END_S; /* for all of them */
	for (size_t i = 0; i < lenders.count; i++)
		join(lenders.at[i], &end);
	lenders.count = 0;
}

static bool take(int priority)
{
	const struct sched_param param = {.sched_priority = priority};

	return sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param) == 0;
}

/* The time that a thread runs by a loan counts as its own, and beyond the limit it is killed. */
static bool is_limited(pid_t pid)
{
	return scry_proc_limit(pid, "Max realtime timeout") != UINT64_MAX;
}

void scry_hurry_begin(struct scry_hurry *h, pid_t pid, size_t n, uint64_t longest_ns)
{
	scry_guard_hold(pid, SLACK_NS + longest_ns);
	h->is_guarded = true;
	h->policy = sched_getscheduler(0);
	h->is_on = (h->policy & ~SCHED_RESET_ON_FORK) == SCHED_OTHER &&
		   (take(PRIORITY) || take(PRIORITY_LENT));
	if (h->is_on && n && !lenders.has_lost && !is_limited(pid))
		start_lenders(n);
}

void scry_hurry_end(struct scry_hurry *h)
{
	const struct sched_param none = {0};

	if (h->is_on)
		end_lenders();
	/* A process that has the priority by RLIMIT_RTPRIO alone may not take the reset on fork
	 * off. */
	if (h->is_on && sched_setscheduler(0, h->policy, &none) < 0)
		sched_setscheduler(0, h->policy | SCHED_RESET_ON_FORK, &none);
	h->is_on = false;
	if (h->is_guarded)
		scry_guard_let_go();
	h->is_guarded = false;
}

static struct lender *of(pid_t tid)
{
	for (size_t i = 0; i < lenders.count; i++)
		if (tid && lenders.at[i]->to == tid)
			return lenders.at[i];
	return NULL;
}

/* One that is not back yet does not wait for its turn: another may. */
static bool lend(pid_t tid, bool *ret_is_free)
{
	for (size_t i = 0; i < lenders.count; i++) {
		struct lender *l = lenders.at[i];

		if (l->to)
			continue;
		*ret_is_free = true;
		if (!is_back(l))
			continue;
		__atomic_store_n(&l->owner, (uint32_t)tid, __ATOMIC_RELEASE);
		__atomic_store_n(&l->turn, l->turn + 1 == OVER ? OVER + 1 : l->turn + 1,
				 __ATOMIC_RELEASE);
		futex(&l->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
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
		recall(l);
}

void scry_hurry_pass(pid_t from, pid_t to)
{
	struct lender *l = of(from);

	if (!l)
		return;
	if (__atomic_load_n(&l->seen, __ATOMIC_ACQUIRE) != l->turn)
		set_owner(l, to);
	else /* its time was over, or the borrower has ended */
		recall(l);
}
