/*
 * Which threads keep others waiting for a Ruby's lock, by eBPF: a clock ticks on each processor,
 * and the thread that runs there gives its stack, if it has the lock of a process that is in here,
 * and another one wants it: by the table that scry's agent keeps in that process (wire/gvl.h). A
 * thread that has the lock and does not run gives nothing.
 *
 * There is one such clock in this process, and one program in the kernel for all Rubies of the same
 * layout. It ends with the last that is taken out.
 */
#ifndef SCRY_SAMPLE_HOLDERS_H
#define SCRY_SAMPLE_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vm/ruby_walk.h"
#include "wire/bpf_stacks.h"

struct scry_holders_of {
	pid_t pid;
	const struct scry_ruby *ruby;
	const struct scry_walk *walk; /* knows its collector */
	uint64_t table;		      /* struct scry_gvl_table, address there */
	/* A record with `holder` and `waiting`: as scry_record_take. */
	void (*give)(void *arg, const struct scry_bpf_stack *r, size_t size);
	void *arg;
};

/* What adding the first of its layout would take long for. 0; -EPERM, -ENOTSUP or -errno with a
 * sentence: eBPF cannot be had. */
int scry_holders_load(const struct scry_ruby *ruby);
/* `of` is copied; what it leads to stays the caller's, until it is taken out. As above. */
int scry_holders_add(const struct scry_holders_of *of);
/* Those with this `arg`; none is legal. */
void scry_holders_remove(const void *arg);

/* How long a thread of the process with this `arg` has run, by ticks: while it had the lock, and
 * while it had not. Zeros: at no tick, or there is no clock. */
struct scry_holders_ran {
	uint64_t held_ns, else_ns;
};
struct scry_holders_ran scry_holders_ran(const void *arg, pid_t tid);

/* Gives what is there, of all processes. */
void scry_holders_take(void);
/* The processor time that a record which is given now stands for. */
uint64_t scry_holders_period_ns(void);
/* Does a thread wait in the process of `arg`? While none does in any process, the clock ticks each
 * four milliseconds instead of each: a tick interrupts the program for some microseconds. */
void scry_holders_pace(const void *arg, bool is_quiet);

#endif
