/*
 * The fibers of a process or a core, seen from outside: stacks that programs switch between by
 * themselves, which the kernel knows nothing of. No thread is stopped, nothing is written.
 *
 * Each kind has a finder of its own, which says what it has found by scry_fibers_add; what is found
 * is put into groups of equal kind, state and stack. A fiber counts as suspended when CFI walks
 * from its saved registers to the entry of its context, and what was saved is the same afterwards.
 *
 * Life: open, finders in the order of fibers.c, close. One thread. The target is hostile and goes
 * on running: everything is checked, every table has a limit, what does not fit is counted. It may
 * also end, or execute another program: whoever shows what was found asks scry_mem_check_alive of
 * `mem` first.
 */
#ifndef SCRY_NAME_FIBERS_H
#define SCRY_NAME_FIBERS_H

#include "base/intern.h"
#include "name/fiber_blocks.h"
#include "name/fiber_marks.h"
#include "name/fiber_walk.h"
#include "sys/modules.h"
#include "sys/served.h"
#include "vm/ruby_symbol.h"

#define SCRY_FIBERS_MAX (1u << 21)
#define SCRY_FIBER_GROUPS_MAX (1u << 20)

enum scry_fiber_kind {
	SCRY_FIBER_SCRYFIBER,
	SCRY_FIBER_RUBY,
	SCRY_FIBER_UCONTEXT,
	SCRY_FIBER_BOOST,
	SCRY_FIBER_OTHER, /* a stack; its switch is not known */
	SCRY_FIBER_KINDS,
};

enum scry_fiber_state {
	SCRY_FIBER_SUSPENDED,
	SCRY_FIBER_NEW, /* has a stack and did not begin yet */
	SCRY_FIBER_RUNNING,
	SCRY_FIBER_CHANGED, /* it ran while it was read */
	SCRY_FIBER_ENDED,   /* its function has returned; its stack is there still */
	SCRY_FIBER_UNKNOWN, /* what it does is not known */
	SCRY_FIBER_STATES,
};

/* A frame as one word: a native one is its pc with the bit "exact", a Ruby one has RUBY set and is
 * its symbol and line. The newest first. */
#define SCRY_FIBER_FRAME_RUBY (1ull << 63)
#define SCRY_FIBER_FRAME_EXACT (1ull << 62)
#define SCRY_FIBER_FRAMES_MAX (SCRY_UNWINDER_FRAMES_MAX + 256u)

struct scry_found_fiber {
	uint64_t low, top;    /* of its stack; low 0: where it ends is not known */
	uint64_t guard_bytes; /* 0: none, or not known */
	uint64_t used_bytes;  /* from its top to the lowest page that has contents */
	uint64_t left_bytes;  /* below that, to its end */
	uint64_t there_bytes; /* in memory */
	uint32_t name;	      /* id in scry_fibers.names; 0: none */
	uint32_t group;	      /* index */
	int32_t tid;	      /* of the thread that it belongs to, as the program counts; 0 */
	bool has_guard, knows_guard, has_used;
};

struct scry_fiber_group {
	enum scry_fiber_kind kind;
	enum scry_fiber_state state;
	uint32_t stack; /* id in scry_fibers.stacks; 0: none */
	uint32_t word;	/* what its library calls its state, id in names; 0 */
	bool is_cut;	/* there are more frames */
	uint64_t count;
	uint64_t sized; /* of them with known bounds */
	uint64_t size_min, size_max, size_sum;
	uint64_t used_max, used_sum, used_count;
	uint64_t there_sum;
	uint64_t unguarded, guard_unknown;
	uint64_t example; /* index of the first, of SCRY_FIBERS_MAX or more: of none */
};

struct scry_fibers_sums {
	uint64_t found[SCRY_FIBER_KINDS][SCRY_FIBER_STATES];
	uint64_t threads, threads_running; /* of them ran when they were looked at, or since */
	uint64_t thread_stacks;
	uint64_t thread_contexts; /* contexts saved on threads' own stacks */
	uint64_t on_fibers;	  /* threads that wait on a fiber's stack */
	uint64_t unmanned;	  /* threads of a Ruby without one of the system */
	uint64_t spare_stacks;	  /* of a pool: no fiber has them */
	uint64_t spare_bytes;
	uint64_t stale;	       /* marks that are not a suspended context's */
	uint64_t several;      /* stacks with more than one context that may be theirs */
	uint64_t unled;	       /* stacks with contexts that no pointer leads to: not fibers */
	uint64_t unled_midway; /* threads that may have just left one of these */
	uint64_t freed;	    /* contexts, or their stacks, that were given back to malloc: as well */
	uint64_t unchecked; /* fibers of which this is not known */
	uint64_t unlisted;  /* beyond SCRY_FIBERS_MAX: in their groups, not in `all` */
	uint64_t lost;	    /* no memory, or no room in the groups */
	uint64_t bad;	    /* of a registry, or of a Ruby's: did not make sense */
	uint64_t schedulers; /* of libscryfiber */
	uint64_t unreadable; /* places for its fibers that are not there, as in gdb's cores */
};

struct scry_fibers_nearest {			/* to the end of its stack, or of its Ruby's own */
	uint64_t left_bytes, size_bytes, fiber; /* index; valid when has_one */
	bool has_one;
};

struct scry_fibers {
	struct scry_space space;
	struct scry_mem mem;
	struct scry_maps maps;
	struct scry_served served; /* files that cannot be read now */
	struct scry_pages pages;
	struct scry_unwinder *unwinder;
	struct scry_modules *native;
	struct scry_fiber_marks marks;
	struct scry_fiber_walker walker;
	struct scry_ruby *ruby;	       /* NULL: none, or it cannot be read */
	char ruby_error[512];	       /* why not; "" */
	struct scry_symbols symbols;   /* with a ruby */
	struct scry_intern names;      /* of fibers, and of states */
	struct scry_intern stacks;     /* of frames, uint64_t each */
	struct scry_intern group_keys; /* kind, state, stack, word -> index + 1 */
	struct scry_fiber_group *groups;
	struct scry_found_fiber *all;
	size_t count, room, group_room;
	struct scry_fiber_task *tasks;
	size_t task_count;
	struct scry_fiber_stand *stands; /* ascending by sp */
	size_t stand_count;
	struct scry_fibers_sums sums;
	struct scry_fibers_nearest nearest, nearest_vm;
	struct scry_fiber_budget budget;
	struct scry_fiber_blocks blocks;
	uint64_t total;	       /* fibers, with those that are not in `all` */
	uint64_t mapped_bytes; /* of stacks with known bounds */
	uint64_t used_bytes, there_bytes;
	uint64_t frames[SCRY_FIBER_FRAMES_MAX]; /* of the one that is being added */
};

/* Looks at all, and judges what it finds, in `most_ns` of processor time (0: as long as it takes).
 * `space` is of a live process or of a core, which outlives it. 0 or -errno with a sentence; *ret
 * is to be closed. */
int scry_fibers_open(const struct scry_space *space, uint64_t most_ns, struct scry_fibers **ret);
void scry_fibers_close(struct scry_fibers *f); /* NULL is legal */

/* The frames of a group's stack: their count. */
size_t scry_fibers_frames(const struct scry_fibers *f, uint32_t stack,
			  uint64_t ret[SCRY_FIBER_FRAMES_MAX]);

#endif
