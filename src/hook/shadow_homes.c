/*
 * See shadow_homes.h. A patch's data is searched as words: its tables may be laid out
 * otherwise by another build, and nothing else in it has reason to be a thunk's address.
 */
#include "hook/shadow_homes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hook/lasting.h"
#include "wire/shadow.h"

#define ADDRESS ((1ull << 56) - 1) /* a table has a function's number above it */
#define CHUNK_WORDS 8192u
#define FRAME_WORDS 24u /* of a signal frame: to its last general register */
#define FRAME_IP 176u	/* asm/sigframe.h */

static bool is_thunk(const struct scry_shadow_homes *s, uint64_t word)
{
	return (word & ADDRESS) - s->thunks < SCRY_SHADOW_THUNKS * SCRY_SHADOW_THUNK_BYTES;
}

static uint64_t home_of(const struct scry_shadow_homes *s, uint64_t word)
{
	const uint64_t number = ((word & ADDRESS) - s->thunks) / SCRY_SHADOW_THUNK_BYTES;

	return s->originals[number] | (word & ~ADDRESS);
}

static bool has_thunk(const struct scry_shadow_homes *s, const uint64_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_thunk(s, words[i]))
			return true;
	return false;
}

/* Has a thread that is in the patch's code, or was when a signal came, a thunk in a register? It
 * may be about to keep it, or to go there. */
static bool is_in_hand(const struct scry_inject *inj, const struct scry_stw *w,
		       const struct scry_shadow_homes *s, const struct scry_patch_head *h)
{
	uint64_t words[sizeof(w->threads->regs) / 8];
	bool is = false;

	for (size_t i = 0; i < w->count && !is; i++) {
		memcpy(words, &w->threads[i].regs, sizeof(words));
		is = w->threads[i].stopped && w->threads[i].regs.rip - h->text < h->text_size &&
		     has_thunk(s, words, sizeof(words) / 8);
	}
	for (size_t i = 0; i < w->saved_count && !is; i++) {
		if (w->saved[i].ip - h->text >= h->text_size)
			continue;
		is = scry_mem_read(&inj->mem, w->saved[i].at - FRAME_IP, words, FRAME_WORDS * 8) <
			     0 ||
		     has_thunk(s, words, FRAME_WORDS);
	}
	return is;
}
_Static_assert(FRAME_WORDS <= sizeof(struct user_regs_struct) / 8, "words");

static int put_back_in(const struct scry_inject *inj, const struct scry_shadow_homes *s,
		       const struct scry_patch_head *h, uint64_t *words)
{
	const uint64_t end = h->stack - SCRY_CALL_STACK_BYTES;
	int r = 0;

	for (uint64_t at = h->data; at < end && r == 0; at += CHUNK_WORDS * 8) {
		const uint64_t left = (end - at) / 8, n = left < CHUNK_WORDS ? left : CHUNK_WORDS;

		r = scry_mem_read(&inj->mem, at, words, n * 8);
		for (uint64_t i = 0; i < n && r == 0; i++) {
			if (!is_thunk(s, words[i]))
				continue;
			words[i] = home_of(s, words[i]);
			r = scry_edit_poke(inj->mem.fd, at + i * 8, &words[i], 8);
		}
	}
	return r;
}

int scry_shadow_homes_put_back(const struct scry_inject *inj, const struct scry_stw *w,
			       const struct scry_shadow_homes *s)
{
	uint64_t *words = malloc(CHUNK_WORDS * sizeof(*words));
	struct scry_patch_head head;
	bool is_held = false;
	uint64_t at = 0;
	int r = words ? 0 : -ENOMEM;

	while (r == 0 && scry_lasting_next(&inj->mem, &inj->maps, &at, &head) == 0) {
		r = put_back_in(inj, s, &head, words);
		is_held |= is_in_hand(inj, w, s, &head);
	}
	free(words);
	return r == 0 && is_held ? -EAGAIN : r;
}
