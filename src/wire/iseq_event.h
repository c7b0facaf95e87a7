/*
 * What the kernel's probe reports of a Ruby's code (iseq) at the moment at which it comes into
 * being: the spine between bpf/iseq_events and vm/ruby_iseq_log.
 *
 * The moment is rb_iseq_insns_info_encode_positions(iseq), which every iseq passes once, compiled
 * or loaded from binary form, before it can run; its table of lines is still a plain one. Code
 * loaded from binary form has neither path nor label yet.
 *
 * Layout of a record: the head; then label, path, positions and line entries, each at the place
 * where its room ends. The rooms are in the head, so that there is one reader for both sizes.
 */
#ifndef SCRY_WIRE_ISEQ_EVENT_H
#define SCRY_WIRE_ISEQ_EVENT_H

#include <stdint.h>

/* Rooms of the small and the large record; what fits into neither is cut and said to be. */
#define SCRY_ISEQ_EVENT_LABEL_SMALL 128u
#define SCRY_ISEQ_EVENT_PATH_SMALL 256u
#define SCRY_ISEQ_EVENT_LINES_SMALL 48u
#define SCRY_ISEQ_EVENT_LABEL_LARGE 1024u
#define SCRY_ISEQ_EVENT_PATH_LARGE 4096u
#define SCRY_ISEQ_EVENT_LINES_LARGE 1024u
#define SCRY_ISEQ_EVENT_ENTRY_MAX 12u /* bytes of one line entry, most */
#define SCRY_ISEQ_EVENT_BODY 192u     /* bytes of a body that are read: all that the layout has */
#define SCRY_ISEQ_EVENT_OBJECT 40u    /* of a String or Array: the smallest slot */
#define SCRY_ISEQ_EVENT_NO_TEXT 0xffffffffu

/* Offsets in bytes, as in scry_ruby_layout; the host fills it in before the program is loaded. */
struct scry_iseq_event_layout {
	uint64_t string_noembed, string_embed_len_mask, array_embed;
	uint32_t iseq_body, body_encoded, body_size, body_path, body_label, body_first_line;
	uint32_t entries, positions, count; /* of the line table, from the body */
	uint32_t entry_size;
	uint32_t string_ptr, string_len, string_embed, string_embed_len_shift;
	uint32_t array_embed_ptr, array_ptr;
};

struct scry_iseq_event {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t iseq, body, encoded;
	uint32_t size;			/* words of code */
	uint32_t first_line;		/* the word as it is there */
	uint32_t label_size, path_size; /* of the texts, may exceed the room; NO_TEXT: none yet */
	uint32_t line_count;		/* likewise */
	uint16_t label_room, path_room, line_room, reserved;
	uint64_t process; /* as the probe in it is numbered */
};

_Static_assert(sizeof(struct scry_iseq_event) == 72, "the texts follow it");

#define SCRY_ISEQ_EVENT_SIZE(label, path, lines)             \
	(sizeof(struct scry_iseq_event) + (label) + (path) + \
	 (lines) * (4u + SCRY_ISEQ_EVENT_ENTRY_MAX))
#define SCRY_ISEQ_EVENT_SMALL                                                         \
	SCRY_ISEQ_EVENT_SIZE(SCRY_ISEQ_EVENT_LABEL_SMALL, SCRY_ISEQ_EVENT_PATH_SMALL, \
			     SCRY_ISEQ_EVENT_LINES_SMALL)
#define SCRY_ISEQ_EVENT_LARGE                                                         \
	SCRY_ISEQ_EVENT_SIZE(SCRY_ISEQ_EVENT_LABEL_LARGE, SCRY_ISEQ_EVENT_PATH_LARGE, \
			     SCRY_ISEQ_EVENT_LINES_LARGE)

enum { /* indices of the counters */
       SCRY_ISEQ_EVENT_SEEN,
       SCRY_ISEQ_EVENT_LOST,   /* no room in the ring */
       SCRY_ISEQ_EVENT_UNREAD, /* the head of the code could not be read */
       SCRY_ISEQ_EVENT_COUNTS
};

#endif
