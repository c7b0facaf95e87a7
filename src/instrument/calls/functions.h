/*
 * What `scry calls` knows of a process, and the functions that it traces in it: their numbers,
 * prototypes and plans. Private to the instrument (calls.c).
 */
#ifndef SCRY_INSTRUMENT_CALLS_FUNCTIONS_H
#define SCRY_INSTRUMENT_CALLS_FUNCTIONS_H

#include "hook/call_plans.h"
#include "hook/shadow.h"
#include "hook/thread_buffers.h"
#include "hook/unwind.h"
#include "instrument/calls/break.h"
#include "instrument/calls/calls.h"
#include "instrument/calls/debug.h"
#include "instrument/calls/errno.h"
#include "instrument/calls/kernel.h"
#include "instrument/calls/ruby.h"
#include "watch/loading.h"

struct scry_calls_traced {		/* a function, by the number in its hook's cookie */
	char *symbol, *module, *caller; /* caller: -e; NULL */
	char *version;			/* NULL: none */
	char *aliases;			/* as of struct scry_hook */
	uint64_t address;
	const struct scry_proto *proto;
	uint32_t args; /* registers that are recorded */
	bool has_plan;
	bool is_versioned; /* another version of its name is traced, too */
	uint32_t way;
};

struct scry_calls_children;
struct scry_calls_signals;

struct scry_calls_watch {
	struct scry_watch *watch;
	struct scry_hooks hooks;
	struct scry_thread_buffers *buffers;
	struct scry_calls *calls;
	struct scry_calls_kernel *kernel;     /* -S; NULL */
	uint64_t kernel_until;		      /* TSC: system calls are taken up to there */
	struct scry_calls_signals *signals;   /* signals.h; NULL: none */
	int signals_error;		      /* why there are none; 0: not wanted */
	uint32_t signals_pid;		      /* whose signals it gets; 0: no process's yet */
	uint64_t handlers_ns;		      /* with signals_error: when it was looked for */
	bool handles_signals;		      /* the program: it has a handler for one */
	uint32_t own_number;		      /* its pid in its pid namespace; 0: the same */
	struct scry_calls_children *children; /* -S -f: children.h; NULL: none yet */
	struct scry_calls_break *breaks;      /* the engine; NULL: hooks */
	struct scry_call_plans plans;
	struct scry_calls_errno error; /* errno.h */
	struct scry_protos *debug;     /* prototypes from debug information */
	struct scry_calls_traced *functions;
	uint32_t count, room, reported;
	size_t first;			       /* request that is the user's */
	const struct scry_shadow_stats *stats; /* one, the sum */
	struct scry_loading_look look;
	uint64_t live_ns;
	bool has_children;
	uint64_t size_ns;
	bool is_leaving, is_left, is_ahead;
	bool is_behind; /* there is more to be written */
	/* -w */
	struct scry_unwinding unwinding;
	struct scry_modules *native;
	struct scry_native_stacks *stacks;
	struct scry_calls_ruby ruby; /* -k */
	uint32_t guards;	     /* requests at the end: not the user's */
	bool is_unsure;
	/* of a fork child */
	struct scry_calls_watch *root; /* whose functions these are; NULL: it was entered */
	uint32_t child_pid;	       /* which it is, as its child buffer said first */
	bool is_of_root;	       /* `calls` are the root's: children.h */
	bool is_identified;
};

/* Of process `pid`, or a part of it: numbers in the recording begin anew with each program that a
 * pid runs, and do not mix. */
struct scry_calls_opts scry_calls_functions_opts(const struct scry_watch *w, uint32_t pid,
						 uint32_t image);
/* What the stubs give to the agent: functions of rows that have a way get numbers, new ones behind
 * those that are known; `d` NULL: without debug information. 0 or -errno with a sentence. */
int scry_calls_functions_fill(struct scry_calls_watch *t, struct scry_hooks *h,
			      struct scry_calls_debug *d);
/* As struct scry_calls_kernel_take wants it; `arg` is the watch's. */
int scry_calls_functions_syscall(void *arg, const char *symbol, const char *prototype,
				 uint32_t *ret_args);
/* A FUNCTION event. 0 or the writer's error. */
int scry_calls_functions_report(struct scry_watch *w, const struct scry_calls_traced *f,
				uint32_t pid, uint32_t number);
/* All, with what was recorded of their calls. */
void scry_calls_functions_forget(struct scry_calls_watch *t);

#endif
