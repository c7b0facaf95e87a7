/* Where the VM's lock is: a part of what is learned of a Ruby (ruby_layout.h). */
#ifndef SCRY_VM_RUBY_GVL_PLACE_H
#define SCRY_VM_RUBY_GVL_PLACE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Where a ractor (to 2.7 the vm) keeps its lock, the GVL (instrument/gvl/infer): offsets in bytes.
 * The lock is not a mutex: it is a word that says whose it is, changed while a mutex is held.
 */
struct scry_ruby_gvl {
	bool is_known;	 /* it was tried: proven, or `why` says why not */
	bool is_proven;	 /* looked at in a child, and counted there by the agent `agent` */
	bool hands_over; /* the giver names the next owner, before that one runs */
	uint32_t mutex, owner, queue;
	uint32_t node;	   /* in a thread's struct: its node in the queue */
	uint32_t def_func; /* in the definition of a method in C: its function */
	uint64_t pass;	   /* that of Thread.pass, from the module's bias on; 0: not known */
	uint64_t agent;	   /* the hash of the agent that was rehearsed */
	char why[160];
};

#endif
