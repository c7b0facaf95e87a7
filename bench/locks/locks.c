/*
 * What locking a mutex costs, in ticks of the TSC: `locks free|busy|wait N`. One line, the median
 * of rounds. There is a second thread in all of them, which sleeps: glibc does without atomic
 * operations where there is none.
 *
 * free: a thread locks and unlocks a mutex that nobody else wants, in 101 rounds of N.
 * busy: it asks for one that is taken, with a time limit that is over, in 101 rounds of N. It does
 *       not sleep and makes no system call, so all that is added is the watcher's.
 * wait: a thread waits for a mutex that the main thread has, N times; from the unlocking to the
 * return of pthread_mutex_lock in the other thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t unlocked, got;
static volatile int tid, turn; /* odd: the waiter may go for the mutex */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void free_locks(uint64_t n)
{
	uint64_t rounds[101];

	for (int i = 0; i < 101; i++) {
		uint64_t begin = __rdtsc();

		for (uint64_t k = 0; k < n; k++) {
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
		}
		rounds[i] = (__rdtsc() - begin) * 10 / n;
	}
	qsort(rounds, 101, sizeof(*rounds), compare);
	printf("free %.1f ticks a lock and unlock, lowest %.1f\n", rounds[50] / 10.0,
	       rounds[0] / 10.0);
}

static void busy_locks(uint64_t n)
{
	const struct timespec past = {.tv_sec = -1};
	uint64_t rounds[101];

	pthread_mutex_lock(&lock);
	for (int i = 0; i < 101; i++) {
		uint64_t begin = __rdtsc();

		for (uint64_t k = 0; k < n; k++)
			if (pthread_mutex_timedlock(&lock, &past) != ETIMEDOUT)
				exit(1);
		rounds[i] = (__rdtsc() - begin) * 10 / n;
	}
	qsort(rounds, 101, sizeof(*rounds), compare);
	printf("busy %.1f ticks a lock that times out, lowest %.1f\n", rounds[50] / 10.0,
	       rounds[0] / 10.0);
}

static void *sleeps_for_ever(void *arg)
{
	pause();
	return arg;
}

static void *waits(void *arg)
{
	uint64_t n = (uintptr_t)arg;

	tid = (int)syscall(SYS_gettid);
	for (uint64_t i = 0; i < n; i++) {
		while (turn != (int)(2 * i + 1))
			sched_yield();
		pthread_mutex_lock(&lock);
		got = __rdtsc();
		pthread_mutex_unlock(&lock);
		turn = (int)(2 * i + 2);
	}
	return NULL;
}

static int sleeps(int fd)
{
	char text[8] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 3 && !strncmp(text, "202 ", 4);
}

static void wait_for_locks(uint64_t n)
{
	uint64_t *ticks = calloc(n, sizeof(*ticks));
	pthread_t thread;
	char path[64];
	int fd;

	pthread_create(&thread, NULL, waits, (void *)(uintptr_t)n);
	while (!tid)
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	fd = open(path, O_RDONLY);
	for (uint64_t i = 0; i < n; i++) {
		pthread_mutex_lock(&lock);
		turn = (int)(2 * i + 1);
		while (!sleeps(fd))
			usleep(100);
		unlocked = __rdtsc();
		pthread_mutex_unlock(&lock);
		while (turn != (int)(2 * i + 2))
			sched_yield();
		ticks[i] = got - unlocked;
	}
	pthread_join(thread, NULL);
	qsort(ticks, n, sizeof(*ticks), compare);
	printf("wait %llu ticks from unlock to the waiter's return, a tenth below %llu\n",
	       (unsigned long long)ticks[n / 2], (unsigned long long)ticks[n / 10]);
}

int main(int argc, char **argv)
{
	uint64_t n = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	pthread_t idle;

	pthread_create(&idle, NULL, sleeps_for_ever, NULL);
	if (n && !strcmp(argv[1], "free"))
		free_locks(n);
	else if (n && !strcmp(argv[1], "busy"))
		busy_locks(n);
	else if (n && !strcmp(argv[1], "wait"))
		wait_for_locks(n);
	else
		return 2;
	return 0;
}
