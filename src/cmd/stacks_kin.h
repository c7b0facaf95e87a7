/*
 * What a sampled process starts (`scry stacks -f`): its fork children, theirs, and the Ruby
 * programs that they become; each is sampled as the first one is, at the same moments.
 *
 * New processes are found by their numbers, a few milliseconds after their start. One belongs to
 * the run when its parent does; or, as a daemon's parents are gone by then, when its VM lies where
 * that of a watched process does, at an address that was drawn at random. Nobody is traced or told.
 *
 * Life: open, then at each slot scan and tick, end, close.
 */
#ifndef SCRY_CMD_STACKS_KIN_H
#define SCRY_CMD_STACKS_KIN_H

#include "name/samples.h"
#include "rec/writer.h"
#include "sys/proc.h"

struct scry_kin;

/* What all processes of a run share. */
struct scry_kin_run {
	struct scry_writer *writer; /* the caller's */
	uint64_t began_ns, slot_ns;
	uint32_t rate;
};

/* A process's first and last events: PROCESS, ATTACH; STACK, SAMPLES, SAMPLING, DETACH, TOTALS. */
void scry_kin_write_head(struct scry_kin_run *run, const struct scry_proc *proc,
			 const struct scry_ruby *ruby);
int scry_kin_write_end(struct scry_kin_run *run, struct scry_samples *samples, uint64_t began_ns,
		       const char *why);

/* `run` stays the caller's and outlives it. `first` is whose kin is meant. 0 or -ENOMEM. */
int scry_kin_open(struct scry_kin_run *run, const struct scry_ruby *first, struct scry_kin **ret);
void scry_kin_close(struct scry_kin *k); /* NULL is legal */

/* The first has ended; `lives`: it has become another program, and is kin from now on. */
void scry_kin_first_ended(struct scry_kin *k, bool lives);

/* Looks for new processes, when it is due. */
void scry_kin_scan(struct scry_kin *k);

/* A look at each, for `slot`, counted from run->began_ns. 0 or -errno of writing. */
int scry_kin_tick(struct scry_kin *k, uint64_t slot);

/* Is there one, or may one come of what is there? */
bool scry_kin_lives(const struct scry_kin *k);

/* Writes what is known of those that still live. 0 or -errno. */
int scry_kin_end(struct scry_kin *k, const char *why);

/* How many could not be sampled, though they are Rubies. */
size_t scry_kin_refused(const struct scry_kin *k);

#endif
