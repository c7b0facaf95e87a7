/*
 * The Ruby threads of a watched process are asked to register the agent's job: at its next
 * safepoint the VM then takes up what is wanted of it (a watch, its end, a forced collection).
 *
 * In the keeper's thread, while the agent is in. A thread is only held for the call.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_ASKS_H
#define SCRY_INSTRUMENT_OBJECTS_ASKS_H

#include "watch/watch.h"

#define SCRY_ASK_EVERY_NS 10000000ull

enum scry_asked { SCRY_ASK_RUNNING, SCRY_ASK_ALL };

/* Asks one after the other, running ones first, until `done`, which waits so many ns, says that the
 * VM has got to it. How many were asked; 0: none could be held now; -1: there is none to be. */
int scry_objects_ask(struct scry_watch *w, enum scry_asked who,
		     bool (*done)(const struct scry_watch *w, uint64_t ns));
/* Again, a second at most, while none could be held: a busy machine does not let them stop in time.
 */
int scry_objects_ask_again(struct scry_watch *w,
			   bool (*done)(const struct scry_watch *w, uint64_t ns));

#endif
