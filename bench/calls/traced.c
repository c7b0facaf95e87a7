/*
 * Calls functions of a library in a loop and says what a call costs: for each line "plain N", "text
 * N" (a string of 44 bytes that the function is known to read), "other N" (one that it is not),
 * "out N" (one that it is not, and a number that it writes) or "many N THREADS" on stdin: the least
 * and the median ns a call of 25 chunks of N calls; "many": one chunk in each thread, of the
 * slowest.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNKS 25

long traced_plain(long a, long b, long c, long d);
int mysql_real_query(void *connection, const char *sql, unsigned long length);
int traced_other(const char *text, long number);
int traced_out(const char *text, long *number);

#ifdef LIBRARY
__attribute__((noinline, noclone)) long traced_plain(long a, long b, long c, long d)
{
	__asm__ volatile("");
	return a + b + c + d;
}

__attribute__((noinline, noclone)) int mysql_real_query(void *connection, const char *sql,
							unsigned long length)
{
	__asm__ volatile("");
	return sql[length - 1] + (connection != NULL);
}
__attribute__((noinline, noclone)) int traced_other(const char *text, long number)
{
	__asm__ volatile("");
	return text[0] + (number == 3);
}

__attribute__((noinline, noclone)) int traced_out(const char *text, long *number)
{
	*number = text[0];
	return text[1];
}
#else
static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double chunk(char way, unsigned long n)
{
	static const char sql[] = "SELECT name FROM users WHERE id = 1234567890";
	double began = now_ns();
	volatile long sink = 0;

	long number;

	if (way == 't')
		for (unsigned long i = 0; i < n; i++)
			sink = mysql_real_query((void *)&sink, sql, sizeof(sql) - 1);
	else if (way == 'p')
		for (unsigned long i = 0; i < n; i++)
			sink = traced_plain((long)i, 2, 3, sink);
	else
		for (unsigned long i = 0; i < n; i++)
			sink = way == 'o' ? traced_other(sql, (long)i) : traced_out(sql, &number);
	return (now_ns() - began) / (double)n;
}

static void *one(void *n)
{
	double *ns = malloc(sizeof(*ns));

	*ns = chunk('p', (unsigned long)n);
	return ns;
}

int main(void)
{
	double ns[CHUNKS];
	char line[64], how[16];
	unsigned long n, threads;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	while (fgets(line, sizeof(line), stdin)) {
		int words = sscanf(line, "%15s %lu %lu", how, &n, &threads);

		if (words == 3 && threads <= 64) {
			pthread_t ids[64];
			double worst = 0;

			for (unsigned long t = 0; t < threads; t++)
				pthread_create(&ids[t], NULL, one, (void *)n);
			for (unsigned long t = 0; t < threads; t++) {
				void *ret;

				pthread_join(ids[t], &ret);
				worst = *(double *)ret > worst ? *(double *)ret : worst;
				free(ret);
			}
			printf("%.1f %.1f\n", worst, worst);
			continue;
		}
		for (int i = 0; i < CHUNKS; i++) {
			ns[i] = chunk(strcmp(how, "out") ? *how : 'w', n);
			usleep(40000); /* so that a chunk finds an empty buffer */
		}
		qsort(ns, CHUNKS, sizeof(*ns), by_value);
		printf("%.1f %.1f\n", ns[0], ns[CHUNKS / 2]);
	}
	return 0;
}
#endif
