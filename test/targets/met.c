/*
 * A traced function in the places where a tracer by ptrace may harm: signals, children, exec,
 * system calls that must not be interrupted.
 *
 *   met [leave]
 *
 * "pid N", then for each "MODE N" on stdin "MODE N right" or "wrong"; ends with its input. With an
 * argument it leaves at once a child, which calls and says "child right" or "wrong".
 *
 *   signals N   N signals, each as soon as the one before was handled; handler and others call
 *   traps N     N times an int3 of its own and a SIGTRAP of its own, which it handles
 *   forks N     N children, four at a time; each calls and ends with what it got
 *   vforks N    the same by vfork
 *   spawns N    posix_spawn of true
 *   waits N     N calls, while other threads are in epoll_wait, nanosleep, read and semop: none of
 *               these may be interrupted or short
 *   ends N      N children that end, while their parent is in epoll_wait: it is not interrupted
 *   calls N     N calls
 *   blocked N   N calls by a thread that blocks all signals
 *   exec N      runs itself anew
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOOKED __attribute__((noinline, noclone, noipa))

extern char **environ;
static const char *self;
static atomic_long handled, wrong;

long met(long n);

HOOKED long met(long n)
{
	return n * 3 + 1;
}

static bool calls(long n)
{
	bool ok = true;

	for (long i = 0; i < n; i++)
		ok &= met(i) == i * 3 + 1;
	return ok;
}

static void on_signal(int unused)
{
	(void)unused;
	wrong += !calls(2);
	handled++;
}

static void *send(void *arg)
{
	pthread_t to = *(pthread_t *)arg;

	for (long sent = 0;;) {
		if (handled == sent) {
			pthread_kill(to, SIGUSR1);
			sent++;
		}
		sched_yield();
		pthread_testcancel();
	}
	return NULL;
}

static bool signals(long n)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t me = pthread_self(), sender;
	bool ok = true;

	handled = 0;
	sigaction(SIGUSR1, &act, NULL);
	pthread_create(&sender, NULL, send, &me);
	while (handled < n)
		ok &= calls(1);
	pthread_cancel(sender);
	pthread_join(sender, NULL);
	return ok;
}

static void on_trap(int unused)
{
	(void)unused;
	handled++;
}

static bool traps(long n)
{
	struct sigaction act = {.sa_handler = on_trap}, old;
	bool ok = true;

	sigaction(SIGTRAP, &act, &old);
	handled = 0;
	for (long i = 0; i < n; i++) {
		__asm__ volatile("int3");
		ok &= calls(1);
		raise(SIGTRAP);
	}
	sigaction(SIGTRAP, &old, NULL);
	return ok && handled == 2 * n;
}

static bool reap(int count)
{
	bool ok = true;
	int status;

	while (count--)
		ok &= wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 22;
	return ok;
}

static bool forks(long n)
{
	bool ok = true;
	int out = 0;

	for (long i = 0; i < n; i++) {
		if (fork() == 0)
			_exit((int)met(7));
		if (++out == 4) {
			ok &= reap(out);
			out = 0;
		}
		ok &= calls(1);
	}
	return reap(out) && ok;
}

static bool vforks(long n)
{
	volatile bool ok = true;

	for (volatile long i = 0; i < n; i++) {
		if (vfork() == 0)
			_exit((int)met(7));
		ok = reap(1) && calls(1) && ok;
	}
	return ok;
}

static bool spawns(long n)
{
	char *argv[] = {"true", NULL};
	bool ok = true;
	int status;
	pid_t pid;

	for (long i = 0; i < n; i++)
		ok &= posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0 &&
		      waitpid(pid, &status, 0) == pid && status == 0 && calls(1);
	return ok;
}

static int pipe_fds[2], sem;
static atomic_int waiting;

static void *wait_epoll(void *unused)
{
	int fd = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};

	epoll_ctl(fd, EPOLL_CTL_ADD, pipe_fds[0], &event);
	waiting++;
	wrong += epoll_wait(fd, &event, 1, -1) != 1;
	close(fd);
	return unused;
}

static void *wait_sem(void *unused)
{
	struct sembuf down = {.sem_op = -1};

	waiting++;
	wrong += semop(sem, &down, 1) != 0;
	return unused;
}

static void *wait_sleep(void *unused)
{
	struct timespec a, b;

	waiting++;
	clock_gettime(CLOCK_MONOTONIC, &a);
	wrong += nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL) != 0;
	clock_gettime(CLOCK_MONOTONIC, &b);
	wrong += (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec < 200000000;
	return unused;
}

static bool waits(long n)
{
	static void *(*const ways[])(void *) = {wait_epoll, wait_sem, wait_sleep};
	struct sembuf up = {.sem_op = 1};
	pthread_t threads[3];
	char byte;
	bool ok;

	waiting = 0;
	sem = semget(IPC_PRIVATE, 1, 0600);
	if (sem < 0 || pipe(pipe_fds) < 0)
		return false;
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, ways[i], NULL);
	while (waiting < 3)
		sched_yield();
	ok = calls(n);
	pthread_join(threads[2], NULL);
	ok &= write(pipe_fds[1], "x", 1) == 1 && semop(sem, &up, 1) == 0;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	ok &= read(pipe_fds[0], &byte, 1) == 1;
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	semctl(sem, 0, IPC_RMID);
	return ok;
}

static void *end_children(void *arg)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD); /* is for who waits */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (long i = 0; i < *(long *)arg; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit((int)met(7));
		wrong += waitpid(pid, NULL, 0) != pid;
	}
	wrong += write(pipe_fds[1], "x", 1) != 1;
	return NULL;
}

static bool ends(long n)
{
	struct epoll_event event = {.events = EPOLLIN};
	int fd = epoll_create1(0);
	pthread_t other;
	bool ok;

	if (fd < 0 || pipe(pipe_fds) < 0)
		return false;
	epoll_ctl(fd, EPOLL_CTL_ADD, pipe_fds[0], &event);
	pthread_create(&other, NULL, end_children, &n);
	ok = epoll_wait(fd, &event, 1, -1) == 1;
	pthread_join(other, NULL);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(fd);
	return ok;
}

static void *call_blocked(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	wrong += !calls(*(long *)arg);
	return NULL;
}

static bool blocked(long n)
{
	pthread_t other;

	return pthread_create(&other, NULL, call_blocked, &n) == 0 &&
	       pthread_join(other, NULL) == 0;
}

static bool exec(long n)
{
	(void)n;
	execl(self, self, (char *)NULL);
	return false;
}

static const struct {
	const char *name;
	bool (*run)(long n);
} modes[] = {{"signals", signals}, {"traps", traps},	{"forks", forks}, {"vforks", vforks},
	     {"spawns", spawns},   {"waits", waits},	{"ends", ends},	  {"calls", calls},
	     {"exec", exec},	   {"blocked", blocked}};

int main(int argc, char **argv)
{
	char line[128], name[64];
	long n;

	self = argv[0];
	if (argc > 1 && fork() == 0)
		printf("child %s\n", calls(10) ? "right" : "wrong");
	if (argc > 1)
		return 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0); /* what follows exec is the next program's */
	printf("pid %d\n", getpid());
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%63s %ld", name, &n) != 2)
			continue;
		for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
			if (strcmp(modes[i].name, name) != 0)
				continue;
			wrong = 0;
			printf("%s %ld %s\n", name, n,
			       modes[i].run(n) && !wrong ? "right" : "wrong");
		}
	}
	return 0;
}
