/* A C program with the table by which Go code is known: what is said of Go is tried without a Go
 * compiler. Prints "pid N" and rounds; ends by SIGTERM with status 0. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((section(".gopclntab"), used)) static const char table[16] = "go";

static volatile sig_atomic_t is_over;

int odd_steps(int n);
__attribute__((noinline, noipa)) int odd_steps(int n)
{
	return n * 3 + 1;
}

static void end(int sig)
{
	(void)sig;
	is_over = 1;
}

int main(void)
{
	int n = 1;

	signal(SIGTERM, end);
	printf("pid %d\n", getpid());
	for (int i = 0; !is_over; i++) {
		n = odd_steps(n) + getppid() % 2;
		if (i % 20 == 0)
			printf("round %d\n", i);
		fflush(stdout);
		usleep(10000);
	}
	return 0;
}
