/*
 * What a Ruby's thread waits for, as the VM has it: which thread holds a Mutex or a Monitor, and
 * the names of threads. Reads only, while all goes on: an answer is of the moment, and the caller
 * proves that nothing moved meanwhile where that matters.
 */
#ifndef SCRY_VM_RUBY_LOCKS_H
#define SCRY_VM_RUBY_LOCKS_H

#include "base/map.h"
#include "vm/ruby.h"

struct scry_ruby_owner {
	size_t thread;	     /* index of the thread that holds it; `count`: see why */
	bool is_other_fiber; /* it was locked by a fiber that does not run now */
	bool is_any_fiber; /* the VM notes the thread only: any of its fibers may have locked it */
	bool is_free;	   /* no thread holds it */
	const char *why;   /* not known, because; NULL */
};

/* Threads by the words that mean them, read once: of many threads many wait. */
struct scry_ruby_thread_index {
	const struct scry_ruby_thread *threads; /* the caller's */
	size_t count;
	struct scry_map by_th, by_self; /* to index */
};

/* 0, or -ENOMEM; _done is legal, and due, in both cases. */
int scry_ruby_thread_index_init(const struct scry_ruby *ruby,
				const struct scry_ruby_thread *threads, size_t count,
				struct scry_ruby_thread_index *ret);
void scry_ruby_thread_index_done(struct scry_ruby_thread_index *index);

/* The thread whose object is VALUE `self`; `count`: none. */
size_t scry_ruby_thread_with_self(const struct scry_ruby_thread_index *index, uint64_t self);

/* Which of these threads holds the Mutex at VALUE `mutex`? */
void scry_ruby_mutex_owner(const struct scry_ruby *ruby, const struct scry_ruby_thread_index *index,
			   uint64_t mutex, struct scry_ruby_owner *ret);

/* The Mutex that the Monitor at VALUE `monitor` has: the one object of that class which its struct
 * names. 0, or -ENOENT. */
int scry_ruby_monitor_mutex(const struct scry_ruby *ruby, uint64_t monitor, uint64_t *ret);

/* The name that the program gave a thread (Thread#name=), printable, into buf. Its length; 0: it
 * has none, or that is not known. */
size_t scry_ruby_thread_name(const struct scry_ruby *ruby, const struct scry_ruby_thread *t,
			     char *buf, size_t size);

#endif
