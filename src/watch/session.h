/*
 * The keeper's whole run: one writer, one recording, and a watch for each process.
 *
 * Life of a watch: new -> enter (keeper) or adopt (follow) -> drained each turn -> end: what it has
 * counted is written, or, for the many that come after the first SCRY_OWN_MAX, summed as "others".
 * Whatever fails after it was entered goes through scry_watch_leave: every path out ends in undo.
 */
#ifndef SCRY_WATCH_SESSION_H
#define SCRY_WATCH_SESSION_H

#include "base/map.h"
#include "hook/heartbeat.h"
#include "sys/descendant_table.h"
#include "sys/spawn.h"
#include "watch/ask.h"
#include "watch/news.h"
#include "watch/watch.h"

#define SCRY_WATCHES_MAX 256		/* at once */
#define SCRY_OWN_MAX 256		/* processes with rows of their own */
#define SCRY_PATIENCE_NS 10000000000ull /* so long a target waits for a keeper that lives */

struct scry_family;

struct scry_section { /* what one instrument records */
	struct scry_watch_opts opts;
	const struct scry_instrument *instrument;
	struct scry_writer *writer;
	struct scry_watch *others; /* ended processes without rows of their own, summed */
	size_t own, others_count;
	struct scry_map images; /* pid -> parts of the recording that are its: scry_session_part */
};

struct scry_session {
	const struct scry_watch_opts *opts;
	const struct scry_instrument *instrument; /* of several what holds for all: watch/group.h */
	struct scry_writer *writer;		  /* the first section's */
	struct scry_section sections[SCRY_SECTIONS_MAX];
	uint32_t section_count;
	int fd;	    /* the front's socket */
	int rec_fd; /* the recording */
	struct scry_watch *watches[SCRY_WATCHES_MAX];
	size_t count;
	size_t entered; /* processes ever */
	size_t gone;	/* processes that ended while they were watched */
	size_t left;	/* processes that go on without us */
	struct scry_spawns spawns;
	struct scry_heartbeat *heartbeat; /* while we cannot; NULL: the instrument does not wait */
	struct scry_watch *preload; /* has the pool that programs join; NULL: they are entered */
	size_t nameless;	    /* joined it, and it is not known which they are */
	struct scry_map strangers;  /* pids that became programs which have not joined it */
	pid_t leader;		    /* of `-- CMD` */
	uint64_t leader_start;
	struct scry_descendant_table
		descendants; /* fork children that made no object yet, and other programs */
	uint64_t began_ns;
	uint64_t scan_ns;     /* next full look through /proc */
	uint64_t late;	      /* Rubies that were entered after their start */
	uint64_t not_entered; /* Rubies that could not be entered */
	uint64_t unknown;     /* programs that had ended before we could look */
	/* programs.h */
	struct scry_family *family; /* NULL: not needed, or family_error says why not */
	int family_error;
	uint64_t missed;     /* programs that had ended before they could be entered */
	pid_t missed_parent; /* which process started them; 0: several did */
	uint64_t untraced;   /* children that ptrace did not follow */
	uint64_t vain_ns;    /* waited for what did not come: scry_watch_patience_ns */
	uint64_t vain_at_ns; /* as of then */
	uint64_t refused;    /* fork children that found no child buffer */
	uint64_t loads;	     /* times that fork children loaded or unloaded libraries */
	uint64_t lease_tsc, lease_end_tsc;
	bool wants_programs; /* each: programs.h */
	bool is_blind;	     /* a process could not be asked, in this look through /proc */
	bool is_catching;    /* what is entered now was noticed after its exec */
	bool is_short;	     /* the recording could not be written to its end */
};

/* watch.c */
void scry_send_news(const struct scry_session *s, enum scry_news kind, int value, const char *text);
struct scry_watch *scry_watch_new(struct scry_session *s);
/* Takes it out of the session and frees it. Nothing of it may be left in its process. */
void scry_watch_free(struct scry_watch *w);
/* Lock, map, hook: a live process, or one held at its start. After scry_proc_open. */
int scry_watch_enter(struct scry_watch *w);
/* Leaves (unless it is gone), writes or sums its counters. The watch stays until it is freed. */
int scry_watch_end(struct scry_watch *w, const char *why);
/* The same of this instrument alone, where others of its process go on. */
int scry_watch_end_alone(struct scry_watch *w, const char *why);
bool scry_watch_must_wait(const struct scry_watch *w); /* before that: see struct scry_instrument */
/* PROCESS and ATTACH: from now on it has rows of its own; unless SCRY_OWN_MAX others have. */
void scry_watch_introduce(struct scry_watch *w);
bool scry_watch_has_execed(struct scry_watch *w);
void scry_watch_lease(struct scry_watch *w);
/* At the end, all is still on: instrument->conclude, where there is one. */
void scry_watch_conclude(struct scry_watch *w);
void scry_watch_seccomp(struct scry_watch *w); /* each turn: has it forbidden itself our calls? */
/* Its leases are kept fresh by the heartbeat too, from now on until it is freed. 0 or -ENOMEM. */
int scry_watch_keep_fresh(struct scry_watch *w);
/* keeper.c: all handlers record until then. Before something that takes long: for longer. */
void scry_session_lease(struct scry_session *s, uint64_t ns);
/* missing.c: LOST and NOTE events of processes that were not watched, or late; `any` speaks. */
void scry_session_notes(struct scry_session *s, struct scry_watch *any);
/* missing.c: a watch will be freed: what its agent has counted of fork children. */
void scry_session_count(struct scry_session *s, const struct scry_watch *w);
/* Its process ran another program, which is not followed: each section of it says so. `what`: "ran
 * another program ...". */
void scry_session_unfollowed(struct scry_watch *w, const char *what);
/* TOTALS of the summed ones, and what is to be said of all. */
int scry_session_end(struct scry_session *s);

/* descendants.c: children. First of all. */
void scry_follow_begin(struct scry_session *s);
/* Once a turn: takes up child buffers, finds their owners, frees those of the dead,
 * enters programs that were exec'ed. */
void scry_follow_turn(struct scry_session *s);
/* A watched process became another program. */
void scry_follow_exec(struct scry_session *s, pid_t pid);
/* Takes up child buffers that were taken since the last time. */
void scry_follow_child_buffers(struct scry_session *s);
/* Are there child buffers whose owner is sought? Then come again soon. */
bool scry_follow_is_busy(const struct scry_session *s);
/* Of an ended one: do processes live that were forked from it, and may still take a child buffer of
 * its pool?
 */
bool scry_follow_has_hooked_children(struct scry_watch *w);
/* Has a process appeared so lately that it may still become a Ruby? */
bool scry_follow_expects(const struct scry_session *s);
/* The last look, when children may take no more child buffers. */
void scry_follow_end(struct scry_session *s);
/* After all are left: their children that made no object, too. */
void scry_follow_leave_hooked_children(struct scry_session *s);
/* A started or exec'ed program is stopped in `t`: entered if the instrument wants it. 1: entered;
 * 0: not wanted; -errno with a sentence. `t` is released, except for 0. */
int scry_session_image(struct scry_session *s, struct scry_tracee *t);

#endif
