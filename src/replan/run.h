/*
 * One replay: a process of scry-replay under one allocator, fed with all batches and watched.
 *
 * What is measured: CPU time of its threads while they play batches (waiting for each other left
 * out), minor faults, and its anonymous memory, read from outside every `rss_every_ns` together
 * with the place in the recording. One process at a time: the feed's memory is shared.
 */
#ifndef SCRY_REPLAN_RUN_H
#define SCRY_REPLAN_RUN_H

#include <stdint.h>

#include "replan/feed.h"

#define SCRY_MALLOC_ENV_MAX 8
struct scry_malloc_allocator {
	const char *label; /* as asked for: "jemalloc", "glibc:MALLOC_ARENA_MAX=2" */
	const char *path;  /* of what is preloaded; NULL: libc's own */
	const char *env[SCRY_MALLOC_ENV_MAX]; /* "NAME=VALUE" */
	unsigned int env_count;
	bool is_null; /* no allocator: what the replay itself costs */
};

struct scry_malloc_run_opts {
	enum scry_replay_mode mode;
	enum scry_replay_touch touch;
	uint32_t sample_every; /* SAMPLED */
	bool is_paced;	       /* at the recorded times, where the feed has them */
	bool is_thinking;      /* with work between the calls, the same */
	uint64_t rss_every_ns;
	uint64_t memory;   /* bytes: of living blocks, and of memory that the process may take */
	uint64_t stuck_ns; /* without a step: it is ended */
};

struct scry_malloc_result {
	uint64_t cpu_ns, kernel_ns, wait_ns, waits, faults, failed, wrong, live_blocks;
	uint64_t elapsed_ns;
	uint64_t rss_begin, rss_peak, rss_end, rss_drained; /* anonymous memory, bytes */
	bool has_syscalls;				    /* COUNTED: */
	uint64_t syscalls[SCRY_REPLAY_SYSCALLS];
	double ticks_per_ns;
	char served[1024]; /* the object that served malloc */
	char why[512];	   /* wrong: the first case */
	uint32_t point_count;
	struct scry_malloc_point points[SCRY_MALLOC_CURVE]; /* `live` is anonymous memory here */
	uint64_t histogram[SCRY_REPLAY_KINDS][SCRY_REPLAY_BUCKETS];
};

/*
 * 0; -ENOENT when there is no scry-replay; -EINVAL when it refused (another allocator serves, a
 * batch that must not be replayed); -ENOBUFS when it took more than the limit of memory;
 * -ETIMEDOUT when it got stuck; -ECHILD when it died; the feed's errors; each with a sentence.
 */
int scry_malloc_run(struct scry_malloc_feed *feed, const struct scry_malloc_allocator *allocator,
		    const struct scry_malloc_run_opts *opts, struct scry_malloc_result *ret_result);

/* Below which time, ns, lie so many of the calls that were timed (0.5: the median): the upper end
 * of a bucket of one of the result's histograms, or of a sum of them. */
uint64_t scry_malloc_percentile(const struct scry_malloc_result *r, const uint64_t *histogram,
				double share);

#endif
