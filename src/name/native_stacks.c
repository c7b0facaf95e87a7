/* See native_stacks.h. */
#include "name/native_stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/vector.h"
#include "wire/event.h"
#include "wire/unwind.h"

#define DEPTH_MAX 1024

struct frame { /* an address of code */
	uint64_t address, offset;
	char *module;
	const char *symbol;
};

struct node { /* a frame, and who called it */
	uint32_t parent, frame;
	uint32_t id; /* of its STACK event; 0: not told */
};

struct scry_native_stacks {
	struct scry_native *native;
	struct scry_map numbers;   /* -> node */
	struct scry_map by_frame;  /* address -> frame */
	struct scry_map by_parent; /* parent << 32 | frame -> node */
	struct frame *frames;	   /* from 1 */
	struct node *nodes;	   /* from 1 */
	uint32_t frame_count, frame_room, looked;
	uint32_t node_count, node_room;
};

struct scry_native_stacks *scry_native_stacks_new(struct scry_native *native)
{
	struct scry_native_stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->native = native;
	scry_map_init(&s->numbers, SCRY_NATIVE_STACKS_MAX);
	scry_map_init(&s->by_frame, SCRY_NATIVE_FRAMES_MAX);
	scry_map_init(&s->by_parent, SCRY_NATIVE_NODES_MAX);
	return s;
}

void scry_native_stacks_by(struct scry_native_stacks *s, struct scry_native *native)
{
	s->native = native;
}

void scry_native_stacks_free(struct scry_native_stacks *s)
{
	if (!s)
		return;
	for (uint32_t i = 1; i <= s->frame_count; i++)
		free(s->frames[i].module);
	free(s->frames);
	free(s->nodes);
	scry_map_done(&s->numbers);
	scry_map_done(&s->by_frame);
	scry_map_done(&s->by_parent);
	free(s);
}

static int frame_of(struct scry_native_stacks *s, uint64_t address, uint32_t *ret)
{
	uint64_t known;
	int r;

	if (scry_map_get(&s->by_frame, address, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	r = scry_vector_reserve(&s->frames, s->frame_count + 1u, &s->frame_room);
	if (r == 0)
		r = scry_map_put(&s->by_frame, address, s->frame_count + 1);
	if (r < 0)
		return r;
	s->frames[++s->frame_count] = (struct frame){.address = address};
	*ret = s->frame_count;
	return 0;
}

static int node_of(struct scry_native_stacks *s, uint32_t parent, uint32_t frame, uint32_t *ret)
{
	const uint64_t key = (uint64_t)parent << 32 | frame;
	uint64_t known;
	int r;

	if (scry_map_get(&s->by_parent, key, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	r = scry_vector_reserve(&s->nodes, s->node_count + 1u, &s->node_room);
	if (r == 0)
		r = scry_map_put(&s->by_parent, key, s->node_count + 1);
	if (r < 0)
		return r;
	s->nodes[++s->node_count] = (struct node){.parent = parent, .frame = frame};
	*ret = s->node_count;
	return 0;
}

int scry_native_stacks_define(struct scry_native_stacks *s, uint64_t number,
			      const uint64_t *addresses, size_t count)
{
	uint32_t node = 0, frame;
	uint64_t known;
	int r = 0;

	if (!count || count > DEPTH_MAX || !number || !addresses[0])
		return -EINVAL;
	for (size_t i = count; i-- > 0 && r == 0;) {
		r = frame_of(s, addresses[i], &frame);
		if (r == 0)
			r = node_of(s, node, frame, &node);
	}
	if (r < 0)
		return r;
	if (scry_map_get(&s->numbers, number, &known))
		return known == node ? 0 : -EINVAL;
	return scry_map_put(&s->numbers, number, node);
}

static const struct frame *innermost(const struct scry_native_stacks *s, uint64_t number,
				     uint32_t *ret_node)
{
	uint64_t node;

	if (!scry_map_get(&s->numbers, number, &node))
		return NULL;
	*ret_node = (uint32_t)node;
	return &s->frames[s->nodes[node].frame];
}

uint64_t scry_native_stacks_address(const struct scry_native_stacks *s, uint64_t number)
{
	uint32_t node;
	const struct frame *f = innermost(s, number, &node);

	return f ? f->address : 0;
}

bool scry_native_stacks_is_new(const struct scry_native_stacks *s)
{
	return s->looked < s->frame_count;
}

void scry_native_stacks_look(struct scry_native_stacks *s)
{
	while (s->looked < s->frame_count) {
		struct frame *f = &s->frames[++s->looked];
		struct scry_native_name name;
		bool is_exact;

		if (!f->address)
			continue;
		is_exact = (f->address & SCRY_UNWIND_EXACT) != 0;
		scry_native_name(s->native, (f->address & ~SCRY_UNWIND_EXACT) + is_exact, &name);
		f->module = name.module;
		f->symbol = name.symbol;
		f->offset = name.offset - is_exact;
	}
}

static int write_node(const struct scry_native_stacks *s, struct node *n, struct scry_writer *w)
{
	const struct frame *f = &s->frames[n->frame];
	struct scry_ev_stack ev = {.id = scry_writer_stack(w),
				   .parent = n->parent ? s->nodes[n->parent].id : 0,
				   .flags = SCRY_STACK_NATIVE,
				   .offset = f->offset,
				   .address = f->address & ~SCRY_UNWIND_EXACT};
	int r = 0;

	if (!f->address)
		ev.flags |= SCRY_STACK_UNKNOWN;
	if (f->module)
		r = scry_writer_string(w, f->module, strlen(f->module), &ev.file_str);
	if (r == 0 && f->symbol)
		r = scry_writer_string(w, f->symbol, strlen(f->symbol), &ev.method_str);
	if (r == 0)
		r = scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_STACK}, &ev,
					sizeof(ev));
	n->id = r == 0 ? ev.id : 0;
	return r;
}

uint32_t scry_native_stacks_write(struct scry_native_stacks *s, uint64_t number,
				  struct scry_writer *w)
{
	uint32_t chain[DEPTH_MAX], depth = 0, node;

	if (!innermost(s, number, &node))
		return 0;
	for (uint32_t at = node; at && !s->nodes[at].id && depth < DEPTH_MAX;
	     at = s->nodes[at].parent)
		chain[depth++] = at;
	while (depth--)
		if (write_node(s, &s->nodes[chain[depth]], w) < 0)
			return 0;
	return s->nodes[node].id;
}
