/*
 * Samples that have ended without the agent having said so: see swept.h.
 *
 * Which samples the agent takes for alive, and how big each was when a GC last had marked, is read
 * from its table; a slot that is free now says that the sample in it has ended. Only reads.
 */
#include "instrument/objects/swept.h"

#include <stddef.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/objects.h"
#include "vm/ruby_size.h"

/* Drops what is not an object: entries that are empty or removed. */
static size_t keep_objects(struct scry_sampled *at)
{
	size_t n = 0;

	for (size_t i = 0; i < SCRY_TRACKED; i++) {
		if (scry_size_is_pointer(at[i].object))
			at[n++] = at[i];
	}
	return n;
}

/* What the agent would have written: see scry_record_end. */
static size_t put_end(uint64_t *to, const struct scry_sampled *sample)
{
	uint64_t head = (sample->object >> 3 << 20) + sample->end_class * SCRY_RING_CLASS;

	if (sample->extra < 0 || sample->extra >= SCRY_SIZE_MAX) {
		to[0] = head + SCRY_RING_FREED_UNKNOWN;
	} else if ((uint64_t)sample->extra <= SCRY_RING_SIZED_MAX) {
		to[0] = head + SCRY_RING_FREED_SIZED + (uint64_t)sample->extra;
	} else {
		to[0] = SCRY_RING_ESCAPE_WORD(SCRY_RING_SIZE, 1);
		to[1] = (uint64_t)sample->extra;
		to[2] = head + SCRY_RING_FREED;
		return 3;
	}
	return 1;
}

static size_t put_swept(const struct scry_ruby *ruby, const struct scry_sampled *samples,
			size_t count, uint64_t *ret)
{
	uint64_t *address = malloc((count + 1) * sizeof(*address));
	struct scry_ruby_size *size = calloc(count + 1, sizeof(*size));
	size_t n = 0;

	for (size_t i = 0; address && i < count; i++)
		address[i] = samples[i].object;
	if (address && size && scry_ruby_sizes(ruby, address, count, size) == 0) {
		for (size_t i = 0; i < count; i++) {
			if (size[i].is_free)
				n += put_end(&ret[n], &samples[i]);
		}
	}
	free(address);
	free(size);
	return n;
}

size_t scry_objects_swept(const struct scry_watch *w, const struct scry_objects_watch *o,
			  uint64_t **ret)
{
	const uint64_t table = scry_inject_symbol(w->inj, "scry_agent_tables") +
			       offsetof(struct scry_agent_tables, sampled.entries);
	struct scry_sampled *samples;
	size_t count, n = 0;

	*ret = NULL;
	if (!o->sampling.on || o->plan.is_marked || !o->ruby || !w->inj->data)
		return 0;
	samples = malloc(SCRY_TRACKED * sizeof(*samples));
	if (samples &&
	    scry_mem_read(&o->ruby->mem, table, samples, SCRY_TRACKED * sizeof(*samples)) == 0) {
		count = keep_objects(samples);
		*ret = malloc((3 * count + 1) * sizeof(**ret));
		if (*ret)
			n = put_swept(o->ruby, samples, count, *ret);
	}
	free(samples);
	return n;
}
