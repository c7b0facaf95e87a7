/*
 * Records of entries and returns: see wire/call_ring.h.
 */
#include "agent/calls.h"
#include "agent/fetch.h"
#include "agent/thread_buffer.h"
#include "wire/call_ring.h"

#define ENTRY_WORDS (2u + SCRY_CALL_ARGS_MAX + 1u)
#define RETURN_WORDS 3u

static uint32_t string_max(void)
{
	uint32_t max = scry_agent_shadow.head.string_max;

	return max > SCRY_CALL_TEXT_MAX ? SCRY_CALL_TEXT_MAX : max;
}

static const struct scry_call_plan *plan_of(uint64_t cookie)
{
	uint32_t hook = cookie & (SCRY_SHADOW_HOOKS_MAX - 1);

	return &scry_agent_shadow.plans[scry_agent_shadow.plan_of[hook] % SCRY_PLAN_UNITS];
}

/* Behind the registers; returns the words. */
static __attribute__((noinline)) uint32_t put_more(struct scry_agent_thread *t, uint64_t *to,
						   const uint64_t *slot, const uint64_t *arguments,
						   uint64_t cookie, uint64_t *saved,
						   int *ret_has_read)
{
	struct scry_fetching f;
	uint32_t words;

	f.plan = plan_of(cookie);
	f.registers = arguments;
	f.slot = slot;
	f.saved = 0;
	f.rax = f.rdx = 0;
	f.string_max = string_max();
	f.errno_at = 0;
	f.has_read = 0;
	if (f.plan->saved_count)
		scry_fetch_save(&f, saved);
	words = scry_fetch(&f, to + 1);
	to[0] = words;
	*ret_has_read = f.has_read;
	return words;
}

SCRY_INTO_CALLERS uint64_t scry_call_entered(const uint64_t *slot, const uint64_t *arguments,
					     uint64_t cookie, int is_tail, uint64_t *saved)
{
	uint32_t args = scry_call_cookie_args(cookie), hook = cookie & (SCRY_SHADOW_HOOKS_MAX - 1);
	uint32_t room = 2 + args;
	struct scry_agent_thread *t = scry_call_thread_buffer_enter();
	uint64_t *w, tsc = 0, head;

	if (unlikely(!t)) {
		scry_thread_buffer_passed(scry_channel(SCRY_CHANNEL_CALLS));
		return 0;
	}
	if (cookie & SCRY_CALL_HAS_PLAN)
		room += 1 + SCRY_CALL_MORE_MAX;
	w = scry_thread_buffer_reserve(t, room);
	if (likely(w)) {
		tsc = scry_thread_buffer_stamp(t, &w);
		head = scry_call_head((uint64_t)slot, args, hook) | (is_tail ? SCRY_CALL_TAIL : 0) |
		       (cookie & SCRY_CALL_IS_ALONE ? SCRY_CALL_ALONE : 0);
		for (uint32_t i = 0; i < args; i++)
			w[2 + i] = arguments[i];
		room = 2 + args;
		if (cookie & SCRY_CALL_HAS_PLAN) {
			int has_read = 0;
			uint32_t more =
				put_more(t, w + room, slot, arguments, cookie, saved, &has_read);

			head |= more ? SCRY_CALL_MORE : 0;
			room += more ? 1 + more : 0;
			if (has_read) /* its time is ours, not the function's */
				tsc = scry_tsc();
		}
		w[0] = head;
		w[1] = tsc;
		scry_thread_buffer_publish(t, w + room);
	} else {
		scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CALLS));
	}
	scry_thread_buffer_leave(t);
	return tsc;
}

/* The parts of a call, in a record before that of the return. Returns the words. */
static uint32_t put_back(const struct scry_agent_thread *t, uint64_t *w, const uint64_t *slot,
			 const struct scry_call_back *back)
{
	struct scry_fetching f;
	uint64_t tsc = w[1];
	uint32_t words;

	f.plan = back->plan;
	f.registers = 0;
	f.slot = slot;
	f.saved = back->saved;
	f.rax = slot[-1]; /* as agent/keep.h saves them */
	f.rdx = slot[-8];
	f.string_max = string_max();
	f.errno_at = scry_agent_shadow.head.errno_at;
	f.has_read = 0;
	w[0] = scry_call_head((uint64_t)slot, SCRY_CALL_RETURN, back->hook) | SCRY_CALL_MORE;
	w[1] = tsc;
	words = scry_fetch(&f, w + 3);
	w[2] = words;
	return words ? 3 + words : 0;
}

/* Of calls that end together by tail calls, all but the last one. */
static void put_others(struct scry_agent_thread *t, const uint64_t *slot,
		       const struct scry_call_back *backs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t *w = scry_thread_buffer_reserve(t, RETURN_WORDS + SCRY_CALL_MORE_MAX);

		if (w) {
			uint64_t tsc = scry_thread_buffer_stamp(t, &w);

			w[1] = tsc;
			scry_thread_buffer_publish(t, w + put_back(t, w, slot, &backs[i]));
		}
	}
}

SCRY_INTO_CALLERS void scry_call_returned(const uint64_t *slot, const struct scry_call_back *backs,
					  uint32_t count)
{
	struct scry_agent_thread *t = scry_call_thread_buffer_enter();
	uint64_t *w;

	if (unlikely(!t)) {
		scry_thread_buffer_passed(scry_channel(SCRY_CHANNEL_CALLS));
		return;
	}
	if (unlikely(count > 1))
		put_others(t, slot, backs + 1, count - 1);
	w = scry_thread_buffer_reserve(t, RETURN_WORDS +
						  (count ? RETURN_WORDS + SCRY_CALL_MORE_MAX : 0));
	if (likely(w)) {
		uint64_t tsc = scry_thread_buffer_stamp(t, &w);

		if (count) {
			w[1] = tsc;
			w += put_back(t, w, slot, backs);
		}
		w[0] = scry_call_head((uint64_t)slot, SCRY_CALL_RETURN, 0);
		w[1] = tsc;
		w[2] = slot[-1];
		scry_thread_buffer_publish(t, w + RETURN_WORDS);
	} else {
		scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CALLS));
	}
	scry_thread_buffer_leave(t);
}
_Static_assert(SCRY_SHADOW_HOOKS_MAX == 1u << SCRY_CALL_HOOK_BITS, "one number");
_Static_assert(ENTRY_WORDS + SCRY_CALL_MORE_MAX <= SCRY_THREAD_BUFFER_RECORD_MAX, "fits");
_Static_assert(2 * RETURN_WORDS + SCRY_CALL_MORE_MAX <= SCRY_THREAD_BUFFER_RECORD_MAX, "fits");
_Static_assert(SCRY_CALL_TEXT_MAX / 8 + 2 <= SCRY_CALL_MORE_MAX, "a string fits");
