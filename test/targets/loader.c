/* Opens and closes plug-ins on command.
 *
 *   loader           "pid N", then for each line on stdin one on stdout:
 *     open PATH      dlopen: "opened 0xBASE 0xDYNAMIC", or "refused WHY"
 *     dlmopen PATH   the same into a namespace of its own
 *     close          dlclose of what was opened last: "closed"
 *     call N         plug_run of what was opened last, N rounds: "sum X right" or "wrong"
 *     churn N PATH   dlopen and dlclose, N times: "churned"
 *     storm T N PATH T threads dlopen, run and dlclose, N times each: "storm X right Y wrong"
 *     forks N PATH   N fork children run what is open, while a thread dlopens PATH: "forks X right
 * Y wrong" child PATH     a fork child dlopens, runs and ends: "child right in N ms" or "wrong"
 *     objects        "object 0xBASE NAME" for each object of the first namespace, then "end"
 *   A plug-in that is opened calls work_mix once; call N calls it N + 1 times. Ends at the end of
 * stdin. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANDLES_MAX 64
#define THREADS_MAX 64

static void *handles[HANDLES_MAX];
static int opened;

/* What libwork's work_mix computes. */
static uint64_t plain_mix(uint64_t sum, uint64_t value)
{
	sum ^= value + 0x9e3779b97f4a7c15ull + (sum << 6) + (sum >> 2);
	return sum * 0xff51afd7ed558ccdull;
}

static void open_plug(const char *path, int in_namespace)
{
	struct link_map *map;
	void *handle = NULL;

	if (opened == HANDLES_MAX) {
		puts("refused too many");
		return;
	}
	if (!in_namespace)
		handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
#ifdef LM_ID_NEWLM
	else
		handle = dlmopen(LM_ID_NEWLM, path, RTLD_LAZY);
#endif
	if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
		printf("refused %s\n", dlerror());
		return;
	}
	handles[opened++] = handle;
	printf("opened 0x%llx 0x%llx\n", (unsigned long long)map->l_addr,
	       (unsigned long long)(uintptr_t)map->l_ld);
}

/* -1: it is not there. */
static int run_plug(void *handle, unsigned long rounds, uint64_t *sum)
{
	uint64_t (*run)(uint64_t, unsigned long) = NULL;
	uint64_t plain = plain_mix(7, plain_mix(0, 42));

	if (handle)
		*(void **)&run = dlsym(handle, "plug_run");
	if (!run)
		return -1;
	*sum = run(7, rounds);
	for (unsigned long i = 0; i < rounds; i++)
		plain = plain_mix(plain, i);
	return *sum == plain;
}

static void call(unsigned long rounds)
{
	uint64_t sum;
	int right = run_plug(opened ? handles[opened - 1] : NULL, rounds, &sum);

	if (right < 0)
		puts("nothing is open");
	else
		printf("sum %016llx %s\n", (unsigned long long)sum, right ? "right" : "wrong");
}

static struct {
	const char *path;
	unsigned long rounds;
	atomic_ulong right, wrong;
	atomic_int shall_end;
} storm;

static void *churn(void *unused)
{
	for (unsigned long i = 0; i < storm.rounds && !storm.shall_end; i++) {
		void *handle = dlopen(storm.path, RTLD_NOW);
		uint64_t sum;

		atomic_fetch_add(run_plug(handle, 3, &sum) == 1 ? &storm.right : &storm.wrong, 1);
		if (handle)
			dlclose(handle);
	}
	return unused;
}

static void run_storm(unsigned long threads, unsigned long rounds, const char *path)
{
	pthread_t t[THREADS_MAX];
	unsigned long n = 0;

	storm.path = path;
	storm.rounds = rounds;
	storm.right = storm.wrong = 0;
	storm.shall_end = 0;
	while (n < threads && n < THREADS_MAX && pthread_create(&t[n], NULL, churn, NULL) == 0)
		n++;
	while (n)
		pthread_join(t[--n], NULL);
	printf("storm %lu right %lu wrong\n", storm.right, storm.wrong);
}

static void *load_only(void *unused)
{
	while (!storm.shall_end) {
		void *handle = dlopen(storm.path, RTLD_NOW);

		atomic_fetch_add(handle ? &storm.right : &storm.wrong, 1);
		if (handle)
			dlclose(handle);
	}
	return unused;
}

/* The children do not dlopen: the loader's lock may be held by that thread. */
static void run_forks(unsigned long rounds, const char *path)
{
	unsigned long right = 0, wrong = 0;
	pthread_t t;

	storm.path = path;
	storm.right = storm.wrong = 0;
	storm.shall_end = 0;
	if (pthread_create(&t, NULL, load_only, NULL) != 0)
		return;
	for (unsigned long i = 0; i < rounds; i++) {
		int status = 1;
		pid_t child = fork();
		uint64_t sum;

		if (child == 0)
			_exit(run_plug(opened ? handles[0] : NULL, 3, &sum) == 1 ? 0 : 1);
		waitpid(child, &status, 0);
		status == 0 ? right++ : wrong++;
	}
	storm.shall_end = 1;
	pthread_join(t, NULL);
	printf("forks %lu right %lu wrong\n", right, wrong + storm.wrong);
}

static void run_child(const char *path)
{
	struct timespec a, b;
	int status = 1;
	pid_t child;

	clock_gettime(CLOCK_MONOTONIC, &a);
	child = fork();
	if (child == 0) {
		uint64_t sum;
		void *handle = dlopen(path, RTLD_NOW);

		_exit(run_plug(handle, 3, &sum) == 1 && dlclose(handle) == 0 ? 0 : 1);
	}
	waitpid(child, &status, 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("child %s in %ld ms\n", status ? "wrong" : "right",
	       (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
}

static int print_object(struct dl_phdr_info *info, size_t size, void *data)
{
	printf("object 0x%llx %s\n", (unsigned long long)info->dlpi_addr, info->dlpi_name);
	return 0;
}

int main(void)
{
	char line[4200], path[4096];
	unsigned long n, threads;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", (int)getpid());
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "open %4095[^\n]", path) == 1) {
			open_plug(path, 0);
		} else if (sscanf(line, "dlmopen %4095[^\n]", path) == 1) {
			open_plug(path, 1);
		} else if (strcmp(line, "close\n") == 0 && opened) {
			dlclose(handles[--opened]);
			puts("closed");
		} else if (sscanf(line, "call %lu", &n) == 1) {
			call(n);
		} else if (sscanf(line, "churn %lu %4095[^\n]", &n, path) == 2) {
			for (void *handle; n && (handle = dlopen(path, RTLD_NOW)); n--)
				dlclose(handle);
			puts(n ? "refused" : "churned");
		} else if (sscanf(line, "storm %lu %lu %4095[^\n]", &threads, &n, path) == 3) {
			run_storm(threads, n, path);
		} else if (sscanf(line, "forks %lu %4095[^\n]", &n, path) == 2) {
			run_forks(n, path);
		} else if (sscanf(line, "child %4095[^\n]", path) == 1) {
			run_child(path);
		} else if (strcmp(line, "objects\n") == 0) {
			dl_iterate_phdr(print_object, NULL);
			puts("end");
		} else {
			puts("what");
		}
	}
	return 0;
}
