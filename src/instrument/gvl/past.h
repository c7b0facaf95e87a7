/*
 * Threads that have ended, once the agent's table has more rows than a quarter of its room: their
 * rows are read for the last time and given back, and what they say is summed by thread name.
 *
 * Each number is in one place at any time: in a row of the table, or here. The agent frees a row
 * only if nothing has happened in it since it was read, and then goes to other pairs, so that the
 * pairs that are taken over here name a row's old thread and no new one.
 *
 * Life: new, turn after each look at which threads there are, free. In the keeper.
 */
#ifndef SCRY_INSTRUMENT_GVL_PAST_H
#define SCRY_INSTRUMENT_GVL_PAST_H

#include "instrument/gvl/people.h"
#include "wire/payload_gvl.h"

#define SCRY_GVL_GROUPS 256u
#define SCRY_GVL_PAST_PAIRS (4 * SCRY_GVL_PAIRS)
_Static_assert(SCRY_GVL_ENDED_FROM == 2 * SCRY_GVL_THREADS,
	       "behind threads with rows, and without");

struct scry_gvl_group {
	char name[SCRY_GVL_NAME]; /* "": those whose names are not known, and, once there is no
				   * more room, all others */
	bool has_own_name;	  /* as that of a person; of all of them */
	struct scry_gvl_row sum; /* first: the earliest; longest, run_longest, run_most: the most */
	uint64_t lived, unknown; /* ticks: within the watch; before anything was known */
};

struct scry_gvl_pairs { /* by waiter << 16 | holder, + 1: numbers as in events */
	struct scry_map ticks, waits;
};

struct scry_gvl_past {
	struct scry_gvl_group *groups;
	uint32_t count;
	uint32_t asked; /* the table's, as it was answered last */
	uint32_t wants; /* rows that the table was asked for; 0: nothing is asked */
	struct scry_gvl_pairs pairs;
	uint64_t lost_pairs; /* ticks that found no room there */
	struct {
		uint32_t at;
		struct scry_gvl_row row;
		struct scry_gvl_person person; /* th 0: not known */
	} rows[SCRY_GVL_ENDED];		       /* that are asked for */
	struct scry_gvl_gone {
		bool is_gone;
		uint32_t who, group;
	} gone[SCRY_GVL_THREADS]; /* rows that were given back just now */
};

struct scry_gvl_past *scry_gvl_past_new(void);
void scry_gvl_past_free(struct scry_gvl_past *p);
/* Takes over what was given back, and asks for more where the table fills. */
void scry_gvl_past_turn(struct scry_gvl *g);
/* The table may soon be full, if more threads come. */
bool scry_gvl_past_is_pressed(const struct scry_gvl *g);
/* Only takes over. Before the report. */
void scry_gvl_past_take(struct scry_gvl *g);
/* What stands for a thread in samples: a group's number once its row was given back. */
uint32_t scry_gvl_past_who(const struct scry_gvl_past *p, uint32_t who);
/* Its number in events; 0: none. `t`: a copy of the table. */
uint32_t scry_gvl_past_number(const struct scry_gvl_table *t, uint32_t who);
void scry_gvl_pairs_init(struct scry_gvl_pairs *p, size_t room);
void scry_gvl_pairs_done(struct scry_gvl_pairs *p);
/* Adds to what two threads have, whatever its key; false: there is no room. */
bool scry_gvl_pairs_add(struct scry_gvl_pairs *p, uint32_t waiter, uint32_t holder,
			const struct scry_gvl_pair *more);
/* The next one, with its key; false: there is none. `cursor`: 0 at first. */
bool scry_gvl_pairs_next(const struct scry_gvl_pairs *p, size_t *cursor, struct scry_gvl_pair *ret);
static inline uint32_t scry_gvl_pair_waiter(const struct scry_gvl_pair *p)
{
	return (p->key - 1) >> 16;
}
static inline uint32_t scry_gvl_pair_holder(const struct scry_gvl_pair *p)
{
	return (p->key - 1) & 0xffff;
}

/* check.c: looks that the table is right. NULL: no memory. */
struct scry_gvl_checked {
	uint64_t looks;	       /* at a thread that has not the lock */
	uint64_t contradicted; /* of these: it had run Ruby code meanwhile */
};
struct scry_gvl_check *scry_gvl_check_new(void);
void scry_gvl_check_free(struct scry_gvl_check *c);
void scry_gvl_check_look(struct scry_gvl *g, uint64_t now_ns); /* no more than some a second */
struct scry_gvl_checked scry_gvl_check_of(const struct scry_gvl *g, uint32_t number);

/* ---- what the others do with that ---- */

/* What was seen of threads whose rows were given back is their groups'. */
void scry_gvl_check_regroup(struct scry_gvl *g);

/* Samples of threads whose rows were given back are their groups' from now on. */
void scry_gvl_blame_regroup(struct scry_gvl *g);
/* Holders have numbers from now on, by a copy of the table; the thread that held it before the
 * first event has that one. Before the first report. */
void scry_gvl_blame_settle(struct scry_gvl *g, const struct scry_gvl_table *t,
			   uint32_t first_holder);
/* As those of blame.c; a thread that waited before the first event is known by its struct. */
void scry_gvl_waiters_regroup(struct scry_gvl *g);
void scry_gvl_waiters_settle(struct scry_gvl *g, const struct scry_gvl_table *t,
			     uint32_t (*number_of)(const struct scry_gvl *g,
						   const struct scry_gvl_table *t, uint64_t th));

#endif
