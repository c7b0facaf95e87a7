/*
 * fiber_cost [--live N]: what it takes to make fibers and to end them, and what many of them hold
 * while they live. Times are CPU time.
 */
#include "fiber/scry_fiber.h"
#include "fiber/scry_preempt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 5000000
#define FRESH 20000

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

/* A number of /proc/self/status or the lines of /proc/self/maps. */
static size_t status_of(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[200];
	size_t value = 0;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtoul(line + strlen(name), NULL, 10);
	if (file != NULL)
		fclose(file);
	return value;
}

static size_t mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	size_t count = 0;
	int c;

	while (file != NULL && (c = getc(file)) != EOF)
		count += c == '\n';
	if (file != NULL)
		fclose(file);
	return count;
}

static void *nothing(void *arg)
{
	return arg;
}

static void *lives(void *arg)
{
	scry_fiber_yield();
	return arg;
}

static double pairs(const struct scry_fiber_attr *attr)
{
	double from = cpu_ns();

	for (int i = 0; i < PAIRS; i++) {
		if (scry_fiber_spawn(attr, nothing, NULL, NULL) != 0)
			abort();
		scry_fiber_yield();
	}
	return (cpu_ns() - from) / PAIRS;
}

static double joined(void)
{
	double from = cpu_ns();

	for (int i = 0; i < PAIRS; i++) {
		struct scry_fiber *fiber;

		if (scry_fiber_spawn(NULL, nothing, NULL, &fiber) != 0 ||
		    scry_fiber_join(fiber, NULL) != 0)
			abort();
	}
	return (cpu_ns() - from) / PAIRS;
}

/* Many at once, that all live; then all end. */
static void many(long count)
{
	struct scry_fiber_attr attr = {.is_detached = 1};
	size_t memory = status_of("VmRSS:"), tables = status_of("VmPTE:"), maps = mappings();
	double from = cpu_ns(), ran;

	for (long i = 0; i < count; i++) {
		if (scry_fiber_spawn(&attr, lives, NULL, NULL) != 0) {
			printf("%ld of %ld fibers: %s\n", i, count, scry_fiber_note());
			exit(1);
		}
	}
	scry_fiber_yield(); /* each has begun, and touched its stack */
	ran = cpu_ns();
	printf("%ld live fibers: %.0f ns each, %.2f KiB of memory and %.2f KiB of page tables "
	       "each, %zu mappings more\n",
	       count, (ran - from) / count, (double)(status_of("VmRSS:") - memory) / count,
	       (double)(status_of("VmPTE:") - tables) / count, mappings() - maps);
	from = cpu_ns();
	while (scry_fiber_count() > 0)
		scry_fiber_yield();
	printf("their end: %.0f ns each\n", (cpu_ns() - from) / count);
}

#define TICKS 300000

static long remaining;

/* Sends the signal to its own thread: it comes as the system call returns, in this function. */
__attribute__((noinline, section("leaf_safe"))) static void *signals_itself(void *arg)
{
	const long *ids = arg;

	while (remaining > 0) {
		long result = SYS_tgkill;

		remaining--;
		__asm__ volatile("syscall"
				 : "+a"(result)
				 : "D"(ids[0]), "S"(ids[1]), "d"((long)SIGURG)
				 : "rcx", "r11", "memory");
	}
	return NULL;
}

static void does_nothing(int signal)
{
}

/* A signal whose handler does nothing, and one that has the other of two fibers run. */
static void ticks(void)
{
	extern const char __start_leaf_safe[], __stop_leaf_safe[];
	struct sigaction empty = {.sa_handler = does_nothing, .sa_flags = SA_ONSTACK};
	long ids[2] = {getpid(), syscall(SYS_gettid)};
	struct scry_preempt_counts counts;
	struct scry_fiber *fibers[2];
	double from, bare, switching;

	sigaction(SIGURG, &empty, NULL);
	remaining = TICKS;
	from = cpu_ns();
	signals_itself(ids);
	bare = (cpu_ns() - from) / TICKS;
	signal(SIGURG, SIG_DFL);
	if (scry_preempt_allow(__start_leaf_safe, __stop_leaf_safe) != 0 ||
	    scry_preempt_start(3600000000000ll) != 0)
		abort();
	remaining = TICKS;
	for (int i = 0; i < 2; i++)
		if (scry_fiber_spawn(NULL, signals_itself, ids, &fibers[i]) != 0)
			abort();
	from = cpu_ns();
	for (int i = 0; i < 2; i++)
		scry_fiber_join(fibers[i], NULL);
	switching = (cpu_ns() - from) / TICKS;
	scry_preempt_count(&counts);
	scry_preempt_stop();
	printf("a signal to an empty handler: %.0f ns; one that has another fiber run: %.0f ns "
	       "(%.1f %% did)\n",
	       bare, switching, 100.0 * counts.switched / counts.ticks);
}

int main(int argc, char **argv)
{
	long live = 100000;
	struct scry_fiber_sched_attr attr = {.size_bytes = 64 << 10};

	if (argc == 3 && strcmp(argv[1], "--live") == 0)
		live = atol(argv[2]);
	if (live < 1 || scry_fiber_open(&attr, NULL) != 0) {
		fprintf(stderr, "usage: fiber_cost [--live N]\n");
		return 2;
	}
	printf("spawn, run and exit, from the pool: %.1f ns\n",
	       pairs(&(struct scry_fiber_attr){.is_detached = 1}));
	printf("spawn and join, from the pool: %.1f ns\n", joined());
	ticks();
	many(live);
	return scry_fiber_close() != 0;
}
