/*
 * The ring of threads: 403 of them pass a token on, and only who has it runs. Each way to have
 * threads is a file with one function, which makes them, lets main start the ring twice (to warm
 * up, and to be timed) and does not tidy up: it runs in a process of its own.
 */
#ifndef SCRY_BENCH_RING_H
#define SCRY_BENCH_RING_H

#include <stddef.h>
#include <stdint.h>

#define RING_THREADS 403 /* at most; ring.threads take part */
#define RING_STACK (256u << 10)
#define RING_FRAMES 100
#define RING_FRAME_BYTES 640 /* with what the call adds, some 64 KiB for 100 frames */

struct ring {
	volatile int64_t left; /* passes until the token goes to main */
	int threads;
	int frames;	/* by which each thread grows its stack first */
	int64_t passes; /* to be timed; 0: as many as take two seconds */
	/* what came out */
	double grow_ns; /* per thread: made, grown, and the token passed on twice */
	double pass_ns;
};

extern struct ring ring;

typedef void ring_way(void);
ring_way ring_prototype, ring_scry, ring_scry_no_fp, ring_scry_yield, ring_ucontext, ring_heap,
	ring_copy, ring_futex, ring_boost;

/* Takes the times: start() gives the token away and returns when it comes back. CPU time, of all
 * threads. */
void ring_time(void (*start)(void));
void ring_began(void);

/* Calls body(me) with the stack grown. Does not return. */
void ring_grow(int frames, void (*body)(long me), long me);

#endif
