/*
 * The words of many threads, in one order: the middle between what copies them
 * (hook/thread_buffers, a tracer, a tap of the kernel) and the instrument, which knows what they
 * mean.
 *
 * Each thread's words wait in a buffer of its own until the watermark has passed their ticks. Then
 * threads are merged, and the instrument gets runs: consecutive records of one thread, none older
 * than what it got before. A tick is a time (TSC), or an order only, where an instrument repeats
 * stamps (wire/thread_buffers.h): records of one thread with the same tick come in its order, those
 * of two threads in either.
 *
 * Words are hostile. A thread's ticks never fall, and none is later than when its words were added;
 * all else is for `scan` to check.
 *
 * Life: new, (add*, look, merge)*, free. One thread. Errors are -ENOMEM with a sentence, or what
 * the instrument's functions return.
 */
#ifndef SCRY_SYS_STREAM_H
#define SCRY_SYS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/ticks.h"

struct scry_stream;

struct scry_stream_words {   /* of one thread, following those added before */
	uint64_t thread;     /* from 1, never given again; SCRY_STREAM_BESIDE */
	uint32_t tid;	     /* in its own pid namespace; 0: not known */
	bool has_ended;	     /* these are its last; count may be 0 */
	uint64_t begin_tick; /* none of their ticks is earlier; 0: that of the records before holds
			      */
	const uint64_t *words; /* copied; records are whole */
	size_t count;
};

/* For what another source has of a thread, beside its own words: with has_ended, each time. */
#define SCRY_STREAM_BESIDE(tid) (1ull << 63 | (tid))

struct scry_stream_record {
	uint64_t tick;
	uint32_t at; /* scry_stream_words_of */
	uint32_t count;
};

struct scry_stream_thread {
	uint64_t id;
	uint32_t tid;
	uint32_t base;	       /* `at` of the first of its words that are kept */
	const uint64_t *words; /* those */
	const uint64_t *end;   /* behind them */
	void *own;	       /* kind->own_bytes, zeros at first: the instrument's */
};

static inline const uint64_t *scry_stream_words_of(const struct scry_stream_thread *thread,
						   const struct scry_stream_record *record)
{
	return thread->words + (uint32_t)(record->at - thread->base);
}

struct scry_stream_scan {
	const uint64_t *words; /* what was added */
	size_t count;
	uint64_t tick;			    /* in: of the record before; out: of the last one */
	struct scry_stream_record *records; /* room for count / 2: `at` counts from `words` */
	size_t found;
};

struct scry_stream_kind {
	/* Which records are these, and what are their ticks? What must be known before the first
	 * record that needs it, whoever's that is, is taken in here and is not a record. What makes
	 * no sense is counted, and ends the scan: what lies behind it is dropped. */
	void (*scan)(void *arg, struct scry_stream_scan *scan);
	/* How many were taken; what is not is given again in the next merge. Or -errno. */
	ssize_t (*give)(void *arg, struct scry_stream_thread *thread,
			const struct scry_stream_record *records, size_t count);
	void (*born)(void *arg, struct scry_stream_thread *thread); /* or NULL */
	/* All its records are given; it is freed. Or NULL. */
	int (*ended)(void *arg, struct scry_stream_thread *thread);
	size_t own_bytes;
};

/* `kind` must outlive it. NULL: no memory. */
struct scry_stream *scry_stream_new(const struct scry_stream_kind *kind, void *arg);
void scry_stream_free(struct scry_stream *s); /* NULL is legal; nothing is reported */

/* Also for scry_thread_buffers_take, with the stream as its argument. */
int scry_stream_add(void *stream, const struct scry_stream_words *words);

/* Reads the clock, behind what was added: the TSC then. Before each merge. */
uint64_t scry_stream_look(struct scry_stream *s);
/* The same with readings that were taken. */
void scry_stream_clock(struct scry_stream *s, const struct scry_ticks_pair *now);
/* A fork child's begins with what its parent's knows of the clock: its first stamps may be older
 * than it. Goes on: what the parent has given until now was before all that the child gives. */
void scry_stream_clock_of(struct scry_stream *s, const struct scry_stream *other);
void scry_stream_goes_on(struct scry_stream *s, const struct scry_stream *other);
uint64_t scry_stream_now(const struct scry_stream *s); /* the TSC of the last look */

/* CLOCK_MONOTONIC of a record that is given, ns: never falls. How long so many ticks are. */
uint64_t scry_stream_time(struct scry_stream *s, uint64_t tick);
uint64_t scry_stream_length(const struct scry_stream *s, uint64_t ticks);

/* Gives what is stamped up to there: all, or so many records. */
int scry_stream_merge(struct scry_stream *s, uint64_t watermark, size_t most);
/* Is something left that the last merge might have given? */
bool scry_stream_is_behind(const struct scry_stream *s);

/* Calls it for each thread that has not ended, until it returns another value than 0. */
int scry_stream_each(struct scry_stream *s,
		     int (*each)(void *arg, struct scry_stream_thread *thread), void *arg);

size_t scry_stream_waiting(const struct scry_stream *s); /* words */
size_t scry_stream_bytes(const struct scry_stream *s);	 /* of memory, for what waits */

#endif
