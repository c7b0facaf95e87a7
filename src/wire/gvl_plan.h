/*
 * What the host gives to the agent of a Ruby VM's lock, whose counts are in wire/gvl.h.
 * Freestanding.
 */
#ifndef SCRY_WIRE_GVL_PLAN_H
#define SCRY_WIRE_GVL_PLAN_H

#include <stdint.h>

/* In the agent's part for it, written by the host before a hook is on: addresses in the target,
 * offsets in bytes. */
struct scry_gvl_plan {	     /* what each event needs comes first */
	uint64_t mutex;	     /* 0: nothing is counted */
	uint64_t owner;	     /* of the word that says which thread has the lock */
	uint64_t queue;	     /* of the head of the ring of the threads that want it */
	uint64_t state_page; /* the agent's */
	uint32_t node;	     /* in a thread's struct: its node there */
	uint32_t self;
	/* The giver says which thread has the lock next, before that one runs: then a thread is
	 * known to run by its native thread, whose id the struct at th + nt has at `tid`. */
	uint32_t hands_over, nt, tid;
	/* To recognise Thread.pass: th's ec, there its cfp, of a control frame iseq and ep, below
	 * that the method entry, there its definition, and there its function in C. */
	uint32_t ec, cfp, frame_iseq, frame_ep, frame_me, me_def, def_func;
	uint64_t me_flags, me_mask; /* of a method entry's first word */
	uint64_t pass;		    /* that function; 0: it is not known */
	/* 1: the stack of each that has waited is taken, by ec, cfp and these. */
	uint32_t stacks, ec_stack, ec_stack_size, frame_size;
	uint64_t threshold; /* ticks: of shorter waits no stack is taken */
	uint64_t watch;	    /* a number that no other watch has */
	/* Where other ractors have their lock: in a thread's struct its ractor, 0: there are none;
	 * in that the mutex. Owner and queue are as far from it as the first ractor's. */
	uint32_t ractor, mutex_at;
} __attribute__((aligned(64)));

#endif
