/*
 * One watched process: what the front asks for, what the keeper does, and what an instrument adds.
 *
 * The front (front.c) forks the keeper (keeper.c) and, for `-- CMD`, the
 * program. The keeper alone traces, edits, drains and writes. Its session has a watch for each
 * process. An instrument is one row of function pointers; it never forks, prints or exits.
 */
#ifndef SCRY_WATCH_WATCH_H
#define SCRY_WATCH_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/opt.h"
#include "hook/calling.h"
#include "hook/child_buffers.h"
#include "hook/threads.h"
#include "rec/writer.h"
#include "sys/execs.h"
#include "sys/proc.h"
#include "watch/until.h"

struct scry_watch_opts {
	struct scry_opt_list pids; /* -p */
	char **command;		   /* NULL: -p */
	bool follow;		   /* children too */
	uint64_t duration_ns;	   /* 0: until stopped */
	uint64_t every_ns;	   /* a slice of the recording each so often; 0: none */
	struct scry_until until;
	uint64_t max_pause_ns;
	uint64_t memory;	   /* bytes for the keeper's tables */
	uint64_t max_size;	   /* of the recording; 0: no limit */
	const char *output, *user; /* user: of the program that is started; NULL: scry's */
	bool raw, force, dry_run, wait;
	bool preload;		  /* -- CMD: no process is entered, see watch/preload.h */
	bool is_live, gives_back; /* it is shown while it is recorded; and then given back */
	const char *command_line; /* scry's own, for the recording */
	void *instrument_opts;
	/* of further instruments, on the same processes, each with a section of the recording. In
	 * the order in which they are entered: whose stubs go on to others' comes last */
	const struct scry_also {
		const struct scry_instrument *instrument;
		void *opts;
	} * also;
	size_t also_count;
};

struct scry_watch {
	const struct scry_watch_opts *opts;
	const struct scry_instrument *instrument;
	struct scry_proc proc;
	struct scry_inject own;
	struct scry_inject *inj;     /* own; the first one's, where several watch its process */
	struct scry_channel channel; /* where its handlers record */
	struct scry_writer *writer;
	uint64_t start_ns; /* held for so long before its first instruction; 0: it was live */
	struct scry_tracee *held; /* the stopped thread of a program being started; NULL live */
	void *state;		  /* the instrument's */
	struct scry_session *session;
	/* of several instruments (watch/group.h): the watch that has entered; NULL: this one */
	struct scry_watch *first, *others[SCRY_SECTIONS_MAX - 1];
	size_t other_count;
	struct scry_pool pages; /* the others' channels */
	uint32_t section;
	bool is_put_in, is_written;
	struct scry_watch *root; /* a fork child: the entered process, whose pool it uses */
	uint32_t child_buffer;	 /* there */
	struct scry_pool pool;	 /* of an entered process, when its children are followed */
	struct scry_watch *in_child_buffer[SCRY_CHILD_BUFFERS]; /* the process in each */
	uint32_t child_buffers_taken;
	uint64_t child_buffers_seen; /* bits: a process has it, in this look through /proc */
	bool is_sought;		     /* its owner, in this look */
	uint64_t hooked_children_ns; /* when to look again whether children of an ended one live */
	bool is_over;	/* ended and written; an entered process is kept for its child buffers */
	bool is_own;	/* it has rows of its own in the recording */
	uint32_t image; /* programs that this pid ran before, in this recording */
	uint64_t image_was;	 /* preloaded: what distinguishes this program from the next */
	struct scry_execs execs; /* news of the next one */
	uint64_t imageless_ns;	 /* since when its memory was gone and it had not ended */
	bool may_have_execed;	 /* there was some */
	bool is_caught;		 /* noticed after its exec: the VM may have been up by then */
	const char *runtime;	 /* set by prepare: "ruby 3.1.2...", or NULL */
	uint64_t near;		 /* set by prepare: where the agent should lie */
	uint32_t watch;		 /* number of this watch, for scry_inject_want */
	uint64_t began_ns, ended_ns, cpu_began_ns;
	const char *enough; /* set by the instrument: why the watch shall end; NULL go on */
	const char *ends;   /* why it ends as soon as it is known whose child buffer this is */
	int wake_fd;	    /* set by it: call `turn` when this is readable; 0: none */
	bool target_gone;
	uint64_t errors, lost, events, frees_older;
	struct scry_calling calling;  /* of its agent */
	struct scry_ev_totals totals; /* what only the instrument knows of it */
	uint64_t cost_ns; /* estimate, by the instrument: what its events cost the target */
};

enum { SCRY_MEASURES_CALLS, SCRY_MEASURES_TIMES, SCRY_MEASURES };

struct scry_instrument {
	const char *name;
	const char *summary; /* one line for the help */
	/* Bits: it measures what another one in the same process may change; and what a section
	 * that measures this notes where this instrument is beside it. */
	uint32_t measures;
	const char *beside[SCRY_MEASURES];
	/* `-- CMD` and -f: is this image, held or young, one to enter? `wanted` names what is.
	 * NULL: any is. */
	bool (*wants)(pid_t pid, const struct scry_maps *maps);
	const char *wanted, *unseen; /* "Ruby"; what is said when there was none */
	bool follows_exec;	     /* the program of `-- CMD` is watched on, whatever it execs */
	bool waits;		     /* handlers wait for a keeper that lives: hook/heartbeat.h */
	uint32_t parts;		     /* of the agent, that each watch needs: enum scry_agent_part */
	enum scry_agent_channels channel; /* of its handlers, that record into thread buffers */
	bool has_table;			  /* they count in its pages instead: agent's `table` */
	/* Reads only: learn, plan, refuse. */
	int (*prepare)(struct scry_watch *w);
	void (*describe)(struct scry_watch *w, FILE *out); /* what --dry-run prints after that */
	/* The agent is in: put hooks on. Live or with w->held. */
	int (*enter)(struct scry_watch *w);
	bool preloads; /* its handlers can be preloaded instead: watch/preload.h */
	/* Instead of both, for a fork child that records in a child buffer of w->root already
	 * (w->inj has its pages); its pid may be unknown. NULL: children cannot be followed. */
	int (*adopt)(struct scry_watch *w);
	void (*identified)(struct scry_watch *w); /* w->proc and w->inj are that process's */
	/* Takes what is there. How full the ring was, 0..1000, or -errno. */
	int (*drain)(struct scry_watch *w);
	/* Each few ms, and when wake_fd is readable. May be NULL. */
	void (*turn)(struct scry_watch *w);
	/* All is still on; called of every watch before one is left. Takes 3 s at most. Or NULL. */
	void (*conclude)(struct scry_watch *w);
	void (*leave)(struct scry_watch *w); /* stop producing; the target lives */
	/* It is gone, but others must report something first: it ends in a later turn. Or NULL. */
	bool (*must_wait)(const struct scry_watch *w);
	/* Last events into the recording. */
	int (*finish)(struct scry_watch *w);
	/* Instead: adds the counters of `w` to those of `into`, which is not a process. */
	int (*merge)(struct scry_watch *into, struct scry_watch *w);
	void (*done)(struct scry_watch *w);
	int (*close)(struct scry_watch *speaker); /* all are written: it may note; or NULL */
};

/* For every report: a NOTE, of bookkeeping if `is_cost`; events lost; what else buffers lost. */
#define scry_watch_note(w, ...) scry_watch_note_of(w, false, __VA_ARGS__)
void scry_watch_note_of(struct scry_watch *w, bool is_cost, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void scry_watch_lost(struct scry_watch *w, uint64_t count, const char *why);
void scry_watch_lost_some(struct scry_watch *w, const char *why);
void scry_watch_buffers(struct scry_watch *w, uint64_t waits);
int scry_watch_drain(struct scry_watch *w); /* a recording full from now on is not an error */
#endif
