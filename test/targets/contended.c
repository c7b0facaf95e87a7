/*
 * Waits for mutexes and conditions, as it is told on stdin, "NAME N MS": N threads and so many
 * milliseconds. Says after each what there was to be seen, by its own clock:
 *
 *   NAME waits W total_ns T max_ns M
 *
 * A mutex is held until the kernel says that all who shall wait for it sleep, so counts are exact.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 32
#ifndef __GLIBC__
#define PTHREAD_MUTEX_ADAPTIVE_NP PTHREAD_MUTEX_NORMAL
#endif

pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t recursive_lock, checking_lock, adaptive_lock, ceiling_lock, timed_lock;
struct {
	long before;
	pthread_mutex_t lock;
} record = {0, PTHREAD_MUTEX_INITIALIZER};
pthread_mutex_t stay_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t signal_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t signal_cond = PTHREAD_COND_INITIALIZER;
pthread_cond_t timed_cond = PTHREAD_COND_INITIALIZER;
pthread_cond_t cancel_cond = PTHREAD_COND_INITIALIZER;
static int is_signalled;

struct waiter {
	pthread_t thread;
	pthread_mutex_t *lock;
	volatile pid_t tid;
	int64_t ns;
	int calls; /* of the function that waits */
	int timeout_ms;
};
static struct waiter waiters[THREADS_MAX], stayer;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void nap(int ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL);
}

static struct timespec in(clockid_t clock, int ms)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_sec += (t.tv_nsec + ms * 1000000ll) / 1000000000;
	t.tv_nsec = (t.tv_nsec + ms * 1000000ll) % 1000000000;
	return t;
}

static void must(int error, const char *what)
{
	if (error) {
		printf("wrong: %s: %s\n", what, strerror(error));
		exit(1);
	}
}

/* Where the tests look for it in stacks. */
int take_queue(pthread_mutex_t *lock);
__attribute__((noinline)) int take_queue(pthread_mutex_t *lock)
{
	int r = pthread_mutex_lock(lock);

	__asm__ volatile("" ::: "memory"); /* no tail call */
	return r;
}

static void *waits(void *arg)
{
	struct waiter *w = arg;
	int64_t begin;

	w->tid = (pid_t)syscall(SYS_gettid);
	w->calls = 1;
	begin = now();
	must(take_queue(w->lock), "lock");
	w->ns = now() - begin;
	must(pthread_mutex_unlock(w->lock), "unlock");
	return NULL;
}

static void *waits_for_condition(void *arg)
{
	struct waiter *w = arg;
	int64_t begin;

	must(pthread_mutex_lock(&signal_lock), "lock");
	w->tid = (pid_t)syscall(SYS_gettid);
	begin = now();
	for (; !is_signalled; w->calls++)
		must(pthread_cond_wait(&signal_cond, &signal_lock), "wait");
	w->ns = now() - begin;
	must(pthread_mutex_unlock(&signal_lock), "unlock");
	return NULL;
}

static void unlocks(void *lock)
{
	must(pthread_mutex_unlock(lock), "unlock");
}

static void *is_cancelled(void *arg)
{
	struct waiter *w = arg;

	must(pthread_mutex_lock(&signal_lock), "lock");
	w->tid = (pid_t)syscall(SYS_gettid);
	pthread_cleanup_push(unlocks, &signal_lock);
	for (;; w->calls++)
		must(pthread_cond_wait(&cancel_cond, &signal_lock), "wait");
	pthread_cleanup_pop(1);
	return NULL;
}

static int sleeps(const struct waiter *w)
{
	char path[64], text[16] = "";
	int fd;

	if (!w->tid)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", w->tid);
	fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		must(errno, path);
	close(fd);
	return !strncmp(text, "202 ", 4); /* futex */
}

static void begin(struct waiter *w, int n, void *(*run)(void *), pthread_mutex_t *lock)
{
	for (int i = 0; i < n; i++) {
		w[i] = (struct waiter){.lock = lock};
		must(pthread_create(&w[i].thread, NULL, run, &w[i]), "thread");
	}
	for (int i = 0; i < n; i++)
		while (!sleeps(&w[i]))
			nap(1);
}

static void end(const char *name, struct waiter *w, int n)
{
	int64_t total = 0, max = 0;
	int calls = 0;

	for (int i = 0; i < n; i++) {
		must(pthread_join(w[i].thread, NULL), "join");
		total += w[i].ns;
		calls += w[i].calls;
		max = w[i].ns > max ? w[i].ns : max;
	}
	printf("%s waits %d total_ns %lld max_ns %lld\n", name, calls, (long long)total,
	       (long long)max);
}

static void told(const char *name, int count, int64_t ns)
{
	printf("%s waits %d total_ns %lld max_ns %lld\n", name, count, (long long)ns,
	       (long long)ns);
}

/* Nested so often by its owner, which is no wait. */
static void hold(const char *name, pthread_mutex_t *lock, int n, int ms)
{
	int again = 0;

	must(pthread_mutex_lock(lock), "lock");
	if (lock == &recursive_lock)
		for (again = 0; again < 1000; again++)
			must(pthread_mutex_lock(lock), "lock again");
	for (int i = 0; lock == &checking_lock && i < 1000; i++)
		if (pthread_mutex_lock(lock) != EDEADLK)
			must(EINVAL, "lock again");
	begin(waiters, n, waits, lock);
	nap(ms);
	for (; again; again--)
		must(pthread_mutex_unlock(lock), "unlock");
	must(pthread_mutex_unlock(lock), "unlock");
	end(name, waiters, n);
}

static void *fails_to_lock(void *arg)
{
	struct waiter *w = arg;
	struct timespec until = in(CLOCK_REALTIME, w->timeout_ms);
	int64_t begin = now();

	w->calls = 1;
	if (pthread_mutex_timedlock(&timed_lock, &until) != ETIMEDOUT)
		must(EINVAL, "timedlock");
	w->ns = now() - begin;
	for (int i = 0; i < 1000; i++)
		if (pthread_mutex_trylock(&timed_lock) != EBUSY)
			must(EINVAL, "trylock");
	return NULL;
}

static void timed(int ms)
{
	must(pthread_mutex_lock(&timed_lock), "lock");
	waiters[0] = (struct waiter){.timeout_ms = ms};
	must(pthread_create(&waiters[0].thread, NULL, fails_to_lock, &waiters[0]), "thread");
	end("timed", waiters, 1);
	must(pthread_mutex_unlock(&timed_lock), "unlock");
}

static void timed_condition(int ms)
{
	struct timespec until = in(CLOCK_REALTIME, ms);
	int64_t begin;
	int r = 0, count = 0;

	must(pthread_mutex_lock(&signal_lock), "lock");
	begin = now();
	for (; r != ETIMEDOUT; count++)
		r = pthread_cond_timedwait(&timed_cond, &signal_lock, &until);
	told("timedcond", count, now() - begin);
	must(pthread_mutex_unlock(&signal_lock), "unlock");
}

static void condition(int n, int ms)
{
	is_signalled = 0;
	begin(waiters, n, waits_for_condition, NULL);
	nap(ms);
	must(pthread_mutex_lock(&signal_lock), "lock");
	is_signalled = 1;
	must(pthread_mutex_unlock(&signal_lock), "unlock");
	for (int i = 0; i < n; i++)
		must(pthread_cond_signal(&signal_cond), "signal");
	end("cond", waiters, n);
}

static void cancel(int n)
{
	begin(waiters, n, is_cancelled, NULL);
	for (int i = 0; i < n; i++)
		must(pthread_cancel(waiters[i].thread), "cancel");
	end("cancel", waiters, n);
}

static void free_locks(int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++) {
		must(pthread_mutex_lock(&free_lock), "lock");
		sum += (uint64_t)i;
		must(pthread_mutex_unlock(&free_lock), "unlock");
	}
	if (sum != (uint64_t)n * (uint64_t)(n - 1) / 2)
		must(EINVAL, "sum");
	told("free", 0, 0);
}

/* Free, but for the ceiling in its word. Where no thread may have a priority it is refused to all.
 */
static void ceiling(int n)
{
	for (int i = 0; i < n; i++)
		if (pthread_mutex_lock(&ceiling_lock) == 0)
			must(pthread_mutex_unlock(&ceiling_lock), "unlock");
	told("ceiling", 0, 0);
}

static void stay(int ms)
{
	if (ms) {
		must(pthread_mutex_lock(&stay_lock), "lock");
		begin(&stayer, 1, waits, &stay_lock);
		printf("stays\n");
		return;
	}
	must(pthread_mutex_unlock(&stay_lock), "unlock");
	end("stay", &stayer, 1);
}

static volatile uint64_t counter, stop;
static void *counts(void *arg)
{
	uint64_t *own = arg;

	while (!stop) {
		must(pthread_mutex_lock(&queue_lock), "lock");
		counter++;
		must(pthread_mutex_unlock(&queue_lock), "unlock");
		++*own;
	}
	return NULL;
}

/* All that is added under the mutex must be there at the end. */
static void storm(int n, int ms)
{
	pthread_t threads[THREADS_MAX];
	static uint64_t own[THREADS_MAX];
	uint64_t sum = 0;

	counter = stop = 0;
	memset(own, 0, sizeof(own));
	for (int i = 0; i < n; i++)
		must(pthread_create(&threads[i], NULL, counts, &own[i]), "thread");
	nap(ms);
	stop = 1;
	for (int i = 0; i < n; i++) {
		must(pthread_join(threads[i], NULL), "join");
		sum += own[i];
	}
	must(sum == counter ? 0 : EINVAL, "counter");
	printf("storm %s, %d threads\n", sum == counter && sum ? "right" : "wrong", n);
}

static void init(pthread_mutex_t *lock, int type, int ceiling)
{
	pthread_mutexattr_t attr;

	must(pthread_mutexattr_init(&attr), "attr");
	must(pthread_mutexattr_settype(&attr, type), "type");
	if (ceiling) {
#ifdef __GLIBC__
		must(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_PROTECT), "protocol");
		must(pthread_mutexattr_setprioceiling(&attr, ceiling), "ceiling");
#endif
	}
	must(pthread_mutex_init(lock, &attr), "init");
}

static void does(const char *name, int n, int ms)
{
	static pthread_mutex_t *heap;

	if (!heap) {
		heap = malloc(sizeof(*heap));
		init(heap, PTHREAD_MUTEX_NORMAL, 0);
	}
	if (!strcmp(name, "hold"))
		hold(name, &queue_lock, n, ms);
	else if (!strcmp(name, "member"))
		hold(name, &record.lock, n, ms);
	else if (!strcmp(name, "heap"))
		hold(name, heap, n, ms);
	else if (!strcmp(name, "recursive"))
		hold(name, &recursive_lock, n, ms);
	else if (!strcmp(name, "checking"))
		hold(name, &checking_lock, n, ms);
	else if (!strcmp(name, "adaptive"))
		hold(name, &adaptive_lock, n, ms);
	else if (!strcmp(name, "timed"))
		timed(ms);
	else if (!strcmp(name, "timedcond"))
		timed_condition(ms);
	else if (!strcmp(name, "cond"))
		condition(n, ms);
	else if (!strcmp(name, "cancel"))
		cancel(n);
	else if (!strcmp(name, "free"))
		free_locks(n);
	else if (!strcmp(name, "ceiling"))
		ceiling(n);
	else if (!strcmp(name, "stay"))
		stay(ms);
	else if (!strcmp(name, "storm"))
		storm(n, ms);
	else
		must(EINVAL, name);
}

int main(int argc, char **argv)
{
	char line[64], name[32];
	int n, ms;

	setvbuf(stdout, NULL, _IOLBF, 0);
	init(&recursive_lock, PTHREAD_MUTEX_RECURSIVE, 0);
	init(&checking_lock, PTHREAD_MUTEX_ERRORCHECK, 0);
	init(&adaptive_lock, PTHREAD_MUTEX_ADAPTIVE_NP, 0);
	init(&timed_lock, PTHREAD_MUTEX_NORMAL, 0);
	init(&ceiling_lock, PTHREAD_MUTEX_NORMAL, 1);
	printf("pid %d\n", getpid());
	for (int i = 1; i + 2 < argc; i += 3)
		does(argv[i], atoi(argv[i + 1]), atoi(argv[i + 2]));
	while (argc == 1 && fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %d %d", name, &n, &ms) != 3)
			break;
		does(name, n < 0 ? 0 : n, ms);
		printf("done %s", line);
	}
	return 0;
}
