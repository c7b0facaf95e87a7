/*
 * A child in which calls of all functions of a Ruby are counted: what
 * instrument/objects/alloc_functions works on. Its parts are one struct, as each looks at all of
 * it.
 *
 * The child is ours and is killed at the end, so nothing in it is put back.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_ALLOC_COUNTS_H
#define SCRY_INSTRUMENT_OBJECTS_ALLOC_COUNTS_H

#include "hook/hooks.h"
#include "vm/ruby.h"
#include "vm/ruby_calib.h"
#include "wire/ruby_hooks.h"

#define SCRY_ALLOC_COUNTS_KINDS 40u    /* kinds of creation: alloc_functions.rb */
#define SCRY_ALLOC_COUNTS_FREES 5u     /* phases in which objects are freed */
#define SCRY_ALLOC_COUNTS_SETS 8u      /* sets of functions that explain the counts */
#define SCRY_ALLOC_COUNTS_ROUNDS 40u   /* of what is made in a phase: more than by the way */
#define SCRY_ALLOC_COUNTS_REPORTED 64u /* objects whose addresses the script reports */
#define SCRY_ALLOC_COUNTS_ANSWER 64u   /* objects that an answer takes, at most */

struct scry_alloc_counts_phase {
	uint64_t made, freed; /* by the VM's account */
	uint64_t *calls;      /* by function */
};

struct scry_alloc_counts_reported { /* what the child said last */
	uint64_t made, freed, gcs, fulls;
};

struct scry_alloc_counts {
	struct scry_ruby *ruby; /* the target's; layout.alloc_functions is what is found out */
	struct scry_ruby *child;
	struct scry_calib_talk talk;
	struct scry_proc proc;
	struct scry_inject inj;
	struct scry_hooks hooks;
	struct scry_text *text;
	struct scry_alloc_counts_reported reported;
	struct scry_alloc_counts_phase off[SCRY_ALLOC_COUNTS_KINDS],
		on[SCRY_ALLOC_COUNTS_KINDS]; /* events */
	struct scry_alloc_counts_phase free[SCRY_ALLOC_COUNTS_FREES];
	uint64_t *addresses; /* of the counted functions, module-relative, ascending */
	size_t count;
	bool *sets[SCRY_ALLOC_COUNTS_SETS]; /* by function: those that may make objects */
	size_t set_count;
	uint64_t freers[SCRY_ALLOC_COUNTS_SETS]; /* those that may be the one that frees */
	size_t freer_count;
};

extern const char *const scry_alloc_counts_kinds[SCRY_ALLOC_COUNTS_KINDS];
extern const char *const scry_alloc_counts_frees[SCRY_ALLOC_COUNTS_FREES];

/* Starts the child for `target`, and, with open, hooks all functions. 0 or -errno with a sentence;
 * ends with scry_alloc_counts_free in any case. */
struct scry_alloc_counts *scry_alloc_counts_new(struct scry_ruby *ruby);
int scry_alloc_counts_start(struct scry_alloc_counts *c, const struct scry_proc *target);
int scry_alloc_counts_open(struct scry_alloc_counts *c, const struct scry_proc *target);
void scry_alloc_counts_free(struct scry_alloc_counts *c);

/* Has it make `n` of what `name` is; then it sits still. *ret (may be NULL) is its answer and ends
 * with scry_calib_stop. */
int scry_alloc_counts_ask(struct scry_alloc_counts *c, const char *name, unsigned n,
			  struct scry_calib *ret);
/* All phases. */
int scry_alloc_counts_run(struct scry_alloc_counts *c);
/* Wants a function of the Ruby module hooked. */
int scry_alloc_counts_want(struct scry_alloc_counts *c, uint64_t address,
			   const struct scry_hook_to *to);
/* The answer is no, and why: returns -ENOENT. */
int scry_alloc_counts_no(struct scry_alloc_counts *c, const char *why);

/* alloc_counts_words.c: where the VM keeps its own counts, into layout.alloc_functions. Not found
 * is not a failure: ages are then not known. */
int scry_alloc_counts_find_words(struct scry_alloc_counts *c);

/* alloc_counts_ec.c: where threads keep their execution context, into layout.alloc_functions. Not
 * found is not a failure. */
int scry_alloc_counts_find_ec(struct scry_alloc_counts *c);

/* alloc_probes.c: with layout.alloc_functions a guess at what makes and frees objects, put on as
 * real hooks: do they return and get every object that is made and freed? 1, and how the freed
 * object is given is filled in; 0; or -errno with a sentence. */
int scry_alloc_functions_probe(struct scry_alloc_counts *c, struct scry_agent_probe *scratch);

#endif
