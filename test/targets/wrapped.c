/* Functions of all kinds of results, ways out and ways to be called, for what follows returns.
 *
 *   target_wrapped     prints "pid N"; for each line of its input it makes the calls once more, in
 *                      THREADS threads and a fork child, and prints "done: made M, wrong W" with
 *                      the calls of `plain` that this process made since it began
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 2000
#define FUNCTION __attribute__((noinline, noclone, noipa))

struct pair {
	long a, b;
};
struct big {
	long a[8];
};

static uint64_t made, wrong;

FUNCTION long plain(long a, long b);
FUNCTION double real(double a, double b);
FUNCTION long double wide(long double a);
FUNCTION struct pair both(long a);
FUNCTION struct big large(long a);
FUNCTION long many(int n, ...);
FUNCTION long deep(long n);
FUNCTION void leaves(jmp_buf *to, long n);
FUNCTION long jumps_on(long a);
FUNCTION long ends_in(long a);

long plain(long a, long b)
{
	__atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
	return 3 * a + b;
}

double real(double a, double b)
{
	return a / b;
}

long double wide(long double a)
{
	return a + 1.0L / 3.0L;
}

struct pair both(long a)
{
	return (struct pair){a + 1, a + 2};
}

struct big large(long a)
{
	struct big r;

	for (int i = 0; i < 8; i++)
		r.a[i] = a * i;
	return r;
}

long many(int n, ...)
{
	long sum = 0;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < n; i++)
		sum += va_arg(ap, long);
	va_end(ap);
	return sum;
}

long deep(long n)
{
	long r = n ? deep(n - 1) : 0;

	__asm__ volatile("" : "+r"(r));
	return r + n;
}

#pragma GCC diagnostic ignored "-Winfinite-recursion" /* it ends by the jump */
void leaves(jmp_buf *to, long n)
{
	if (n)
		leaves(to, n - 1);
	else
		longjmp(*to, 1);
	__asm__ volatile("");
}

long ends_in(long a)
{
	return 5 * a;
}

long jumps_on(long a)
{
	return ends_in(a + 1);
}

static void expect(int is_right)
{
	if (!is_right)
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static void leave(long depth)
{
	jmp_buf back;
	volatile long before = depth;

	if (!setjmp(back))
		leaves(&back, depth);
	expect(before == depth);
}

static void *calls(void *arg)
{
	const long t = (long)(intptr_t)arg;
	struct pair p;
	struct big b;

	for (long i = 0; i < ROUNDS; i++) {
		expect(plain(i, t) == 3 * i + t);
		expect(real((double)i, 4.0) == (double)i / 4.0);
		expect(wide((long double)i) == (long double)i + 1.0L / 3.0L);
		p = both(i);
		expect(p.a == i + 1 && p.b == i + 2);
		b = large(i);
		expect(b.a[7] == 7 * i);
		expect(many(9, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, i) == 36 + i);
		expect(deep(i % 50) == (i % 50) * (i % 50 + 1) / 2);
		leave(i % 20);
		expect(jumps_on(i) == 5 * (i + 1));
	}
	return NULL;
}

static void round_of_calls(void)
{
	pthread_t threads[THREADS];
	int status = 0;
	pid_t child;

	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, calls, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	child = fork();
	if (child == 0) {
		wrong = 0;
		calls((void *)(intptr_t)7);
		_exit(wrong != 0);
	}
	waitpid(child, &status, 0);
	expect(status == 0);
}

int main(void)
{
	char line[64];

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		round_of_calls();
		printf("done: made %llu, wrong %llu\n", (unsigned long long)made,
		       (unsigned long long)wrong);
		fflush(stdout);
	}
	return wrong != 0;
}
