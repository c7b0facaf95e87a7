/* See stacks.h. */
#include "name/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 2048 /* a loop of parents cannot be, but what comes is foreign */

void scry_stacks_init(struct scry_stacks *s, uint32_t limit)
{
	*s = (struct scry_stacks){0};
	scry_intern_init(&s->frames, limit, limit * (sizeof(struct scry_stack_frame) + 1ul));
}

void scry_stacks_done(struct scry_stacks *s)
{
	scry_intern_done(&s->frames);
	free(s->written);
	free(s->nodes);
}

void scry_stacks_define(struct scry_stacks *s, uint32_t node, struct scry_stack_frame frame)
{
	uint32_t id = 0;

	if (!s->nodes)
		s->nodes = calloc(SCRY_STACK_NODES, sizeof(*s->nodes));
	if (!s->nodes || node >= SCRY_STACK_NODES || frame.parent >= SCRY_STACK_NODES)
		return;
	frame.parent = s->nodes[frame.parent];
	if (!frame.line) { /* the VM's own frame below the program's: it has no line, and changes
			      its name when the script is loaded */
		s->nodes[node] = frame.parent;
		return;
	}
	scry_intern_put(&s->frames, (const char *)&frame, sizeof(frame), &id);
	s->nodes[node] = id;
}

uint32_t scry_stacks_node(const struct scry_stacks *s, uint32_t node)
{
	return s->nodes && node < SCRY_STACK_NODES ? s->nodes[node] : 0;
}

uint32_t scry_stacks_add(struct scry_stacks *s, const struct scry_stack_frame *frame)
{
	uint32_t id = 0;

	scry_intern_put(&s->frames, (const char *)frame, sizeof(*frame), &id);
	return id;
}

int scry_stacks_frame(const struct scry_stacks *s, uint32_t number, struct scry_stack_frame *ret)
{
	size_t size;
	const char *bytes = scry_intern_get(&s->frames, number, &size);

	if (!bytes || size != sizeof(*ret))
		return -ENOENT;
	memcpy(ret, bytes, sizeof(*ret));
	return 0;
}

static uint32_t write_string(struct scry_writer *w, const char *text)
{
	uint32_t str = 0;

	if (text)
		scry_writer_string(w, text, strlen(text), &str);
	return str;
}

static uint32_t write_name(struct scry_writer *w, const struct scry_intern *names, uint32_t id)
{
	size_t size;
	const char *bytes = id ? scry_intern_get(names, id, &size) : NULL;
	uint32_t str = 0;

	if (bytes)
		scry_writer_string(w, bytes, size, &str);
	return str;
}

/* The id of its event; 0: it was not written. */
static uint32_t write_frame(const struct scry_stacks *s, const struct scry_stack_frame *f,
			    const struct scry_intern *names, struct scry_writer *w)
{
	const bool is_native = f->flags & SCRY_STACK_NATIVE;
	struct scry_ev_stack ev = {.id = scry_writer_stack(w),
				   .parent = f->parent ? s->written[f->parent] : 0,
				   .flags = f->flags};

	if (f->code) {
		const struct scry_stack_code code = s->name_code(s->arg, f->code);

		ev.file_str = write_string(w, code.module);
		ev.method_str = write_string(w, code.symbol);
		ev.offset = code.offset;
		ev.address = code.address;
	} else {
		ev.file_str = write_name(w, names, f->path);
		ev.method_str = write_name(w, names, f->label);
		ev.line = is_native ? 0 : f->line;
		ev.offset = is_native ? f->line : 0;
	}
	return scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_STACK}, &ev,
				   sizeof(ev)) == 0
		       ? ev.id
		       : 0;
}

static int make_room(struct scry_stacks *s)
{
	size_t cap = s->written_cap ? s->written_cap : 1024;
	uint32_t *more;

	while (cap <= s->frames.count)
		cap *= 2;
	if (cap == s->written_cap)
		return 0;
	more = realloc(s->written, cap * sizeof(*more));
	if (!more)
		return -1;
	memset(more + s->written_cap, 0, (cap - s->written_cap) * sizeof(*more));
	s->written = more;
	s->written_cap = cap;
	return 0;
}

uint32_t scry_stacks_write(struct scry_stacks *s, uint32_t frame, const struct scry_intern *names,
			   struct scry_writer *w)
{
	uint32_t chain[DEPTH_MAX];
	size_t depth = 0;

	if (make_room(s) < 0)
		return 0;
	for (uint32_t at = frame; at && !s->written[at] && depth < DEPTH_MAX; depth++) {
		const char *bytes = scry_intern_get(&s->frames, at, NULL);

		if (!bytes)
			return 0;
		chain[depth] = at;
		memcpy(&at, bytes + offsetof(struct scry_stack_frame, parent), sizeof(at));
	}
	while (depth--) {
		struct scry_stack_frame f;

		memcpy(&f, scry_intern_get(&s->frames, chain[depth], NULL), sizeof(f));
		s->written[chain[depth]] = write_frame(s, &f, names, w);
		if (!s->written[chain[depth]])
			return 0;
	}
	return frame ? s->written[frame] : 0;
}
