/* See native_stacks.h. */
#include "name/native_stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/vector.h"
#include "name/stacks.h"
#include "wire/event.h"
#include "wire/unwind.h"

#define DEPTH_MAX 1024

struct code { /* an address of it */
	uint64_t address, offset;
	char *module;
	const char *symbol;
};

struct scry_native_stacks {
	struct scry_modules *native;
	struct scry_map numbers;    /* -> frame */
	struct scry_map by_address; /* -> code */
	struct code *codes;	    /* from 1 */
	uint32_t count, room, looked;
	struct scry_stacks tree;
};

static struct scry_stack_code name_code(const void *arg, uint32_t number)
{
	const struct code *c = &((const struct scry_native_stacks *)arg)->codes[number];

	return (struct scry_stack_code){.address = c->address & ~SCRY_UNWIND_EXACT,
					.offset = c->offset,
					.module = c->module,
					.symbol = c->symbol};
}

struct scry_native_stacks *scry_native_stacks_new(struct scry_modules *native)
{
	struct scry_native_stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->native = native;
	scry_map_init(&s->numbers, SCRY_NATIVE_STACKS_MAX);
	scry_map_init(&s->by_address, SCRY_NATIVE_FRAMES_MAX);
	scry_stacks_init(&s->tree, SCRY_NATIVE_NODES_MAX);
	s->tree.name_code = name_code;
	s->tree.arg = s;
	return s;
}

void scry_native_stacks_by(struct scry_native_stacks *s, struct scry_modules *native)
{
	s->native = native;
}

void scry_native_stacks_free(struct scry_native_stacks *s)
{
	if (!s)
		return;
	for (uint32_t i = 1; i <= s->count; i++)
		free(s->codes[i].module);
	free(s->codes);
	scry_map_done(&s->numbers);
	scry_map_done(&s->by_address);
	scry_stacks_done(&s->tree);
	free(s);
}

static int code_of(struct scry_native_stacks *s, uint64_t address, uint32_t *ret)
{
	uint64_t known;
	int r;

	if (scry_map_get(&s->by_address, address, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	r = scry_vector_reserve(&s->codes, s->count + 1u, &s->room);
	if (r == 0)
		r = scry_map_put(&s->by_address, address, s->count + 1);
	if (r < 0)
		return r;
	s->codes[++s->count] = (struct code){.address = address};
	*ret = s->count;
	return 0;
}

int scry_native_stacks_define(struct scry_native_stacks *s, uint64_t number,
			      const uint64_t *addresses, size_t count)
{
	struct scry_stack_frame frame = {0};
	uint32_t top = 0;
	uint64_t known;
	int r = 0;

	if (!count || count > DEPTH_MAX || !number || !addresses[0])
		return -EINVAL;
	for (size_t i = count; i-- > 0 && r == 0;) {
		r = code_of(s, addresses[i], &frame.code);
		frame.parent = top;
		frame.flags = SCRY_STACK_NATIVE | (addresses[i] ? 0 : SCRY_STACK_UNKNOWN);
		top = r == 0 ? scry_stacks_add(&s->tree, &frame) : 0;
		r = r == 0 && !top ? -ENOSPC : r;
	}
	if (r < 0)
		return r;
	if (scry_map_get(&s->numbers, number, &known))
		return known == top ? 0 : -EINVAL;
	return scry_map_put(&s->numbers, number, top);
}

uint64_t scry_native_stacks_address(const struct scry_native_stacks *s, uint64_t number)
{
	struct scry_stack_frame frame;
	uint64_t top;

	return scry_map_get(&s->numbers, number, &top) &&
			       scry_stacks_frame(&s->tree, (uint32_t)top, &frame) == 0
		       ? s->codes[frame.code].address
		       : 0;
}

bool scry_native_stacks_is_new(const struct scry_native_stacks *s)
{
	return s->looked < s->count;
}

void scry_native_stacks_look(struct scry_native_stacks *s)
{
	while (s->looked < s->count) {
		struct code *c = &s->codes[++s->looked];
		struct scry_code_name name;
		bool is_exact;

		if (!c->address)
			continue;
		is_exact = (c->address & SCRY_UNWIND_EXACT) != 0;
		scry_modules_name(s->native, (c->address & ~SCRY_UNWIND_EXACT) + is_exact, &name);
		c->module = name.module;
		c->symbol = name.symbol;
		c->offset = name.offset - is_exact;
	}
}

uint32_t scry_native_stacks_write(struct scry_native_stacks *s, uint64_t number,
				  struct scry_writer *w)
{
	uint64_t top;

	return scry_map_get(&s->numbers, number, &top)
		       ? scry_stacks_write(&s->tree, (uint32_t)top, NULL, w)
		       : 0;
}
