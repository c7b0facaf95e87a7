/*
 * From the words of many threads (wire/call_ring.h) to CALL and RETURN events, in one order.
 *
 * Words are put in order by their stamps (sys/stream), and entries are joined with their returns by
 * the slot on the stack. What is in order may be written later: a program that calls in bursts need
 * not wait for the writing. Words are hostile: any content gives some events, never a crash.
 *
 * Life: new, (add*, look, merge)*, add*, look, merge(UINT64_MAX), free; add and look are the
 * stream's. One thread. Errors are the writer's, or -ENOMEM, with a sentence.
 */
#ifndef SCRY_NAME_CALLS_H
#define SCRY_NAME_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "name/native_stacks.h"
#include "name/ruby_stacks.h"
#include "rec/writer.h"
#include "sys/stream.h"
#include "wire/call_ring.h"

#define SCRY_CALLS_OPEN_MAX (1u << 20) /* that have not returned; the ends of more are strange */

#define SCRY_CALLS_TIDS_MAX 128u

enum scry_calls_args { SCRY_CALLS_FULL, SCRY_CALLS_DIGEST, SCRY_CALLS_NONE };

struct scry_calls;

struct scry_calls_tids {
	uint32_t count, tids[SCRY_CALLS_TIDS_MAX];
};

struct scry_calls_opts {
	struct scry_writer *writer;
	uint32_t pid;
	enum scry_calls_args args;
	struct scry_native_stacks *stacks; /* borrowed; NULL: no stacks are recorded */
	struct scry_ruby_stacks *ruby;	   /* the same */
	/* of all programs that the pid runs, and the process it was forked from */
	uint64_t first_call;
	uint32_t first_function;
	const struct scry_calls_tids *tids; /* only of these; borrowed; NULL: of all */
	bool is_child;			    /* calls of its parent return in it, too */
	/* before the first call of a function is written; NULL: they are emitted already */
	int (*meet)(void *arg, uint32_t function);
	void *meet_arg;
};

int scry_calls_new(const struct scry_calls_opts *opts, struct scry_calls **ret);
void scry_calls_free(struct scry_calls *c); /* NULL is legal */

/* Functions 0, 1, ...: their FUNCTION events are the caller's. What names others is bad. -E2BIG. */
int scry_calls_function(struct scry_calls *c);
/* All up to `number`. */
int scry_calls_functions_upto(struct scry_calls *c, uint32_t number);
/* From now on. */
void scry_calls_stacks(struct scry_calls *c, struct scry_native_stacks *stacks,
		       struct scry_ruby_stacks *ruby);

/* The threads' words come by it; the clock is its. */
struct scry_stream *scry_calls_stream(struct scry_calls *c);

/* Whole records that another source has of a thread, in its order. */
int scry_calls_words(struct scry_calls *c, uint32_t tid, const uint64_t *words, size_t count);

/* A signal that was delivered, in order beside what other sources have of the thread. */
int scry_calls_signal(struct scry_calls *c, uint32_t tid, uint64_t tsc, uint32_t number);

/* A call that something else than the agent has seen, as if a thread had emitted it: its entry,
 * with `count` values, or its return from the call that is on the slot. */
struct scry_calls_event {
	uint64_t tsc, slot;
	uint32_t tid, function;
	bool is_return;
	uint32_t count;
	uint64_t values[SCRY_CALL_ARGS_MAX]; /* of a return: the result */
	const uint64_t *parts;		     /* wire/call_ring.h */
	size_t part_words;		     /* SCRY_CALL_MORE_MAX at most; 0: none */
};
int scry_calls_insert(struct scry_calls *c, const struct scry_calls_event *event);

/* Writes what is stamped up to there: all, or about `most` records. After scry_stream_look. */
int scry_calls_merge(struct scry_calls *c, uint64_t watermark);
int scry_calls_merge_some(struct scry_calls *c, uint64_t watermark, size_t most);

struct scry_calls_stats {
	uint64_t calls;
	uint64_t fetched; /* of these, with what an argument points to */
	uint64_t left;	  /* by longjmp or an exception */
	uint64_t open;	  /* have neither returned nor been left */
	uint64_t alone;	  /* whose return is not followed */
	uint64_t strange; /* returns of calls that were not emitted */
	uint64_t bad;	  /* runs of words that made no sense */
};
void scry_calls_stats(const struct scry_calls *c, struct scry_calls_stats *ret);

#endif
