/* Threads in every state that a tracer may find them in, each of which checks itself.
 *
 *   states [SECONDS]     0 (the default): until SIGTERM
 *
 *   malloc     inside the allocator            dlopen    inside the loader's lock
 *   signal     in a handler, 500 timer signals a second, on an alternate stack
 *   pipe       in a blocking read              sleep     in nanosleep, measured
 *   poll       in a timed poll                 epoll     in a timed epoll_wait
 *   futex      in a timed FUTEX_WAIT           cond      in a timed condition wait
 *   clock      in the vDSO                     compute   in hooked functions
 *   eventfd    in a blocking read, 8 bytes     select    in a timed select
 *
 * A stop by ptrace must be felt by none but epoll_wait, which may return EINTR (as for any
 * stop signal: signal(7), "Interruption of system calls ... by stop signals"); there EINTR is
 * counted and not wrong. Once a second it prints "ok N epoll_eintr N"; it exits with status 1 at
 * the first wrong result or when some thread made no progress for 5 seconds. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "libwork.h"

#define WAIT_MS 50
#define STALL_S 5

static volatile sig_atomic_t stop;
static atomic_ulong epoll_eintr;
static atomic_ulong signals;
static int pipe_fd[2];
static int event_fd;

struct state {
	const char *name;
	int (*step)(struct state *);
	pthread_t thread;
	atomic_ulong steps;
	unsigned long seen;
	int stalled_s;
	uint64_t number;
	int fd;
};

static int wrong(struct state *s, const char *format, ...)
{
	va_list args;

	flockfile(stdout);
	printf("wrong: %s: ", s->name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	funlockfile(stdout);
	_exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

/* A timed wait that ended by itself must not have ended early. One millisecond is the kernel's
 * rounding of poll and epoll timeouts. */
static int check_wait(struct state *s, double begin)
{
	double took = now() - begin;

	if (took < WAIT_MS - 1)
		return wrong(s, "waited %.3f of %d ms", took, WAIT_MS);
	return 0;
}

static int step_malloc(struct state *s)
{
	unsigned char *blocks[64];

	for (int i = 0; i < 64; i++) {
		size_t size = 1 + (size_t)(s->number++ * 2654435761u % 5000);

		blocks[i] = malloc(size);
		if (!blocks[i])
			return wrong(s, "out of memory");
		memset(blocks[i], i, size);
		blocks[i] = realloc(blocks[i], size + 100);
	}
	for (int i = 0; i < 64; i++) {
		if (blocks[i][0] != i)
			return wrong(s, "block %d holds %d", i, blocks[i][0]);
		free(blocks[i]);
	}
	return 0;
}

static int step_dlopen(struct state *s)
{
	void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
	double (*fabs_of)(double);

	if (!library)
		return wrong(s, "dlopen: %s", dlerror());
	fabs_of = (double (*)(double))dlsym(library, "fabs");
	if (!fabs_of || fabs_of(-2.5) != 2.5)
		return wrong(s, "fabs");
	dlclose(library);
	return 0;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	uint64_t values[8];

	for (int i = 0; i < 8; i++)
		values[i] = (uint64_t)i;
	if (work_fold(values, 8) != *(uint64_t *)info->si_value.sival_ptr)
		_exit(1);
	atomic_fetch_add(&signals, 1);
	errno = saved;
}

/* The timer's signals go to this thread alone. */
static int step_signal(struct state *s)
{
	static uint64_t expected;
	static char stack[64 * 1024];
	unsigned long before = atomic_load(&signals);
	uint64_t sum = 1;

	if (s->number++ == 0) {
		uint64_t values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
		stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
		struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
		struct itimerspec every = {{0, 2000000}, {0, 2000000}};
		timer_t timer;

		expected = work_fold(values, 8);
		event.sigev_value.sival_ptr = &expected;
		event._sigev_un._tid = gettid();
		sigaltstack(&alternate, NULL);
		if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
		    timer_settime(timer, 0, &every, NULL) != 0)
			return wrong(s, "timer: %s", strerror(errno));
	}
	errno = 77;
	for (double begin = now(); atomic_load(&signals) == before;) {
		sum = sum * 3 + 1;
		if (now() - begin > STALL_S * 1000)
			return wrong(s, "no signal for %d s", STALL_S);
	}
	return errno == 77 ? 0 : wrong(s, "errno became %d", errno);
}

static int step_pipe(struct state *s)
{
	uint64_t got = 0;
	ssize_t n = read(pipe_fd[0], &got, sizeof(got));

	if (n != sizeof(got))
		return wrong(s, "read %zd bytes, errno %d", n, errno);
	return got == s->number++ ? 0 : wrong(s, "number %lu", (unsigned long)got);
}

static int step_writer(struct state *s)
{
	struct timespec t = {0, 3000000};
	uint64_t one = 1;

	if (write(pipe_fd[1], &s->number, sizeof(s->number)) != sizeof(s->number))
		return wrong(s, "pipe, errno %d", errno);
	s->number++;
	if (write(event_fd, &one, sizeof(one)) != sizeof(one))
		return wrong(s, "eventfd, errno %d", errno);
	return nanosleep(&t, NULL) == 0 ? 0 : wrong(s, "nanosleep, errno %d", errno);
}

static int step_eventfd(struct state *s)
{
	uint64_t got = 0;
	ssize_t n = read(event_fd, &got, sizeof(got));

	return n == 8 && got > 0 ? 0 : wrong(s, "read %zd, errno %d", n, errno);
}

static int step_sleep(struct state *s)
{
	struct timespec t = {0, WAIT_MS * 1000000};
	double begin = now();

	if (nanosleep(&t, NULL) != 0)
		return wrong(s, "errno %d", errno);
	return check_wait(s, begin);
}

static int step_poll(struct state *s)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	double begin = now();
	int n = poll(&p, 1, WAIT_MS);

	if (n != 0)
		return wrong(s, "poll gave %d, errno %d", n, errno);
	return check_wait(s, begin);
}

static int step_select(struct state *s)
{
	struct timeval t = {0, WAIT_MS * 1000};
	double begin = now();
	fd_set set;
	int n;

	FD_ZERO(&set);
	FD_SET(s->fd, &set);
	n = select(s->fd + 1, &set, NULL, NULL, &t);
	if (n != 0)
		return wrong(s, "select gave %d, errno %d", n, errno);
	return check_wait(s, begin);
}

static int step_epoll(struct state *s)
{
	struct epoll_event event = {.events = EPOLLIN};
	double begin = now();
	int n;

	if (s->number == 0) {
		s->number = (uint64_t)epoll_create1(EPOLL_CLOEXEC);
		if (epoll_ctl((int)s->number, EPOLL_CTL_ADD, s->fd, &event) != 0)
			return wrong(s, "epoll_ctl, errno %d", errno);
	}
	n = epoll_wait((int)s->number, &event, 1, WAIT_MS);
	if (n < 0 && errno == EINTR) {
		atomic_fetch_add(&epoll_eintr, 1);
		return 0;
	}
	if (n != 0)
		return wrong(s, "epoll_wait gave %d, errno %d", n, errno);
	return check_wait(s, begin);
}

static int step_futex(struct state *s)
{
	static uint32_t word;
	struct timespec t = {0, WAIT_MS * 1000000};
	double begin = now();
	long err = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);

	if (err != -1 || errno != ETIMEDOUT)
		return wrong(s, "futex gave %ld, errno %d", err, errno);
	return check_wait(s, begin);
}

static int step_cond(struct state *s)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	struct timespec t;
	double begin = now();
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += WAIT_MS * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_mutex_lock(&mutex);
	while (err == 0)
		err = pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &t);
	pthread_mutex_unlock(&mutex);
	if (err != ETIMEDOUT)
		return wrong(s, "cond wait gave %d", err);
	return check_wait(s, begin);
}

static int step_clock(struct state *s)
{
	double last = now();

	for (int i = 0; i < 10000; i++) {
		double next = now();

		if (next < last)
			return wrong(s, "time went back by %.3f ms", last - next);
		last = next;
	}
	return 0;
}

static int step_compute(struct state *s)
{
	uint64_t values[4] = {s->number, 2, 3, 4};
	uint64_t sum = 0;

	for (int i = 0; i < 4; i++)
		sum = work_mix(sum, values[i]);
	s->number++;
	return work_fold(values, 4) == sum ? 0 : wrong(s, "sum");
}

static struct state states[] = {
	{.name = "malloc", .step = step_malloc}, {.name = "dlopen", .step = step_dlopen},
	{.name = "signal", .step = step_signal}, {.name = "pipe", .step = step_pipe},
	{.name = "writer", .step = step_writer}, {.name = "eventfd", .step = step_eventfd},
	{.name = "sleep", .step = step_sleep},	 {.name = "poll", .step = step_poll},
	{.name = "select", .step = step_select}, {.name = "epoll", .step = step_epoll},
	{.name = "futex", .step = step_futex},	 {.name = "cond", .step = step_cond},
	{.name = "clock", .step = step_clock},	 {.name = "compute", .step = step_compute},
};
#define STATES (sizeof(states) / sizeof(states[0]))

static void *live(void *arg)
{
	struct state *s = arg;

	while (!stop) {
		s->step(s);
		atomic_fetch_add(&s->steps, 1);
	}
	return NULL;
}

static void on_term(int sig)
{
	stop = 1;
}

static int setup(void)
{
	struct sigaction term = {.sa_handler = on_term};
	struct sigaction timer = {.sa_sigaction = on_signal,
				  .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	sigset_t only_main;
	int silent[2];

	if (pipe(pipe_fd) != 0 || pipe(silent) != 0)
		return -1;
	event_fd = eventfd(0, 0);
	for (size_t i = 0; i < STATES; i++)
		states[i].fd = silent[0];
	sigaction(SIGUSR1, &timer, NULL);
	sigaction(SIGTERM, &term, NULL);
	/* SIGTERM is the main thread's: it would cut the others' waits short. */
	sigemptyset(&only_main);
	sigaddset(&only_main, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &only_main, NULL);
	for (size_t i = 0; i < STATES; i++)
		if (pthread_create(&states[i].thread, NULL, live, &states[i]) != 0)
			return -1;
	pthread_sigmask(SIG_UNBLOCK, &only_main, NULL);
	return 0;
}

/* Every thread must have moved within STALL_S seconds. */
static int check_progress(void)
{
	for (size_t i = 0; i < STATES; i++) {
		struct state *s = &states[i];
		unsigned long steps = atomic_load(&s->steps);

		s->stalled_s = steps == s->seen ? s->stalled_s + 1 : 0;
		s->seen = steps;
		if (s->stalled_s >= STALL_S)
			return wrong(s, "no progress for %d s", STALL_S);
	}
	return 0;
}

int main(int argc, char **argv)
{
	long seconds = argc > 1 ? atol(argv[1]) : 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	if (setup() != 0) {
		perror("states");
		return 2;
	}
	for (long second = 1; !stop && (seconds == 0 || second <= seconds); second++) {
		sleep(1);
		check_progress();
		printf("ok %ld epoll_eintr %lu\n", second, atomic_load(&epoll_eintr));
	}
	/* The threads that block are left to the exit. */
	_exit(0);
}
