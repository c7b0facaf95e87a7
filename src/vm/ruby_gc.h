/*
 * What a Ruby's garbage collector does at a moment, read from outside.
 *
 * Where it says so is not learned from a child but decoded: rb_during_gc, rb_gc_count and
 * rb_gc_writebarrier are exported by every Ruby, and each begins with loads of the VM, its heap and
 * the one field that its name says (gc.c; from 3.4 gc/default/default.c). What does not decode to
 * that is not known, and nothing is reported then.
 *
 * Epochs: what a stack leads to (code, method entries, environments) is freed or moved only by a
 * collection whose marking ends after it was on that stack, and a collection is counted before it
 * marks. So what was read while no marking was under way stays what it is as long as the count does
 * not change.
 */
#ifndef SCRY_VM_RUBY_GC_H
#define SCRY_VM_RUBY_GC_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/mem.h"

struct scry_ruby_gc_bit {
	uint32_t at; /* byte of the heap's struct */
	uint8_t mask;
};

#define SCRY_RUBY_GC_BYTES 2048u /* of the heap's struct, at most */

struct scry_ruby_gc {
	bool is_known;	   /* `during` is */
	bool has_epochs;   /* `count` and `marking` are, and nothing is freed but by collections */
	uint32_t objspace; /* vm -> heap */
	uint32_t count;	   /* collections begun, a word */
	uint32_t from, size;			 /* the bytes that hold all of it */
	struct scry_ruby_gc_bit during, marking; /* a step of it runs; marking in steps began */
};

struct scry_ruby_gc_now {
	bool is_running; /* the threads of the VM's lock are stopped, or one of them collects */
	uint64_t epoch;	 /* 0: not known, or what is read now may be freed in this collection */
	uint64_t count;	 /* + 1; 0: not known */
};

struct scry_ruby;

/* Finds the places; the process must have booted. What is not found is not known. */
void scry_ruby_gc_find(const struct scry_ruby *ruby, struct scry_ruby_gc *ret);

/* Address of the heap, 0 when it cannot be read or is not known. It stays where it is. */
uint64_t scry_ruby_gc_heap(const struct scry_ruby *ruby, const struct scry_ruby_gc *gc);

/* What `bytes` (gc->size of them, at heap + gc->from) say. */
struct scry_ruby_gc_now scry_ruby_gc_say(const struct scry_ruby_gc *gc, const uint8_t *bytes);

#endif
