/*
 * The callers of places: a tree of frames, each once, whatever recording it came from.
 *
 * A frame is its parent and what it shows, so equal stacks of two recordings get equal ids: that is
 * how the diff matches them. Ids are dense from 1 and a parent's is less than its child's, so sums
 * run up the tree in one loop from the last id to the first. Texts are ids of the caller's table.
 *
 * Limit: 16 Mi frames; beyond, a stack is cut at the frame that still fits.
 */
#ifndef SCRY_VIEW_FRAMES_H
#define SCRY_VIEW_FRAMES_H

#include "base/intern.h"
#include "base/map.h"
#include "rec/reader.h"
#include "view/doc.h"

struct scry_frame {
	uint32_t parent;	     /* 0: outermost */
	uint32_t file, line, method; /* NATIVE: line is the offset */
	uint32_t flags;		     /* SCRY_STACK_*, SCRY_FRAME_CLASS */
};
#define SCRY_FRAME_CLASS (1u << 31) /* not a frame: `method` is the class of what was made */

struct scry_frames {
	struct scry_intern keys;   /* struct scry_frame -> id */
	struct scry_map recording; /* id in the recording that is being read -> id here */
};

void scry_frames_init(struct scry_frames *frames);
void scry_frames_done(struct scry_frames *frames);

/* The id of this frame, new or known; its parent's at the limit. No hidden bytes in `frame`. */
uint32_t scry_frames_put(struct scry_frames *frames, const struct scry_frame *frame);

struct scry_frame scry_frames_get(const struct scry_frames *frames, uint32_t id);

/* -1, 0 or 1: the order of stacks by what is shown of them, from the leaves to the roots. Ids are
 * in the order of arrival, which two recordings of one program need not share. */
int scry_frames_compare(const struct scry_frames *frames, const struct scry_intern *names,
			uint32_t a, uint32_t b);

/* Another recording is read from now on: its ids mean other frames. */
void scry_frames_begin(struct scry_frames *frames);

/* Takes what a STACK event defines. The texts are put into `names`. */
void scry_frames_event(struct scry_frames *frames, struct scry_intern *names,
		       const struct scry_reader *reader, const struct scry_ev_stack *stack);

/* The frame that this id of the recording means; 0: none. */
uint32_t scry_frames_find(const struct scry_frames *frames, uint32_t recorded_id);

/* The text of a recording's string in `names`; 0 when it is unknown or the table is full. */
uint32_t scry_name_id(struct scry_intern *names, const struct scry_reader *reader, uint32_t str);

/* The text of an id in `names`; unknown for 0. */
struct scry_cell scry_name_text(const struct scry_intern *names, uint32_t id);

/* `leaf` and its callers as the cell of a row. `row` is scratch that grows; the caller frees its
 * frames. */
struct scry_frame_row {
	struct scry_doc_frame *frames;
	size_t cap;
};
struct scry_cell scry_frames_cell(const struct scry_frames *frames, const struct scry_intern *names,
				  const struct scry_frame *leaf, struct scry_frame_row *row);

#endif
