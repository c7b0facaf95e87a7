/* A program whose caller counts on registers that a function leaves alone, as gcc -O2 lets it
 * (-fipa-ra). Prints "pid N", then "wrong" and ends with 9 where a register was not left alone;
 * until SIGTERM, then "right". */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile long sink;
static volatile sig_atomic_t ends;

static void on_term(int sig)
{
	(void)sig;
	ends = 1;
}

__attribute__((noinline)) long plain_step(long a, long b);
__attribute__((noinline)) long plain_step(long a, long b)
{
	sink = a;
	return a * 3 + b;
}

static __attribute__((noinline)) double work(long n, double x)
{
	double s = x;
	long r = 0, k = n * 7, q = n ^ 5;

	for (long i = 0; i < n; i++) {
		r += plain_step(i, q) + k;
		s = s * 1.0000001 + (double)(r & 7) + x;
	}
	return s + (double)(r + k + q);
}

int main(void)
{
	const double known = work(1000, 1.5);

	signal(SIGTERM, on_term);
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (!ends)
		if (work(1000, 1.5) != known) {
			printf("wrong\n");
			return 9;
		}
	printf("right\n");
	return 0;
}
