/* One thread that is nearly always asleep.
 *
 *   sleeper [pause|nanosleep [MS]]     default: nanosleep 100
 *
 * Prints "pid N", then one "ok N" line per sleep that was not cut short, and ends by SIGTERM with
 * status 0. A sleep that came back early without a signal of ours ends it with status 1. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
	stop = 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int sleep_once(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	double begin = now();
	int err = nanosleep(&t, NULL);

	if (stop)
		return 0;
	if (err != 0 || now() - begin < (double)ms / 1000) {
		printf("wrong: slept %.3f of %ld ms, errno %d\n", (now() - begin) * 1000, ms,
		       err ? errno : 0);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int by_pause = argc > 1 && strcmp(argv[1], "pause") == 0;
	long ms = argc > 2 ? atol(argv[2]) : 100;
	struct sigaction action = {.sa_handler = on_term};
	unsigned long count = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	printf("pid %d\n", getpid());
	while (!stop) {
		if (by_pause) {
			pause();
			if (!stop) {
				printf("wrong: pause came back without a signal\n");
				return 1;
			}
		} else if (sleep_once(ms) != 0) {
			return 1;
		}
		printf("ok %lu\n", ++count);
	}
	return 0;
}
