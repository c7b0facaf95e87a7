/*
 * Names of a Ruby's code from the moment at which it comes into being: a uprobe in the kernel
 * (bpf/iseq_events) fills a table (vm/ruby_iseq_log).
 *
 * The kernel puts a breakpoint over one byte of the process's code, in a page of its own, and takes
 * it out when the probe is closed or this process ends, however. Other processes with the same
 * library have none. Each piece of code that is compiled or loaded costs a few microseconds of the
 * thread that does it; what runs costs nothing.
 */
#ifndef SCRY_SAMPLE_ISEQ_EVENTS_H
#define SCRY_SAMPLE_ISEQ_EVENTS_H

#include "probe/bpf.h"
#include "vm/ruby_iseq_log.h"

#define SCRY_ISEQ_EVENTS_PROGRAMS 8

/* The programs in the kernel, one for each layout, and which processes they serve. Zeroed: none. */
struct scry_iseq_events;
struct scry_iseq_events_program;
struct scry_iseq_events_all {
	struct scry_iseq_events_program *programs[SCRY_ISEQ_EVENTS_PROGRAMS];
	size_t program_count;
	struct scry_iseq_events **open;
	size_t count;
	uint64_t number; /* of the last that was opened */
};
void scry_iseq_events_all_done(struct scry_iseq_events_all *all); /* when none is open any more */

struct scry_iseq_events { /* of one process */
	const struct scry_ruby *ruby;
	struct scry_iseq_events_all *all; /* NULL: it is not on */
	struct scry_iseq_events_program *program;
	uint64_t number, given;
	struct scry_iseq_log births; /* `take` of it takes from the ring */
};

/*
 * On, for the process of `ruby`, which stays the caller's, as `all`; `p` must not be moved. 0;
 * -EPERM: the kernel does not let us; -ENOTSUP: this Ruby has no such place, or other code is
 * there; else -errno; with a sentence.
 */
int scry_iseq_events_open(struct scry_iseq_events *p, struct scry_iseq_events_all *all,
			  const struct scry_ruby *ruby);

/* Could it be on? The program is loaded, and attached to no process. `ruby` NULL: anyhow. As above.
 */
int scry_iseq_events_check(const struct scry_ruby *ruby);

/* What is to be done once in some milliseconds: takes, names what was born nameless. */
void scry_iseq_events_tick(struct scry_iseq_events *p);

struct scry_iseq_events_sums {
	struct scry_iseq_log_sums births;
	uint64_t seen;
	uint64_t lost, unread; /* of all that the program serves, since another was ended */
};

/* Off; takes what is left, compares with memory what is still there, and sums up. */
void scry_iseq_events_end(struct scry_iseq_events *p, struct scry_iseq_events_sums *ret);

/* Legal also when it was not opened, of a zeroed struct. */
void scry_iseq_events_close(struct scry_iseq_events *p);

#endif
