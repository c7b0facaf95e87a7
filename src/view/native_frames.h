/*
 * Stacks of single calls, native ones and a Ruby's: the callers; and the callers of malloc, seen
 * through the functions that only hand the question on.
 */
#ifndef SCRY_VIEW_NATIVE_FRAMES_H
#define SCRY_VIEW_NATIVE_FRAMES_H

#include "base/buf.h"
#include "base/map.h"
#include "rec/reader.h"
#include "view/doc.h"

#include <stdbool.h>
#include <stdint.h>

#define SCRY_NATIVE_DEPTH 520u

struct scry_native_frames {
	struct scry_ev_stack *frames;
	uint32_t count, cap;
	struct scry_map places; /* id -> place in `frames` */
	struct scry_map
		pairs; /* of a place without a name and one that it was called from: hashes */
	struct scry_map hubs; /* place -> from how many it was called */
};

/* Takes a STACK event. 0 or -ENOMEM with a sentence. */
int scry_native_frames_event(struct scry_native_frames *s, const struct scry_ev_stack *stack);
void scry_native_frames_done(struct scry_native_frames *s);

/* What a native frame is called: its symbol, demangled; libfoo.so+0x12; or [unknown]. */
void scry_native_frame_name(const struct scry_doc_frame *frame, struct scry_buf *buf);

/* Is it the name of a function that allocates for others: malloc, operator new, xmalloc,
 * rb_xmalloc, strdup, std::allocator? By its name alone; see the table in native_frames.c. What has
 * no name is one when it is called from sixteen places or more. */
bool scry_native_is_wrapper(const char *symbol);

/* Lines as ltrace shows them, the innermost first: " > libfoo.so(sym+0x12) [7f12]"; of a Ruby
 * " > lib/foo.rb:12  method". */
void scry_native_frames_lines(const struct scry_native_frames *s, const struct scry_reader *reader,
			      uint32_t id, struct scry_buf *buf);

/* Where its innermost frame, of native code, goes on; 0: not known. */
uint64_t scry_native_frames_address(const struct scry_native_frames *s, uint32_t id);

/* Is it a stack of native code? */
bool scry_native_frames_are(const struct scry_native_frames *s, uint32_t id);

/* The innermost frame that is not a wrapper; the innermost of all, where all are. NULL: no stack.
 */
const struct scry_ev_stack *scry_native_frames_caller(const struct scry_native_frames *s,
						      const struct scry_reader *reader,
						      uint32_t id);

/* Of a Ruby stack: the innermost frame that is not in a gem or Ruby's own library; the innermost of
 * all, where all are. NULL: it is none. */
const struct scry_ev_stack *scry_native_frames_line(const struct scry_native_frames *s,
						    const struct scry_reader *reader, uint32_t id);

/* "main > parse > strdup", outermost first. */
void scry_native_frames_put(const struct scry_native_frames *s, const struct scry_reader *reader,
			    uint32_t id, struct scry_buf *buf);

/* The same for renderers, outermost first: how many. */
uint32_t scry_native_frames_all(const struct scry_native_frames *s,
				const struct scry_reader *reader, uint32_t id,
				struct scry_doc_frame ret_frames[SCRY_NATIVE_DEPTH]);

#endif
