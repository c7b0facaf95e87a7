/*
 * The processes that `scry stacks` samples: the one that was asked for and, with -f, what it
 * starts: its fork children, theirs, and the Ruby programs that they become; each is sampled as the
 * first one is, at the same moments.
 *
 * By eBPF the kernel tells of each fork, before the child runs. Else new processes are found by
 * their numbers, a few milliseconds after their start: one belongs to the run when its parent does;
 * or, as a daemon's parents are gone by then, when its VM lies where that of a watched process
 * does, at an address that was drawn at random. Nobody is traced for it.
 *
 * Life: open, (find,) begin, then turn each few milliseconds, and look at each slot; end, close.
 */
#ifndef SCRY_CMD_STACKS_KIN_H
#define SCRY_CMD_STACKS_KIN_H

#include "cmd/sampled.h"

struct scry_kin;

/*
 * No process yet. `run` stays the caller's, outlives it, and gets its clock later: with what
 * scry_kin_clock_opts says. 0 or -ENOMEM.
 */
int scry_kin_open(struct scry_sampling *run, bool follows, struct scry_kin **ret);
void scry_kin_close(struct scry_kin *k); /* NULL is legal */

/*
 * Before there is a first: a Ruby that has booted, in `root` or in what that has started. 0: the
 * caller's; -EAGAIN: none yet; -ESRCH: they are all gone; or -errno with a sentence. To be called
 * again and again.
 */
int scry_kin_find(struct scry_kin *k, pid_t root, struct scry_ruby **ret);

/* How a clock for it is to be opened; rate and native are the caller's. */
void scry_kin_clock_opts(struct scry_kin *k, struct scry_clock_opts *opts);

/* The first one, which it takes; what it and `root`, whose kin is meant, have started is looked for
 * now; writes its first events. 0 or -errno. Before all that follows. */
int scry_kin_begin(struct scry_kin *k, struct scry_sampled *first, pid_t root);

/* Puts the clock on all. As scry_clock_attach. */
int scry_kin_attach(struct scry_kin *k);
/* From now on all is read. */
void scry_kin_detach(struct scry_kin *k);

/* Looks for new processes, when it is due, and takes what the clocks have told. 0 or -errno. */
int scry_kin_turn(struct scry_kin *k);
/* A look at each, for `slot`, counted from run->began_ns. 0 or -errno. */
int scry_kin_look(struct scry_kin *k, uint64_t slot);

/* Is there one, or may one come of what is there? */
bool scry_kin_lives(const struct scry_kin *k);

/* Writes what is known of those that were not ended yet; with `sums`, which are of all, in those of
 * the first. 0 or -errno. */
int scry_kin_end(struct scry_kin *k, const char *why, const struct scry_ev_sampling *sums);

struct scry_kin_sums {
	size_t refused;	       /* Rubies that could not be sampled */
	size_t unseen;	       /* fork children that ended before they could be */
	uint64_t unseen_ns;    /* what those have run, by their clocks; 0 without */
	bool is_other_program; /* the first became one, and is not watched on */
};
struct scry_kin_sums scry_kin_sums(const struct scry_kin *k);

#endif
