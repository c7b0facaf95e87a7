/*
 * Several instruments on one process, in one watch.
 *
 * Each is a struct scry_watch with state, counters and a section of the recording of its own. The
 * first has entered: its inject, journal and owner's claim are all the others'. Handlers record in
 * channels (hook/threads.h): the first one's pages are the agent's own, the others have child
 * buffers of a pool that no child knows of.
 *
 * All are prepared before one is entered, so that each is planned on the bytes of the files. Then
 * they are entered in the order of the sections; where two want one place the later one's stub goes
 * on to the earlier one's (hook/chain.h). They leave the other way round, then the agent is left.
 * One that ends sooner finishes its section; what others share with it passes through until the
 * end.
 */
#ifndef SCRY_WATCH_GROUP_H
#define SCRY_WATCH_GROUP_H

#include "watch/session.h"

/* Sections of the session, from its options: writers, and what holds for all instruments. 0 or
 * -errno with a sentence. Begin: SESSION in each. Close: the others' writers. */
int scry_group_open(struct scry_session *s);
void scry_group_begin(struct scry_session *s);
void scry_group_close(struct scry_session *s);

/* The instruments of a process: from 0 on; NULL: there are no more. An ended one is over or gone.
 */
struct scry_watch *scry_group_at(struct scry_watch *first, size_t i);
struct scry_watch *scry_group_first(struct scry_watch *w);
size_t scry_group_count(const struct scry_watch *first);
/* Does another instrument of its process go on? */
bool scry_group_goes_on(struct scry_watch *w);

/* After scry_proc_open of the first: the others. With -f only those that want this program. Then in
 * this order; 0 or -errno with a sentence. */
int scry_group_form(struct scry_watch *first);
int scry_group_prepare(struct scry_watch *first);
int scry_group_get_pages(struct scry_watch *first);
int scry_group_enter(struct scry_watch *first);

/* A fork child that has taken child buffer `w->child_buffer` of its root's pool: the others of its
 * group, as its root has them, and all are informed. 0 or -errno: then it is to be freed. */
int scry_group_adopt(struct scry_watch *w);
/* Its process is known: all are informed. */
void scry_group_identified(struct scry_watch *w);

/* Its functions are called next: what it changes is marked as its own. */
void scry_group_turn_to(struct scry_watch *w);
/* While one is entered, which takes its time: what the others have recorded is taken, and all
 * leases are new. */
void scry_group_drain_others(struct scry_watch *w);
/* One leaves alone; all that have not yet, the last first. */
void scry_group_leave_one(struct scry_watch *w);
void scry_group_leave(struct scry_watch *first);

#endif
