/*
 * The control frames of a thread that goes on running, read from outside: nothing is stopped, no
 * lock is taken.
 *
 * What runs while it is read may be torn: a caller's pc that belongs to the next call. So frames
 * are collected until two collects in a row are the same. VALID: they were, in cfp and in iseq, ep
 * and pc of every frame, but for the pc of the newest, the one word that moves while its frame
 * runs, and which is read by a single load. REPAIRED: they never were; kept is what the last two
 * have in common, from the oldest frame up to the newest that both have. REJECTED: that is nothing,
 * or not a stack. VM_STOPPED is not needed, but makes every collect equal.
 *
 * Frames: vm_core.h, rb_control_frame_t; the flag word at ep and the words below it:
 * VM_ENV_DATA_INDEX_*.
 */
#ifndef SCRY_VM_RUBY_WALK_H
#define SCRY_VM_RUBY_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vm/ruby.h"

#define SCRY_WALK_FRAMES_MAX 2048u /* the newest; a deeper stack is_cut */

enum scry_walk_verdict {
	SCRY_WALK_VALID,
	SCRY_WALK_REPAIRED,
	SCRY_WALK_REJECTED,
	SCRY_WALK_EMPTY, /* the thread has no frames: it starts or ends */
};

struct scry_walk_frame {
	uint64_t pc, iseq, ep, self;
};

struct scry_walk {
	uint64_t ec, cfp, end; /* end: behind the oldest frame */
	size_t count;	       /* of frames, the newest first */
	struct scry_walk_frame *frames;
	bool is_cut;
	bool is_newest; /* frames[0] is the newest frame, and not only the newest that is kept */
	unsigned int collects;
	/* private: two collects, and room for them */
	uint8_t *bytes[2];
	uint64_t cfps[2];
	size_t room; /* bytes of each */
	struct scry_walk_frame *older;
	uint64_t guess; /* cfp of the last walk */
};

/* Sets up; scry_walk_done frees. 0 or -ENOMEM. */
int scry_walk_init(struct scry_walk *w);
void scry_walk_done(struct scry_walk *w);

/*
 * Collects the frames of the thread `th` whose execution context is `ec`. The frames are in
 * w->frames until the next call. At most `tries` collects, 2 at least.
 */
enum scry_walk_verdict scry_walk_collect(struct scry_walk *w, const struct scry_ruby *ruby,
					 const struct scry_ruby_thread *t, unsigned int tries);

/* Frame types in the flag word at ep (vm_core.h, VM_FRAME_MAGIC_*), upper half. */
#define SCRY_FRAME_TYPE(flags) ((uint32_t)(flags) >> 16 & 0x7fff)
#define SCRY_FRAME_IS_DUMMY(flags) (SCRY_FRAME_TYPE(flags) == 0x7999)
#define SCRY_FRAME_IS_LOCAL(flags) ((flags)&2) /* VM_ENV_FLAG_LOCAL: ep is the method's own */

#endif
