/* A program in a situation that an entering tool seldom meets, and that checks itself.
 *
 *   odd exec COMMAND...  computes until SIGUSR1, then becomes COMMAND
 *   odd exit STATUS MS   computes for MS milliseconds, then ends with STATUS
 *   odd seccomp          computes under a seccomp filter that allows everything
 *   odd vfork            a thread is in vfork nearly always: its children sleep a second
 *   odd leaderless       the first thread has ended, two others compute
 *   odd poll             one thread, in poll with a time-out of 50 ms, each measured
 *   odd handler          one thread, in a signal handler nearly always
 *   odd child            waits for SIGUSR1, then forks a child that computes on for itself and
 *                        prints "child PID"
 *
 * Prints "pid N", then a "round N" line at least twice a second while it runs (from every process),
 * and ends by SIGTERM with status 0; a wrong result prints "wrong ..." and ends with status 1. The
 * work is libwork's, through the PLT, so that it can be hooked. */
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

static void *keep_vforking(void *arg)
{
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
			struct timespec second = {1, 0};

			nanosleep(&second, NULL); /* the parent is held meanwhile */
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

	if (pthread_create(&thread, NULL, keep_vforking, NULL) != 0)
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

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, compute_and_end, NULL) != 0)
			return 2;
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

static const struct {
	const char *name;
	int (*be)(char **argv);
	int words;
} situations[] = {
	{"exec", be_exec, 1},		  {"exit", be_exit, 2}, {"seccomp", be_seccomp, 0},
	{"vfork", be_vfork, 0},		  {"poll", be_poll, 0}, {"handler", be_handler, 0},
	{"leaderless", be_leaderless, 0}, {"child", be_child, 0},
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
