/*
 * Where a Ruby notes the name of a Thread, and which thread holds a Mutex. Learned by
 * ruby_infer_lock.c, read by ruby_locks.c.
 */
#ifndef SCRY_VM_RUBY_LOCK_PLACE_H
#define SCRY_VM_RUBY_LOCK_PLACE_H

#include <stdint.h>

enum scry_ruby_owner_kind {
	SCRY_RUBY_OWNER_NONE,	/* not known */
	SCRY_RUBY_OWNER_TH,	/* the owner's th */
	SCRY_RUBY_OWNER_OBJECT, /* the Thread itself */
	SCRY_RUBY_OWNER_FIBER,	/* the struct of the fiber that locked it */
};

struct scry_ruby_lock_place { /* offsets in bytes */
	uint32_t kind;	      /* enum scry_ruby_owner_kind: what the word `owner` is */
	uint32_t data;	      /* T_DATA -> its struct */
	uint32_t owner;	      /* in that of a Mutex */
	uint32_t locked;      /* in that of a Mutex: a word that is 0 while no thread holds it */
	uint32_t fiber_ec;    /* kind FIBER: from its struct to its execution context */
	uint32_t th_name;     /* th -> its name, a String or nil; 0: not known */
};

#endif
