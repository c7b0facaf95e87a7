/*
 * threadring [--passes N] [--threads N] [--frame-count N] [--json] [WAY...]: what it takes to pass
 * a token on, in ns of CPU time, with flat stacks and with stacks that were grown by 100 frames
 * first. Each measurement is a process of its own. bench/threadring.md has results.
 */
#include "ring.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TWO_SECONDS 2e9

struct ring ring;
static double began_ns;

static const struct row {
	const char *name;
	ring_way *way;
	bool is_full; /* makes all passes; others as many as take two seconds */
	const char *what;
} rows[] = {
	{"prototype", ring_prototype, true, "six pushes and a jump, nothing else"},
	{"scryfiber", ring_scry, true, "scry_fiber_transfer, with FP control words"},
	{"scryfiber-no-fp", ring_scry_no_fp, true, "the same, without"},
	{"scryfiber-yield", ring_scry_yield, true, "scry_fiber_yield, by the queue"},
#ifdef RING_SHARED
#else
	{"ucontext", ring_ucontext, true, "glibc swapcontext"},
	{"heap", ring_heap, false, "malloc'ed stacks, _setjmp and _longjmp"},
	{"copy", ring_copy, false, "one stack, copied out and in, as Ruby 1.8 did"},
	{"futex", ring_futex, false, "pthreads, handed over by futex"},
#ifdef RING_BOOST
	{"boost", ring_boost, true, "Boost.Context, jump_fcontext"},
#endif
#endif
};

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

void ring_began(void)
{
	began_ns = cpu_ns();
}

void ring_time(void (*start)(void))
{
	int64_t some = 1000;
	double from;

	ring.left = 2 * ring.threads;
	start();
	ring.grow_ns = (cpu_ns() - began_ns) / ring.threads;
	if (ring.passes > 0) {
		ring.left = ring.passes;
		from = cpu_ns();
		start();
		ring.pass_ns = (cpu_ns() - from) / ring.passes;
		return;
	}
	for (;; some *= 4) {
		double took;

		ring.left = some;
		from = cpu_ns();
		start();
		took = cpu_ns() - from;
		ring.pass_ns = took / some;
		if (took >= TWO_SECONDS / 4)
			break;
	}
	ring.left = some = TWO_SECONDS / ring.pass_ns;
	from = cpu_ns();
	start();
	ring.pass_ns = (cpu_ns() - from) / some;
}

__attribute__((noinline)) void ring_grow(int frames, void (*body)(long me), long me)
{
	volatile char room[RING_FRAME_BYTES];

	room[0] = (char)frames;
	if (frames <= 0)
		body(me);
	else
		ring_grow(frames - 1, body, me);
	room[1] = room[0];
}

/* Runs a way in a child; its times come back by a pipe. */
static int threads = RING_THREADS;

static bool measure(const struct row *row, int64_t passes, int frames)
{
	int pipes[2], status = 0;
	pid_t child;
	bool is_whole;

	if (pipe(pipes) != 0)
		return false;
	child = fork();
	if (child == 0) {
		ring.passes = row->is_full ? passes : 0;
		ring.frames = frames;
		ring.threads = threads;
		ring_began();
		row->way();
		_exit(write(pipes[1], &ring, sizeof(ring)) != sizeof(ring));
	}
	close(pipes[1]);
	is_whole = child > 0 && read(pipes[0], &ring, sizeof(ring)) == sizeof(ring);
	close(pipes[0]);
	if (child > 0)
		waitpid(child, &status, 0);
	return is_whole && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run(const struct row *row, int64_t passes, int frames, bool is_json)
{
	double flat_ns, grow_ns;

	if (!measure(row, passes, 0)) {
		fprintf(stderr, "threadring: '%s' did not come to its end\n", row->name);
		return 1;
	}
	flat_ns = ring.pass_ns;
	if (!measure(row, passes, frames)) {
		fprintf(stderr, "threadring: '%s' did not come to its end with grown stacks\n",
			row->name);
		return 1;
	}
	grow_ns = ring.grow_ns;
	if (is_json)
		printf("{\"way\":\"%s\",\"flat_ns\":%.2f,\"grown_ns\":%.2f,\"growth_ns\":%.0f}\n",
		       row->name, flat_ns, ring.pass_ns, grow_ns);
	else
		printf("%-16s %10.2f %10.2f %8.2f %12.0f  %s\n", row->name, flat_ns, ring.pass_ns,
		       ring.pass_ns / flat_ns, grow_ns, row->what);
	fflush(stdout);
	return 0;
}

static bool is_wanted(const char *name, int count, char **names)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return count == 0;
}

int main(int argc, char **argv)
{
	int64_t passes = 50000000;
	int frames = RING_FRAMES, bad = 0, i;
	bool is_json = false;

	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			is_json = true;
		} else if (strcmp(argv[i], "--passes") == 0 && i + 1 < argc) {
			passes = atoll(argv[++i]);
		} else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
			threads = atoi(argv[++i]);
		} else if (strcmp(argv[i], "--frame-count") == 0 && i + 1 < argc) {
			frames = atoi(argv[++i]);
		} else {
			fprintf(stderr, "usage: threadring [--passes N] [--threads N] "
					"[--frame-count N] [--json] "
					"[WAY...]\n");
			return 2;
		}
	}
	if (passes < 1 || threads < 2 || threads > RING_THREADS || frames < 0 || frames > 300) {
		fprintf(stderr,
			"threadring: passes from 1, threads from 2 to 403, frames from 0 to 300\n");
		return 2;
	}
	if (!is_json)
		printf("%-16s %10s %10s %8s %12s\n", "way", "flat, ns", "grown, ns", "ratio",
		       "growth, ns");
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		if (is_wanted(rows[r].name, argc - i, argv + i))
			bad |= run(&rows[r], passes, frames, is_json);
	return bad;
}
