/* Threads that write without end are cancelled, again and again, till input comes or ends: each
 * one's clean-up must be done. Compiled with -fexceptions that is done by unwinding, without it by
 * libc.
 *
 * Prints "pid N", and at its end "cancelled N". Ends with status 1, and "wrong", where a clean-up
 * was skipped. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_long begun, cleaned;
static int null;

static void clean(void *arg)
{
	(void)arg;
	atomic_fetch_add(&cleaned, 1);
}

static void *writes(void *arg)
{
	char c = 0;

	pthread_cleanup_push(clean, NULL);
	atomic_fetch_add(&begun, 1);
	while (write(null, &c, 1) == 1)
		;
	pthread_cleanup_pop(0);
	return arg;
}

int main(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	long cancelled = 0;

	null = open("/dev/null", O_WRONLY);
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (!poll(&input, 1, 0)) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, writes, NULL))
			return 1;
		while (atomic_load(&begun) == cancelled)
			;
		for (volatile long i = 0; i < cancelled % 997 * 20; i++)
			;
		pthread_cancel(thread);
		pthread_join(thread, NULL);
		cancelled++;
		if (atomic_load(&cleaned) != cancelled) {
			printf("wrong: %ld cancelled, %ld clean-ups\n", cancelled,
			       atomic_load(&cleaned));
			return 1;
		}
	}
	printf("cancelled %ld\n", cancelled);
	return 0;
}
