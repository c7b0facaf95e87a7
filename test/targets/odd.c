/* A program in a situation that an entering tool seldom meets, and that checks itself.
 *
 *   odd exec COMMAND...  computes until SIGUSR1, then becomes COMMAND
 *   odd exit STATUS MS   computes for MS milliseconds, then ends with STATUS
 *   odd seccomp          computes under a seccomp filter that allows everything
 *   odd mdwe             computes, and may have no new executable memory
 *   odd vfork SECONDS    a thread is in vfork nearly always: its children sleep that long
 *   odd leaderless       the first thread ends at SIGUSR1, two others compute on
 *   odd poll             one thread, in poll with a time-out of 50 ms, each measured
 *   odd handler          one thread, in a signal handler nearly always
 *   odd vector           one thread that keeps its results in vector registers: ymm0 to ymm15, and
 *                        zmm16, 23, 31 and k1 where the processor has them
 *   odd child            waits for SIGUSR1, then forks a child that computes on for itself and
 *                        prints "child PID"
 *   odd atfork           waits for SIGUSR1, then forks a child that stays in fork for two seconds
 *                        and allocates there; prints "child in fork", and "child ended N"
 *   odd sigfork N        N times a signal handler forks, wherever the program is, and its child
 *                        returns from it and allocates on; prints "sigfork right"
 *
 * Prints "pid N", then a "round N" line at least twice a second while it runs (from every process),
 * and ends by SIGTERM with status 0; a wrong result prints "wrong ..." and ends with status 1. The
 * work is libwork's, through the PLT, so that it can be hooked. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libwork.h"

#define SUM_OF_EIGHT 8

static volatile sig_atomic_t stop, asked;
static uint64_t expected;
static unsigned long rounds;

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static int wrong(const char *what)
{
	printf("wrong: %s, errno %d\n", what, errno);
	_exit(1);
}

static uint64_t work(void)
{
	uint64_t values[SUM_OF_EIGHT], sum = 0;

	for (int r = 0; r < 200; r++) {
		for (int i = 0; i < SUM_OF_EIGHT; i++)
			values[i] = (uint64_t)r * 7 + (uint64_t)i;
		sum = work_mix(sum, work_fold(values, SUM_OF_EIGHT));
	}
	return sum;
}

static void check(void)
{
	static __thread double said;

	if (work() != expected)
		wrong("sum");
	rounds++;
	if (now_ms() - said < 100)
		return;
	said = now_ms();
	printf("round %lu\n", rounds);
}

static void on_term(int sig)
{
	stop = 1;
}

static void on_ask(int sig)
{
	asked = 1;
}

static void *compute(void *arg)
{
	while (!stop)
		check();
	return NULL;
}

static int be_exec(char **argv)
{
	while (!stop && !asked)
		check();
	if (stop)
		return 0;
	execvp(argv[0], argv);
	return wrong("exec");
}

static int be_exit(char **argv)
{
	double end = now_ms() + atof(argv[1]);

	while (now_ms() < end)
		check();
	_exit(atoi(argv[0]));
}

static int be_seccomp(char **argv)
{
	struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {.len = 1, .filter = all};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program))
		return wrong("seccomp");
	compute(NULL);
	return 0;
}

static int be_mdwe(char **argv)
{
	if (prctl(65 /* PR_SET_MDWE, Linux 6.3 */, 1, 0, 0, 0))
		return wrong("no PR_SET_MDWE here");
	compute(NULL);
	return 0;
}

static void *keep_vforking(void *arg)
{
	const struct timespec held = {atoi(arg), 0};

	while (!stop) {
		pid_t pid = vfork();
		int status = 0;

		if (pid == 0) {
			execl("/bin/sleep", "sleep", "0.001", (char *)NULL);
			_exit(127);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			wrong("vfork");
		pid = vfork();
		if (pid == 0) {
			nanosleep(&held, NULL); /* the parent is held meanwhile */
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			wrong("vfork");
	}
	return NULL;
}

static int be_vfork(char **argv)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, keep_vforking, argv[0]) != 0)
		return 2;
	compute(NULL);
	_exit(0);
}

static void *compute_and_end(void *arg)
{
	compute(NULL);
	_exit(0);
}

static int be_leaderless(char **argv)
{
	pthread_t threads[2];

	/* pthread_exit loads this library; loaded now, the set of mappings stays the same. */
	if (!dlopen("libgcc_s.so.1", RTLD_NOW))
		return 2;

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, compute_and_end, NULL) != 0)
			return 2;
	while (!asked)
		usleep(1000);
	pthread_exit(NULL);
}

static int be_poll(char **argv)
{
	int fds[2];

	if (pipe(fds) != 0)
		return 2;
	while (!stop) {
		struct pollfd p = {.fd = fds[0], .events = POLLIN};
		double begin = now_ms();
		int r = poll(&p, 1, 50);

		if (stop)
			break;
		if (r != 0 || now_ms() - begin < 49)
			return wrong("poll");
		check();
	}
	return 0;
}

static void on_alarm(int sig)
{
	int saved = errno;

	for (int i = 0; i < 20; i++)
		check();
	errno = saved;
}

static int be_handler(char **argv)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 1000}, {0, 1000}};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (!stop)
		pause();
	return 0;
}

/* Each lane of each register counts to `times`; the registers are held all the while, so a stop at
 * any instruction finds them in use. */
#define REGISTERS(X) \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define YMM_CLEAR(n) "vpxor %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n"
#define YMM_ADD(n) "vpaddq (%[one]), %%ymm" #n ", %%ymm" #n "\n"
#define YMM_STORE(n) "vmovdqu %%ymm" #n ", 32*" #n "(%[got])\n"

static void count_in_ymm(uint64_t times, uint64_t *got)
{
	static const uint64_t one[4] = {1, 1, 1, 1};

	__asm__ volatile(
		REGISTERS(YMM_CLEAR) "1:\n" REGISTERS(YMM_ADD) "dec %[times]\njnz 1b\n" REGISTERS(
			YMM_STORE) "vzeroupper\n"
		: [times] "+r"(times)
		: [one] "r"(one), [got] "r"(got)
		: "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
		  "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

/* The same in zmm16, zmm23 and zmm31 under the mask k1, which has all bits set. */
__attribute__((target("avx512f"))) static void count_in_zmm(uint64_t times, uint64_t *got)
{
	static const uint64_t one[8] = {1, 1, 1, 1, 1, 1, 1, 1};

	__asm__ volatile("kxnorw %%k1, %%k1, %%k1\n"
			 "vpxorq %%zmm16, %%zmm16, %%zmm16\n"
			 "vpxorq %%zmm23, %%zmm23, %%zmm23\n"
			 "vpxorq %%zmm31, %%zmm31, %%zmm31\n"
			 "1:\n"
			 "vpaddq (%[one]), %%zmm16, %%zmm16%{%%k1%}\n"
			 "vpaddq (%[one]), %%zmm23, %%zmm23%{%%k1%}\n"
			 "vpaddq (%[one]), %%zmm31, %%zmm31%{%%k1%}\n"
			 "dec %[times]\njnz 1b\n"
			 "vmovdqu64 %%zmm16, (%[got])\n"
			 "vmovdqu64 %%zmm23, 64(%[got])\n"
			 "vmovdqu64 %%zmm31, 128(%[got])\n"
			 : [times] "+r"(times)
			 : [one] "r"(one), [got] "r"(got)
			 : "memory", "cc", "xmm16", "xmm23", "xmm31", "k1");
}

static int be_vector(char **argv)
{
	const uint64_t times = 2000000;
	uint64_t got[64];

	if (!__builtin_cpu_supports("avx2"))
		return 77; /* nothing to hold: the test is skipped */
	while (!stop) {
		count_in_ymm(times, got);
		for (int i = 0; i < 64; i++)
			if (got[i] != times)
				return wrong("ymm");
		if (__builtin_cpu_supports("avx512f")) {
			count_in_zmm(times, got);
			for (int i = 0; i < 24; i++)
				if (got[i] != times)
					return wrong("zmm");
		}
		check();
	}
	return 0;
}

static int be_child(char **argv)
{
	while (!stop) {
		check();
		if (!asked)
			continue;
		asked = 0;
		pid_t pid = fork();

		if (pid < 0)
			return wrong("fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			printf("child %d\n", getpid());
		}
	}
	return 0;
}

static void stay_in_fork(void)
{
	static void *volatile p; /* seen by nobody, but not left out */

	p = malloc(100);
	printf("child in fork\n");
	nanosleep(&(struct timespec){2, 0}, NULL);
	free(p);
}

static int be_atfork(char **argv)
{
	pthread_atfork(NULL, NULL, stay_in_fork);
	while (!stop) {
		int status;

		check();
		if (!asked)
			continue;
		asked = 0;
		pid_t pid = fork();

		if (pid < 0)
			return wrong("fork");
		if (pid == 0)
			_exit(0);
		waitpid(pid, &status, 0);
		printf("child ended %d\n", status);
	}
	return 0;
}

static volatile sig_atomic_t forks_left, is_forked;

static void fork_here(int sig)
{
	int status;
	pid_t pid;

	(void)sig;
	if (forks_left <= 0)
		return;
	forks_left--;
	pid = fork();
	if (pid == 0)
		is_forked = 1;
	else if (pid < 0 || waitpid(pid, &status, 0) != pid)
		wrong("fork in a signal handler");
	else if (status)
		wrong(WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "child of a handler");
}

static int be_sigfork(char **argv)
{
	const struct itimerval often = {{0, 300}, {0, 300}};
	static char *volatile p;

	forks_left = atoi(argv[0]);
	signal(SIGALRM, fork_here);
	setitimer(ITIMER_REAL, &often, NULL); /* not the children's */
	for (int left = 1000; !stop;) {
		for (int i = 1; i < 100; i++) {
			p = malloc((size_t)i);
			*p = 1;
			free(p);
		}
		if (is_forked && left-- == 0)
			_exit(0);
		if (!is_forked && forks_left == 0) {
			forks_left = -1;
			setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
			printf("sigfork right\n");
		}
	}
	return 0;
}

static const struct {
	const char *name;
	int (*be)(char **argv);
	int words;
} situations[] = {
	{"exec", be_exec, 1},	    {"exit", be_exit, 2},
	{"seccomp", be_seccomp, 0}, {"mdwe", be_mdwe, 0},
	{"vfork", be_vfork, 1},	    {"poll", be_poll, 0},
	{"handler", be_handler, 0}, {"leaderless", be_leaderless, 0},
	{"child", be_child, 0},	    {"atfork", be_atfork, 0},
	{"sigfork", be_sigfork, 1}, {"vector", be_vector, 0},
};

int main(int argc, char **argv)
{
	struct sigaction term = {.sa_handler = on_term}, ask = {.sa_handler = on_ask};

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &term, NULL);
	sigaction(SIGUSR1, &ask, NULL);
	expected = work();
	printf("pid %d\n", getpid());
	for (size_t i = 0; argc > 1 && i < sizeof(situations) / sizeof(situations[0]); i++)
		if (strcmp(argv[1], situations[i].name) == 0 && argc - 2 >= situations[i].words)
			return situations[i].be(argv + 2);
	fprintf(stderr, "odd: see the first lines of odd.c\n");
	return 2;
}
