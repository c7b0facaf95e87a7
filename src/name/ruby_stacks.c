/* See ruby_stacks.h. */
#include "name/ruby_stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "name/places.h"
#include "name/stacks.h"
#include "wire/call_ring.h"
#include "wire/event.h"

#define STACKS 65536u	  /* the newest */
#define GENERATIONS 16u	  /* the newest */
#define LINES_MAX 262144u /* of a generation */
#define NAMES_MAX (1u << 20)
#define NAMES_BYTES_MAX (64u << 20)

struct stack {
	uint64_t number, generation;
	uint64_t *pcs; /* the newest first; NULL: `frame` is known */
	size_t count;
	uint32_t frame; /* number in `tree` */
};

struct lines {
	uint64_t generation;
	struct scry_map frames; /* pc -> number in `tree` of the frame as if it had no caller */
};

struct scry_ruby_stacks {
	const struct scry_ruby *ruby;
	bool is_refused;
	struct scry_intern names;
	struct scry_stacks tree;
	struct lines lines[GENERATIONS];
	struct stack stacks[STACKS]; /* by number */
};

struct scry_ruby_stacks *scry_ruby_stacks_new(void)
{
	struct scry_ruby_stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	scry_intern_init(&s->names, NAMES_MAX, NAMES_BYTES_MAX);
	scry_stacks_init(&s->tree, SCRY_STACKS_MAX);
	for (size_t i = 0; i < GENERATIONS; i++)
		scry_map_init(&s->lines[i].frames, LINES_MAX);
	return s;
}

void scry_ruby_stacks_free(struct scry_ruby_stacks *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < STACKS; i++)
		free(s->stacks[i].pcs);
	for (size_t i = 0; i < GENERATIONS; i++)
		scry_map_done(&s->lines[i].frames);
	scry_stacks_done(&s->tree);
	scry_intern_done(&s->names);
	free(s);
}

void scry_ruby_stacks_ruby(struct scry_ruby_stacks *s, const struct scry_ruby *ruby)
{
	s->ruby = ruby;
	s->is_refused = !ruby;
}

static uint32_t name_of(struct scry_ruby_stacks *s, const char *bytes, size_t size)
{
	uint32_t id = 0;

	if (size)
		scry_intern_put(&s->names, bytes, size, &id);
	return id;
}

int scry_ruby_stacks_line(struct scry_ruby_stacks *s, const uint64_t *words, size_t count)
{
	const char *text =
		(const char *)(words + SCRY_CALL_RUBY_LINE_HEAD) + sizeof(struct scry_ring_def);
	struct scry_stack_frame frame = {0};
	struct scry_ring_def def;
	struct lines *l;

	if (count < SCRY_CALL_RUBY_LINE_HEAD + sizeof(def) / 8)
		return -EINVAL;
	memcpy(&def, words + SCRY_CALL_RUBY_LINE_HEAD, sizeof(def));
	if (8 * SCRY_CALL_RUBY_LINE_HEAD + sizeof(def) + def.path_size + def.label_size > 8 * count)
		return -EINVAL;
	l = &s->lines[words[3] % GENERATIONS];
	if (words[3] < l->generation)
		return 0; /* what needs it comes too late */
	if (words[3] > l->generation)
		scry_map_done(&l->frames);
	l->generation = words[3];
	frame.line = scry_places_calling_line(s->ruby, &def);
	frame.path = name_of(s, text, def.path_size);
	frame.label = name_of(s, text + def.path_size, def.label_size);
	scry_map_put(&l->frames, words[4], scry_stacks_add(&s->tree, &frame));
	return 0;
}

/* The frame of a pc, its parent to be set. False: it is not known yet. */
static bool frame_of(const struct scry_ruby_stacks *s, const struct stack *stack, uint64_t pc,
		     struct scry_stack_frame *ret)
{
	const struct lines *l = &s->lines[stack->generation % GENERATIONS];
	uint64_t number;

	return l->generation == stack->generation && scry_map_get(&l->frames, pc, &number) &&
	       scry_stacks_frame(&s->tree, (uint32_t)number, ret) == 0;
}

/* From its pcs to frames; `is_last`: lines that are not known will not come. */
static void settle(struct scry_ruby_stacks *s, struct stack *stack, bool is_last)
{
	struct scry_stack_frame frame;
	uint32_t parent = 0;

	for (size_t i = stack->count; i-- > 0 && !is_last;)
		if (stack->pcs[i] && !frame_of(s, stack, stack->pcs[i], &frame))
			return;
	for (size_t i = stack->count; i-- > 0;) {
		bool is_known = frame_of(s, stack, stack->pcs[i], &frame);

		if (is_known && !frame.line) /* the VM's own, below the program's */
			continue;
		if (!is_known)
			frame = (struct scry_stack_frame){
				.flags = stack->pcs[i] ? 0 : SCRY_STACK_UNKNOWN};
		frame.parent = parent;
		parent = scry_stacks_add(&s->tree, &frame);
	}
	stack->frame = parent;
	free(stack->pcs);
	stack->pcs = NULL;
}

int scry_ruby_stacks_define(struct scry_ruby_stacks *s, const uint64_t *words, size_t count)
{
	struct stack *stack = &s->stacks[words[2] % STACKS];
	size_t n = count - SCRY_CALL_RUBY_STACK_HEAD;

	if (count <= SCRY_CALL_RUBY_STACK_HEAD || !words[2])
		return -EINVAL;
	if (words[2] <= stack->number)
		return words[2] == stack->number ? -EINVAL : 0;
	free(stack->pcs);
	*stack = (struct stack){.number = words[2], .generation = words[3], .count = n};
	stack->pcs = malloc(n * sizeof(*words));
	if (!stack->pcs)
		return 0; /* it is not known */
	memcpy(stack->pcs, words + SCRY_CALL_RUBY_STACK_HEAD, n * sizeof(*words));
	settle(s, stack, false);
	return 0;
}

uint32_t scry_ruby_stacks_write(struct scry_ruby_stacks *s, uint64_t number, struct scry_writer *w)
{
	struct stack *stack = &s->stacks[number % STACKS];

	if (s->is_refused || stack->number != number)
		return 0;
	if (stack->pcs)
		settle(s, stack, true);
	return scry_stacks_write(&s->tree, stack->frame, &s->names, w);
}
