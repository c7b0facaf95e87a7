/*
 * A table of frames (view/frames.h) as a tree for people: from the outermost frame inwards, the
 * biggest branch first. A chain of frames with one branch each is not indented; `+` begins a
 * branch.
 *
 * The caller has a figure for each frame, in which the frames below it are included. Branches below
 * 1 % are left out, and summed up in a remark.
 */
#ifndef SCRY_VIEW_FRAME_TREE_H
#define SCRY_VIEW_FRAME_TREE_H

#include "base/buf.h"
#include "view/doc.h"
#include "view/frames.h"

struct scry_frame_tree {
	const struct scry_frames *frames;
	const struct scry_intern
		*names;	      /* of the frames: branches of equal size come in their order */
	struct scry_doc *doc; /* its table is open */
	uint64_t top;	      /* rows at most; 0: all */
	/* By a frame's id; 0: of all together. */
	uint64_t (*figure)(const void *arg, uint32_t id);
	/* Is there anything of it at all? What is not is not counted as left out. */
	bool (*is_there)(const void *arg, uint32_t id);
	/* Pushes the frame's row. `line` holds what comes before its name. */
	void (*push)(void *arg, uint32_t id, struct scry_buf *line);
	void *arg;
};

/* Pushes rows and remarks. 0 or -ENOMEM with a sentence. */
int scry_frame_tree_push(const struct scry_frame_tree *tree);

#endif
