/* See guard.h. One writer, the guarded thread, and one reader: numbers that are odd while something
 * is under way. */
#include "sys/guard.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TURN_NS 500000000ull
#define TOUCH_NS 10000000000ull
#define STACK_BYTES (256u << 10) /* with our static TLS */

static struct {
	pid_t process; /* that has the thread; a fork child has none yet */
	pid_t pid;
	uint64_t address;
	uint64_t touches, holds; /* odd: one is under way */
	uint64_t longest_ns;	 /* of the hold */
	unsigned int depth;
} guard;
static __thread bool is_guarded;

struct watched { /* by the thread: what is under way, and since how many turns */
	uint64_t number, turns;
};

static bool has_stuck(struct watched *w, const uint64_t *number, uint64_t longest_ns)
{
	uint64_t now = __atomic_load_n(number, __ATOMIC_ACQUIRE);

	w->turns = now == w->number ? w->turns + 1 : 0;
	w->number = now;
	return now & 1 && w->turns > longest_ns / TURN_NS;
}

static void end(bool is_held)
{
	const pid_t pid = __atomic_load_n(&guard.pid, __ATOMIC_RELAXED);
	char text[512];
	int n;

	if (__atomic_load_n(&guard.touches, __ATOMIC_ACQUIRE) & 1)
		n = snprintf(text, sizeof(text),
			     "scry: the memory of process %d at %#" PRIx64
			     " cannot be read: its provider (userfaultfd, a file of FUSE or of a "
			     "network) does not answer; ",
			     pid, __atomic_load_n(&guard.address, __ATOMIC_RELAXED));
	else
		n = snprintf(text, sizeof(text),
			     "scry: a file of process %d cannot be read, or the kernel does not "
			     "answer; ",
			     pid);
	n += snprintf(text + n, sizeof(text) - (size_t)n,
		      "scry ends, %s; fix: when it answers again, scry undo -p %d, and the same "
		      "for the other processes that were watched\n",
		      is_held ? "as threads of the process are stopped"
			      : "as other processes wait for it",
		      pid);
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(1);
	kill(getpid(), SIGKILL);
}

static void *look_on(void *unused)
{
	struct watched touch = {0}, hold = {0};

	(void)unused;
	for (;;) {
		nanosleep(&(struct timespec){.tv_nsec = TURN_NS}, NULL);
		if (has_stuck(&hold, &guard.holds,
			      __atomic_load_n(&guard.longest_ns, __ATOMIC_RELAXED)))
			end(true);
		if (has_stuck(&touch, &guard.touches, TOUCH_NS))
			end(guard.holds & 1);
	}
	return NULL;
}

void scry_guard_start(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	if (guard.process == getpid())
		return;
	guard.process = getpid();
	guard.depth = 0;
	guard.touches = guard.holds = 0;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	is_guarded = pthread_create(&thread, &attr, look_on, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

void scry_guard_hold(pid_t pid, uint64_t longest_ns)
{
	scry_guard_start();
	if (!is_guarded || guard.depth++)
		return;
	__atomic_store_n(&guard.pid, pid, __ATOMIC_RELAXED);
	__atomic_store_n(&guard.longest_ns, longest_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&guard.holds, guard.holds + 1, __ATOMIC_RELEASE);
}

void scry_guard_let_go(void)
{
	if (is_guarded && !--guard.depth)
		__atomic_store_n(&guard.holds, guard.holds + 1, __ATOMIC_RELEASE);
}

void scry_guard_touch(pid_t pid, uint64_t address)
{
	if (!is_guarded)
		return;
	if (pid)
		__atomic_store_n(&guard.pid, pid, __ATOMIC_RELAXED);
	__atomic_store_n(&guard.address, address, __ATOMIC_RELAXED);
	__atomic_store_n(&guard.touches, guard.touches + 1, __ATOMIC_RELEASE);
}

void scry_guard_touched(void)
{
	if (is_guarded)
		__atomic_store_n(&guard.touches, guard.touches + 1, __ATOMIC_RELEASE);
}
