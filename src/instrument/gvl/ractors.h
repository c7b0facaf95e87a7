/*
 * The locks of other ractors than the first: each a struct scry_gvl of its own, with the table that
 * the agent gave it (wire/gvl_others.h), and reported on its own. In the keeper.
 *
 * A ractor is found twice. The VM's list shows those that are there, at each look at who there is;
 * until the agent sees an event of its lock, the state is what was read from outside, as for the
 * first one. And a table of the agent that is new shows one that has begun, however short it lives.
 *
 * A lock is over when its ractor is in the list no more and nothing happens in its table, or when
 * its mutex was made anew. Then it is reported, and its table may be another one's.
 *
 * Life: new, announce before the hooks are on, begin, turn and look, end, report, free. `first` is
 * the first ractor's in all calls; all are legal where its `others` is NULL.
 */
#ifndef SCRY_INSTRUMENT_GVL_RACTORS_H
#define SCRY_INSTRUMENT_GVL_RACTORS_H

#include "instrument/gvl/gvl.h"
#include "wire/payload_gvl.h"

struct scry_gvl_ractors *scry_gvl_ractors_new(void);
void scry_gvl_ractors_free(struct scry_gvl_ractors *r);

/* Shows the agent which mutexes are locks of ractors that are there. 0 or -errno. */
int scry_gvl_ractors_announce(struct scry_gvl *first);
/* Their first looks: the watch counts from now on. */
void scry_gvl_ractors_begin(struct scry_gvl *first);
/* Finds new tables. */
void scry_gvl_ractors_turn(struct scry_gvl *first);
/* The VM's list of threads. */
void scry_gvl_ractors_see(struct scry_gvl *first, const struct scry_ruby_thread *threads, size_t n);
/* After that: reports those that have ended, and gives rows of threads back. */
void scry_gvl_ractors_look(struct scry_gvl *first);
/* The watch ends. */
void scry_gvl_ractors_end(struct scry_gvl *first);
/* What is left to be reported; counts their events with the watch's. *ret_waits: waits with stacks,
 * of all. 0 or -errno. */
int scry_gvl_ractors_report(struct scry_gvl *first, uint64_t *ret_waits);

/* All locks that are followed now, the first one's before others; NULL: no more. */
struct scry_gvl *scry_gvl_ractors_at(const struct scry_gvl *first, size_t i);
/* Table 0: the first; NULL: there is no such lock (any more). `uses`: the table's. */
struct scry_gvl *scry_gvl_ractors_by_table(struct scry_gvl *first, uint32_t table, uint32_t uses);
/* Has the lock, which had no events, got a table meanwhile? */
bool scry_gvl_ractors_bind(struct scry_gvl *lock);
/* Of any lock: the first ractor's. */
struct scry_gvl *scry_gvl_ractors_first(struct scry_gvl *lock);
/* The ring of waits of a lock's table. */
const uint64_t *scry_gvl_ractors_ring(const struct scry_gvl *lock);
/* Ractors seen until now, and those that found no table. There may soon be none, if more come. */
uint64_t scry_gvl_ractors_met(const struct scry_gvl *first);
bool scry_gvl_ractors_are_pressed(const struct scry_gvl *first);

/* Frees what each lock has of its own, the first one too; not `lock`. */
void scry_gvl_lock_done(struct scry_gvl *lock);

/* A thread's number in events, by that in its table; 0: none. */
static inline uint32_t scry_gvl_number(const struct scry_gvl *lock, uint32_t number)
{
	return number ? (lock->ractor - 1) * SCRY_GVL_RACTOR + number : 0;
}

#endif
