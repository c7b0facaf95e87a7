/* A thousand small functions, called by many threads all the time; most of them begin with several
 * short instructions, so that threads stand inside what a hook displaces.
 *
 *   thousand [THREADS [ROUNDS [HZ]]]
 *
 * ROUNDS 0 (the default): until SIGTERM. Else: waits for SIGUSR1; then each thread calls each
 * function ROUNDS times, "done" is printed, and the program waits for SIGTERM. HZ: so many SIGALRM
 * a second to the first thread, whose handler calls the functions 0 to 9, too, and half as many
 * SIGUSR2, handled on a stack of its own, so that what it has interrupted lies on another.
 *
 * Each function counts its runs in the caller's tally and returns a known number: a call that is
 * lost, run twice or answered wrongly is seen. Functions are named fn_0_0 ... fn_9_99. The last
 * line is "calls N runs N handler N wrong N". Exit 0: calls equal runs and nothing was wrong. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define FUNCTIONS 1000

/* x + N + shape, and *runs one more. Five beginnings: what is displaced is 4 instructions, 3 with a
 * rip-relative one, one of five bytes behind endbr64, a jcc, and what the compiler makes. */
#define NAMED(i, n) fn_##i##_##n
#define NAKED __attribute__((naked))
static const uint64_t four __attribute__((used)) = 4;
#define SHAPE0(i, n)                                                              \
	NAKED uint64_t NAMED(i, n)(uint64_t x, uint64_t * runs)                   \
	{                                                                         \
		__asm__("push %rbx; xor %ebx, %ebx; nop; nop; incq (%rsi);"       \
			"lea " #i "*100+" #n "(%rdi,%rbx), %rax; pop %rbx; ret"); \
	}
#define SHAPE1(i, n)                                                            \
	NAKED uint64_t NAMED(i, n)(uint64_t x, uint64_t * runs)                 \
	{                                                                       \
		__asm__("incq (%rsi); mov four(%rip), %rax; lea " #i "*100+" #n \
			"-3(%rdi,%rax), %rax; ret");                            \
	}
#define SHAPE2(i, n)                                                                            \
	NAKED uint64_t NAMED(i, n)(uint64_t x, uint64_t * runs)                                 \
	{                                                                                       \
		__asm__("endbr64; mov $" #i "*100+" #n "+2, %eax; incq (%rsi); add %rdi, %rax;" \
			"ret");                                                                 \
	}
#define SHAPE3(i, n)                                                                 \
	NAKED uint64_t NAMED(i, n)(uint64_t x, uint64_t * runs)                      \
	{                                                                            \
		__asm__("test %rsi, %rsi; je 1f; incq (%rsi); 1: lea " #i "*100+" #n \
			"+3(%rdi), %rax; ret");                                      \
	}
#define SHAPE4(i, n)                                                                         \
	__attribute__((noinline, noclone)) uint64_t NAMED(i, n)(uint64_t x, uint64_t * runs) \
	{                                                                                    \
		++*runs;                                                                     \
		return x + i * 100 + n + 4;                                                  \
	}
#define FIVE(i, n0, n1, n2, n3, n4) \
	SHAPE0(i, n0) SHAPE1(i, n1) SHAPE2(i, n2) SHAPE3(i, n3) SHAPE4(i, n4)
#define TEN(i, t) FIVE(i, t##0, t##1, t##2, t##3, t##4) FIVE(i, t##5, t##6, t##7, t##8, t##9)
#define TEN_FIRST(i) FIVE(i, 0, 1, 2, 3, 4) FIVE(i, 5, 6, 7, 8, 9)
#define HUNDRED(i)   \
	TEN_FIRST(i) \
	TEN(i, 1) TEN(i, 2) TEN(i, 3) TEN(i, 4) TEN(i, 5) TEN(i, 6) TEN(i, 7) TEN(i, 8) TEN(i, 9)

/* clang-format off */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"
HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3) HUNDRED(4)
HUNDRED(5) HUNDRED(6) HUNDRED(7) HUNDRED(8) HUNDRED(9)

#define A10(i, t) NAMED(i, t##0), NAMED(i, t##1), NAMED(i, t##2), NAMED(i, t##3), NAMED(i, t##4), \
	NAMED(i, t##5), NAMED(i, t##6), NAMED(i, t##7), NAMED(i, t##8), NAMED(i, t##9)
#define A100(i) A10(i, ), A10(i, 1), A10(i, 2), A10(i, 3), A10(i, 4), A10(i, 5), A10(i, 6), \
	A10(i, 7), A10(i, 8), A10(i, 9)
static uint64_t (*const functions[])(uint64_t, uint64_t *) = {
	A100(0), A100(1), A100(2), A100(3), A100(4), A100(5), A100(6), A100(7), A100(8), A100(9)};
/* clang-format on */
_Static_assert(sizeof(functions) / sizeof(functions[0]) == FUNCTIONS, "a thousand");

struct tally {
	uint64_t calls, runs, wrong;
};

static struct tally tallies[THREADS_MAX], handled[2];
static volatile sig_atomic_t stop, go;
static unsigned long rounds;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int hz;

static inline void call(size_t i, uint64_t x, struct tally *t)
{
	t->calls++;
	t->wrong += functions[i](x, &t->runs) != x + i + i % 5;
}

/* SIGALRM's has 300 KiB of its own on the thread's stack, below what it has interrupted. */
static void on_alarm(int sig)
{
	struct tally *t = &handled[sig == SIGALRM];
	volatile char *room = sig == SIGALRM ? __builtin_alloca(300 << 10) : NULL;

	if (room)
		room[0] = 1;
	for (size_t i = 0; i < (room ? 1000 : 10); i++)
		call(i % 10, t->calls, t);
}

static void on_signal(int sig)
{
	if (sig == SIGUSR1)
		go = 1;
	else
		stop = 1;
}

static void alarms(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(how, &set, NULL);
}

static void start_alarm(int sig, int flags, long ns)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags | SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig};
	struct itimerspec every = {.it_interval.tv_nsec = ns, .it_value.tv_nsec = ns};
	timer_t timer;

	event._sigev_un._tid = gettid();
	if (flags & SA_ONSTACK) /* which has no room for the other's handler */
		sigaddset(&action.sa_mask, SIGALRM);
	sigaction(sig, &action, NULL);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
		timer_settime(timer, 0, &every, NULL);
}

/* To this thread. */
static void start_alarms(void)
{
	static char stack[65536];
	const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};

	sigaltstack(&alternate, NULL);
	start_alarm(SIGALRM, 0, 1000000000 / hz);
	start_alarm(SIGUSR2, SA_ONSTACK, 2000000000 / hz);
	alarms(SIG_UNBLOCK);
}

static void *compute(void *arg)
{
	struct tally *t = arg, mine = {0};
	uint64_t x = (uint64_t)(t - tallies) + 1;

	pthread_mutex_lock(&gate);
	while (rounds && !go && !stop)
		pthread_cond_wait(&opened, &gate);
	pthread_mutex_unlock(&gate);
	if (hz && t == tallies)
		start_alarms();
	for (unsigned long n = 0; rounds ? n < rounds && go : !stop; n++) {
		for (size_t i = 0; i < FUNCTIONS; i++)
			call(i, x, &mine);
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		*t = mine;
	}
	alarms(SIG_BLOCK);
	return NULL;
}

static void add(struct tally *sum, const struct tally *t)
{
	sum->calls += t->calls;
	sum->runs += t->runs;
	sum->wrong += t->wrong;
}

static void progress(int count)
{
	for (uint64_t last = 0, now; !stop; last = now) {
		usleep(100000);
		now = 0;
		for (int i = 0; i < count; i++)
			now += tallies[i].runs;
		if (now != last)
			printf("round %lu\n", now);
	}
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 4;
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t threads[THREADS_MAX];
	struct tally sum = {0};

	if (count < 1 || count > THREADS_MAX) {
		fprintf(stderr, "thousand: threads must be 1 to %d\n", THREADS_MAX);
		return 2;
	}
	rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	hz = argc > 3 ? atoi(argv[3]) : 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	alarms(SIG_BLOCK);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, compute, &tallies[i]) != 0)
			return 2;
	printf("pid %d\n", getpid());
	while (rounds && !go && !stop)
		usleep(10000);
	pthread_mutex_lock(&gate);
	pthread_cond_broadcast(&opened);
	pthread_mutex_unlock(&gate);
	if (!rounds)
		progress(count);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	if (rounds)
		printf("done handler %lu\n", handled[0].calls + handled[1].calls);
	while (!stop)
		usleep(10000);
	add(&sum, &handled[0]);
	add(&sum, &handled[1]);
	for (int i = 0; i < count; i++)
		add(&sum, &tallies[i]);
	printf("calls %lu runs %lu handler %lu wrong %lu\n", sum.calls, sum.runs,
	       handled[0].calls + handled[1].calls, sum.wrong);
	return sum.wrong || sum.calls != sum.runs;
}
