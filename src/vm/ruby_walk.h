/*
 * The control frames of a thread that goes on running, read from outside: nothing is stopped, no
 * lock is taken.
 *
 * What runs while it is read may be torn: a caller's pc that belongs to the next call. So frames
 * and their environments are collected until two collects in a row are the same. VALID: they were,
 * in cfp and in iseq, ep, method entry and pc of every frame, but for the pc of the newest, the one
 * word that moves while its frame runs, and which is read by a single load. REPAIRED: they never
 * were; kept is what the last two have in common, from the oldest frame up to the newest that both
 * have. REJECTED: that is nothing, or no stack.
 *
 * A thread that lost its processor while it pushes or pops a frame does not run, and collects are
 * equal: cfp may have moved and the new frame's words not be there yet. So a newest frame that does
 * not fit the method entry of its environment, or that has executed its `leave`, is left out: it is
 * not there yet, or no more.
 *
 * What frames lead to stays what it is between two collections of garbage (ruby_gc.h), and is then
 * read once: environments on the heap, and whether a newest frame is there.
 *
 * Frames: vm_core.h, rb_control_frame_t; the words at and below ep: VM_ENV_DATA_INDEX_*.
 */
#ifndef SCRY_VM_RUBY_WALK_H
#define SCRY_VM_RUBY_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vm/ruby.h"
#include "vm/ruby_gc.h"

#define SCRY_WALK_FRAMES_MAX 2048u /* the newest; a deeper stack is_cut */
#define SCRY_WALK_TRIES 10u

enum scry_walk_verdict {
	SCRY_WALK_VALID,
	SCRY_WALK_REPAIRED,
	SCRY_WALK_REJECTED,
	SCRY_WALK_EMPTY, /* the thread has no frames: it starts or ends */
};

struct scry_walk_frame {
	uint64_t pc, iseq, ep;
	uint64_t flags; /* the word at ep; 0: the environment was not read */
	uint64_t entry; /* of the method that this is, or is in: entry, or what is there; 0 */
};

struct scry_walk_hint { /* kept by the caller for each thread, zeroed: saves reads */
	uint64_t ec, stack, end, cfp, top, newest;
};

#define SCRY_WALK_KEPT 1024u
struct scry_walk_env { /* an environment on the heap */
	uint64_t ep, words[3], epoch;
};
struct scry_walk_newest { /* was such a newest frame there? */
	uint64_t pc, iseq, entry, flags, epoch;
	bool is_passing;
};

/* What a newest frame leads to, zeros where that is not there: the word before its pc, the flags of
 * its method entry, the code of that one's definition. */
struct scry_walk_leads {
	uint64_t word, flags, code;
};

/* Of a thread that stood still: what was at [cfp, cfp + frames_size), and at [bottom, top) of its
 * values. */
struct scry_walk_copy {
	uint64_t ec, stack, end, cfp, bottom, top; /* as in struct scry_walk */
	const void *frames, *values;
	size_t frames_size;
	struct scry_walk_leads newest;
	/* as it stood then; zeros where it was another one before this call: then nothing that was
	 * read once is used again */
	struct scry_ruby_gc_now gc;
};

struct scry_walk_side;
struct scry_walk {
	uint64_t stack, end; /* end: behind the oldest frame */
	uint64_t ec, cfp;    /* ec; of a copy that was taken: its newest frame */
	uint64_t ec_now;     /* the thread's, at the last look: another one while a fiber runs */
	size_t count;	     /* of frames, the newest first */
	struct scry_walk_frame *frames;
	bool is_cut;
	bool is_moved;	 /* its newest frame was another one in the course of the last look */
	bool is_dropped; /* a newest frame that was not there yet, or no more, was left out */
	bool has_read;	 /* of a copy: environments outside it were read, now */
	unsigned int collects;
	uint64_t time_ns; /* CLOCK_MONOTONIC at which all frames were there; 0: not known */
	struct scry_walk_side *sides[2]; /* the last two collects */
	struct scry_ruby_gc gc;
	bool is_still;	  /* the caller's: what is walked does not run, or was between two
			     instructions: one look is enough, its newest frame is there */
	uint64_t gc_heap; /* 0: nothing is known of the collector */
	struct scry_ruby_gc_now now;  /* of it, when the last collect had its frames */
	struct scry_ruby_gc_now seen; /* the same, as it was after seen_ns */
	uint64_t seen_ns;
	struct scry_walk_env *envs;   /* [SCRY_WALK_KEPT], by their addresses */
	struct scry_walk_newest *top; /* [SCRY_WALK_KEPT] */
};

/* Sets up; scry_walk_done frees. 0 or -ENOMEM. */
int scry_walk_init(struct scry_walk *w);
void scry_walk_done(struct scry_walk *w);

/* CLOCK_MONOTONIC. */
uint64_t scry_walk_now_ns(void);
/* For walks of this process: looks for its collector. Without it, every word is read each time. */
void scry_walk_watch_gc(struct scry_walk *w, const struct scry_ruby *ruby);

/* Collects the frames of `t`, at most `tries` times, 2 at least. They are in w->frames until the
 * next call. `hint` may be NULL. */
enum scry_walk_verdict scry_walk_collect(struct scry_walk *w, const struct scry_ruby *ruby,
					 const struct scry_ruby_thread *t,
					 struct scry_walk_hint *hint);

/* The same of a copy, which was not torn. Environments outside it (on the heap) are read now. */
enum scry_walk_verdict scry_walk_take(struct scry_walk *w, const struct scry_ruby *ruby,
				      const struct scry_walk_copy *copy);

/*
 * Was no collection counted from `then` to some moment after `since_ns`? What was on a stack then
 * was not freed until that moment, but for one that was marking.
 */
bool scry_walk_is_same_epoch(struct scry_walk *w, const struct scry_ruby *ruby,
			     const struct scry_ruby_gc_now *then, uint64_t since_ns);

/* What was kept of environments may be wrong: it is read again. */
void scry_walk_forget(struct scry_walk *w);

/* How many of the frames taken, from the oldest, are there now: in the thread, with the same code
 * and environment. What they point to was not freed since. */
size_t scry_walk_alive(const struct scry_walk *w, const struct scry_ruby *ruby);

/*
 * The method entry that `entry` stands for: itself, or that of a special variable's cell. 0: none,
 * as in a class body.
 */
uint64_t scry_walk_entry(const struct scry_ruby *ruby, uint64_t entry);

/* Frame types in the flag word at ep (vm_core.h, VM_FRAME_MAGIC_*). */
#define SCRY_FRAME_TYPE(flags) ((uint32_t)(flags) >> 16 & 0x7fff)
#define SCRY_FRAME_METHOD 0x1111u
#define SCRY_FRAME_CFUNC 0x5555u
#define SCRY_FRAME_DUMMY 0x7999u
#define SCRY_FRAME_IS_LOCAL(flags) ((flags)&2) /* VM_ENV_FLAG_LOCAL: ep is the method's own */

#endif
