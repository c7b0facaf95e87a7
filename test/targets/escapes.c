/* A program whose names are meant for a terminal: an escape sequence, a C1 control, a character
 * that turns the writing direction, and line breaks are in the symbol that it calls over and over,
 * in its threads' names and in what it writes.
 *
 * Prints "pid N", then a "round N" line at least twice a second; ends by SIGTERM with status 0. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ODD "\033[31m\302\233\342\200\256\342\200\250"

/* The assembler takes any byte in a quoted name. */
int odd(int n) __asm__("\"odd" ODD "\"");
__attribute__((noinline, noipa)) int odd(int n)
{
	return n * 3 + 1;
}

static volatile sig_atomic_t is_over;

static void end(int sig)
{
	(void)sig;
	is_over = 1;
}

int main(void)
{
	int sum = 0;

	signal(SIGTERM, end);
	prctl(PR_SET_NAME, "e\033[31m\302\233\342\200\256\nz");
	printf("pid %d\n", getpid());
	for (int i = 0; !is_over; i++) {
		for (int k = 0; k < 1000; k++)
			sum += odd(k);
		if (i % 20 == 0)
			printf("round %d\n", i);
		fflush(stdout);
		usleep(10000);
	}
	return sum == 1;
}
