/*
 * Which threads wait for the VM's lock (GVL), read from outside.
 *
 * No offset is learned for it. Each ractor (to 2.7 the vm) keeps those that wait in a ring whose
 * head lies in its struct and whose nodes lie in the threads' structs, all at one offset, which is
 * not that of the list of threads. Nothing else is such a ring, and where it is found a thread
 * waits.
 */
#ifndef SCRY_VM_RUBY_GVL_H
#define SCRY_VM_RUBY_GVL_H

#include "vm/ruby.h"

/* Sets ret_waits[i] for each of `count` threads. A ring that changes while it is read counts as
 * not there: a thread on its way in or out. 0 or -errno. */
int scry_ruby_gvl_waiters(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads,
			  size_t count, bool *ret_waits);

/*
 * Is it the thread that last took the lock of its ractor? From 3.0 on a ractor has a word with that
 * thread's ec, and no other word with one. False also when that is not to be seen.
 */
bool scry_ruby_gvl_is_holder(const struct scry_ruby *ruby, const struct scry_ruby_thread *threads,
			     size_t count, size_t which);

/* The thread in whose struct the address lies, and how far in: of several that begin shortly before
 * it the last one, as they may lie side by side. `count`: in none's. */
size_t scry_ruby_gvl_thread_of(const struct scry_ruby_thread *threads, size_t count, uint64_t node,
			       uint64_t *ret_at);

#endif
