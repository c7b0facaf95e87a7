/*
 * What the code of an ELF object looks like: ranges, transfers sorted by target, and questions.
 *
 * Cold parts are told apart by three signs, the surest first: a symbol "name.cold"; unwind rules
 * that begin in the middle of a frame; entered by jumps only, from one other range at most,
 * conditional ones or to a place that is not aligned, and nobody has the address. A static function
 * that one other reaches by tail jumps alone may look like the last; it is then not hooked at its
 * entry.
 */
#include "sys/text.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sys/fde.h"
#include "sys/text_decode.h"

#define WORDS_MAX (1u << 26) /* 512 MiB */
#define FILLER_MAX 64u
#define FUNCTION_ALIGN 16u
#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)

int scry_text_add(struct scry_text *text, uint64_t source, uint64_t target,
		  enum scry_transfer_kind kind)
{
	struct scry_words *w = &text->words;
	uint64_t from = source ? source - text->base + 1 : 0; /* 0 is kept for "none" */

	if (target < text->base || target >= text->end) {
		text->stats.outside++;
		return 0;
	}
	if (w->count == w->room) {
		size_t more = w->room ? w->room + w->room / 2 : 65536;
		uint64_t *rows =
			more <= WORDS_MAX ? reallocarray(w->rows, more, sizeof(*rows)) : NULL;

		if (!rows)
			return scry_fail(-ENOMEM, "no memory for %zu branches", more);
		w->rows = rows;
		w->room = more;
	}
	w->rows[w->count++] = (target - text->base) << 32 | from << 3 | kind;
	text->stats.transfers[kind]++;
	return 0;
}

/* Radix sort by target: three digits of 11 bits. */
int scry_text_sort(struct scry_text *text)
{
	struct scry_words *w = &text->words;
	uint64_t *from = w->rows, *to = malloc((w->count + 1) * sizeof(*to));
	uint64_t *spare = to;

	if (!to)
		return scry_fail(-ENOMEM, "no memory to sort %zu branches", w->count);
	for (unsigned int shift = 32; shift < 32 + 3 * DIGIT_BITS; shift += DIGIT_BITS) {
		size_t first[DIGITS] = {0}, sum = 0;
		uint64_t *swap = from;

		for (size_t i = 0; i < w->count; i++)
			first[from[i] >> shift & (DIGITS - 1)]++;
		for (size_t i = 0; i < DIGITS; i++) {
			size_t n = first[i];

			first[i] = sum;
			sum += n;
		}
		for (size_t i = 0; i < w->count; i++)
			to[first[from[i] >> shift & (DIGITS - 1)]++] = from[i];
		from = to;
		to = swap;
	}
	/* After an odd number of passes the result lies in the spare. */
	free(w->rows);
	w->rows = spare;
	w->room = w->count + 1;
	return 0;
}

size_t scry_text_lower(const struct scry_text *text, uint64_t target)
{
	size_t low = 0, high = text->words.count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (scry_word_target(text->words.rows[mid]) < target)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

size_t scry_text_range_count(const struct scry_text *text)
{
	return text->count;
}

const struct scry_text_range *scry_text_range(const struct scry_text *text, size_t i)
{
	return i < text->count ? &text->ranges[i] : NULL;
}

const struct scry_text_range *scry_text_at(const struct scry_text *text, uint64_t addr)
{
	size_t low = 0, high = text->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (text->ranges[mid].start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low && addr < text->ranges[low - 1].end ? &text->ranges[low - 1] : NULL;
}

void scry_text_bytes(const struct scry_text *text, const struct scry_text_range *range,
		     struct scry_x86_code *ret)
{
	size_t avail = 0, size = range->end - range->start, room;
	const struct scry_text_range *next = range + 1;
	const uint8_t *bytes = scry_image_at(&text->image, range->start, &avail);

	room = next < text->ranges + text->count ? next->start - range->start : avail;
	if (room > avail)
		room = avail;
	if (room > size + FILLER_MAX)
		room = size + FILLER_MAX;
	*ret = (struct scry_x86_code){
		.bytes = bytes, .address = range->start, .size = size, .avail = room};
}

bool scry_text_function(const struct scry_text *text, uint64_t addr, struct scry_text_function *ret)
{
	const struct scry_text_range *range = scry_text_at(text, addr);
	const struct scry_image_part *part;

	if (!range)
		return false;
	part = scry_image_part(&text->image, range->start);
	*ret = (struct scry_text_function){.start = range->start,
					   .end = range->end,
					   .next = part->end,
					   .is_cold = range->kind == SCRY_TEXT_COLD,
					   .index = (uint32_t)(range - text->ranges)};
	if (ret->index + 1 < text->count && range[1].start < part->end)
		ret->next = range[1].start;
	for (size_t i = scry_text_lower(text, range->start - text->base); i < text->words.count;
	     i++) {
		uint64_t word = text->words.rows[i];

		if (scry_word_target(word) != range->start - text->base)
			break;
		ret->is_jumped_to |= scry_word_kind(word) != SCRY_TRANSFER_CALL32 &&
				     scry_word_kind(word) != SCRY_TRANSFER_POINTER;
	}
	return true;
}

void scry_text_stats(const struct scry_text *text, struct scry_text_stats *ret)
{
	*ret = text->stats;
}

static struct scry_transfer unpack(const struct scry_text *text, uint64_t word)
{
	uint64_t source = scry_word_source(word);

	return (struct scry_transfer){.source = source ? text->base + source - 1 : 0,
				      .target = text->base + scry_word_target(word),
				      .kind = scry_word_kind(word)};
}

static bool is_direct(const struct scry_transfer *t)
{
	return t->kind < SCRY_TRANSFER_TABLE;
}

size_t scry_text_enters(const struct scry_text *text, uint64_t from, uint64_t to,
			const struct scry_transfers *ret)
{
	size_t found = 0;

	if (from >= text->end || to <= text->base)
		return 0;
	for (size_t i = scry_text_lower(text, from < text->base ? 0 : from + 1 - text->base);
	     i < text->words.count; i++) {
		struct scry_transfer t = unpack(text, text->words.rows[i]);

		if (t.target >= to)
			break;
		if (is_direct(&t) && t.source >= from && t.source < to)
			continue;
		if (ret && found < ret->room)
			ret->rows[found] = t;
		found++;
	}
	return found;
}

/* The range a cold part belongs to; others are their own. */
static uint32_t head_of(const struct scry_text *text, uint64_t addr)
{
	const struct scry_text_range *range = scry_text_at(text, addr);

	if (!range)
		return SCRY_TEXT_NO_PARENT;
	if (range->kind == SCRY_TEXT_COLD && range->parent != SCRY_TEXT_NO_PARENT)
		return range->parent;
	return (uint32_t)(range - text->ranges);
}

/* Visits the direct transfers to `target`; `own` chooses those from inside or from outside. */
static size_t direct_to(const struct scry_text *text, uint64_t target, bool own,
			const struct scry_transfers *ret)
{
	uint32_t head = head_of(text, target);
	size_t found = 0;

	if (target < text->base || target >= text->end)
		return 0;
	for (size_t i = scry_text_lower(text, target - text->base); i < text->words.count; i++) {
		struct scry_transfer t = unpack(text, text->words.rows[i]);
		bool is_own;

		if (t.target != target)
			break;
		is_own = head != SCRY_TEXT_NO_PARENT && head_of(text, t.source) == head;
		if (!is_direct(&t) || is_own != own)
			continue;
		if (ret && found < ret->room)
			ret->rows[found] = t;
		found++;
	}
	return found;
}

size_t scry_text_sites(const struct scry_text *text, uint64_t target,
		       const struct scry_transfers *ret)
{
	return direct_to(text, target, false, ret);
}

size_t scry_text_loops(const struct scry_text *text, uint64_t start, size_t window)
{
	uint32_t head = head_of(text, start);
	size_t found = 0;

	if (start < text->base || start >= text->end)
		return 0;
	for (size_t i = scry_text_lower(text, start - text->base); i < text->words.count; i++) {
		struct scry_transfer t = unpack(text, text->words.rows[i]);

		if (t.target != start)
			break;
		if (!is_direct(&t) || t.kind == SCRY_TRANSFER_CALL32 ||
		    (t.source >= start && t.source - start < window))
			continue;
		found += head_of(text, t.source) == head ? 1 : 0;
	}
	return found;
}

bool scry_text_is_pointed(const struct scry_text *text, uint64_t target)
{
	if (target < text->base || target >= text->end)
		return false;
	for (size_t i = scry_text_lower(text, target - text->base); i < text->words.count; i++) {
		struct scry_transfer t = unpack(text, text->words.rows[i]);

		if (t.target != target)
			break;
		if (t.kind == SCRY_TRANSFER_POINTER)
			return true;
	}
	return false;
}

/* Who enters a range from outside, as far as telling cold parts apart needs it. */
struct entrances {
	uint32_t source; /* the one range they come from */
	size_t jumps, conditional, calls, pointers;
	bool many;
};

static struct entrances entrances_of(const struct scry_text *text, size_t index)
{
	const struct scry_text_range *range = &text->ranges[index];
	struct entrances e = {.source = SCRY_TEXT_NO_PARENT};

	for (size_t i = scry_text_lower(text, range->start - text->base); i < text->words.count;
	     i++) {
		struct scry_transfer t = unpack(text, text->words.rows[i]);
		const struct scry_text_range *from;

		if (t.target >= range->end)
			break;
		from = t.source ? scry_text_at(text, t.source) : NULL;
		if (from == range)
			continue;
		if (t.kind == SCRY_TRANSFER_CALL32)
			e.calls++;
		else if (t.kind == SCRY_TRANSFER_POINTER || !from)
			e.pointers++;
		else
			e.jumps++;
		if (t.kind == SCRY_TRANSFER_JCC32 || t.kind == SCRY_TRANSFER_JCC8)
			e.conditional++;
		if (from && is_direct(&t) && t.kind != SCRY_TRANSFER_CALL32) {
			uint32_t source = (uint32_t)(from - text->ranges);

			e.many |= e.source != SCRY_TEXT_NO_PARENT && e.source != source;
			e.source = source;
		}
	}
	return e;
}

/* Signs two and three; sign one, and who has a symbol, are known by now. `is_entry` is in parallel
 * to the ranges. */
static void find_cold(struct scry_text *text, const struct scry_fdes *fdes)
{
	for (size_t i = 0; i < text->count; i++) {
		struct scry_text_range *range = &text->ranges[i];
		struct entrances e = entrances_of(text, i);

		/* Nobody at all leads to a part that is only a landing pad. */
		bool is_part = !e.calls && !e.pointers && !e.many &&
			       (e.conditional || range->start % FUNCTION_ALIGN != 0);

		if (range->kind == SCRY_TEXT_FUNCTION && !range->has_symbol &&
		    (!fdes->rows[i].is_entry || is_part))
			range->kind = SCRY_TEXT_COLD;
		if (range->kind == SCRY_TEXT_COLD)
			range->parent = e.source;
	}
	/* The parent of a cold part may itself be one. */
	for (size_t i = 0; i < text->count; i++) {
		struct scry_text_range *range = &text->ranges[i];

		for (int depth = 0; depth < 8 && range->kind == SCRY_TEXT_COLD &&
				    range->parent != SCRY_TEXT_NO_PARENT &&
				    text->ranges[range->parent].kind == SCRY_TEXT_COLD;
		     depth++)
			range->parent = text->ranges[range->parent].parent;
	}
}

static int mark_symbol(const struct scry_sym *sym, void *arg)
{
	struct scry_text *text = arg;
	struct scry_text_range *range;

	if (sym->type != STT_FUNC && sym->type != STT_GNU_IFUNC)
		return 0;
	range = (struct scry_text_range *)(uintptr_t)scry_text_at(text, sym->value);
	if (!range || range->start != sym->value)
		return 0;
	if (strstr(sym->name, ".cold"))
		range->kind = SCRY_TEXT_COLD;
	else
		range->has_symbol = true;
	return 0;
}

/* Ranges of the sections .plt, .plt.got, .plt.sec; without section headers by the stub's push. */
static void mark_plt(struct scry_text *text, struct scry_elf *elf)
{
	static const char *const names[] = {".plt", ".plt.got", ".plt.sec", ".iplt"};

	for (size_t i = 0; i < text->count; i++) {
		struct scry_text_range *range = &text->ranges[i];
		size_t avail = 0;
		const uint8_t *bytes = scry_image_at(&text->image, range->start, &avail);

		if (bytes && avail >= 2 && bytes[0] == 0xff && bytes[1] == 0x35)
			range->kind = SCRY_TEXT_PLT;
	}
	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
		uint64_t address, size;

		if (scry_elf_section(elf, names[n], &address, &size) < 0)
			continue;
		for (size_t i = 0; i < text->count; i++)
			if (text->ranges[i].start >= address &&
			    text->ranges[i].start - address < size)
				text->ranges[i].kind = SCRY_TEXT_PLT;
	}
}

static int make_ranges(struct scry_text *text, struct scry_elf *elf, const struct scry_fdes *fdes)
{
	text->base = UINT64_MAX;
	for (size_t i = 0; i < text->image.count; i++) {
		const struct scry_image_part *part = &text->image.parts[i];

		if (!(part->flags & PF_X))
			continue;
		text->base = part->start < text->base ? part->start : text->base;
		text->end = part->end > text->end ? part->end : text->end;
	}
	if (text->end - text->base >= SCRY_TEXT_SPAN_MAX)
		return scry_fail(-EFBIG, "the file's code spans %" PRIu64 " MiB, more than %llu",
				 (text->end - text->base) >> 20, SCRY_TEXT_SPAN_MAX >> 20);
	text->ranges = calloc(fdes->count, sizeof(*text->ranges));
	if (!text->ranges)
		return scry_fail(-ENOMEM, "no memory for %zu code ranges", fdes->count);
	text->count = fdes->count;
	text->stats.bad_fdes = fdes->bad;
	for (size_t i = 0; i < fdes->count; i++) {
		const struct scry_fde *fde = &fdes->rows[i];

		text->ranges[i] = (struct scry_text_range){
			.start = fde->start,
			.end = fde->end,
			.parent = SCRY_TEXT_NO_PARENT,
			.kind = fde->is_signal ? SCRY_TEXT_SIGNAL : SCRY_TEXT_FUNCTION};
	}
	mark_plt(text, elf);
	scry_elf_each_symbol(elf, mark_symbol, text);
	return 0;
}

/* Does it run at the addresses it was linked for? Position-independent files begin at 0. */
static bool is_fixed(struct scry_elf *elf)
{
	const Elf64_Phdr *p;

	for (size_t i = 0; (p = scry_elf_segment(elf, i)); i++)
		if (p->p_type == PT_LOAD)
			return p->p_vaddr != 0;
	return false;
}

static int open_text(struct scry_text *text, struct scry_elf *elf, struct scry_fdes *fdes)
{
	int r = scry_image_open(elf, &text->image);

	if (r == 0)
		r = scry_fde_read(elf, &text->image, fdes);
	if (r == 0)
		r = make_ranges(text, elf, fdes);
	if (r < 0)
		return r;
	text->is_fixed = is_fixed(elf);
	r = scry_text_decode(text);
	if (r == 0)
		r = scry_text_pointers(text, elf);
	if (r == 0)
		r = scry_text_sort(text);
	if (r < 0)
		return r;
	find_cold(text, fdes);
	for (size_t i = 0; i < text->count; i++)
		text->stats.ranges[text->ranges[i].kind]++;
	r = scry_text_tables(text);
	return r < 0 ? r : scry_text_sort(text);
}

int scry_text_read(struct scry_elf *elf, struct scry_text **ret)
{
	struct scry_text *text = calloc(1, sizeof(*text));
	struct scry_fdes fdes = {0};
	int r = text ? open_text(text, elf, &fdes) : scry_fail(-ENOMEM, "no memory");

	scry_fde_done(&fdes);
	if (text) {
		free(text->leas);
		text->leas = NULL;
	}
	if (r < 0)
		scry_text_free(text);
	else
		*ret = text;
	return r;
}

struct scry_text *scry_text_ref(struct scry_text *text)
{
	text->more_refs++;
	return text;
}

void scry_text_free(struct scry_text *text)
{
	if (!text || text->more_refs--)
		return;
	scry_image_close(&text->image);
	free(text->ranges);
	free(text->words.rows);
	free(text);
}
