/*
 * Records of entries and returns: see wire/call_ring.h. Read are registers, and of memory only a
 * string that the function is about to read itself, so far as it will: up to its length, or within
 * the pages in which no NUL has been met yet. No more than a segment's part is copied.
 */
#include "agent/calls.h"
#include "agent/track.h"
#include "wire/call_ring.h"

#define PAGE_MASK 4095u
#define LOWEST 65536u
#define HIGHEST (1ull << 47)
#define ONES 0x0101010101010101ull

static uint64_t load(const uint8_t *at)
{
	uint64_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return word;
}

/* The last, broken word. */
static void copy_bytes(uint8_t *to, const uint8_t *from, uint64_t n)
{
	*(uint64_t *)(void *)to = 0;
	for (uint64_t i = 0; i < n; i++)
		to[i] = from[i];
}

static uint64_t copy_length(uint8_t *to, const uint8_t *from, uint64_t n)
{
	uint64_t i = 0;

	for (; i + 8 <= n; i += 8)
		*(uint64_t *)(void *)(to + i) = load(from + i);
	if (i < n)
		copy_bytes(to + i, from + i, n - i);
	return n;
}

/* Up to the NUL, `max` at most. A load of eight bytes stays in the page of its first one, which is
 * no further than the NUL. */
static uint64_t copy_nul(uint8_t *to, const uint8_t *from, uint64_t max)
{
	uint64_t i = 0, n = 0;

	for (; i + 8 <= max && ((uint64_t)(from + i) & PAGE_MASK) <= PAGE_MASK - 7; i += 8) {
		uint64_t word = load(from + i), nul = (word - ONES) & ~word & ONES << 7;

		if (nul) {
			n = (uint64_t)__builtin_ctzll(nul) / 8;
			*(uint64_t *)(void *)(to + i) = word & ((1ull << 8 * n) - 1);
			return i + n;
		}
		*(uint64_t *)(void *)(to + i) = word;
	}
	for (; i < max && from[i]; i++) {
		if (i % 8 == 0)
			*(uint64_t *)(void *)(to + i) = 0;
		to[i] = from[i];
	}
	return i;
}

/* Words written, 0: there is no string. */
static uint64_t put_text(uint64_t *w, const uint64_t *arguments, uint64_t cookie, uint32_t max)
{
	uint32_t text_arg = scry_call_cookie_text_arg(cookie);
	const uint8_t *from = (const uint8_t *)arguments[text_arg - 1];
	enum scry_call_text text = scry_call_cookie_text(cookie);
	uint64_t length = arguments[text_arg], n;
	int is_cut;

	if ((uint64_t)from < LOWEST || (uint64_t)from > HIGHEST - SCRY_CALL_TEXT_MAX)
		return 0;
	if (text == SCRY_CALL_TEXT_BOTH)
		length = (uint64_t)(int64_t)(int32_t)length;
	if (text == SCRY_CALL_TEXT_LENGTH && (int64_t)length >= 0) {
		n = copy_length((uint8_t *)(w + 1), from, length < max ? length : max);
		is_cut = n < length;
	} else {
		if (text == SCRY_CALL_TEXT_NUL || (int64_t)length < 0)
			length = ~0ull;
		n = copy_nul((uint8_t *)(w + 1), from, length < max ? length : max);
		is_cut = n == max && n < length && from[n];
	}
	w[0] = n | (is_cut ? SCRY_CALL_TEXT_CUT : 0);
	return 1 + (n + 7) / 8;
}

uint64_t scry_call_entered(const uint64_t *slot, const uint64_t *arguments, uint64_t cookie,
			   int is_tail)
{
	uint32_t args = scry_call_cookie_args(cookie), hook = cookie & (SCRY_SHADOW_HOOKS_MAX - 1);
	uint32_t text_arg = scry_call_cookie_text_arg(cookie), room = 2 + args;
	uint32_t max = scry_agent.shadow.head.string_max;
	struct scry_agent_thread *t = scry_track_enter();
	uint64_t *w, tsc = 0, head;

	if (unlikely(!t)) {
		scry_track_passed();
		return 0;
	}
	if (max > SCRY_CALL_TEXT_MAX)
		max = SCRY_CALL_TEXT_MAX;
	if (text_arg)
		room += 1 + max / 8;
	w = scry_track_reserve(t, room);
	if (likely(w)) {
		tsc = scry_track_stamp(t, &w);
		head = scry_call_head((uint64_t)slot, args, hook) | (is_tail ? SCRY_CALL_TAIL : 0);
		w[1] = tsc;
		for (uint32_t i = 0; i < args; i++)
			w[2 + i] = arguments[i];
		room = 2 + args;
		if (text_arg) {
			uint64_t words = put_text(w + room, arguments, cookie, max);

			head |= words ? SCRY_CALL_TEXT : 0;
			room += words;
		}
		w[0] = head;
		scry_track_publish(t, w + room);
	} else {
		scry_track_lost();
	}
	scry_track_leave(t);
	return tsc;
}

void scry_call_returned(const uint64_t *slot, uint64_t result)
{
	struct scry_agent_thread *t = scry_track_enter();
	uint64_t *w;

	if (unlikely(!t)) {
		scry_track_passed();
		return;
	}
	w = scry_track_reserve(t, 3);
	if (likely(w)) {
		uint64_t tsc = scry_track_stamp(t, &w);

		w[0] = scry_call_head((uint64_t)slot, SCRY_CALL_RETURN, 0);
		w[1] = tsc;
		w[2] = result;
		scry_track_publish(t, w + 3);
	} else {
		scry_track_lost();
	}
	scry_track_leave(t);
}
_Static_assert(SCRY_SHADOW_HOOKS_MAX == 1u << SCRY_CALL_HOOK_BITS, "one number");
_Static_assert(2 + SCRY_CALL_ARGS_MAX + 1 + SCRY_CALL_TEXT_MAX / 8 <= SCRY_TRACK_RECORD_MAX,
	       "fits");
