/*
 * Which code (iseq) came into being when, and what it is called: from the records of a probe in the
 * kernel (wire/iseq_event.h), so that names are known also of code that is gone, or whose memory is
 * other code's, before it is asked about.
 *
 * A pc with a time is one piece of code: no code runs that was not born before, its instructions
 * are never moved, and what has its instructions in their memory was born when they were dead. (Its
 * iseq, an object, may be moved by a compaction, to where another was born.) Code that was there
 * before the probe has no birth; then memory is asked.
 *
 * Code loaded from binary form is born nameless; its name is read from memory a moment later.
 * Bounded: SCRY_ISEQ_LOG_MAX pieces of code; of each address the last, and those that made room
 * since SCRY_ISEQ_LOG_KEPT_NS, at most SCRY_ISEQ_LOG_DEEP.
 */
#ifndef SCRY_VM_RUBY_ISEQ_LOG_H
#define SCRY_VM_RUBY_ISEQ_LOG_H

#include "base/map.h"
#include "vm/ruby_iseq.h"
#include "wire/iseq_event.h"

#define SCRY_ISEQ_LOG_MAX (1u << 20)
#define SCRY_ISEQ_LOG_DEEP 64u
#define SCRY_ISEQ_LOG_KEPT_NS 1000000000u

struct scry_born {
	struct scry_ruby_iseq code;
	uint64_t time_ns, number; /* number: 1, 2, ... in the order of their records */
	const char *path, *label; /* NULL: not known (yet) */
	uint64_t died_ns;	  /* by then: others were born in its memory */
	uint32_t first_line;
	uint32_t line_count;   /* of its line entries that are known; ascending by position */
	bool is_whole;	       /* they are all that there are */
	const uint32_t *lines; /* pairs: position, line */
	uint32_t older;	       /* row + 1 of the one before at this address */
	void *memory;	       /* of texts and lines */
};

struct scry_iseq_log_sums {
	uint64_t born;		      /* records taken */
	uint64_t bad;		      /* records that made no sense */
	uint64_t dropped;	      /* beyond a limit */
	uint64_t late;		      /* born nameless, named from memory later */
	uint64_t nameless;	      /* and gone before */
	uint64_t agree, differ, gone; /* comparisons with memory */
};

struct scry_iseq_log_node {
	uint32_t row, next; /* + 1 */
};

struct scry_iseq_log {
	const struct scry_ruby_layout *layout;
	struct scry_map at;    /* iseq -> row + 1 of its newest */
	struct scry_map pages; /* of instructions -> node + 1: those that live there */
	struct scry_iseq_log_node *nodes;
	uint32_t node_count, node_room, node_free; /* free: + 1 */
	struct scry_born *rows;			   /* not moved but by scry_iseq_log_add */
	uint32_t count, room;
	uint32_t *waiting; /* rows + 1 that wait for their names; a row that was reused is not it */
	uint32_t waiting_count, waiting_room;
	uint64_t sure_from_ns;
	struct scry_iseq_log_sums sums;
	void (*take)(void *from); /* adds the records that are there by now; NULL: none does */
	void *from;
};

/* What the probe has to know of this Ruby. 0, or -ENOTSUP with a sentence: its table of lines is
 * not as the probe reads it. */
int scry_iseq_log_layout(const struct scry_ruby_layout *layout, struct scry_iseq_event_layout *ret);

/* `layout` stays the caller's. */
void scry_iseq_log_init(struct scry_iseq_log *b, const struct scry_ruby_layout *layout);
void scry_iseq_log_done(struct scry_iseq_log *b);

/* Takes a record; any bytes are legal. 0 or -ENOMEM. */
int scry_iseq_log_add(struct scry_iseq_log *b, const void *record, size_t size);

/* Records have been lost before `time_ns`: what is known till then may have been followed by
 * others. */
void scry_iseq_log_doubt(struct scry_iseq_log *b, uint64_t time_ns);

/* Names from memory what was born nameless. Once in a while, some milliseconds later. */
void scry_iseq_log_name_late(struct scry_iseq_log *b, const struct scry_ruby *ruby);

/*
 * The code in which `pc` was at `time_ns` (CLOCK_MONOTONIC), in a frame whose iseq was at `iseq`.
 * NULL: it was not born since the probe is on, or it is not sure. *ret_is_newest: nothing was born
 * since, as far as is known, in what this frame points to: memory may still have it. Valid until
 * the next add.
 */
struct scry_iseq_event_ask {
	uint64_t iseq, pc, time_ns;
};
const struct scry_born *scry_iseq_log_find(const struct scry_iseq_log *b,
					   const struct scry_iseq_event_ask *ask,
					   bool *ret_is_newest);

/* Line of word position `pos`: 0; -ENOENT: the code has no lines; -ENODATA: it was not reported. */
int scry_born_line(const struct scry_born *born, uint32_t pos, uint32_t *ret);

/* Compares what was reported with what memory says, of all code that is still there, up to `most`
 * pieces of it: names, first line, the line of each entry. Into the sums. */
void scry_iseq_log_compare(struct scry_iseq_log *b, const struct scry_ruby *ruby, uint32_t most);

#endif
