/*
 * The threads of a recording of stacks: their names, and which of them were idle.
 *
 * Idle is a thread that waited (blocked or asleep) in one place for 99 % of its time or more. Such
 * threads are not part of what a program does, and would be most of its wall time.
 */
#ifndef SCRY_VIEW_STACK_THREADS_H
#define SCRY_VIEW_STACK_THREADS_H

#include "base/buf.h"
#include "base/intern.h"
#include "base/map.h"
#include "rec/reader.h"

struct scry_stack_thread {
	uint32_t pid, tid;
	uint32_t name;	   /* id in the caller's names; 0: none */
	uint32_t waits_at; /* frame where it waited longest, and how long */
	uint64_t waits_ns, wall_ns;
	bool is_idle;
};

struct scry_stack_threads {
	struct scry_map ids; /* pid << 32 | number -> index + 1 */
	struct scry_stack_thread *rows;
	size_t count, room;
	size_t idle; /* after settle; 0 where all are: then none is told apart */
	uint64_t idle_ns;
};

void scry_stack_threads_init(struct scry_stack_threads *k);
void scry_stack_threads_done(struct scry_stack_threads *k);

/* A THREAD event; the text is put into `names`. 0 or -ENOMEM. */
int scry_stack_threads_event(struct scry_stack_threads *k, struct scry_intern *names,
			     const struct scry_reader *reader, const struct scry_ev_thread *e);

/* A SAMPLES event, whose stack is `frame`. Index of its thread into *ret. 0 or -ENOMEM. */
int scry_stack_threads_sample(struct scry_stack_threads *k, const struct scry_ev_samples *e,
			      uint32_t frame, uint32_t *ret);

/* After the last sample: says which are idle. */
void scry_stack_threads_settle(struct scry_stack_threads *k);

/* Of two recordings, both settled: a thread stays idle that is idle in both, threads of one name
 * together. What is hidden in one only would be compared with nothing. 0 or -ENOMEM. */
struct scry_stack_threads_side {
	struct scry_stack_threads *threads;
	const struct scry_intern *names;
};
int scry_stack_threads_agree(const struct scry_stack_threads_side sides[2]);

/* Appends "worker 1 (4711)"; with the process where there are several. */
void scry_stack_threads_put(const struct scry_stack_threads *k, const struct scry_intern *names,
			    uint32_t thread, struct scry_buf *buf);

#endif
