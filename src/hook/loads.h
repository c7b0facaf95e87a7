/*
 * Objects that a process loads and unloads while a set of hooks is on: dlopen, dlclose, dlmopen.
 *
 * The dynamic loader is led to the agent (agent/loads.c) at the place between relocation and
 * constructors that sys/loader finds: glibc's own slot of _dl_catch_exception, or, in musl and
 * where there is no such slot, the entry of r_brk. There a thread of the target waits, holding the
 * loader's lock, until scry_loads_turn has hooked what is new, or 50 ms. What is unloaded is
 * forgotten: nothing is written there any more, and its functions keep their counts. What comes
 * back counts on.
 *
 * While a thread waits none runs the code of what is new: it is changed without a stop. When that
 * cannot be proven (a thread did not wait, or none does) all threads are stopped for it.
 *
 * Life: scry_loads_follow after scry_hooks_on; scry_loads_turn whenever scry_loads_fd is readable
 * and each few ms; scry_hooks_off ends it. In the keeper only.
 */
#ifndef SCRY_HOOK_LOADS_H
#define SCRY_HOOK_LOADS_H

#include <stdint.h>

#include "hook/hooks.h"

#define SCRY_LOADS_HANDLER "scry_agent_load_brk" /* of each set, so that slabs have its literal */
#define SCRY_LOADS_WAIT_NS 50000000ull

struct scry_loads_stats {
	uint64_t asked;	   /* times that a thread waited */
	uint64_t late;	   /* of these, went on without an answer: constructors may be missed */
	uint64_t loaded;   /* objects that appeared */
	uint64_t unloaded; /* objects with hooks that went away */
	uint64_t failed;   /* times that looking was given up */
	char why[256];	   /* why the last look failed that did; "": none */
	uint64_t answer_max_ns; /* from our waking to the answer */
};

/*
 * Leads the loader to the agent. 0; -ENOENT: the process has no loader; -ENOTSUP: none that is
 * known; with a sentence, and the set stays on as it is. A set that is off, because what it was
 * planned for changed before it was on, is put on by the next turns.
 */
int scry_loads_follow(struct scry_hooks *h, struct scry_inject *inj, struct scry_tracee *held);

/* Turns call that before they hold threads, and when that is over: a scry that follows the process
 * by ptrace lets it go for so long. */
void scry_loads_around_stops(struct scry_hooks *h, void (*call)(void *arg, bool is_over),
			     void *arg);

/* Is all on that can be? Else turns are still needed. */
bool scry_loads_is_settled(const struct scry_hooks *h);

/* Is every object that the loader has reported hooked, or reported as a failure? */
bool scry_loads_has_seen_all(const struct scry_hooks *h);

/* Readable when a thread waits; -1: not followed. */
int scry_loads_fd(const struct scry_hooks *h);

/* Answers, and looks again at what could not be settled. 0, or -ESRCH: the target is gone. */
int scry_loads_turn(struct scry_hooks *h, struct scry_inject *inj);

/* All zero when not followed. */
void scry_loads_stats(const struct scry_hooks *h, struct scry_loads_stats *ret);

/* By scry_hooks_off: lets waiting threads go and forgets what went away. By scry_hooks_close. */
void scry_loads_end(struct scry_hooks *h, struct scry_inject *inj);
void scry_loads_free(struct scry_hooks *h);

#endif
