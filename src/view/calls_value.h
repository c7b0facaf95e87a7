/*
 * Arguments and results as ltrace shows them, by a prototype (proto/type.h) and what was recorded:
 * as text, or as values for JSON.
 */
#ifndef SCRY_VIEW_CALLS_VALUE_H
#define SCRY_VIEW_CALLS_VALUE_H

#include "base/buf.h"
#include "view/calls_image.h"
#include "view/doc.h"

struct scry_call_values {	       /* zeroed: empty */
	struct scry_doc_value *values; /* their texts are owned */
	size_t count, room;
	bool failed;
	bool is_cut;  /* a text among them goes on behind what was recorded */
	bool is_long; /* pointers lead to more than is shown of a call */
	bool is_enum; /* the first one is the name of this number */
	struct scry_doc_value enumerated;
};
void scry_call_values_done(struct scry_call_values *v);

/* One of the two is where it goes to. */
struct scry_call_out {
	struct scry_buf *text;
	struct scry_call_values *values;
	uint64_t elements; /* of an array, at most; 0: SCRY_ARRAY_SHOWN */
};

/*
 * The arguments [from, to) of the prototype, with ", " between, also before the first one where
 * *need_comma says that something was shown before. Those that a format names come with `to` at
 * least the number of arguments.
 */
void scry_call_show_args(const struct scry_call_image *image, const struct scry_proto *proto,
			 uint32_t from, uint32_t to, bool *need_comma,
			 const struct scry_call_out *out);
/* image->ret is there. */
void scry_call_show_result(const struct scry_call_image *image, const struct scry_proto *proto,
			   const struct scry_call_out *out);

#endif
