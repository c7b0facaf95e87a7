/*
 * What leads to a place, with little decoding.
 *
 * To decode all of an object takes long: a C library's code some 30 ms. But a direct branch has its
 * displacement in its last bytes. So one look at each four bytes in a row, without knowing where
 * instructions begin, finds all that could be displacements, and where they would lead; those that
 * lead to the place, and what lies within reach of a short branch, show which units are to be
 * decoded. Others have nothing that leads there: the answer is that of decoding all.
 */
#include "sys/text_decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"

/* From an instruction's first byte to where a branch of 8 bits leads: 15 + 127, rounded up. */
#define SHORT_REACH 160u

static size_t bucket_count(const struct scry_text *text)
{
	return (size_t)((text->end - text->base) / SCRY_TEXT_BUCKET) + 1;
}

void scry_text_chain(struct scry_text *text)
{
	struct scry_words *w = &text->words;

	for (; w->chained < w->count; w->chained++) {
		uint32_t *head =
			&w->heads[scry_word_target(w->rows[w->chained]) / SCRY_TEXT_BUCKET];

		w->next[w->chained] = *head;
		*head = (uint32_t)w->chained + 1;
	}
}

struct scry_word_walk scry_text_walk(const struct scry_text *text, uint64_t from, uint64_t to)
{
	struct scry_word_walk walk = {.from = from, .to = to, .bucket = from / SCRY_TEXT_BUCKET};

	if (from < to)
		walk.next = text->words.heads[walk.bucket];
	return walk;
}

bool scry_text_step(const struct scry_text *text, struct scry_word_walk *walk, uint64_t *ret)
{
	while (walk->from < walk->to) {
		uint64_t word;

		while (!walk->next) {
			walk->bucket++;
			if (walk->bucket * SCRY_TEXT_BUCKET >= walk->to)
				return false;
			walk->next = text->words.heads[walk->bucket];
		}
		word = text->words.rows[walk->next - 1];
		walk->next = text->words.next[walk->next - 1];
		if (scry_word_target(word) < walk->from || scry_word_target(word) >= walk->to)
			continue;
		*ret = word;
		return true;
	}
	return false;
}

/* Where the four bytes at offset `at` would lead, as an offset, if that is in the code. */
static uint32_t lead(const uint8_t *bytes, uint32_t at)
{
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	return at + 4 + word;
}

static uint32_t target_of(const struct scry_text *text, uint32_t guess)
{
	uint32_t at = guess & ~SCRY_TEXT_ABSOLUTE, word;
	size_t avail;
	const uint8_t *bytes = scry_image_at(&text->image, text->base + at, &avail);

	if (!(guess & SCRY_TEXT_ABSOLUTE))
		return lead(bytes, at);
	memcpy(&word, bytes, sizeof(word));
	return word - (uint32_t)text->base;
}

/* Writes them in the order of the code and returns how many; `rows` has room for all. No branch
 * depends on what the bytes are: it would be predicted wrongly too often. */
static size_t guess_part(const struct scry_text *text, const struct scry_image_part *part,
			 uint32_t *rows)
{
	uint32_t span = (uint32_t)(text->end - text->base);
	uint32_t first = (uint32_t)(part->start - text->base), base = (uint32_t)text->base;
	uint64_t size = part->end - part->start;
	size_t count = 0;

	for (uint32_t i = 0; i + 4 <= size; i++) {
		rows[count] = first + i;
		count += lead(part->bytes + i, first + i) < span;
	}
	/* An address is a number of 32 bits, or the low ones are the first of 64. */
	for (uint32_t i = 0; text->is_fixed && i + 4 <= size; i++) {
		uint32_t word;

		memcpy(&word, part->bytes + i, sizeof(word));
		rows[count] = (first + i) | SCRY_TEXT_ABSOLUTE;
		count += word >= base && word - base < span;
	}
	return count;
}

static int sort_guesses(struct scry_text *text, const uint32_t *rows, size_t count)
{
	struct scry_guesses *g = &text->guesses;
	const size_t buckets = bucket_count(text);
	uint32_t sum = 0;

	g->first = calloc(buckets + 1, sizeof(*g->first));
	g->rows = malloc((count + 1) * sizeof(*g->rows));
	if (!g->first || !g->rows)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		g->first[target_of(text, rows[i]) / SCRY_TEXT_BUCKET]++;
	for (size_t i = 0; i <= buckets; i++) {
		sum += g->first[i];
		g->first[i] = sum;
	}
	/* From the last one down: each `first` ends where its bucket begins. */
	for (size_t i = count; i-- > 0;)
		g->rows[--g->first[target_of(text, rows[i]) / SCRY_TEXT_BUCKET]] = rows[i];
	return 0;
}

int scry_text_guess(struct scry_text *text)
{
	size_t room = 1, count = 0;
	uint32_t *rows;
	int r = -ENOMEM;

	for (size_t i = 0; i < text->image.count; i++)
		if (text->image.parts[i].flags & PF_X)
			room += text->image.parts[i].end - text->image.parts[i].start;
	rows = calloc(text->is_fixed ? 2 * room : room, sizeof(*rows));
	text->words.heads = calloc(bucket_count(text), sizeof(*text->words.heads));
	if (rows && text->words.heads) {
		for (size_t i = 0; i < text->image.count; i++)
			if (text->image.parts[i].flags & PF_X)
				count += guess_part(text, &text->image.parts[i], rows + count);
		r = sort_guesses(text, rows, count);
	}
	free(rows);
	return r < 0 ? scry_no_memory("the branches of %zu bytes", room) : 0;
}

/* The unit that `addr` is in. */
static size_t unit_at(const struct scry_text *text, uint64_t addr)
{
	const size_t low = scry_bisect(text->count, i, text->ranges[i].start <= addr);

	return low && addr < text->ranges[low - 1].end ? 2 * low - 1 : 2 * low;
}

static int reach_near(struct scry_text *text, uint64_t from, uint64_t to)
{
	size_t first = unit_at(text, from < SHORT_REACH ? 0 : from - SHORT_REACH);
	size_t last = unit_at(text, to + SHORT_REACH);
	int r = 0;

	for (size_t i = first; i <= last && r == 0; i++)
		r = scry_text_decode(text, i);
	return r;
}

int scry_text_reach(struct scry_text *text, uint64_t from, uint64_t to)
{
	const struct scry_guesses *g = &text->guesses;
	uint32_t last;
	int r = 0;

	if (text->are_all_read || from >= to)
		return 0;
	r = reach_near(text, from, to);
	last = g->first[(to - 1 - text->base) / SCRY_TEXT_BUCKET + 1];
	for (uint32_t i = g->first[(from - text->base) / SCRY_TEXT_BUCKET]; i < last && r == 0;
	     i++) {
		uint64_t target = text->base + target_of(text, g->rows[i]);

		if (target >= from && target < to)
			r = scry_text_decode(
				text,
				unit_at(text, text->base + (g->rows[i] & ~SCRY_TEXT_ABSOLUTE)));
	}
	return r;
}

int scry_text_number(struct scry_text_numbers *to, uint32_t number)
{
	if (to->count == to->room) {
		size_t more = to->room ? 2 * to->room : 16;
		uint32_t *rows = reallocarray(to->rows, more, sizeof(*rows));

		if (!rows)
			return scry_no_memory("%zu parts of a function", more);
		to->rows = rows;
		to->room = more;
	}
	to->rows[to->count++] = number;
	return 0;
}

/* Is range `to` a cold part of `head` that is not listed yet? */
static int add_if_part(struct scry_text *text, uint32_t head, size_t to)
{
	int r = scry_text_settle(text, to);

	if (r < 0 || to == head || scry_text_head(text, to) != head)
		return r;
	for (size_t i = 0; i < text->group.count; i++)
		if (text->group.rows[i] == to)
			return 0;
	return scry_text_number(&text->group, (uint32_t)to);
}

/* A part is led to by a jump from the head, or from another part. */
int scry_text_find_group(struct scry_text *text, uint32_t head)
{
	struct scry_text_numbers *group = &text->group;
	int r;

	if (text->group_of == head)
		return 0;
	text->group_of = SCRY_TEXT_NO_PARENT;
	group->count = 0;
	r = scry_text_number(group, head);
	for (size_t i = 0; i < group->count && r == 0; i++) {
		const struct scry_text_unit *unit = &text->units[2 * group->rows[i] + 1];

		r = scry_text_decode(text, 2 * group->rows[i] + 1);
		for (uint32_t k = unit->word; k < unit->word_end && r == 0; k++) {
			uint64_t word = text->words.rows[k];
			const struct scry_text_range *to =
				scry_word_kind(word) == SCRY_TRANSFER_CALL32 ||
						scry_word_kind(word) >= SCRY_TRANSFER_TABLE
					? NULL
					: scry_text_find(text, text->base + scry_word_target(word));

			if (to)
				r = add_if_part(text, head, (size_t)(to - text->ranges));
		}
	}
	if (r == 0)
		text->group_of = head;
	return r;
}

bool scry_text_is_in_group(const struct scry_text *text, uint64_t addr)
{
	const struct scry_text_range *range = scry_text_find(text, addr);

	for (size_t i = 0; range && i < text->group.count; i++)
		if (text->group.rows[i] == (size_t)(range - text->ranges))
			return true;
	return false;
}
