/* The code of patch 'ucontext' against glibc's own: what each saves the other loads. And which code
 * is taken for glibc's. */
#include "patch/ucontext_code.h"

#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cmocka.h>

#include "patch/ucontext_body.h"

#define BODY 512
#define STACK 65536

typedef int get_fn(ucontext_t *);
typedef int set_fn(const ucontext_t *);
typedef int swap_fn(ucontext_t *, const ucontext_t *);
typedef int mask_fn(int, const sigset_t *, sigset_t *);

static struct {
	uint8_t *text, *data;
	get_fn *get;
	set_fn *set;
	swap_fn *swap;
	mask_fn *mask;
} our;

/* jmp *0(%rip); .quad to */
static void put_jump(uint8_t *at, void *to)
{
	memcpy(at, "\xff\x25\0\0\0\0", 6);
	memcpy(at + 6, &to, 8);
}

static void *routine(const uint8_t *symbol)
{
	return our.text + (symbol - scry_ucontext_code);
}

/* As in a process that it is applied to; what is "as it was" is glibc's function itself. */
static void lay_out(void)
{
	static const char *const names[] = {"getcontext", "setcontext", "swapcontext",
					    "pthread_sigmask", "sigprocmask"};
	uint64_t mask = 0;
	sigset_t now;

	our.text = mmap(NULL, 2 * UCONTEXT_TEXT, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(our.text, MAP_FAILED);
	our.data = our.text + UCONTEXT_TEXT;
	memcpy(our.text, scry_ucontext_code, UCONTEXT_TEXT);
	for (size_t i = 0; i < UCONTEXT_COPIES; i++)
		put_jump((uint8_t *)routine(scry_ucontext_copies) + i * UCONTEXT_COPY,
			 dlsym(RTLD_DEFAULT, names[i]));
	assert_int_equal(mprotect(our.text, UCONTEXT_TEXT, PROT_READ | PROT_EXEC), 0);
	sigprocmask(SIG_BLOCK, NULL, &now);
	memcpy(&mask, &now, sizeof(mask));
	memcpy(our.data + UCONTEXT_MASK, &mask, sizeof(mask));
	our.get = (get_fn *)routine(scry_ucontext_get);
	our.set = (set_fn *)routine(scry_ucontext_set);
	our.swap = (swap_fn *)routine(scry_ucontext_swap);
	our.mask = (mask_fn *)routine(scry_ucontext_mask);
}

static void done(void)
{
	munmap(our.text, 2 * UCONTEXT_TEXT);
}

static uint64_t counted(size_t word)
{
	uint64_t sum = 0, now;

	for (size_t line = 0; line < UCONTEXT_LINE_COUNT; line++) {
		memcpy(&now, our.data + UCONTEXT_LINES + line * UCONTEXT_LINE + word * 8, 8);
		sum += now;
	}
	return sum;
}

/* A ring of contexts, each with a rounding mode of its own and sums of long doubles. */
#define RING 5
#define ROUNDS 2000
static struct ring {
	ucontext_t main, at[RING];
	swap_fn *swap[2];
	long double sum[RING];
	int rounding_wrong, ended, turn;
} ring;

static const int modes[RING] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};

static void go_round(int i)
{
	volatile long double third = 3.0L;

	fesetround(modes[i]);
	for (int k = 0; k < ROUNDS; k++) {
		ring.sum[i] += 1.0L / third;
		ring.swap[ring.turn++ & 1](&ring.at[i], &ring.at[(i + 1) % RING]);
		ring.rounding_wrong += fegetround() != modes[i];
	}
	ring.ended++;
}

/* The sums of a run, where contexts are swapped by the two in turn. */
static void run_ring(swap_fn *a, swap_fn *b, get_fn *get, long double ret[RING])
{
	static char stacks[RING][STACK];

	memset(&ring, 0, sizeof(ring));
	ring.swap[0] = a;
	ring.swap[1] = b;
	for (int i = RING - 1; i >= 0; i--) {
		assert_int_equal(get(&ring.at[i]), 0);
		ring.at[i].uc_stack.ss_sp = stacks[i];
		ring.at[i].uc_stack.ss_size = STACK;
		ring.at[i].uc_link = i == RING - 1 ? &ring.main : &ring.at[i + 1];
		makecontext(&ring.at[i], (void (*)(void))go_round, 1, i);
	}
	fesetround(FE_TONEAREST);
	assert_int_equal(a(&ring.main, &ring.at[0]), 0);
	assert_int_equal(fegetround(), FE_TONEAREST);
	assert_int_equal(ring.ended, RING);
	assert_int_equal(ring.rounding_wrong, 0);
	memcpy(ret, ring.sum, sizeof(ring.sum));
}

static void contexts_of_both(void **state)
{
	long double theirs[RING], ours[RING], mixed[RING], other[RING];

	(void)state;
	lay_out();
	run_ring(swapcontext, swapcontext, getcontext, theirs);
	run_ring(our.swap, our.swap, our.get, ours);
	assert_int_equal(counted(4), 1 + RING * ROUNDS); /* its uc_links are glibc's setcontext */
	run_ring(our.swap, swapcontext, getcontext, mixed);
	run_ring(swapcontext, our.swap, our.get, other);
	for (int i = 0; i < RING; i++) {
		assert_true(theirs[i] > ROUNDS / 4);
		assert_true(ours[i] == theirs[i] && mixed[i] == theirs[i] && other[i] == theirs[i]);
	}
	assert_int_equal(counted(5), 0);
	assert_int_equal(our.data[UCONTEXT_CHANGED], 0);
	done();
}

/* What is saved is what glibc saves, but for what only an exception leaves in the x87 unit. */
static void saved_words(void **state)
{
	static ucontext_t a, b;
	const unsigned char *x = (unsigned char *)&a, *y = (unsigned char *)&b;
	const size_t env = (size_t)((char *)&a.__fpregs_mem - (char *)&a);
	static size_t compared; /* getcontext could return twice, says the compiler */

	(void)state;
	lay_out();
	__asm__ volatile("fninit" ::: "st");
	getcontext(&a);
	our.get(&b);
	assert_ptr_equal(a.uc_mcontext.fpregs, (char *)&a + env);
	assert_ptr_equal(b.uc_mcontext.fpregs, (char *)&b + env);
	for (size_t i = 0; i < sizeof(a); i++) {
		/* registers and places, which differ; where the last instruction was */
		if ((i >= 40 && i < 232) || (i >= env + 12 && i < env + 24))
			continue;
		assert_int_equal(x[i], y[i]);
		compared++;
	}
	assert_true(compared > 500);
	done();
}

/* Another mask than everybody's: the system call is made, from then on always. */
static void a_mask_that_differs(void **state)
{
	static ucontext_t other;
	static volatile int came;
	sigset_t set, now;

	(void)state;
	lay_out();
	came = 0;
	getcontext(&other); /* comes back here when it is loaded */
	if (!came) {
		came = 1;
		sigaddset(&other.uc_sigmask, SIGUSR1);
		our.set(&other);
		fail();
	}
	sigprocmask(SIG_BLOCK, NULL, &now);
	assert_true(sigismember(&now, SIGUSR1));
	assert_int_equal(our.data[UCONTEXT_CHANGED], 1);
	assert_int_equal(counted(3), 1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	done();
}

/* A context in which an exception of the x87 unit traps is loaded by the function as it was, which
 * takes the flags of others away. */
static void exceptions_that_trap(void **state)
{
	static ucontext_t back;
	static volatile int turn;

	(void)state;
	lay_out();
	turn = 0;
	feenableexcept(FE_DIVBYZERO);
	our.get(&back);
	if (!turn++) {
		fedisableexcept(FE_DIVBYZERO);
		__asm__ volatile("fldz; fld1; fdivp; fstp %%st(0); fwait" ::: "st");
		our.set(&back);
		fail();
	}
	__asm__ volatile("fld1; fstp %%st(0); fwait" ::: "st");
	fedisableexcept(FE_DIVBYZERO);
	assert_int_equal(turn, 2);
	assert_int_equal(counted(3), 1);
	assert_int_equal(our.data[UCONTEXT_CHANGED], 0);
	done();
}

/* Which calls of pthread_sigmask change the mask, which is that of SIGUSR2 here. */
static void calls_that_change(void **state)
{
	static const struct {
		int how, signals[3], changes;
	} cases[] = {
		{SIG_BLOCK, {0}, 0},
		{SIG_BLOCK, {SIGUSR2}, 0},
		{SIG_BLOCK, {SIGKILL, SIGSTOP}, 0},
		{SIG_BLOCK, {SIGUSR1}, 1},
		{SIG_BLOCK, {SIGUSR2, SIGUSR1}, 1},
		{SIG_UNBLOCK, {SIGUSR1}, 0},
		{SIG_UNBLOCK, {SIGUSR2}, 1},
		{SIG_SETMASK, {SIGUSR2}, 0},
		{SIG_SETMASK, {SIGUSR2, SIGSTOP}, 0},
		{SIG_SETMASK, {0}, 1},
		{SIG_SETMASK, {SIGUSR1}, 1},
	};
	sigset_t before, mine, set, old;

	(void)state;
	sigemptyset(&mine);
	sigaddset(&mine, SIGUSR2);
	sigprocmask(SIG_SETMASK, &mine, &before);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		lay_out();
		sigemptyset(&set);
		for (int k = 0; k < 3 && cases[i].signals[k]; k++)
			sigaddset(&set, cases[i].signals[k]);
		assert_int_equal(our.mask(cases[i].how, &set, &old), 0);
		assert_true(sigismember(&old, SIGUSR2));
		assert_int_equal(our.data[UCONTEXT_CHANGED], cases[i].changes);
		pthread_sigmask(SIG_SETMASK, &mine, NULL);
		done();
	}
	lay_out();
	assert_int_equal(our.mask(SIG_BLOCK, NULL, &old), 0);
	assert_int_equal(our.data[UCONTEXT_CHANGED], 0);
	assert_int_equal(our.mask(77, &set, &old), EINVAL);
	done();
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void body_of(const char *name, uint8_t ret[BODY])
{
	const void *at = dlsym(RTLD_DEFAULT, name);

	assert_non_null(at);
	memcpy(ret, at, BODY);
}

/* Only glibc's, and of these each only as itself. */
static void bodies(void **state)
{
	static const char *const names[] = {"getcontext", "setcontext", "swapcontext"};
	uint8_t code[BODY];

	(void)state;
	for (int i = 0; i < 3; i++) {
		body_of(names[i], code);
		for (int role = 0; role < 3; role++) {
			const char *why = scry_ucontext_body(code, sizeof(code),
							     (enum scry_ucontext_role)role);

			if (role == i)
				assert_null(why);
			else
				assert_non_null(why);
		}
		assert_non_null(scry_ucontext_body(code, 40, (enum scry_ucontext_role)i));
	}
	body_of("sigprocmask", code);
	assert_non_null(scry_ucontext_body(code, sizeof(code), SCRY_UCONTEXT_GET));
	memset(code, 0x90, sizeof(code));
	assert_non_null(scry_ucontext_body(code, sizeof(code), SCRY_UCONTEXT_GET));
}

/* Each byte that can be reached without an error, changed to each other value, makes it another
 * function, or does the same. Which of them do the same is known: a register of the same name by
 * another encoding is none, so none but prefixes and the way of an error are left. */
static void changed_bodies(void **state)
{
	static const char *const names[] = {"getcontext", "setcontext", "swapcontext"};
	size_t tried = 0, taken = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		uint8_t code[BODY];
		size_t reached = i == 0 ? 0x84 : i == 1 ? 0x1d : 0x93;

		body_of(names[i], code);
		for (size_t at = 0; at < reached; at++)
			for (int value = 0; value < 256; value++) {
				const uint8_t was = code[at];

				if (value == was)
					continue;
				code[at] = (uint8_t)value;
				tried++;
				taken += !scry_ucontext_body(code, sizeof(code),
							     (enum scry_ucontext_role)i);
				code[at] = was;
			}
	}
	print_message("%zu of %zu changed bodies do the same\n", taken, tried);
	assert_true(tried > 60000 && taken < tried / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_of_both),    cmocka_unit_test(saved_words),
		cmocka_unit_test(a_mask_that_differs), cmocka_unit_test(exceptions_that_trap),
		cmocka_unit_test(calls_that_change),   cmocka_unit_test(bodies),
		cmocka_unit_test(changed_bodies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
