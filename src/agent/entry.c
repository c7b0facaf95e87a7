/*
 * Entry records: a hooked function is entered, with these arguments, at this time (a CALL hook;
 * entry_thunk.S). Nothing is read but registers.
 */
#include "agent/thread_buffer.h"
#include "wire/entry_ring.h"

void scry_agent_enter(const uint64_t *arguments, uint64_t cookie);

void scry_agent_enter(const uint64_t *arguments, uint64_t cookie)
{
	struct scry_agent_thread *t = scry_thread_buffer_enter();
	uint32_t n = scry_entry_args(cookie);
	uint64_t *w;

	if (unlikely(!t)) {
		scry_thread_buffer_passed(scry_channel(SCRY_CHANNEL_CORE));
		return;
	}
	w = scry_thread_buffer_reserve(t, 2 + n);
	if (likely(w)) {
		uint64_t tsc = scry_thread_buffer_stamp(t, &w);

		w[0] = cookie;
		w[1] = tsc;
		for (uint32_t i = 0; i < n; i++)
			w[2 + i] = arguments[i];
		scry_thread_buffer_publish(t, w + 2 + n);
	} else {
		scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CORE));
	}
	scry_thread_buffer_leave(t);
}
