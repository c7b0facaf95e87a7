/*
 * The keeper's end of the thread buffers (wire/thread_buffers.h): copies what threads have
 * published, in each thread's order, gives read segments back and wakes those that wait for one.
 *
 * What is read is hostile: everything is copied first and then checked; what makes no sense is
 * counted, never followed. It says up to which TSC nothing older can come any more (the watermark),
 * so that the threads' words can be put into one order. It knows nothing of what they mean.
 *
 * Life: new (hooks still off) -> take, each few ms -> end (no thread writes any more: we have left,
 * or the target is gone) -> take once more -> free. One thread.
 */
#ifndef SCRY_HOOK_THREAD_BUFFERS_H
#define SCRY_HOOK_THREAD_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/stream.h"
#include "wire/thread_buffers.h"

/* a record that is being written holds the watermark back, but not for longer; time in which no
 * look was taken does not count, as no thread was seen to go on */
#define SCRY_THREAD_BUFFERS_HOLD_NS 1000000000ull

struct scry_thread_buffers;

struct scry_thread_buffers_taken {
	uint64_t watermark; /* TSC: all stamps up to it were given; never falls. UINT64_MAX after
			       scry_thread_buffers_end */
	uint64_t now_tsc;   /* after it was read: no honest stamp is later */
	int fill;	    /* how full the pool was, 0..1000 */
};

struct scry_thread_buffers_stats {
	uint64_t words;	     /* given */
	uint64_t threads;    /* seen */
	uint64_t given_back; /* segments */
	uint64_t overdue;    /* records that were being written for longer than
				SCRY_THREAD_BUFFERS_HOLD_NS: they may come too late for their place */
	uint64_t bad;	     /* segments that made no sense: their words are lost */
	uint64_t
		unfinished; /* records that were being written when their thread or process ended */
	uint64_t waits;	    /* times that a thread had to wait for a segment */
};

/*
 * `words` are the SCRY_RING_WORDS of `control` in our own address space (w->inj.ring, or those of a
 * child buffer), which must outlive this; `pid` for /proc, 0: not known yet. With `from_now` what
 * is in the pool is passed over: an agent that an earlier scry left may have written it. A child
 * buffer is read from its first word on. -ENOMEM with a sentence.
 */
int scry_thread_buffers_new(struct scry_control *control, uint64_t *words, pid_t pid, bool from_now,
			    struct scry_thread_buffers **ret);
void scry_thread_buffers_free(struct scry_thread_buffers *t); /* NULL is legal */

/* A child buffer's process is known now. */
void scry_thread_buffers_identify(struct scry_thread_buffers *t, pid_t pid);

/* What is asked for the tid of a thread that does not know it, by its thread pointer: 0, it is not
 * known. */
void scry_thread_buffers_ask(struct scry_thread_buffers *t,
			     uint32_t (*tid_of)(void *arg, uint64_t pointer), void *arg);

/* Gives no more than what the watermark waits for, until this is taken back: a thread that has no
 * room waits meanwhile, at most for as long as a record may hold the watermark back. */
void scry_thread_buffers_spare(struct scry_thread_buffers *t, bool is_sparing);

/* No thread writes any more: all that is there can be given. */
void scry_thread_buffers_end(struct scry_thread_buffers *t);

/* A TSC: what happens later has a later stamp, repeated or not (wire/thread_buffers.h, turns). */
uint64_t scry_thread_buffers_stamp(struct scry_thread_buffers *t);

/*
 * Gives all that is published to `give` (scry_stream_add, with the stream as its argument), thread
 * by thread, then gives segments back. Stops at the first call that does not return 0 and returns
 * that; the words of that call are lost. Also looks, each 200 ms, which threads have ended. About
 * 1 ns a word and 20 us in all.
 */
int scry_thread_buffers_take(struct scry_thread_buffers *t,
			     int (*give)(void *arg, const struct scry_stream_words *words),
			     void *arg, struct scry_thread_buffers_taken *ret);

void scry_thread_buffers_stats(const struct scry_thread_buffers *t,
			       struct scry_thread_buffers_stats *ret);

#endif
