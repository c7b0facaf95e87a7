/* See calls_image.h. */
#include "view/calls_image.h"

#include <string.h>

static const uint8_t *more_of(const struct scry_event *event, size_t *ret_size)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_ev_return *ret = (const void *)(event + 1);

	if (event->type == SCRY_EVENT_CALL) {
		*ret_size = call->more_bytes;
		return (const uint8_t *)(call + 1);
	}
	*ret_size = ret->more_bytes;
	return (const uint8_t *)(ret + 1);
}

const struct scry_call_part *scry_call_part_next(const struct scry_event *event,
						 const struct scry_call_part *at)
{
	size_t size, left;
	const uint8_t *more = more_of(event, &size), *next = more;

	if (at)
		next = (const uint8_t *)(at + 1) + ((at->bytes + 7ull) & ~7ull);
	left = size - (size_t)(next - more);
	if (left < sizeof(*at))
		return NULL;
	at = (const void *)next;
	return left - sizeof(*at) >= ((at->bytes + 7ull) & ~7ull) ? at : NULL;
}

uint32_t scry_call_part_flags(const struct scry_call_image *image)
{
	const struct scry_call_part *p = NULL;
	uint32_t flags = 0;

	while ((p = scry_call_part_next(image->call, p)))
		flags |= p->flags;
	while (image->ret && (p = scry_call_part_next(image->ret, p)))
		flags |= p->flags;
	return flags;
}

/* A word of the longest part of a kind: a format's is read anew when it has more. */
static bool word_of(const struct scry_event *event, enum scry_part_kind kind, uint32_t i,
		    uint64_t *ret)
{
	const struct scry_call_part *p = NULL;

	while (event && (p = scry_call_part_next(event, p))) {
		if (p->kind != kind || p->bytes < 8 * (i + 1))
			continue;
		memcpy(ret, (const uint8_t *)(p + 1) + 8ull * i, sizeof(*ret));
		return true;
	}
	return false;
}

bool scry_call_word(const struct scry_call_image *image, bool is_back, uint8_t at, uint64_t *ret)
{
	const struct scry_ev_call *call = (const void *)(image->call + 1);

	if (at < SCRY_AT_REGISTER + SCRY_CALL_ARGS_MAX) {
		memcpy(ret, &call->arg1 + at, sizeof(*ret));
		return at < call->args;
	}
	if (at >= SCRY_AT_VECTOR && at < SCRY_AT_STACK)
		return word_of(is_back ? image->ret : image->call, SCRY_PART_VECTORS,
			       at - SCRY_AT_VECTOR, ret);
	if (at >= SCRY_AT_STACK && at < SCRY_AT_SAVED)
		return word_of(image->call, SCRY_PART_STACK, at - SCRY_AT_STACK, ret);
	if (at == SCRY_AT_RDX)
		return word_of(image->ret, SCRY_PART_RDX, 0, ret);
	if (at == SCRY_AT_RAX && image->ret) {
		*ret = ((const struct scry_ev_return *)(const void *)(image->ret + 1))->result;
		return true;
	}
	return false;
}

bool scry_call_errno(const struct scry_call_image *image, uint64_t *ret)
{
	return word_of(image->ret, SCRY_PART_ERRNO, 0, ret);
}

const struct scry_call_part *scry_call_format(const struct scry_call_image *image, uint64_t address)
{
	const struct scry_call_part *p = NULL;

	while ((p = scry_call_part_next(image->call, p)))
		if (p->kind == SCRY_PART_MEMORY && p->address == address &&
		    p->flags & SCRY_PART_FORMAT)
			break;
	return p;
}

static void look(const struct scry_event *event, uint64_t address, struct scry_call_memory *ret)
{
	const struct scry_call_part *p = NULL;

	while (event && (p = scry_call_part_next(event, p))) {
		uint64_t skip = address - p->address;

		if (p->kind != SCRY_PART_MEMORY || (skip && skip >= p->bytes) ||
		    (skip && p->flags & SCRY_PART_DIGEST))
			continue;
		if (ret->bytes && p->bytes - skip <= ret->have)
			continue;
		*ret = (struct scry_call_memory){.bytes = (const uint8_t *)(p + 1) + skip,
						 .have = p->bytes - skip,
						 .flags = p->flags};
	}
}

struct scry_call_memory scry_call_memory(const struct scry_call_image *image, uint64_t address,
					 bool is_back)
{
	struct scry_call_memory memory = {0};

	look(is_back ? image->ret : image->call, address, &memory);
	if (!memory.bytes)
		look(is_back ? image->call : image->ret, address, &memory);
	return memory;
}
