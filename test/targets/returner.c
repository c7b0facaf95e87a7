/*
 * Functions whose returns are followed, left and walked over in every way that C knows.
 *
 *   returner [libthrowing.so]
 *
 * Reads commands, "MODE N" a line, and does each N times. Prints for each function of a mode
 * "count NAME CALLS RETURNED", what has to be seen of it since the beginning, then "MODE N right"
 * or "wrong"; ends with its input. In the background 32 threads sleep deep in calls and check what
 * they come back with. Compiled with -O2: ret_tail's calls are jumps.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#define SLEEPERS 32
#define FIBERS 8
#define FIBER_STACK 65536
#define DEPTH 10000

extern char **environ;

enum counted {
	N_ret_outer,
	N_ret_inner,
	N_ret_deep,
	N_ret_tail,
	N_ret_tail_end,
	N_ret_jump,
	N_ret_fiber,
	N_ret_cancel,
	N_ret_fork,
	N_ret_spawn,
	N_ret_signal,
	N_ret_spin,
	N_ALL
};
static const char *const names[] = {
	[N_ret_outer] = "ret_outer", [N_ret_inner] = "ret_inner",	[N_ret_deep] = "ret_deep",
	[N_ret_tail] = "ret_tail",   [N_ret_tail_end] = "ret_tail_end", [N_ret_jump] = "ret_jump",
	[N_ret_fiber] = "ret_fiber", [N_ret_cancel] = "ret_cancel",	[N_ret_fork] = "ret_fork",
	[N_ret_spawn] = "ret_spawn", [N_ret_signal] = "ret_signal",	[N_ret_spin] = "ret_spin",
};
static atomic_ulong calls[N_ALL], returns[N_ALL];
static atomic_ulong wrong, sleeping_rounds;

#define HOOKED __attribute__((noinline, noclone, noipa))
#define ENTER(name) atomic_fetch_add_explicit(&calls[N_##name], 1, memory_order_relaxed)
#define RETURN(name, value)                                                             \
	do {                                                                            \
		atomic_fetch_add_explicit(&returns[N_##name], 1, memory_order_relaxed); \
		return (value);                                                         \
	} while (0)

long ret_outer(long n, double x), ret_deep(long n), ret_tail(long n), ret_tail_end(long n);
double ret_inner(long n, double x);
long ret_jump(jmp_buf *to, long n), ret_fiber(long fiber, long n), ret_cancel(long n);
long ret_fork(long n), ret_spawn(long n), ret_signal(long n), ret_spin(uint64_t ticks);
long ret_sleep(long depth, long n);

HOOKED double ret_inner(long n, double x)
{
	ENTER(ret_inner);
	RETURN(ret_inner, (double)n * 2 + x);
}

HOOKED long ret_outer(long n, double x)
{
	ENTER(ret_outer);
	RETURN(ret_outer, (long)ret_inner(n, x) + 1);
}

static bool nest(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++)
		sum += ret_outer(i, 3.0) - (2 * i + 4);
	return sum == 0;
}

HOOKED long ret_deep(long n)
{
	long r;

	ENTER(ret_deep);
	r = n ? ret_deep(n - 1) + 1 : 0;
	__asm__ volatile("" : "+r"(r));
	RETURN(ret_deep, r);
}

static bool deep(long n)
{
	bool ok = true;

	while (n--)
		ok &= ret_deep(DEPTH - 1) == DEPTH - 1;
	return ok;
}

HOOKED long ret_tail_end(long n)
{
	ENTER(ret_tail_end);
	RETURN(ret_tail_end, n + 7);
}

HOOKED long ret_tail(long n)
{
	ENTER(ret_tail);
	RETURN(ret_tail, ret_tail_end(n * 3)); /* a jump */
}

static bool tail(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++)
		sum += ret_tail(i) - (3 * i + 7);
	return sum == 0;
}

/* Jumps out through ten of its own frames at each third call. */
HOOKED long ret_jump(jmp_buf *to, long n)
{
	long r;

	ENTER(ret_jump);
	if (n % 16 == 10) {
		if (n / 16 % 3 == 0)
			longjmp(*to, (int)(n / 16) + 1);
		RETURN(ret_jump, n / 16);
	}
	r = ret_jump(to, n + 1);
	__asm__ volatile("" : "+r"(r));
	RETURN(ret_jump, r);
}

static bool jump(long n)
{
	static volatile long i;
	static jmp_buf to;
	static volatile bool ok;

	ok = true;
	for (i = 0; i < n; i++) {
		volatile int jumped = setjmp(to);

		if (jumped)
			ok = ok && jumped == i + 1 && i % 3 == 0;
		else
			ok = ok && ret_jump(&to, i * 16) == i && i % 3;
	}
	return ok;
}

static ucontext_t fiber_contexts[FIBERS], fiber_main;
static long fiber_results[FIBERS];

static void yield_fiber(long fiber)
{
	swapcontext(&fiber_contexts[fiber], &fiber_main);
}

HOOKED long ret_fiber(long fiber, long n)
{
	long r;

	ENTER(ret_fiber);
	yield_fiber(fiber);
	r = n ? ret_fiber(fiber, n - 1) + fiber : fiber;
	yield_fiber(fiber);
	RETURN(ret_fiber, r);
}

static void run_fiber(int fiber, int n)
{
	for (;;) {
		fiber_results[fiber] = ret_fiber(fiber, n + fiber);
		yield_fiber(fiber);
		fiber_results[fiber] = -1;
	}
}

static bool fibers(long n)
{
	static char *stacks[FIBERS];
	static bool ok;

	ok = true;
	for (int f = 0; f < FIBERS; f++) {
		stacks[f] = stacks[f] ? stacks[f] : malloc(FIBER_STACK);
		getcontext(&fiber_contexts[f]);
		fiber_contexts[f].uc_stack.ss_sp = stacks[f];
		fiber_contexts[f].uc_stack.ss_size = FIBER_STACK;
		fiber_contexts[f].uc_link = NULL;
		makecontext(&fiber_contexts[f], (void (*)(void))run_fiber, 2, f, 5);
	}
	/* ret_fiber(f, 5 + f) yields 2 * (6 + f) times, then the fiber once more */
	for (long i = 0; i < n; i++)
		for (int turn = 0; turn < 2 * (6 + FIBERS) + 1; turn++)
			for (int f = 0; f < FIBERS; f++) {
				if (turn > 2 * (6 + f))
					continue;
				swapcontext(&fiber_main, &fiber_contexts[f]);
				if (turn == 2 * (6 + f))
					ok &= fiber_results[f] == f * (6L + f);
			}
	return ok;
}

static atomic_ulong cleaned;

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static atomic_bool never;

HOOKED long ret_cancel(long n)
{
	volatile long r = 0;

	ENTER(ret_cancel);
	pthread_cleanup_push(clean, NULL);
	if (n)
		r = ret_cancel(n - 1) + 1;
	else
		while (!never)
			pause();
	pthread_cleanup_pop(0);
	RETURN(ret_cancel, r);
}

static void *cancel_me(void *unused)
{
	(void)unused;
	return (void *)ret_cancel(4);
}

static bool cancel(long n)
{
	unsigned long before = cleaned, had = calls[N_ret_cancel];
	bool ok = true;

	for (long i = 0; i < n; i++) {
		pthread_t t;
		void *result;

		pthread_create(&t, NULL, cancel_me, NULL);
		while (calls[N_ret_cancel] < had + 5 * (unsigned long)(i + 1))
			sched_yield();
		pthread_cancel(t);
		pthread_join(t, &result);
		ok &= result == PTHREAD_CANCELED;
	}
	return ok && cleaned == before + 5 * (unsigned long)n;
}

static pid_t forked;
static long linger; /* tenths of a second that the child stays inside */

HOOKED long ret_fork(long n)
{
	long r;

	ENTER(ret_fork);
	if (n) {
		r = ret_fork(n - 1) + 1;
	} else {
		forked = fork();
		for (long i = 0; !forked && i < linger; i++)
			usleep(100000);
		if (forked && linger)
			printf("heir %d\n", forked);
		r = 0;
	}
	__asm__ volatile("" : "+r"(r));
	RETURN(ret_fork, r);
}

/* The child returns after n tenths of a second, the parent at once. */
static bool heir(long n)
{
	int status = -1;
	long r;

	linger = n;
	r = ret_fork(6);
	linger = 0;
	if (!forked)
		_exit(r == 6 && ret_deep(50) == 50 ? 42 : 1);
	waitpid(forked, &status, 0);
	return r == 6 && WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

static bool forks(long n)
{
	bool ok = true;

	for (long i = 0; i < n; i++) {
		long r = ret_fork(6);
		int status = -1;

		if (!forked)
			_exit(r == 6 && ret_outer(4, 3.0) == 12 && ret_deep(50) == 50 ? 42 : 1);
		waitpid(forked, &status, 0);
		ok &= r == 6 && WIFEXITED(status) && WEXITSTATUS(status) == 42;
	}
	return ok;
}

HOOKED long ret_spawn(long n)
{
	char *argv[] = {"true", NULL};
	int status = -1;
	pid_t pid;

	ENTER(ret_spawn);
	if (n % 3 == 0 && posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0) {
		waitpid(pid, &status, 0);
	} else if (n % 3 == 1) {
		status = system("true");
	} else {
		pid = vfork();
		if (!pid) {
			execvp("true", argv);
			_exit(1);
		}
		waitpid(pid, &status, 0);
	}
	RETURN(ret_spawn, status);
}

static bool spawn(long n)
{
	long failed = 0;

	for (long i = 0; i < n; i++)
		failed += ret_spawn(i) != 0;
	return !failed;
}

static volatile sig_atomic_t signalled;

HOOKED long ret_signal(long n)
{
	long r;

	ENTER(ret_signal);
	r = n ? ret_signal(n - 1) + 1 : 0;
	__asm__ volatile("" : "+r"(r));
	RETURN(ret_signal, r);
}

static void on_alarm(int unused)
{
	(void)unused;
	signalled++;
	wrong += ret_signal(5) != 5 || ret_outer(1, 3.0) != 6;
}

static bool signals(long n)
{
	struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval every = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100};
	struct itimerval off = {.it_value.tv_sec = 0};
	bool ok = true;

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	signalled = 0;
	while (signalled < n)
		ok &= nest(50) && ret_signal(20) == 20 && tail(20);
	setitimer(ITIMER_REAL, &off, NULL);
	return ok;
}

/* Of 100,000 ticks; the report's total is compared with what it took. */
HOOKED long ret_spin(uint64_t ticks)
{
	uint64_t began = __rdtsc();

	ENTER(ret_spin);
	while (__rdtsc() - began < ticks)
		;
	RETURN(ret_spin, 0);
}

static bool spin(long n)
{
	struct timespec a, b;
	uint64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &a);
	while (n--)
		ret_spin(100000);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec -
	     (uint64_t)a.tv_nsec;
	printf("spun %lu\n", (unsigned long)ns);
	return true;
}

static long (*throwing_storm)(char *text, unsigned long room);

static bool throws(long n)
{
	static char first[4096];
	static long first_sum;
	bool ok = throwing_storm != NULL;

	while (ok && n--) {
		char text[4096] = "";
		long sum = throwing_storm(text, sizeof(text));

		if (!*first) {
			memcpy(first, text, sizeof(first));
			first_sum = sum;
		}
		ok = sum == first_sum && !strcmp(first, text);
	}
	return ok;
}

static void *throw_some(void *n)
{
	return (void *)(uintptr_t)throws((long)(uintptr_t)n);
}

/* Eight at once. */
static bool crowd(long n)
{
	pthread_t threads[8];
	bool ok = true;

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, throw_some, (void *)(uintptr_t)n); /* NOLINT */
	for (int i = 0; i < 8; i++) {
		void *result = NULL;

		pthread_join(threads[i], &result);
		ok = ok && result;
	}
	return ok;
}

HOOKED long ret_sleep(long depth, long n)
{
	long r;

	if (depth)
		r = ret_sleep(depth - 1, n) + 1;
	else
		r = usleep(5000 + (useconds_t)(n % 7) * 3000);
	__asm__ volatile("" : "+r"(r));
	return r;
}

static void *sleeper(void *unused)
{
	(void)unused;
	for (long n = 0;; n++) {
		if (ret_sleep(n % 40, n) != n % 40)
			wrong++;
		sleeping_rounds++;
	}
	return NULL;
}

static const struct mode {
	const char *name;
	bool (*run)(long n);
} modes[] = {{"nest", nest},	 {"deep", deep},       {"tail", tail},	{"jump", jump},
	     {"fibers", fibers}, {"cancel", cancel},   {"fork", forks}, {"heir", heir},
	     {"spawn", spawn},	 {"signals", signals}, {"spin", spin},	{"throw", throws},
	     {"crowd", crowd}};

int main(int argc, char **argv)
{
	char line[128], name[64];
	sigset_t alarm;
	long n;

	if (argc > 1) {
		void *lib = dlopen(argv[1], RTLD_NOW);

		throwing_storm =
			lib ? (long (*)(char *, unsigned long))dlsym(lib, "throwing_storm") : NULL;
	}
	throws(1);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* it would end the sleepers' sleep */
	for (int i = 0; i < SLEEPERS; i++) {
		pthread_t t;

		pthread_create(&t, NULL, sleeper, NULL);
	}
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	while (fgets(line, sizeof(line), stdin)) {
		bool ok = false;

		if (sscanf(line, "%63s %ld", name, &n) != 2)
			break;
		for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
			if (!strcmp(modes[i].name, name))
				ok = modes[i].run(n);
		for (int i = 0; i < N_ALL; i++)
			if (calls[i])
				printf("count %s %lu %lu\n", names[i], (unsigned long)calls[i],
				       (unsigned long)returns[i]);
		printf("%s %ld %s\n", name, n, ok && !wrong ? "right" : "wrong");
	}
	printf("slept %lu wrong %lu\n", (unsigned long)sleeping_rounds, (unsigned long)wrong);
	return wrong != 0;
}
