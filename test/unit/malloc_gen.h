/*
 * Calls of a malloc recording that never was, for tests and benchmarks: the same for the same seed,
 * with a known answer, of any length without memory for it.
 */
#ifndef SCRY_TEST_MALLOC_GEN_H
#define SCRY_TEST_MALLOC_GEN_H

#include <stdint.h>

#include "replan/feed.h"

#define MALLOC_GEN_LIVE 65536u

struct malloc_gen {
	struct scry_malloc_source source; /* first: it is one */
	/* what is wanted */
	uint64_t calls;
	uint32_t threads;  /* at once, the main one included */
	uint32_t live;	   /* blocks at most */
	uint32_t cross;	   /* percent of ends by a thread picked at random */
	uint32_t churn;	   /* a thread ends each so many calls; 0: none */
	uint32_t size_max; /* bytes, mostly far less */
	bool is_plain;	   /* malloc and free only */
	uint32_t burst;	   /* so many calls of one kind, by one thread, in a row; 0: one */
	uint64_t seed;
	/* where it stands */
	uint64_t made, random;
	uint32_t count, fresh, free_count, next_thread, who;
	bool is_end;
	uint32_t thread[64];
	struct {
		uint32_t block, thread;
		uint64_t size;
	} blocks[MALLOC_GEN_LIVE];
	uint32_t free[MALLOC_GEN_LIVE];
	struct scry_ev_malloc call;
	uint64_t live_bytes; /* now */
};

/* `g`: what is wanted is set. */
void malloc_gen_init(struct malloc_gen *g);

#endif
