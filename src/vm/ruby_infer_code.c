/*
 * Infers iseqs: where a wrapper keeps its iseq, the body, label, path, first line, instruction
 * words and line table.
 *
 * The facts are what the VM's own disassembler says (InstructionSequence#to_a): for some 70 pieces
 * of code each instruction's position, name and line. The instruction array is proved by its
 * content: the same name has the same handler word everywhere, different names have different
 * words, all in the module's text.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define BODY_BYTES SCRY_RUBY_BODY_BYTES
#define STABLE_FLAGS 0xf01fu /* type, and the kind of internal object in bits 12..15 */

static void read_pieces(struct scry_infer *infer)
{
	const struct scry_calib *c = infer->calib;
	const struct scry_fact *f = NULL, *end = c->facts + c->fact_count;

	while (infer->piece_count < SCRY_INFER_PIECES && (f = scry_fact_next(c, f, "iseq"))) {
		struct scry_infer_piece *p = &infer->pieces[infer->piece_count++];

		p->fact = f;
		p->wrapper = scry_fact_addr(f, 1);
		scry_fact_text(f, 2, p->label, sizeof(p->label));
		scry_fact_text(f, 3, p->path, sizeof(p->path));
		p->first_line = (uint32_t)scry_fact_number(f, 4);
		p->size = (uint32_t)scry_fact_number(f, 5);
		while (f + 1 + p->insn_count < end &&
		       strcmp(f[1 + p->insn_count].words[0], "insn") == 0)
			p->insn_count++;
	}
}

/* The iseq of piece `p` if the wrapper keeps it at `at`, directly or behind one more pointer. */
static bool iseq_of(struct scry_infer *infer, const struct scry_infer_piece *p, uint64_t at,
		    bool indirect, uint64_t *ret)
{
	uint64_t word, flags;

	if (!scry_infer_word(infer, p->wrapper + at, &word) ||
	    (indirect && !scry_infer_word(infer, word, &word)))
		return false;
	if (!scry_infer_word(infer, word, &flags) ||
	    (flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_IMEMO)
		return false;
	*ret = word;
	return true;
}

/* Do all bodies, reached this way, hold their label at `label`? */
static bool labels_fit(struct scry_infer *infer, uint64_t body, uint64_t label)
{
	for (size_t i = 0; i < infer->piece_count; i++) {
		struct scry_infer_piece *p = &infer->pieces[i];
		uint64_t base, value;

		if (!scry_infer_word(infer, p->iseq + body, &base) ||
		    !scry_infer_word(infer, base + label, &value) ||
		    !scry_infer_is_string(infer, value, p->label))
			return false;
		p->body = base;
	}
	return true;
}

/* With the iseqs set, tries all (body, label). True when it found any. */
static bool try_bodies(struct scry_infer *infer, struct scry_pick *body, struct scry_pick *label)
{
	bool found = false;

	for (uint64_t b = 8; b < SCRY_RUBY_ISEQ_BYTES; b += 8) {
		for (uint64_t l = 0; l < BODY_BYTES; l += 8) {
			if (!labels_fit(infer, b, l))
				continue;
			scry_pick_add(body, b);
			scry_pick_add(label, l);
			found = true;
		}
	}
	return found;
}

int scry_infer_pieces(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick body = {0}, label = {0}, way = {0}, flags = {0};
	uint64_t value;
	int err;

	read_pieces(infer);
	for (uint64_t at = 8; at < 64 && infer->piece_count; at += 8) {
		for (int indirect = 0; indirect < 2; indirect++) {
			bool all = true;

			for (size_t i = 0; i < infer->piece_count && all; i++)
				all = iseq_of(infer, &infer->pieces[i], at, indirect,
					      &infer->pieces[i].iseq);
			if (all && try_bodies(infer, &body, &label))
				scry_pick_add(&way, at | (uint64_t)indirect);
		}
	}
	err = scry_infer_item(infer, "iseq of its wrapper", &way, "%zu pieces of code",
			      infer->piece_count);
	if (!err)
		err = scry_infer_item(infer, "iseq body", &body, "%zu labels", infer->piece_count);
	if (!err)
		err = scry_infer_item(infer, "iseq label", &label, "%zu labels",
				      infer->piece_count);
	if (err)
		return err;
	l->iseq_body = (uint32_t)body.value;
	l->body_label = (uint32_t)label.value;
	for (size_t i = 0; i < infer->piece_count; i++) {
		struct scry_infer_piece *p = &infer->pieces[i];

		if (!iseq_of(infer, p, way.value & ~1ull, way.value & 1, &p->iseq) ||
		    !scry_infer_word(infer, p->iseq + l->iseq_body, &p->body) ||
		    !scry_infer_word(infer, p->iseq, &value))
			return scry_fail(-ENOTSUP, "the calibration child's code moved");
		scry_pick_add(&flags, value & STABLE_FLAGS);
	}
	l->iseq_flags_mask = STABLE_FLAGS;
	l->iseq_flags_value = flags.value;
	return scry_infer_item(infer, "iseq flags", &flags, "%zu iseqs", infer->piece_count);
}

static bool is_path(struct scry_infer *infer, uint64_t value, const char *path)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	uint64_t flags, at;

	if (!scry_infer_word(infer, value, &flags))
		return false;
	if ((flags & SCRY_RUBY_TYPE_MASK) == SCRY_RUBY_T_ARRAY) {
		at = value + l->array_embed_ptr;
		if (!(flags & l->array_embed) && !scry_infer_word(infer, value + l->array_ptr, &at))
			return false;
		if (!scry_infer_word(infer, at, &value))
			return false;
	}
	return scry_infer_is_string(infer, value, path);
}

enum field { FIELD_PATH, FIELD_LINE_VALUE, FIELD_LINE_INT, FIELD_SIZE, FIELD_CODE };

static bool code_fits(struct scry_infer *infer, const struct scry_infer_piece *p, uint64_t code,
		      bool record);

static bool field_fits(struct scry_infer *infer, const struct scry_infer_piece *p, enum field field,
		       uint64_t at)
{
	uint64_t word = 0;
	uint32_t half = 0;

	if (field == FIELD_LINE_INT || field == FIELD_SIZE) {
		if (scry_mem_u32(&infer->child->mem, p->body + at, &half))
			return false;
		return half == (field == FIELD_SIZE ? p->size : p->first_line);
	}
	if (!scry_infer_word(infer, p->body + at, &word))
		return false;
	if (field == FIELD_PATH)
		return is_path(infer, word, p->path);
	if (field == FIELD_LINE_VALUE)
		return word == p->first_line * 2ull + 1;
	return code_fits(infer, p, word, false);
}

static struct scry_pick pick_field(struct scry_infer *infer, enum field field)
{
	uint64_t step = field == FIELD_LINE_INT || field == FIELD_SIZE ? 4 : 8;
	struct scry_pick pick = {0};

	for (uint64_t at = 0; at < BODY_BYTES; at += step) {
		bool fits = infer->piece_count > 0;

		for (size_t i = 0; i < infer->piece_count && fits; i++)
			fits = field_fits(infer, &infer->pieces[i], field, at);
		if (fits)
			scry_pick_add(&pick, at);
	}
	return pick;
}

static bool is_module_text(struct scry_infer *infer, uint64_t addr)
{
	const struct scry_map_entry *m = scry_maps_at(&infer->child->maps, addr);

	return m && m->x && strcmp(m->path, infer->child->module) == 0;
}

/* Does `name` always go with `word`? Records new pairs when asked. */
static bool word_fits(struct scry_infer *infer, const char *name, uint64_t word, bool record)
{
	for (size_t i = 0; i < infer->word_count; i++) {
		bool same_name = strcmp(infer->words_name[i], name) == 0;

		if (same_name || infer->words[i] == word)
			return same_name && infer->words[i] == word;
	}
	if (record && infer->word_count < 512) {
		infer->words_name[infer->word_count] = name;
		infer->words[infer->word_count++] = word;
	}
	return true;
}

static bool code_fits(struct scry_infer *infer, const struct scry_infer_piece *p, uint64_t code,
		      bool record)
{
	for (size_t i = 0; i < p->insn_count; i++) {
		const struct scry_fact *f = &p->fact[1 + i];
		uint64_t word;

		if (!scry_infer_word(infer, code + 8 * (uint64_t)scry_fact_number(f, 1), &word) ||
		    !is_module_text(infer, word) || f->count < 4)
			return false;
		if (record && !word_fits(infer, f->words[2], word, true))
			return false;
	}
	return true;
}

/* Records all pairs; false when one name had two words or one word two names. */
static bool prove_words(struct scry_infer *infer)
{
	for (size_t i = 0; i < infer->piece_count; i++) {
		struct scry_infer_piece *p = &infer->pieces[i];

		if (!scry_infer_word(infer, p->body + infer->child->layout.body_encoded,
				     &p->encoded) ||
		    !code_fits(infer, p, p->encoded, true))
			return false;
	}
	return true;
}

int scry_infer_code(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick path = pick_field(infer, FIELD_PATH);
	struct scry_pick line = pick_field(infer, FIELD_LINE_VALUE);
	struct scry_pick size = pick_field(infer, FIELD_SIZE);
	struct scry_pick code = pick_field(infer, FIELD_CODE);
	size_t n = infer->piece_count;
	int err;

	l->first_line_fixnum = line.hits > 0;
	if (!line.hits) {
		/* An int is repeated in the code location behind it; the first one is the field. */
		line = pick_field(infer, FIELD_LINE_INT);
		line.hits = line.hits ? 1 : 0;
	}
	l->body_path = (uint32_t)path.value;
	l->body_first_line = (uint32_t)line.value;
	l->body_size = (uint32_t)size.value;
	l->body_encoded = (uint32_t)code.value;
	err = scry_infer_item(infer, "iseq path", &path, "%zu paths", n);
	if (!err)
		err = scry_infer_item(infer, "iseq first line", &line, "%zu lines", n);
	if (!err)
		err = scry_infer_item(infer, "iseq size", &size, "%zu sizes", n);
	if (!err && code.hits == 1 && !prove_words(infer))
		code.hits = 0;
	if (!err)
		err = scry_infer_item(infer, "iseq instruction words", &code,
				      "%zu instructions, each with its own word",
				      infer->word_count);
	return err;
}

/*
 * Do these offsets give every known line of piece `p`? `l` has the candidate in it. What the
 * compiler added itself may have line 0, which the disassembler leaves out.
 */
static bool lines_fit(struct scry_infer *infer, const struct scry_infer_piece *p, size_t *zeros)
{
	struct scry_ruby_iseq iseq = {p->iseq, p->body, p->encoded, p->size};

	for (size_t i = 0; i < p->insn_count; i++) {
		const struct scry_fact *f = &p->fact[1 + i];
		uint32_t line;

		if (scry_ruby_iseq_line(infer->child, &iseq, (uint32_t)scry_fact_number(f, 1),
					&line))
			return false;
		*zeros += line == 0;
		if (line && line != (uint32_t)scry_fact_number(f, 3))
			return false;
	}
	return true;
}

/* The longest piece refuses wrong candidates soonest. */
static const struct scry_infer_piece *longest(struct scry_infer *infer)
{
	size_t big = 0;

	for (size_t i = 0; i < infer->piece_count; i++) {
		if (infer->pieces[i].size > infer->pieces[big].size)
			big = i;
	}
	return &infer->pieces[big];
}

/* The last position's rank is the number of entries: proves the table and the count by each other.
 * Both are places in the body. */
static bool count_fits(struct scry_infer *infer, const struct scry_infer_piece *p, uint32_t succ_at,
		       uint32_t count_at)
{
	uint32_t count, rank;
	uint64_t succ;

	return scry_mem_u32(&infer->child->mem, p->body + count_at, &count) == 0 && count > 1 &&
	       scry_infer_word(infer, p->body + succ_at, &succ) &&
	       scry_ruby_succ_rank(&infer->child->mem, succ, p->size - 1, &rank) == 0 &&
	       rank == count;
}

static bool all_lines_fit(struct scry_infer *infer)
{
	size_t zeros = 0, lines = longest(infer)->insn_count;

	if (!lines_fit(infer, longest(infer), &zeros) || zeros * 20 > lines)
		return false;
	lines = zeros = 0;
	for (size_t i = 0; i < infer->piece_count; i++) {
		lines += infer->pieces[i].insn_count;
		if (!lines_fit(infer, &infer->pieces[i], &zeros))
			return false;
	}
	return zeros * 20 <= lines;
}

/* The entries and their shape, with the table and the count given; places are the body's. */
static void try_entries(struct scry_infer *infer, struct scry_pick *info, struct scry_pick *shape)
{
	struct scry_ruby_layout *l = &infer->child->layout;

	for (l->insns_entries = 0; l->insns_entries < BODY_BYTES; l->insns_entries += 8) {
		for (uint32_t size = 4; size <= 24; size += 4) {
			for (uint32_t line = 0; line < size; line += 4) {
				l->insns_entry_size = size;
				l->insns_entry_line = line;
				if (!all_lines_fit(infer))
					continue;
				scry_pick_add(info, (uint64_t)l->insns_entries << 32 |
							    l->insns_succ << 16 | l->insns_count);
				scry_pick_add(shape, (uint64_t)size << 32 | line);
			}
		}
	}
}

static bool is_zero_in_all(struct scry_infer *infer, uint32_t at)
{
	uint64_t word;

	for (size_t i = 0; i < infer->piece_count; i++)
		if (!scry_infer_word(infer, infer->pieces[i].body + at, &word) || word)
			return false;
	return true;
}

/*
 * Where the positions of the entries were while the code was made: the VM gives them back, so it is
 * a word of the four that is 0 in all pieces, and has no other such word beside it. A guess, by
 * which nothing is named that was not checked (ruby_iseq_log); it is none where the four are not
 * together, or where the VM keeps the positions (VM_CHECK_MODE).
 */
static void infer_positions(struct scry_infer *infer, uint32_t first, uint32_t last)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick pick = {0};

	for (uint32_t at = first < 8 ? 0 : first - 8; at <= last + 8; at += 8)
		if (at != l->insns_entries && at != l->insns_succ && at != (l->insns_count & ~7u) &&
		    is_zero_in_all(infer, at))
			scry_pick_add(&pick, at);
	l->insns_positions = SCRY_RUBY_NONE;
	if (pick.hits == 1 && last - first <= 24 && pick.value + 24 >= last &&
	    pick.value <= first + 24)
		l->insns_positions = (uint32_t)pick.value;
}

/* Places in the body become places in what begins with the first of them. */
static void set_base(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	const uint32_t at[] = {l->insns_entries, l->insns_succ, l->insns_count & ~7u};
	uint32_t first = at[0], last = at[0];

	for (size_t i = 1; i < 3; i++) {
		first = at[i] < first ? at[i] : first;
		last = at[i] > last ? at[i] : last;
	}
	infer_positions(infer, first, last);
	l->body_insns_info = l->insns_positions < first ? l->insns_positions : first;
	l->insns_entries -= l->body_insns_info;
	l->insns_succ -= l->body_insns_info;
	l->insns_count -= l->body_insns_info;
	if (l->insns_positions != SCRY_RUBY_NONE)
		l->insns_positions -= l->body_insns_info;
}

int scry_infer_lines(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick info = {.parts = 3}, shape = {.parts = 2};
	unsigned int lines = 0;
	int err;

	if (!infer->piece_count)
		return scry_fail(-ENOTSUP, "cannot learn line tables: no code");
	l->body_insns_info = 0;
	for (l->insns_succ = 0; l->insns_succ < BODY_BYTES; l->insns_succ += 8) {
		for (l->insns_count = 0; l->insns_count < BODY_BYTES; l->insns_count += 4)
			if (count_fits(infer, longest(infer), l->insns_succ, l->insns_count))
				try_entries(infer, &info, &shape);
	}
	l->insns_entries = (uint32_t)(info.value >> 32);
	l->insns_succ = (uint32_t)(info.value >> 16) & 0xffff;
	l->insns_count = (uint32_t)info.value & 0xffff;
	set_base(infer);
	l->insns_entry_size = (uint32_t)(shape.value >> 32);
	l->insns_entry_line = (uint32_t)shape.value;
	for (size_t i = 0; i < infer->piece_count; i++)
		lines += (unsigned int)infer->pieces[i].insn_count;
	err = scry_infer_item(infer, "line table", &info, "%u of %u lines", lines, lines);
	if (!err)
		err = scry_infer_item(infer, "line entry", &shape, "%u of %u lines", lines, lines);
	return err;
}
