/* See work.h. */
#include "replan/work.h"

#define OWN_NS \
	4 /* of a call in a replay that is none of the allocator's (bench/malloc-replay.md) */
#define RECORDING_NS 15	 /* of a call: bench/malloc.md; with threads that wait for the keeper */
#define LEAST_SHARE 0.02 /* of the program's time: less is noise */
#define STEEPEST 0.8	 /* of what a second of work takes off the calls: beyond is noise */

uint64_t scry_malloc_work_unrecorded(const struct scry_malloc_feed *feed, uint64_t program_ns)
{
	uint64_t recording = scry_malloc_feed_stats(feed)->calls * RECORDING_NS;

	return program_ns > recording ? program_ns - recording : 0;
}

/* What calls, and threads that begin and end, take where threads work for so long. */
static int calls_take(struct scry_malloc_feed *feed, const struct scry_malloc_allocator *allocator,
		      const struct scry_malloc_run_opts *opts, struct scry_malloc_result *result,
		      double *ret_ns)
{
	int err = scry_malloc_run(feed, allocator, opts, result);

	*ret_ns = (double)result->cpu_ns - (double)scry_malloc_feed_stats(feed)->calls * OWN_NS;
	return err;
}

/* No thread works for longer than all of it, whatever a recording says. */
static uint64_t at_most(uint64_t all_ns, double ns)
{
	return ns < (double)all_ns ? (uint64_t)ns : all_ns;
}

int scry_malloc_work_settle(struct scry_malloc_feed *feed,
			    const struct scry_malloc_allocator *allocator,
			    const struct scry_malloc_run_opts *opts, uint64_t program_ns,
			    struct scry_malloc_result *scratch)
{
	const struct scry_malloc_feed_stats *f = scry_malloc_feed_stats(feed);
	double program = (double)program_ns, alone, worked, rest, slope;
	int err;

	if (f->threads_peak < 2 || !program_ns)
		return 0;
	scry_malloc_feed_work(feed, 0);
	err = calls_take(feed, allocator, opts, scratch, &alone);
	rest = program - alone;
	if (err || rest < program * LEAST_SHARE)
		return err;
	scry_malloc_feed_work(feed, at_most(program_ns, rest));
	err = calls_take(feed, allocator, opts, scratch, &worked);
	if (err || !f->think_ns)
		return err;
	slope = (worked - alone) / (double)f->think_ns;
	if (slope < -STEEPEST)
		slope = -STEEPEST;
	/* The share is of what was asked for; what came of it may be more. */
	scry_malloc_feed_work(feed,
			      at_most(program_ns, rest / (1 + slope) * rest / (double)f->think_ns));
	return 0;
}
