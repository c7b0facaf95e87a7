/*
 * What calls a followed function: see agent/walk.h and wire/call_ring.h.
 */
#include "agent/calls.h"
#include "agent/thread_buffer.h"
#include "wire/call_ring.h"

static __attribute__((cold)) int emit(struct scry_agent_thread *t, uint32_t id,
				      const uint64_t *frames, uint32_t count)
{
	uint64_t *w = scry_thread_buffer_reserve(t, SCRY_CALL_STACK_HEAD + count);

	if (!w)
		return 0;
	w[0] = SCRY_CALL_STACK;
	w[1] = 0;
	w[2] = id;
	w[3] = count;
	for (uint32_t i = 0; i < count; i++)
		w[SCRY_CALL_STACK_HEAD + i] = frames[i];
	scry_thread_buffer_publish(t, w + SCRY_CALL_STACK_HEAD + count);
	return 1;
}

void scry_call_stack(const struct scry_walk_from *from)
{
	struct scry_agent_thread *t;
	uint64_t *w, id;

	if (unlikely(scry_calling_is_over()))
		return; /* system calls are forbidden */
	t = scry_call_thread_buffer_enter();
	if (unlikely(!t)) /* the entry that follows says so */
		return;
	id = scry_walk_stack(t, from, emit);
	w = id ? scry_thread_buffer_reserve(t, SCRY_CALL_CALLED_WORDS) : 0;
	if (w) {
		uint64_t tsc = scry_thread_buffer_stamp(t, &w);

		w[0] = SCRY_CALL_CALLED;
		w[1] = tsc;
		w[2] = id;
		w[3] = (uint64_t)from->slot;
		scry_thread_buffer_publish(t, w + SCRY_CALL_CALLED_WORDS);
	}
	scry_thread_buffer_leave(t);
}
_Static_assert(SCRY_WALK_DEPTH_MAX <= SCRY_CALL_STACK_FRAMES, "it fits");
