/*
 * Preemption: loops that never yield take turns, nothing they compute with is lost, and where it is
 * forbidden nobody is left. Ticks come by tgkill, from another thread and from the computing code
 * itself, so that no test depends on how fast timers are; one does use the timer.
 *
 * SCRY_SOAK_TICKS makes the stress as long as one likes; SCRY_SOAK_SECONDS has loops share the time
 * so long by the timer.
 */
#include "fiber/fiber.h"
#include "fiber/scry_preempt.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define LEAF_SAFE __attribute__((noinline, section("leaf_safe")))
#define NEVER_NS 3600000000000ll /* a slice that no test lives to see */

extern const char __start_leaf_safe[], __stop_leaf_safe[];

static volatile bool is_over;
static pid_t target;
static volatile uint64_t wanted; /* ticks */

/* One tick at a time, at moments that differ: a signal that comes while the one before returns
 * would be kept. */
static void *ticker(void *arg)
{
	const volatile uint64_t *ticks = &((const struct scry_preempt_counts *)arg)->ticks;
	uint64_t random = 88172645463325252u;

	while (!is_over && *ticks < wanted) {
		uint64_t had = *ticks;

		syscall(SYS_tgkill, getpid(), target, SIGURG);
		while (!is_over && *ticks == had)
			__builtin_ia32_pause();
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		for (volatile uint64_t spin = random % 8192; spin > 0; spin--)
			;
	}
	is_over = true;
	return NULL;
}

static pthread_t start(uint64_t ticks)
{
	pthread_t thread;

	is_over = false;
	wanted = ticks;
	target = syscall(SYS_gettid);
	assert_int_equal(scry_preempt_start(NEVER_NS), 0);
	assert_int_equal(
		pthread_create(&thread, NULL, ticker, &scry_fiber_self()->sched->preempt.counts),
		0);
	return thread;
}

static void stop(pthread_t thread)
{
	is_over = true;
	pthread_join(thread, NULL);
	assert_int_equal(scry_preempt_stop(), 0);
}

static int open_sched(void **state)
{
	return scry_fiber_open(NULL, NULL);
}

static int close_sched(void **state)
{
	return scry_fiber_close();
}

LEAF_SAFE static void *spins(void *arg)
{
	volatile uint64_t *count = arg;

	while (!is_over)
		++*count;
	return arg;
}

static void loops_that_never_yield_take_turns(void **state)
{
	uint64_t counts[3] = {0};
	struct scry_preempt_counts ticks;
	struct scry_fiber *fibers[3];
	pthread_t thread;
	uint32_t turns[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(scry_fiber_spawn(NULL, spins, &counts[i], &fibers[i]), 0);
	thread = start(3000);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(scry_fiber_join(fibers[i], NULL), 0);
		turns[i] = fibers[i]->preempted; /* joined last: nobody took its place */
	}
	assert_int_equal(scry_preempt_count(&ticks), 0);
	stop(thread);
	for (int i = 0; i < 3; i++) {
		assert_true(counts[i] > 0);
		/* one after the other: nobody is two turns ahead */
		assert_in_range(turns[i] + 1, turns[0], turns[0] + 2);
	}
	assert_true(ticks.switched > 1000);
	assert_in_range(ticks.switched, turns[0] + turns[1] + turns[2],
			turns[0] + turns[1] + turns[2]);
}

static void so_they_do_by_the_timer(void **state)
{
	uint64_t counts[2] = {0};
	struct scry_preempt_counts ticks = {0};
	struct scry_fiber *fibers[2];

	is_over = false;
	for (int i = 0; i < 2; i++)
		assert_int_equal(scry_fiber_spawn(NULL, spins, &counts[i], &fibers[i]), 0);
	assert_int_equal(scry_preempt_start(1000000), 0);
	assert_int_equal(scry_preempt_start(1000000), -EBUSY);
	/* main has a turn in each round */
	while (ticks.switched < 20) {
		scry_fiber_yield();
		assert_int_equal(scry_preempt_count(&ticks), 0);
	}
	is_over = true;
	for (int i = 0; i < 2; i++)
		assert_int_equal(scry_fiber_join(fibers[i], NULL), 0);
	assert_true(counts[0] > 0 && counts[1] > 0);
	assert_true(ticks.elapsed_ns / (int64_t)ticks.ticks >= 1000000 * 9 / 10);
	assert_int_equal(scry_preempt_stop(), 0);
}

static void *sleeps_over_and_over(void *arg)
{
	for (int i = 0; i < 20; i++)
		scry_fiber_sleep(1);
	is_over = true;
	return arg;
}

/* Whoever is due has the next turn, and not only after many: within four slices each time. */
static void who_is_due_does_not_wait_for_many_slices(void **state)
{
	struct scry_preempt_counts ticks;
	struct scry_fiber *fibers[2];
	uint64_t count = 0;

	is_over = false;
	assert_int_equal(scry_fiber_spawn(NULL, spins, &count, &fibers[0]), 0);
	assert_int_equal(scry_fiber_spawn(NULL, sleeps_over_and_over, NULL, &fibers[1]), 0);
	assert_int_equal(scry_preempt_start(1000000), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(scry_fiber_join(fibers[i], NULL), 0);
	assert_int_equal(scry_preempt_count(&ticks), 0);
	assert_int_equal(scry_preempt_stop(), 0);
	assert_true(ticks.switched <= 80);
}

static int64_t seconds;

static void *ends_it(void *arg)
{
	scry_fiber_sleep(seconds * 1000000000ll);
	is_over = true;
	return arg;
}

/* How even, and how long slices were: for the soak, as a busy host makes both what they are. */
static void shares_by_the_timer(void **state)
{
	const char *soak = getenv("SCRY_SOAK_SECONDS");
	struct scry_fiber *fibers[3], *last;
	struct scry_preempt_counts ticks;
	uint64_t counts[3] = {0};

	seconds = strtol(soak, NULL, 10);
	is_over = false;
	for (int i = 0; i < 3; i++)
		assert_int_equal(scry_fiber_spawn(NULL, spins, &counts[i], &fibers[i]), 0);
	assert_int_equal(scry_fiber_spawn(NULL, ends_it, NULL, &last), 0);
	assert_int_equal(scry_preempt_start(1000000), 0);
	assert_int_equal(scry_fiber_join(last, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(scry_fiber_join(fibers[i], NULL), 0);
	assert_int_equal(scry_preempt_count(&ticks), 0);
	assert_int_equal(scry_preempt_stop(), 0);
	print_message("slices of %.3f ms were %.3f ms; shares", 1.0,
		      (double)ticks.elapsed_ns / ticks.ticks / 1e6);
	for (int i = 0; i < 3; i++)
		print_message(" %.2f %%", 100.0 * counts[i] / (counts[0] + counts[1] + counts[2]));
	print_message("; %lu of %lu ticks switched, %lu missed\n", (unsigned long)ticks.switched,
		      (unsigned long)ticks.ticks, (unsigned long)ticks.missed);
	for (int i = 0; i < 3; i++)
		assert_in_range(1000 * counts[i] / (counts[0] + counts[1] + counts[2]), 326, 340);
}

static volatile long own_ids[2]; /* process and thread, while code sends ticks to itself */

/* A tick that comes as the system call returns, whatever the registers hold. */
static inline __attribute__((always_inline)) void tick_here(void)
{
	long result = SYS_tgkill;

	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"(own_ids[0]), "S"(own_ids[1]), "d"((long)SIGURG)
			 : "rcx", "r11", "memory");
}

/* Floating point in vectors, on the x87 stack and in flags; the answer depends on every bit, and on
 * the way of rounding. */
LEAF_SAFE static uint64_t compute(uint64_t seed, int rounds)
{
	double lanes[8], sum = 0;
	long double deep = (long double)seed / 3;
	uint64_t low = seed, high = ~seed, answer;

	for (int i = 0; i < 8; i++)
		lanes[i] = (double)(seed + i) / 7;
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < 8; i++)
			lanes[i] = lanes[i] / 3 + 1 / (lanes[i] + 2);
		if (own_ids[0] != 0 && r % 4 == 1)
			tick_here();
		deep = deep / 3 + 1 / (deep + 2);
		__asm__ volatile("add %2, %0\n\tadc %3, %1"
				 : "+r"(low), "+r"(high)
				 : "r"(seed), "r"(high)
				 : "cc");
	}
	for (int i = 0; i < 8; i++)
		sum += lanes[i];
	memcpy(&answer, &sum, 8);
	return answer ^ low ^ high ^ (uint64_t)(deep * 1e18L);
}

static volatile uint64_t wrong, wrong_answers, wrong_errno, wrong_rounding, wrong_text, computed;

struct worker {
	uint64_t seed, answer;
	int rounding, rounds;
};

static void *stressed(void *arg)
{
	struct worker *worker = arg;
	uint64_t answer;

	fesetround(worker->rounding);
	while (!is_over) {
		errno = (int)worker->seed;
		answer = compute(worker->seed, worker->rounds);
		wrong_errno += errno != (int)worker->seed;
		wrong_answers += answer != worker->answer;
		wrong_rounding += fegetround() != worker->rounding;
		computed++;
	}
	return NULL;
}

/* Libraries between the computing: they are not allowed, so ticks wait for the safe point. */
static void *allocates(void *arg)
{
	struct worker *worker = arg;
	char text[100];

	fesetround(worker->rounding);
	while (!is_over) {
		size_t size = 16 + computed % 5000;
		char *block = malloc(size);

		memset(block, 1, size);
		snprintf(text, sizeof(text), "%.17g and %zu", (double)worker->seed / 7, size);
		wrong_text += compute(worker->seed, 10) == 0;
		wrong_text += strtoul(strrchr(text, ' '), NULL, 10) != size;
		free(block);
		scry_preempt_point();
	}
	return NULL;
}

static void nothing_is_lost_under_stress(void **state)
{
	static const int ways[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
	const char *soak = getenv("SCRY_SOAK_TICKS");
	struct worker workers[8];
	struct scry_fiber *fibers[12];
	struct scry_preempt_counts ticks;
	pthread_t thread;

	wrong_answers = wrong_errno = wrong_rounding = wrong_text = computed = 0;
	for (int i = 0; i < 8; i++) {
		workers[i] =
			(struct worker){.seed = 1000 + i, .rounding = ways[i % 4], .rounds = 2000};
		fesetround(ways[i % 4]);
		workers[i].answer = compute(workers[i].seed, workers[i].rounds);
	}
	fesetround(FE_TONEAREST);
	assert_true(workers[0].answer != workers[4].answer);
	for (int i = 0; i < 12; i++)
		assert_int_equal(scry_fiber_spawn(NULL, i < 8 ? stressed : allocates,
						  &workers[i % 8], &fibers[i]),
				 0);
	thread = start(soak != NULL ? strtoull(soak, NULL, 10) : 200000);
	own_ids[1] = syscall(SYS_gettid);
	own_ids[0] = getpid();
	for (int i = 0; i < 12; i++)
		assert_int_equal(scry_fiber_join(fibers[i], NULL), 0);
	own_ids[0] = 0;
	assert_int_equal(scry_preempt_count(&ticks), 0);
	stop(thread);
	if (soak != NULL)
		print_message("%lu ticks, %lu of them switched, %lu kept, %lu computed, wrong: %lu "
			      "answers, %lu errno, %lu rounding, %lu text\n",
			      (unsigned long)ticks.ticks, (unsigned long)ticks.switched,
			      (unsigned long)ticks.kept, (unsigned long)computed,
			      (unsigned long)wrong_answers, (unsigned long)wrong_errno,
			      (unsigned long)wrong_rounding, (unsigned long)wrong_text);
	assert_int_equal(wrong_answers, 0);
	assert_int_equal(wrong_errno, 0);
	assert_int_equal(wrong_rounding, 0);
	assert_int_equal(wrong_text, 0);
	assert_true(computed > 0);
	assert_true(ticks.switched > ticks.ticks / 20);
	assert_int_equal(ticks.ticks, ticks.switched + ticks.kept + ticks.alone);
}

static volatile int in_handler;

LEAF_SAFE static void spins_until_kept(const volatile uint64_t *kept)
{
	uint64_t had = *kept;

	while (*kept < had + 10)
		;
}

/* Code that is allowed, but called by a signal handler: whoever is in one is not left. */
static void handler(int signal)
{
	in_handler = 1;
	spins_until_kept(&scry_fiber_self()->sched->preempt.counts.kept);
	in_handler = 2;
}

static void *sees_handlers(void *arg)
{
	while (!is_over) {
		wrong += in_handler == 1;
		scry_fiber_yield();
	}
	return arg;
}

static void no_handler_is_left(int flags)
{
	struct scry_fiber *fiber;
	struct sigaction before;
	pthread_t thread;

	wrong = 0;
	assert_int_equal(sigaction(SIGUSR1,
				   &(struct sigaction){.sa_handler = handler, .sa_flags = flags},
				   &before),
			 0);
	assert_int_equal(scry_fiber_spawn(NULL, sees_handlers, NULL, &fiber), 0);
	thread = start(UINT64_MAX);
	raise(SIGUSR1);
	assert_int_equal(in_handler, 2);
	is_over = true;
	assert_int_equal(scry_fiber_join(fiber, NULL), 0);
	stop(thread);
	sigaction(SIGUSR1, &before, NULL);
	assert_int_equal(wrong, 0);
}

static void handlers_are_not_left(void **state)
{
	no_handler_is_left(0);
}

/* No signal is blocked then. */
static void handlers_with_nodefer_are_not_left(void **state)
{
	no_handler_is_left(SA_NODEFER);
}

static void *raises(void *arg)
{
	raise(SIGUSR1);
	return arg;
}

static void nor_are_they_in_a_fiber(void **state)
{
	struct sigaction before;
	struct scry_fiber *fibers[2];
	pthread_t thread;

	wrong = 0;
	assert_int_equal(
		sigaction(SIGUSR1,
			  &(struct sigaction){.sa_handler = handler, .sa_flags = SA_NODEFER},
			  &before),
		0);
	assert_int_equal(scry_fiber_spawn(NULL, raises, NULL, &fibers[0]), 0);
	assert_int_equal(scry_fiber_spawn(NULL, sees_handlers, NULL, &fibers[1]), 0);
	thread = start(UINT64_MAX);
	assert_int_equal(scry_fiber_join(fibers[0], NULL), 0);
	is_over = true;
	assert_int_equal(scry_fiber_join(fibers[1], NULL), 0);
	stop(thread);
	sigaction(SIGUSR1, &before, NULL);
	assert_int_equal(wrong, 0);
}

static void wrong_calls_are_errors(void **state)
{
	static char code[2];

	assert_int_equal(scry_preempt_start(100), -EINVAL);
	assert_int_equal(scry_preempt_allow(code + 1, code), -EINVAL);
	assert_int_equal(scry_preempt_stop(), 0);
}

static int allow(void **state)
{
	return scry_preempt_allow(__start_leaf_safe, __stop_leaf_safe);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_sched, close_sched)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(loops_that_never_yield_take_turns),
		TEST(so_they_do_by_the_timer),
		TEST(who_is_due_does_not_wait_for_many_slices),
		TEST(nothing_is_lost_under_stress),
		TEST(handlers_are_not_left),
		TEST(handlers_with_nodefer_are_not_left),
		TEST(nor_are_they_in_a_fiber),
		TEST(wrong_calls_are_errors),
	};

	const struct CMUnitTest soaks[] = {
		TEST(shares_by_the_timer),
	};

	if (getenv("SCRY_SOAK_SECONDS") != NULL)
		return cmocka_run_group_tests(soaks, allow, NULL);
	return cmocka_run_group_tests(tests, allow, NULL);
}
