/*
 * The callers of places. See frames.h.
 */
#include "view/frames.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX (16u << 20)

_Static_assert(sizeof(struct scry_frame) == 20, "hashed as bytes: no padding");

void scry_frames_init(struct scry_frames *frames)
{
	scry_intern_init(&frames->keys, FRAMES_MAX, FRAMES_MAX * (sizeof(struct scry_frame) + 1));
	scry_map_init(&frames->recording, FRAMES_MAX);
}

void scry_frames_done(struct scry_frames *frames)
{
	scry_intern_done(&frames->keys);
	scry_map_done(&frames->recording);
}

uint32_t scry_frames_put(struct scry_frames *frames, const struct scry_frame *frame)
{
	uint32_t id;

	if (scry_intern_put(&frames->keys, (const char *)frame, sizeof(*frame), &id))
		return frame->parent;
	return id;
}

struct scry_frame scry_frames_get(const struct scry_frames *frames, uint32_t id)
{
	const char *bytes = scry_intern_get(&frames->keys, id, NULL);
	struct scry_frame frame = {0};

	if (bytes)
		memcpy(&frame, bytes, sizeof(frame));
	return frame;
}

void scry_frames_begin(struct scry_frames *frames)
{
	scry_map_done(&frames->recording);
	scry_map_init(&frames->recording, FRAMES_MAX);
}

uint32_t scry_name_id(struct scry_intern *names, const struct scry_reader *reader, uint32_t str)
{
	size_t len;
	const char *bytes = str ? scry_reader_string(reader, str, &len) : NULL;
	uint32_t id = 0;

	if (bytes && scry_intern_put(names, bytes, len, &id))
		return 0;
	return id;
}

void scry_frames_event(struct scry_frames *frames, struct scry_intern *names,
		       const struct scry_reader *reader, const struct scry_ev_stack *stack)
{
	struct scry_frame frame = {
		.parent = scry_frames_find(frames, stack->parent),
		.file = scry_name_id(names, reader, stack->file_str),
		.line = stack->line,
		.method = scry_name_id(names, reader, stack->method_str),
		.flags = stack->flags & (SCRY_STACK_C | SCRY_STACK_NATIVE),
	};

	if (stack->flags & SCRY_STACK_NATIVE)
		frame.line = (uint32_t)stack->offset;

	/* A map that is full forgets the frame: sites then have no stack. */
	scry_map_put(&frames->recording, stack->id, scry_frames_put(frames, &frame));
}

uint32_t scry_frames_find(const struct scry_frames *frames, uint32_t recorded_id)
{
	uint64_t id = 0;

	if (recorded_id)
		scry_map_get(&frames->recording, recorded_id, &id);
	return (uint32_t)id;
}

struct scry_cell scry_name_text(const struct scry_intern *names, uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = id ? scry_intern_get(names, id, &cell.length) : NULL;
	cell.is_unknown = !cell.bytes;
	return cell;
}

static int compare_texts(const struct scry_intern *names, uint32_t a, uint32_t b)
{
	const struct scry_cell left = scry_name_text(names, a), right = scry_name_text(names, b);

	if (a == b)
		return 0;
	if (left.is_unknown || right.is_unknown)
		return left.is_unknown - right.is_unknown;
	return strcmp(left.bytes, right.bytes);
}

static int compare_u32(uint32_t a, uint32_t b)
{
	return (a > b) - (a < b);
}

int scry_frames_compare(const struct scry_frames *frames, const struct scry_intern *names,
			uint32_t a, uint32_t b)
{
	int order = 0;

	while (!order && a != b) {
		const struct scry_frame x = scry_frames_get(frames, a),
					y = scry_frames_get(frames, b);

		order = compare_texts(names, x.file, y.file);
		order = order ? order : compare_u32(x.line, y.line);
		order = order ? order : compare_texts(names, x.method, y.method);
		order = order ? order : compare_u32(x.flags, y.flags);
		a = x.parent;
		b = y.parent;
	}
	return order;
}

struct scry_cell scry_frames_cell(const struct scry_frames *frames, const struct scry_intern *names,
				  const struct scry_frame *leaf, struct scry_frame_row *row)
{
	uint32_t depth = 1;
	struct scry_frame frame;

	for (uint32_t id = leaf->parent; id; id = scry_frames_get(frames, id).parent)
		depth++;
	if (depth > row->cap) {
		void *grown = reallocarray(row->frames, depth, sizeof(*row->frames));

		if (!grown)
			return scry_cell_unknown();
		row->frames = grown;
		row->cap = depth;
	}
	frame = *leaf;
	for (uint32_t at = depth; at; at--) {
		const bool is_native = frame.flags & SCRY_STACK_NATIVE;
		struct scry_cell file = scry_name_text(names, frame.file);
		struct scry_cell method = scry_name_text(names, frame.method);

		row->frames[at - 1] = (struct scry_doc_frame){
			.file = file.bytes,
			.file_length = file.length,
			.method = method.bytes,
			.method_length = method.length,
			.line = is_native ? 0 : frame.line,
			.offset = is_native ? frame.line : 0,
			.is_c = frame.flags & SCRY_STACK_C,
			.is_native = is_native,
		};
		frame = scry_frames_get(frames, frame.parent);
	}
	return (struct scry_cell){.frames = row->frames, .number = depth};
}
