/* The least that a tracer needs to stop a process, as a measure for others: seizes all its threads,
 * asks all at once to stop, waits until each has, and lets all go: stopper PID TIMES [PRIORITY].
 *
 * With a PRIORITY it has that of SCHED_RR meanwhile. Prints a line each time: microseconds from the
 * first that was asked until all stood, and until all were let go, and how many there were. */
#include <dirent.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#define THREADS_MAX 4096

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static size_t seize_all(const char *pid, pid_t *tids)
{
	char path[64];
	struct dirent *d;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	dir = opendir(path);
	while (dir && n < THREADS_MAX && (d = readdir(dir))) {
		tids[n] = (pid_t)strtol(d->d_name, NULL, 10);
		if (tids[n] > 0 && ptrace(PTRACE_SEIZE, tids[n], 0, 0) == 0)
			n++;
	}
	if (dir)
		closedir(dir);
	return n;
}

/* Other stops than ours go on; of those that were asked each comes to ours. */
static void await(pid_t tid)
{
	int status;

	while (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status) &&
	       status >> 16 != PTRACE_EVENT_STOP)
		ptrace(PTRACE_CONT, tid, 0, status >> 16 ? 0 : WSTOPSIG(status));
}

int main(int argc, char **argv)
{
	static pid_t tids[THREADS_MAX];
	const struct sched_param none = {0};
	struct sched_param first = {.sched_priority = argc > 3 ? atoi(argv[3]) : 0};
	long times = argc > 2 ? strtol(argv[2], NULL, 10) : 1;

	for (long i = 0; i < times && argc > 1; i++) {
		uint64_t asked, stood;
		size_t n;

		if (first.sched_priority && sched_setscheduler(0, SCHED_RR, &first) < 0)
			return 2;
		n = seize_all(argv[1], tids);
		asked = now_us();
		for (size_t k = 0; k < n; k++)
			ptrace(PTRACE_INTERRUPT, tids[k], 0, 0);
		for (size_t k = 0; k < n; k++)
			await(tids[k]);
		stood = now_us();
		for (size_t k = 0; k < n; k++)
			ptrace(PTRACE_DETACH, tids[k], 0, 0);
		printf("%llu %llu %zu\n", (unsigned long long)(stood - asked),
		       (unsigned long long)(now_us() - asked), n);
		fflush(stdout);
		if (first.sched_priority)
			sched_setscheduler(0, SCHED_OTHER, &none);
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
	return 0;
}
