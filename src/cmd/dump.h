/* What `scry dump` has found out about the threads of a process, and how it finds it out. */
#ifndef SCRY_CMD_DUMP_H
#define SCRY_CMD_DUMP_H

#include "base/buf.h"
#include "name/thread_state.h"
#include "name/mixed_merge.h"
#include "sys/core.h"
#include "sys/proc.h"
#include "vm/ruby_symbol.h"

struct scry_stw;
struct scry_dump_native;
struct scry_fibers;
struct scry_dump_frame {
	bool is_native;	  /* of native code: path is its object, name its symbol or "" */
	uint64_t address; /* of a native one: its pc */
	uint64_t offset;  /* of a native one: from the symbol, else from the object */
	const char *path, *name, *label; /* of scry_dump.symbols; of C, the caller's path */
	uint32_t line;
	bool is_c;
};

enum scry_dump_lock_kind {
	SCRY_DUMP_LOCK_NONE,
	SCRY_DUMP_LOCK_MUTEX,
	SCRY_DUMP_LOCK_MONITOR,
	SCRY_DUMP_LOCK_SLEEP, /* Mutex#sleep: no thread keeps it waiting */
	SCRY_DUMP_LOCK_QUEUE,
	SCRY_DUMP_LOCK_ROOM, /* in a SizedQueue */
	SCRY_DUMP_LOCK_CONDITION,
	SCRY_DUMP_LOCK_THREAD, /* its end */
};

struct scry_dump_lock { /* what a thread waits for */
	enum scry_dump_lock_kind kind;
	uint64_t object; /* VALUE */
	const char *class;
	size_t class_length;
	uint64_t self_at, cfp; /* where it was read; the thread's newest frame then */
	size_t owner;	       /* index of the thread that holds it; else the count of threads */
	bool is_other_fiber;   /* a fiber of that thread's does, which is not its present one */
	bool is_any_fiber, is_free, is_in_cycle; /* is_any_fiber: its present one or another */
	bool is_timed;	       /* within Timeout.timeout, which may end the wait */
	const char *why;       /* the owner is not known, because; NULL */
	size_t cycle;	       /* is_in_cycle: index of its first thread */
	size_t first, waiters; /* the first that waits for this object; of that one: how many do */
};

struct scry_dump_thread {
	struct scry_ruby_thread ruby;
	char name[256]; /* the program's, else the kernel's */
	enum scry_thread_state state;
	char wait[512]; /* "read(7), pipe"; "" */
	enum scry_walk_verdict verdict;
	bool is_other;		   /* it runs no Ruby: native frames only */
	bool is_left_out;	   /* its frames were not read: those of others fill the room */
	bool is_cut, has_signal;   /* has_signal: it is the one that the core's signal hit */
	bool is_running, is_apart; /* no native frames: it runs; Ruby's could not be merged in */
	enum scry_native_end end;  /* of its native frames */
	size_t native_count;
	size_t unnamed;			/* frames that could not be named */
	struct scry_dump_frame *frames; /* the newest first */
	size_t count;
	struct scry_dump_lock lock;
	size_t same_as; /* index of the first thread with the same frames and wait; its own */
	size_t alike, next_alike, last_alike; /* of the first: how many; their list, 0 ends it */
};

struct scry_dump_place {		 /* where fibers wait */
	struct scry_dump_thread *thread; /* its frames; nothing else of it is set */
	uint64_t fibers;
};

struct scry_dump {
	struct scry_proc proc;	/* of a core: pid and comm */
	struct scry_core *core; /* NULL: it lives */
	const char *core_path;
	bool is_odd; /* the core's state is not all as a Ruby's should be */
	struct scry_ruby *ruby;
	struct scry_symbols symbols;
	struct scry_dump_native *native; /* NULL: native frames are not wanted */
	struct scry_dump_thread *threads;
	size_t count;
	size_t others;		   /* tasks that run no Ruby */
	size_t cycles;		   /* of threads that wait for each other */
	size_t left_out;	   /* threads without frames: there was no room for more */
	bool has_fibers;	   /* they were looked for */
	bool is_late;		   /* but not to the end */
	uint64_t unsearched;	   /* bytes, too many to look for them without being asked */
	char fibers_error[256];	   /* why they could not be; "" */
	struct scry_fibers *found; /* has the texts of places */
	struct scry_dump_place *places;
	size_t place_count;
	uint64_t suspended, pause_ns;
	int64_t wall_s; /* since 1970: now, or when the core was written */
};

/* What it waits for, into t->wait; t->state is known. */
void scry_dump_wait(const struct scry_dump *d, const struct scry_task_now *now,
		    struct scry_dump_thread *t);
/* What its newest method waits for, into t->lock, without the owner. `frames` as for merging. */
void scry_dump_lock_find(struct scry_dump *d, const struct scry_walk *w,
			 const struct scry_dump_frame *frames, struct scry_dump_thread *t);
/* Which threads hold what others wait for, and cycles. is_held: no thread runs. 0 or -ENOMEM. */
int scry_dump_lock_owners(struct scry_dump *d, bool is_held);

/* Fibers that do not run; where memory is big, only if is_asked. 0 or -errno with a sentence. */
int scry_dump_fibers_take(struct scry_dump *d, bool is_asked);
void scry_dump_fibers_done(struct scry_dump *d);
/* Opens a core and its Ruby; `exe` as scry_core_open's program. 0 or -errno with a sentence;
 * d->core is to be closed in any case. */
int scry_dump_core_open(struct scry_dump *d, const char *path, const char *exe);
/* States of the threads, from the registers that the core has. */
void scry_dump_core_states(struct scry_dump *d);
/* Takes native frames too, from now on. 0 or -errno with a sentence. */
int scry_dump_native_open(struct scry_dump *d);
void scry_dump_native_close(struct scry_dump *d);
/* The stack of one thread: its control frames by `w`, its native ones; `world` NULL: no
 * thread is stopped. Into t->verdict and t->frames. 0 or -ENOMEM. */
int scry_dump_stack(struct scry_dump *d, const struct scry_stw *world, struct scry_walk *w,
		    struct scry_dump_thread *t);

/*
 * The native frames of a thread as it is now. False: they are not of one moment, ask again. `rests`
 * says afterwards whether the thread has stood still since.
 */
struct scry_dump_look {
	struct scry_task task;
	struct scry_task_now now;
	bool is_live; /* nothing holds it */
};
void scry_dump_native_walk(struct scry_dump *d, const struct scry_stw *world,
			   struct scry_dump_thread *t, struct scry_dump_look *look);
bool scry_dump_native_rests(struct scry_dump_look *look);
/* Its stack, merged, into t->frames; `ruby` are the visible ones of w->frames, the others are
 * without a name. 0 or -ENOMEM. */
int scry_dump_mixed_merge(struct scry_dump *d, const struct scry_walk *w,
			  const struct scry_dump_frame *ruby, struct scry_dump_thread *t);

/* Prints the document: text, or with `is_json` scry.dump/3. 0 or -errno with a sentence. */
int scry_dump_push(const struct scry_dump *d, uint64_t depth, bool is_json);

#endif
