/*
 * What a replay itself costs for each call: replay_cost [RUNS [ALLOCATOR.so]...]. Calls that never
 * were (test/unit/malloc_gen) by one thread and by five, of whose ends nearly half are another
 * thread's; in bursts of 16 calls of a kind, and at random, which no branch predictor foresees.
 * Under no allocator, libc's and the ones named. bench/malloc-replay.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/malloc_gen.h"
#include "base/err.h"
#include "replan/feed.h"
#include "replan/run.h"

#define RUNS_MAX 31
#define KINDS 16

static struct malloc_gen gen;
static struct scry_malloc_result result;

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *name, const struct scry_malloc_allocator *all, int count, int runs)
{
	struct scry_malloc_run_opts opts = {.touch = SCRY_TOUCH_NONE,
					    .sample_every = 61,
					    .rss_every_ns = 10000000,
					    .memory = UINT64_C(8) << 30,
					    .stuck_ns = UINT64_C(60000000000)};
	struct scry_malloc_feed_opts feed_opts = {.live_max = opts.memory};
	static double ns[KINDS][RUNS_MAX], waits[KINDS], wait_ns[KINDS];
	struct scry_malloc_feed *f;
	uint64_t calls = 1;

	malloc_gen_init(&gen);
	if (scry_malloc_feed_new(&gen.source, &feed_opts, &f)) {
		fprintf(stderr, "replay_cost: %s\n", scry_error());
		exit(1);
	}
	for (int run = 0; run < runs; run++)
		for (int i = 0; i < count; i++) {
			if (scry_malloc_run(f, &all[i], &opts, &result)) {
				fprintf(stderr, "replay_cost: %s\n", scry_error());
				exit(1);
			}
			calls = scry_malloc_feed_stats(f)->calls;
			ns[i][run] = (double)result.cpu_ns / (double)calls;
			waits[i] = (double)result.waits / (double)calls * 100;
			wait_ns[i] = (double)result.wait_ns / (double)calls;
		}
	for (int i = 0; i < count; i++) {
		qsort(ns[i], (size_t)runs, sizeof(double), compare);
		printf("| %s | %s | %llu | %.2f | %.2f to %.2f | %.1f | %.1f |\n", name,
		       all[i].label, (unsigned long long)calls, ns[i][runs / 2], ns[i][0],
		       ns[i][runs - 1], waits[i], wait_ns[i]);
	}
	fflush(stdout);
	scry_malloc_feed_free(f);
}

int main(int argc, char **argv)
{
	int runs = argc > 1 ? atoi(argv[1]) : 5, count = 2;
	struct scry_malloc_allocator all[KINDS] = {{.label = "none", .is_null = true},
						   {.label = "libc"}};

	for (int i = 2; i < argc && count < KINDS; i++, count++)
		all[count] = (struct scry_malloc_allocator){.label = argv[i], .path = argv[i]};
	runs = runs < 1 ? 1 : runs > RUNS_MAX ? RUNS_MAX : runs;
	printf("| calls | allocator | events | ns an event | spread | waited, %% | ns of it |\n"
	       "|---|---|---|---|---|---|---|\n");
	for (int burst = 16; burst >= 0; burst -= 16) {
		gen = (struct malloc_gen){.calls = 8000000,
					  .threads = 1,
					  .live = 20000,
					  .burst = (uint32_t)burst,
					  .size_max = 4096,
					  .is_plain = true,
					  .seed = 7};
		measure(burst ? "one thread, bursts" : "one thread, random", all, count, runs);
		gen.threads = 5;
		gen.cross = 50;
		measure(burst ? "five threads, bursts" : "five threads, random", all, count, runs);
	}
	return 0;
}
