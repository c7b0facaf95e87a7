/*
 * The processes that `scry stacks` samples: the one that was asked for and, with -f, what it
 * starts: its fork children, theirs, and the Ruby programs that they become; each is sampled as the
 * first one is, at the same moments.
 *
 * By eBPF the kernel reports each fork, before the child runs. Else new processes are found by
 * their numbers, a few milliseconds after their start: one belongs to the run when its parent does;
 * or, as a daemon's parents are gone by then, when its VM lies where that of a watched process
 * does, at an address that was drawn at random. No process is traced for it.
 *
 * Life: open, (find,) begin, then turn each few milliseconds, and look at each slot; end, close.
 */
#ifndef SCRY_SAMPLE_DESCENDANTS_H
#define SCRY_SAMPLE_DESCENDANTS_H

#include "sample/sampler.h"

struct scry_descendants;

/*
 * No process yet. `run` stays the caller's, outlives it, and gets its clock later: with what
 * scry_descendants_clock_opts says. 0 or -ENOMEM.
 */
int scry_descendants_open(struct scry_sampling *run, bool follows, struct scry_descendants **ret);
void scry_descendants_close(struct scry_descendants *k); /* NULL is legal */

/*
 * Before there is a first: a Ruby that has booted, in `root` or in what that has started. 0: the
 * caller's; -EAGAIN: none yet; -ESRCH: they are all gone; or -errno with a sentence. To be called
 * again and again.
 */
int scry_descendants_find(struct scry_descendants *k, pid_t root, struct scry_ruby **ret);

/* How a clock for it is to be opened; rate and native are the caller's. */
void scry_descendants_clock_opts(struct scry_descendants *k, struct scry_clock_opts *opts);

/* The first one, which it takes; what it and `root`, whose descendants are meant, have started is
 * looked for now; writes its first events. 0 or -errno. Before all that follows. */
int scry_descendants_begin(struct scry_descendants *k, struct scry_sampler *first, pid_t root);

/* One more that was asked for, with what it starts; after begin, before attach. 0 or -errno with a
 * sentence. */
int scry_descendants_add(struct scry_descendants *k, pid_t pid);

/* Puts the clock on all. As scry_clock_attach. */
int scry_descendants_attach(struct scry_descendants *k);
/* From now on all is read. */
void scry_descendants_detach(struct scry_descendants *k);

/* Looks for new processes, when it is due, and takes what the clocks have reported. 0 or -errno. */
int scry_descendants_turn(struct scry_descendants *k);
/* A look at each, for `slot`, counted from run->began_ns. 0 or -errno. */
int scry_descendants_look(struct scry_descendants *k, uint64_t slot);

/* Is there one, or may one come of what is there? */
bool scry_descendants_lives(const struct scry_descendants *k);

/* Writes what is known of programs that were not ended yet; with `sums`, which are of all, in those
 * of the first. 0 or -errno. */
int scry_descendants_end(struct scry_descendants *k, const char *why,
			 const struct scry_ev_sampling *sums);

struct scry_descendants_sums {
	size_t refused;	       /* Rubies that could not be sampled */
	size_t unseen;	       /* fork children that ended before they could be */
	uint64_t unseen_ns;    /* what those have run, by their clocks; 0 without */
	bool is_other_program; /* the first became one, and is not watched on */
	/* of programs that live till the end: looks that were made, and that were not, as scry was
	 * late */
	uint64_t looks, late;
};
struct scry_descendants_sums scry_descendants_sums(const struct scry_descendants *k);

#endif
