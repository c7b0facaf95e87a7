/*
 * An event of a VM's lock: what the files of the part that counts it (agent/gvl.h) have in common.
 */
#ifndef SCRY_AGENT_GVL_MOMENT_H
#define SCRY_AGENT_GVL_MOMENT_H

#include "agent/gvl.h"
#include "agent/load.h"
#include "wire/gvl_others.h"
#include "wire/state_page.h"

struct scry_gvl_lock {
	struct scry_gvl_table *t;
	const struct scry_gvl_shape *shape;
	uint64_t *ring;			 /* of its waits */
	uint64_t owner, queue;		 /* addresses of the VM's words */
	struct scry_state_page_gvl *own; /* what this process alone writes */
	uint64_t watch;			 /* a number that it had with no other lock */
};

struct scry_gvl_moment {
	struct scry_gvl_table *t;
	const struct scry_gvl_plan *plan;
	const struct scry_gvl_lock *lock;
	uint32_t rows_mask;
	uint8_t *rows; /* of the table */
	uint64_t now;
	/* Of this native thread, by the state page: the thread that has the lock now; that had it
	 * up to now. 0: it is another one's, or not known. */
	uint64_t has, had;
};

static inline struct scry_gvl_row *scry_gvl_row_in(const struct scry_gvl_moment *m, uint32_t row)
{
	return (struct scry_gvl_row *)m->rows + (row & m->rows_mask);
}

/* gvl_rows.c: the row of a thread's struct, a new one where it has none; 0: there is no room. */
uint32_t scry_gvl_row_of(const struct scry_gvl_moment *m, uint64_t th);
/* Of threads that have ended, those that the keeper has read all of. */
void scry_gvl_give_back(const struct scry_gvl_moment *m);

/* gvl_stack.c: where it waited, by the thread itself, which stands there still. */
void scry_gvl_take_stack(const struct scry_gvl_moment *m, const struct scry_gvl_row *r, uint64_t th,
			 uint64_t waited);

/* gvl.c: an event of that lock. */
void scry_gvl_look(const struct scry_gvl_lock *lock, uint64_t now, uint32_t waits);
/* The first ractor's table, in a fork child from then on one of its own; NULL: it has none. */
struct scry_gvl_table *scry_gvl_first_table(void);

#endif
