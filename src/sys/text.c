/*
 * What the code of an ELF object looks like: ranges, and questions of what leads to them.
 *
 * Cold parts are told apart by three signs, the surest first: a symbol "name.cold"; unwind rules
 * that begin in the middle of a frame; entered by jumps only, from one other range at most,
 * conditional ones or to a place that is not aligned, and nothing has the address. A static
 * function that one other reaches by tail jumps alone may look like the last; it is then not hooked
 * at its entry.
 */
#include "sys/text.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "sys/fde.h"
#include "sys/text_decode.h"

#define WORDS_MAX (1u << 26) /* 512 MiB */
#define FILLER_MAX 64u
#define FUNCTION_ALIGN 16u
#define COLD_DEPTH 8

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
		size_t more = w->room ? w->room + w->room / 2 : 16384;
		uint64_t *rows =
			more <= WORDS_MAX ? reallocarray(w->rows, more, sizeof(*rows)) : NULL;
		uint32_t *next;

		if (rows)
			w->rows = rows;
		next = rows ? reallocarray(w->next, more, sizeof(*next)) : NULL;
		if (!next)
			return scry_no_memory("%zu branches", more);
		w->next = next;
		w->room = more;
	}
	w->rows[w->count++] = scry_word(from, target - text->base, kind);
	text->stats.transfers[kind]++;
	return 0;
}

size_t scry_text_range_count(const struct scry_text *text)
{
	return text->count;
}

/* 0, or what leads where is not known, now and later. */
static int note(struct scry_text *text, int r)
{
	text->has_failed |= r < 0;
	return text->has_failed ? -ENOMEM : 0;
}

const struct scry_text_range *scry_text_range(struct scry_text *text, size_t i)
{
	if (i >= text->count)
		return NULL;
	if (note(text, scry_text_settle(text, i)) == 0)
		note(text, scry_text_decode(text, 2 * i + 1));
	return &text->ranges[i];
}

const struct scry_text_range *scry_text_find(const struct scry_text *text, uint64_t addr)
{
	const size_t low = scry_bisect(text->count, i, text->ranges[i].start <= addr);

	return low && addr < text->ranges[low - 1].end ? &text->ranges[low - 1] : NULL;
}

const struct scry_text_range *scry_text_at(struct scry_text *text, uint64_t addr)
{
	const struct scry_text_range *range = scry_text_find(text, addr);

	return range ? scry_text_range(text, (size_t)(range - text->ranges)) : NULL;
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

/* Finds all that leads into [from, to), which is in the code, tables too if `tables`. */
static int reach(struct scry_text *text, uint64_t from, uint64_t to, bool tables)
{
	const struct scry_text_range *range;
	int r = note(text, scry_text_reach(text, from, to));

	for (uint64_t at = from; tables && r == 0 && at < to;
	     at = range && range->end < to ? range->end : at + 1) {
		range = scry_text_find(text, at);
		if (range)
			r = note(text, scry_text_tables(text, (size_t)(range - text->ranges)));
	}
	return r;
}

bool scry_text_function(struct scry_text *text, uint64_t addr, struct scry_text_function *ret)
{
	const struct scry_text_range *range = scry_text_at(text, addr);
	const struct scry_image_part *part;
	struct scry_word_walk walk;
	uint64_t word;

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
	ret->is_jumped_to = reach(text, range->start, range->start + 1, true) < 0 ||
			    scry_text_is_computed(text, ret->index);
	walk = scry_text_walk(text, range->start - text->base, range->start - text->base + 1);
	while (scry_text_step(text, &walk, &word))
		ret->is_jumped_to |= scry_word_kind(word) != SCRY_TRANSFER_CALL32 &&
				     scry_word_kind(word) != SCRY_TRANSFER_POINTER;
	return true;
}

void scry_text_stats(struct scry_text *text, struct scry_text_stats *ret)
{
	note(text, scry_text_all(text));
	*ret = text->stats;
	memset(ret->ranges, 0, sizeof(ret->ranges));
	for (size_t i = 0; i < text->count; i++)
		ret->ranges[text->ranges[i].kind]++;
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

static int by_word(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Transfers that answer a question. */
static int take(struct scry_text *text, uint64_t word)
{
	struct scry_text_found *found = &text->found;

	if (found->count == found->room) {
		size_t more = found->room ? 2 * found->room : 64;
		uint64_t *rows = reallocarray(found->rows, more, sizeof(*rows));

		if (!rows)
			return scry_no_memory("%zu branches", more);
		found->rows = rows;
		found->room = more;
	}
	found->rows[found->count++] = word;
	return 0;
}

static size_t give(struct scry_text *text, const struct scry_transfers *ret)
{
	const struct scry_text_found *found = &text->found;

	if (ret && ret->room && found->count > 1)
		qsort(found->rows, found->count, sizeof(*found->rows), by_word);
	for (size_t i = 0; ret && i < ret->room && i < found->count; i++)
		ret->rows[i] = unpack(text, found->rows[i]);
	return found->count;
}

/* Where it is not known what leads to a place, something does. */
static size_t give_unknown(const struct scry_transfers *ret, uint64_t target,
			   enum scry_transfer_kind kind)
{
	if (ret && ret->room)
		ret->rows[0] = (struct scry_transfer){.target = target, .kind = kind};
	return 1;
}

/* What may be jumped to at any byte, from `from` up to `to`. */
static int take_computed(struct scry_text *text, uint64_t from, uint64_t to)
{
	int r = 0;

	for (uint64_t at = from; at < to && r == 0;) {
		const struct scry_text_range *range = scry_text_find(text, at);

		if (range && scry_text_is_computed(text, (size_t)(range - text->ranges)))
			r = take(text, scry_word(0, at - text->base, SCRY_TRANSFER_POINTER));
		at = range ? range->end : at + 1;
	}
	return r;
}

size_t scry_text_enters(struct scry_text *text, uint64_t from, uint64_t to,
			const struct scry_transfers *ret)
{
	uint64_t first = from < text->base ? text->base : from + 1;
	uint64_t last = to < text->end ? to : text->end, word;
	struct scry_word_walk walk;
	int r;

	if (from >= text->end || to <= text->base || first >= last)
		return 0;
	r = reach(text, first, last, true);
	text->found.count = 0;
	if (r == 0)
		r = note(text, take_computed(text, first, last));
	walk = scry_text_walk(text, first - text->base, last - text->base);
	while (r == 0 && scry_text_step(text, &walk, &word)) {
		struct scry_transfer t = unpack(text, word);

		if (!is_direct(&t) || t.source < from || t.source >= to)
			r = note(text, take(text, word));
	}
	return r == 0 ? give(text, ret) : give_unknown(ret, first, SCRY_TRANSFER_POINTER);
}

uint32_t scry_text_head(const struct scry_text *text, size_t range)
{
	return text->ranges[range].kind == SCRY_TEXT_COLD ? text->ranges[range].parent
							  : (uint32_t)range;
}

/* The head of the range at `addr`, if there is one. */
static int find_head(struct scry_text *text, uint64_t addr, uint32_t *ret)
{
	const struct scry_text_range *range = scry_text_find(text, addr);
	int r = range ? scry_text_settle(text, (size_t)(range - text->ranges)) : 0;

	*ret = range && r == 0 ? scry_text_head(text, (size_t)(range - text->ranges))
			       : SCRY_TEXT_NO_PARENT;
	return r;
}

/* Code without unwind tables, and cold parts that nothing leads to. */
static bool is_of_nobody(struct scry_text *text, uint64_t addr)
{
	uint32_t head;

	return note(text, find_head(text, addr, &head)) < 0 || head == SCRY_TEXT_NO_PARENT;
}

/* Visits the direct transfers to `target` from outside its group, or those from inside. */
struct visit {
	bool own;
	uint64_t from, to; /* of `own`: but for calls, and those from here */
};

static size_t direct_to(struct scry_text *text, uint64_t target, const struct visit *visit,
			const struct scry_transfers *ret)
{
	uint32_t head = SCRY_TEXT_NO_PARENT;
	struct scry_word_walk walk;
	uint64_t word;
	int r;

	if (target < text->base || target >= text->end)
		return 0;
	r = note(text, find_head(text, target, &head));
	if (r == 0)
		r = reach(text, target, target + 1, visit->own);
	if (r == 0 && head != SCRY_TEXT_NO_PARENT)
		r = note(text, scry_text_find_group(text, head));
	text->found.count = 0;
	walk = scry_text_walk(text, target - text->base, target - text->base + 1);
	while (r == 0 && scry_text_step(text, &walk, &word)) {
		struct scry_transfer t = unpack(text, word);
		bool is_own;

		if (!is_direct(&t) && !(visit->own && t.kind == SCRY_TRANSFER_TABLE))
			continue;
		if (head != SCRY_TEXT_NO_PARENT)
			is_own = scry_text_is_in_group(text, t.source);
		else
			is_own = visit->own && is_of_nobody(text, t.source);
		if (is_own != visit->own)
			continue;
		if (visit->own &&
		    (t.kind == SCRY_TRANSFER_CALL32 ||
		     (is_direct(&t) && t.source >= visit->from && t.source < visit->to)))
			continue;
		r = note(text, take(text, word));
	}
	return r == 0 ? give(text, ret) : give_unknown(ret, target, SCRY_TRANSFER_JMP32);
}

size_t scry_text_sites(struct scry_text *text, uint64_t target, const struct scry_transfers *ret)
{
	return direct_to(text, target, &(struct visit){.own = false}, ret);
}

size_t scry_text_loops(struct scry_text *text, uint64_t start, size_t window)
{
	return direct_to(text, start, &(struct visit){true, start, start + window}, NULL);
}

bool scry_text_is_pointed(struct scry_text *text, uint64_t target)
{
	struct scry_word_walk walk;
	uint64_t word;

	if (target < text->base || target >= text->end)
		return false;
	if (reach(text, target, target + 1, false) < 0)
		return true;
	walk = scry_text_walk(text, target - text->base, target - text->base + 1);
	while (scry_text_step(text, &walk, &word))
		if (scry_word_kind(word) == SCRY_TRANSFER_POINTER)
			return true;
	return false;
}

/* What enters a range from outside, as far as telling cold parts apart needs it. */
struct entrances {
	uint32_t source; /* the one range they come from */
	size_t jumps, conditional, calls, pointers;
	bool many;
};

/* All that leads there is known. */
static struct entrances entrances_of(const struct scry_text *text, size_t index)
{
	const struct scry_text_range *range = &text->ranges[index];
	struct scry_word_walk walk =
		scry_text_walk(text, range->start - text->base, range->end - text->base);
	struct entrances e = {.source = SCRY_TEXT_NO_PARENT};
	uint64_t word, last = 0;

	while (scry_text_step(text, &walk, &word)) {
		struct scry_transfer t = unpack(text, word);
		const struct scry_text_range *from =
			t.source ? scry_text_find(text, t.source) : NULL;

		if (from == range || t.kind == SCRY_TRANSFER_TABLE)
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
			if (word >= last) { /* of several the last one counts */
				e.source = source;
				last = word;
			}
		}
	}
	return e;
}

/* Signs two and three; sign one, and which has a symbol, are known by now. */
static int know_kind(struct scry_text *text, size_t i)
{
	struct scry_text_range *range = &text->ranges[i];
	struct scry_text_unit *unit = &text->units[2 * i + 1];
	struct entrances e;
	int r;

	if (unit->is_kind_known)
		return 0;
	if (range->kind == SCRY_TEXT_COLD ||
	    (range->kind == SCRY_TEXT_FUNCTION && !range->has_symbol)) {
		bool is_part;

		r = scry_text_reach(text, range->start, range->end);
		if (r < 0)
			return r;
		e = entrances_of(text, i);
		/* Nothing at all leads to a part that is only a landing pad. */
		is_part = !e.calls && !e.pointers && !e.many &&
			  (e.conditional || range->start % FUNCTION_ALIGN != 0);
		if (!unit->is_entry || is_part)
			range->kind = SCRY_TEXT_COLD;
		if (range->kind == SCRY_TEXT_COLD)
			range->parent = e.source;
	}
	unit->is_kind_known = true;
	return 0;
}

/* The parent of a cold part may itself be one. */
int scry_text_settle(struct scry_text *text, size_t i)
{
	struct scry_text_range *range = &text->ranges[i];
	int r;

	if (text->units[2 * i + 1].is_settled)
		return 0;
	r = know_kind(text, i);
	for (int depth = 0; depth < COLD_DEPTH && r == 0 && range->kind == SCRY_TEXT_COLD &&
			    range->parent != SCRY_TEXT_NO_PARENT;
	     depth++) {
		r = know_kind(text, range->parent);
		if (r < 0 || text->ranges[range->parent].kind != SCRY_TEXT_COLD)
			break;
		range->parent = text->ranges[range->parent].parent;
	}
	text->units[2 * i + 1].is_settled = r == 0;
	return r;
}

static int mark_symbol(const struct scry_sym *sym, void *arg)
{
	struct scry_text *text = arg;
	struct scry_text_range *range;

	if (sym->type != STT_FUNC && sym->type != STT_GNU_IFUNC)
		return 0;
	range = (struct scry_text_range *)(uintptr_t)scry_text_find(text, sym->value);
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

/* Then which bytes are loaded is a matter of order. */
static bool do_parts_overlap(const struct scry_image *image)
{
	for (size_t i = 0; i < image->count; i++)
		for (size_t k = 0; k < i; k++)
			if (image->parts[i].start < image->parts[k].end &&
			    image->parts[k].start < image->parts[i].end)
				return true;
	return false;
}

static int make_ranges(struct scry_text *text, struct scry_elf *elf, const struct scry_fdes *fdes)
{
	if (do_parts_overlap(&text->image))
		return scry_fail(-EINVAL, "the file's segments overlap");
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
	text->units = calloc(2 * fdes->count + 1, sizeof(*text->units));
	if (!text->ranges || !text->units)
		return scry_no_memory("%zu code ranges", fdes->count);
	text->count = fdes->count;
	text->group_of = SCRY_TEXT_NO_PARENT;
	text->stats.bad_fdes = fdes->bad;
	for (size_t i = 0; i < fdes->count; i++) {
		const struct scry_fde *fde = &fdes->rows[i];

		text->ranges[i] = (struct scry_text_range){
			.start = fde->start,
			.end = fde->end,
			.parent = SCRY_TEXT_NO_PARENT,
			.kind = fde->is_signal ? SCRY_TEXT_SIGNAL : SCRY_TEXT_FUNCTION};
		text->units[2 * i + 1].is_entry = fde->is_entry;
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
	r = scry_text_guess(text);
	if (r == 0)
		r = scry_text_pointers(text, elf);
	if (r == 0)
		scry_text_chain(text);
	return r;
}

int scry_text_read(struct scry_elf *elf, struct scry_text **ret)
{
	struct scry_text *text = calloc(1, sizeof(*text));
	struct scry_fdes fdes = {0};
	int r = text ? open_text(text, elf, &fdes) : scry_no_memory("");

	scry_fde_done(&fdes);
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
	free(text->units);
	free(text->words.rows);
	free(text->words.next);
	free(text->words.heads);
	free(text->guesses.rows);
	free(text->guesses.first);
	free(text->leas.rows);
	free(text->group.rows);
	free(text->found.rows);
	free(text);
}
