/*
 * The threads of a Ruby whose lock is watched: which each is, by the VM's list, looked at from
 * outside now and then. In the keeper.
 */
#ifndef SCRY_INSTRUMENT_GVL_PEOPLE_H
#define SCRY_INSTRUMENT_GVL_PEOPLE_H

#include "instrument/gvl/gvl.h"
#include "sample/holders.h"

/* Looks for new threads, and at the queue, take a tenth of the time, at most. */
#define SCRY_GVL_LOOK_SHARE 10

#define SCRY_GVL_NAME 256u /* a longer one is cut */
struct scry_gvl_person {   /* a thread's struct, and which it was last */
	uint64_t th;
	pid_t tid;
	char name[SCRY_GVL_NAME];
	bool has_own_name;	  /* Thread#name; else it is its native thread's */
	bool is_alive, was_there; /* was_there: when the watch began */
	uint32_t looks_gone;	  /* since it was seen last */
	bool has_cpu;		  /* processor time of its native thread, at the watch's ends */
	uint64_t cpu_began_ns, cpu_ended_ns;
	struct scry_holders_ran ran; /* of that, at the end */
};

/* NULL: no look has found it. */
struct scry_gvl_person *scry_gvl_person_of(const struct scry_gvl *g, uint64_t th);
/* Looks which threads there are: names, native threads. */
void scry_gvl_look_at_people(struct scry_gvl *g);
/* Now and then; soon where a thread is new, which may end soon; and at each turn where the table
 * may be full soon, as long as there are new ones: many that only live on need no looks. */
bool scry_gvl_is_look_due(const struct scry_gvl *g);
/* How long each native thread has run, at an end of the watch. One that was not there at the
 * beginning began with nothing. */
void scry_gvl_look_at_processors(struct scry_gvl *g, bool is_end);

#endif
