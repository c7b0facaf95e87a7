/*
 * Infers Strings, Arrays and the slot size from samples whose address and content the child
 * reported.
 *
 * The trick in all three: samples come in two kinds (inside the slot, outside), and the kind is
 * seen from the bytes themselves; the flag bit is then what all of one kind have and none of the
 * other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define SAMPLES 32
#define SLOT_WORDS 8 /* pointers and lengths are looked for in the first words */

struct sample {
	uint64_t addr, flags;
	uint64_t length;
	uint64_t first, last; /* arrays */
	char text[4200];
	bool embedded;
};

static int collect(struct scry_infer *infer, const char *kind, struct sample *samples)
{
	const struct scry_fact *f = NULL;
	int n = 0;

	while (n < SAMPLES && (f = scry_fact_next(infer->calib, f, kind))) {
		struct sample *s = &samples[n];

		s->addr = scry_fact_addr(f, 1);
		s->length = (uint64_t)scry_fact_number(f, 2);
		s->first = scry_fact_addr(f, 3);
		s->last = scry_fact_addr(f, 4);
		scry_fact_text(f, 3, s->text, sizeof(s->text));
		if (scry_infer_word(infer, s->addr, &s->flags))
			n++;
	}
	return n;
}

static bool text_at(struct scry_infer *infer, uint64_t addr, const struct sample *s)
{
	char buf[4200];

	return s->length < sizeof(buf) &&
	       scry_mem_read(&infer->child->mem, addr, buf, s->length) == 0 &&
	       memcmp(buf, s->text, s->length) == 0;
}

/* The one flag bit that all of one kind have and none of the other. */
static struct scry_pick flag_of(const struct sample *samples, int n, bool embedded)
{
	uint64_t all = ~0ull, other = 0;
	struct scry_pick pick = {0};

	for (int i = 0; i < n; i++) {
		if (samples[i].embedded == embedded)
			all &= samples[i].flags;
		else
			other |= samples[i].flags;
	}
	for (int bit = 0; bit < 32; bit++) { /* a shape's number may lie above */
		if (all & ~other & (1ull << bit))
			scry_pick_add(&pick, 1ull << bit);
	}
	return pick;
}

/* Where a word of the slot points at the text, for all samples outside their slot. */
static void pick_string_words(struct scry_infer *infer, const struct sample *samples, int n,
			      struct scry_pick *ret_ptr, struct scry_pick *ret_len)
{
	for (uint64_t at = 8; at < SLOT_WORDS * 8; at += 8) {
		bool is_ptr = true, is_len = true;

		for (int i = 0; i < n; i++) {
			uint64_t word;

			if (samples[i].embedded)
				continue;
			if (!scry_infer_word(infer, samples[i].addr + at, &word))
				return;
			is_ptr = is_ptr && text_at(infer, word, &samples[i]);
			is_len = is_len && word == samples[i].length;
		}
		if (is_ptr)
			scry_pick_add(ret_ptr, at);
		if (is_len)
			scry_pick_add(ret_len, at);
	}
}

/* Embedded lengths: the same length word as outside, else the narrowest bit field of the flags. */
static bool find_embedded_length(struct scry_infer *infer, const struct sample *samples, int n)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	bool by_word = true;

	for (int i = 0; i < n; i++) {
		uint64_t word = ~0ull;

		if (!samples[i].embedded)
			continue;
		scry_infer_word(infer, samples[i].addr + l->string_len, &word);
		by_word = by_word && word == samples[i].length;
	}
	l->string_embed_len_mask = 0;
	if (by_word)
		return true;
	for (uint32_t width = 1; width <= 16; width++) {
		for (uint32_t shift = 5; shift + width <= 32; shift++) {
			uint64_t mask = ((1ull << width) - 1) << shift;
			bool fits = true;

			for (int i = 0; i < n && fits; i++)
				fits = !samples[i].embedded ||
				       (samples[i].flags & mask) >> shift == samples[i].length;
			if (!fits)
				continue;
			l->string_embed_len_mask = mask;
			l->string_embed_len_shift = shift;
			return true;
		}
	}
	return false;
}

int scry_infer_strings(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct sample *samples = calloc(SAMPLES, sizeof(*samples));
	struct scry_pick embed = {0}, ptr = {0}, len = {0}, flag;
	int n, inside = 0, err;

	if (!samples)
		return scry_no_memory("learning strings");
	n = collect(infer, "string", samples);
	for (uint64_t at = 8; at < l->slot_size; at += 8) {
		for (int i = 0; i < n; i++) {
			if (samples[i].length >= 5 &&
			    text_at(infer, samples[i].addr + at, &samples[i]))
				scry_pick_add(&embed, at);
		}
	}
	for (int i = 0; i < n; i++) {
		samples[i].embedded = text_at(infer, samples[i].addr + embed.value, &samples[i]);
		inside += samples[i].embedded;
	}
	pick_string_words(infer, samples, n, &ptr, &len);
	flag = flag_of(samples, n, false);
	l->string_embed = (uint32_t)embed.value;
	l->string_ptr = (uint32_t)ptr.value;
	l->string_len = (uint32_t)len.value;
	l->string_noembed = flag.value;
	err = scry_infer_item(infer, "string text in slot", &embed, "%d of %d strings", inside, n);
	if (!err)
		err = scry_infer_item(infer, "string pointer", &ptr, "%d strings", n - inside);
	if (!err)
		err = scry_infer_item(infer, "string length", &len, "%d strings", n - inside);
	if (!err)
		err = scry_infer_item(infer, "string not-embedded flag", &flag, "%d strings", n);
	if (!err && !find_embedded_length(infer, samples, n))
		err = scry_fail(-ENOTSUP, "cannot learn the length of embedded strings");
	free(samples);
	return err;
}

bool scry_infer_is_string(struct scry_infer *infer, uint64_t value, const char *text)
{
	char buf[512];
	uint64_t flags;

	if (!scry_infer_word(infer, value, &flags) ||
	    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_STRING)
		return false;
	return scry_ruby_string(infer->child, value, buf, sizeof(buf)) >= 0 &&
	       strcmp(buf, text) == 0;
}

static bool elements_at(struct scry_infer *infer, uint64_t addr, const struct sample *s)
{
	uint64_t first, last;

	return scry_infer_word(infer, addr, &first) &&
	       scry_infer_word(infer, addr + 8 * (s->length - 1), &last) && first == s->first &&
	       last == s->last;
}

int scry_infer_arrays(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct sample *samples = calloc(SAMPLES, sizeof(*samples));
	struct scry_pick embed = {0}, ptr = {0}, flag;
	int n, inside = 0, err;

	if (!samples)
		return scry_no_memory("learning arrays");
	n = collect(infer, "array", samples);
	/* One object in a slot may be an element or a left-over; all short arrays agree on one
	 * place. */
	for (uint64_t at = 8; at < l->slot_size; at += 8) {
		int fits = 0, shorts = 0;

		for (int i = 0; i < n; i++) {
			shorts += samples[i].length <= 3;
			fits += samples[i].length <= 3 &&
				elements_at(infer, samples[i].addr + at, &samples[i]);
		}
		if (shorts && fits == shorts)
			scry_pick_add(&embed, at);
	}
	for (int i = 0; i < n; i++) {
		samples[i].embedded =
			elements_at(infer, samples[i].addr + embed.value, &samples[i]);
		inside += samples[i].embedded;
	}
	for (uint64_t at = 8; at < SLOT_WORDS * 8; at += 8) {
		bool fits = inside < n;

		for (int i = 0; i < n && fits; i++) {
			uint64_t word;

			fits = samples[i].embedded ||
			       (scry_infer_word(infer, samples[i].addr + at, &word) &&
				elements_at(infer, word, &samples[i]));
		}
		if (fits)
			scry_pick_add(&ptr, at);
	}
	flag = flag_of(samples, n, true);
	l->array_embed_ptr = (uint32_t)embed.value;
	l->array_ptr = (uint32_t)ptr.value;
	l->array_embed = flag.value;
	err = scry_infer_item(infer, "array elements in slot", &embed, "%d of %d arrays", inside,
			      n);
	if (!err)
		err = scry_infer_item(infer, "array pointer", &ptr, "%d arrays", n - inside);
	if (!err)
		err = scry_infer_item(infer, "array embedded flag", &flag, "%d arrays", n);
	free(samples);
	return err;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Neighbours in a page differ by multiples of the slot size; the greatest common divisor is the
 * size. */
int scry_infer_slots(struct scry_infer *infer)
{
	const struct scry_fact *f = NULL;
	uint64_t addrs[256] = {0}, size = 0;
	struct scry_pick pick = {0};
	int n = 0, used = 0;

	while (n < 256 && (f = scry_fact_next(infer->calib, f, "slot")))
		addrs[n++] = scry_fact_addr(f, 1);
	qsort(addrs, (size_t)n, sizeof(addrs[0]), compare_addresses);
	for (int i = 1; i < n; i++) {
		uint64_t a = addrs[i] - addrs[i - 1], b = size;

		if (a == 0 || a > 2048)
			continue;
		while (b) {
			uint64_t rest = a % b;

			a = b;
			b = rest;
		}
		size = a;
		used++;
	}
	if (size >= 16 && size <= 1024 && used >= 20)
		scry_pick_add(&pick, size);
	infer->child->layout.slot_size = (uint32_t)pick.value;
	return scry_infer_item(infer, "slot size", &pick, "%d distances", used);
}
