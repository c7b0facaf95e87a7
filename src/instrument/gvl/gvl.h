/*
 * `scry gvl`: a Ruby VM's lock, which thread has it, which want it. What the files of this folder
 * have in common. In the keeper.
 */
#ifndef SCRY_INSTRUMENT_GVL_GVL_H
#define SCRY_INSTRUMENT_GVL_GVL_H

#include <stdbool.h>

#include "base/map.h"
#include "hook/hooks.h"
#include "sys/ticks.h"
#include "vm/ruby.h"
#include "watch/watch.h"
#include "wire/gvl_others.h"
#include "wire/gvl_plan.h"

struct scry_gvl_snapshot { /* of the VM's own words, outside its critical section */
	uint64_t tsc;
	uint64_t owner;	 /* th; 0: no thread */
	uint64_t *queue; /* ths that want it */
	size_t count;
};

struct scry_gvl_person;
struct scry_walk_copy;
struct scry_gvl_blame;
struct scry_gvl_held;
struct scry_gvl_ractors;
struct scry_gvl_waiters;
struct scry_gvl_unseen;
struct scry_gvl_past;
struct scry_gvl_check;

struct scry_gvl_opts {
	bool stacks;	       /* each waiter's is taken */
	uint64_t threshold_ns; /* if it has waited for so long */
};

/* A lock. Those of other ractors hang on the first one's (ractors.h), and share its blame. */
struct scry_gvl {
	struct scry_watch *watch;
	uint32_t ractor;		    /* whose it is, from 1 on, the first */
	struct scry_gvl_ractors *others;    /* of the first one: other locks; NULL: not followed */
	const struct scry_gvl_shape *shape; /* of its table */
	bool has_stacks;		    /* each waiter's is taken, by the agent */
	struct scry_ruby *ruby;
	struct scry_hooks hooks;
	uint64_t lock;	 /* address of the ractor, or vm, that has it; 0: not known yet */
	bool is_booting; /* the VM is not up: nothing is counted yet */
	struct scry_gvl_table *table;	     /* the target's */
	struct scry_ticks_pair began, ended; /* of a fork child: when its parent's watch began */
	uint64_t since;			     /* TSC; 0: it is a fork child, since its first event */
	uint64_t boot_ns;		     /* before its VM was up; 0: it was up */
	bool is_bound;			     /* its process is known */
	/* before the first event: by a look at which no thread was in the VM's section */
	bool has_first_look;
	struct scry_gvl_snapshot first_look;
	uint64_t first_soon_ns; /* when to look again for that */
	struct scry_gvl_person *people;
	struct scry_map by_th; /* -> index + 1 */
	size_t count, room;
	struct scry_gvl_blame *blame;	  /* NULL: not yet, or not wanted */
	struct scry_gvl_held *held;	  /* with blame: samples of its holders */
	struct scry_gvl_waiters *waiters; /* with blame */
	struct scry_gvl_unseen *unseen;	  /* NULL: children are followed from the first on */
	struct scry_gvl_past *past;	  /* NULL: not yet, or no memory: rows are not given back */
	struct scry_gvl_check *check;	  /* NULL: not yet, or no memory */
	uint64_t looks_tsc[2];		  /* when the last looks at which threads there are began */
	uint64_t look_ns, soon_ns;	  /* when to look at threads again; where one is new */
	uint64_t births;		  /* of the table's, that were looked at */
	uint32_t fresh;		 /* looks that are still to come soon, as a thread was new */
	uint32_t unseen_ractors; /* whose locks are not followed, at most at a time */
	bool is_over;		 /* its ractor has ended */
	struct {		 /* of the first one, of those that were reported: */
		uint64_t odd, crowded;
		bool are_turns, is_cut;
	} lacks;
	bool are_turns;	    /* native threads run several threads in turn */
	uint64_t moves;	    /* of the table's, that were looked at */
	uint32_t mover;	    /* a native thread that a thread has left; 0: none is looked at */
	uint64_t mover_ns;  /* when it was looked at first */
	bool tids_are_ours; /* its pid namespace is ours: it knows tids as we do */
	uint64_t cpu_began_ns, cpu_ended_ns; /* of its process */
};

/* For the rehearsal, with the child's Ruby, which it takes over. Reads only. */
int scry_gvl_prepare(struct scry_watch *w, struct scry_ruby *ruby);
/* The table between two events: rows and pairs in use, into `ret`, all zero. 0 or -EAGAIN. */
int scry_gvl_read(const struct scry_gvl *g, struct scry_gvl_table *ret);
/* Sets its first look where no thread was in the VM's section: owner and queue. 0 or -EAGAIN. */
int scry_gvl_read_words(const struct scry_gvl *g, struct scry_gvl_snapshot *ret);
/* Does it hold together? NULL, or what does not. */
const char *scry_gvl_judge(const struct scry_gvl_table *t);

/* infer.c: fills ruby->layout.gvl, unless that is known, and keeps it. 0, or -ENOTSUP with a
 * sentence. */
int scry_gvl_infer(struct scry_ruby *ruby, const struct scry_proc *proc);

/* blame.c: samples the thread that holds it while others want it. NULL: no memory. Its timer is
 * readable when a look is due. */
struct scry_gvl_blame *scry_gvl_blame_new(const struct scry_ruby *ruby);
void scry_gvl_blame_free(struct scry_gvl_blame *b);
struct scry_gvl_held *scry_gvl_held_new(void);
void scry_gvl_held_free(struct scry_gvl_held *h);
int scry_gvl_blame_fd(const struct scry_gvl_blame *b);
/* From now on a thread that holds it and runs gives its stack itself, by eBPF, where that can be
 * had; else notes that it is read. `table`: its address in the process. */
void scry_gvl_blame_clock(struct scry_gvl *g, uint64_t table);
void scry_gvl_blame_look(struct scry_gvl *g);
/* Writes the lines of a holder, by its number, because of which others lost so much. */
void scry_gvl_blame_report(struct scry_gvl *g, uint32_t holder, uint64_t lost_ns);

/* The stack of a thread as a number, 0: not read; that of a copy of one that stood still; and as a
 * STACK id, written where it is new. */
uint32_t scry_gvl_blame_walk(struct scry_gvl *g, uint64_t th);
uint32_t scry_gvl_blame_take(struct scry_gvl *g, const struct scry_walk_copy *copy);
uint32_t scry_gvl_blame_no_frames(struct scry_gvl *g); /* of a thread that has none */
uint32_t scry_gvl_blame_brief(struct scry_gvl *g);     /* of waits that were too short for one */
uint32_t scry_gvl_blame_write(struct scry_gvl *g, uint32_t stack);

/* waiters.c: samples which threads wait, or takes over what the agent says of each wait. NULL: no
 * memory. A look stands for `gap_ns`. */
struct scry_gvl_waiters *scry_gvl_waiters_new(void);
void scry_gvl_waiters_free(struct scry_gvl_waiters *s);
void scry_gvl_waiters_look(struct scry_gvl *g, uint64_t gap_ns);
/* With stacks: of the threads that wait still. The last look. */
void scry_gvl_waiters_look_last(struct scry_gvl *g);
/* With stacks: reads what the agent says still, and says of how many waits the stack is not known,
 * as it was too deep or could not be read. Before the first report. */
uint64_t scry_gvl_waiters_unread(struct scry_gvl *g);
struct scry_gvl_waited { /* by a thread, by its number */
	uint64_t ns;
	/* Of that: in a wait that is not over; from before the watch; from the first event on,
	 * which counts as a wait; in brief ones. */
	uint64_t open_ns, older_ns, first_ns, brief_ns, brief_waits;
	uint32_t number;
};
/* Writes the lines at which it waited. */
void scry_gvl_waiters_report(struct scry_gvl *g, const struct scry_gvl_waited *waited);

/* Waits of which the agent took stacks. */
uint64_t scry_gvl_waits(const struct scry_gvl *g);

/* report.c: writes what the table says into the recording. */
int scry_gvl_report(struct scry_gvl *g);
/* The state before the first event; nothing where there was one. Again until it is known. */
void scry_gvl_look_first(struct scry_gvl *g, int tries);

#endif
