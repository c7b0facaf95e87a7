/*
 * Names control frames. See ruby_symbol.h.
 *
 * All symbols of a stack are checked by one system call: of each the iseq, its body's head and its
 * method entry.
 */
#include "vm/ruby_symbol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vm/ruby_value.h"

#define SYMBOLS_MAX (1u << 20)
#define LINES_MAX (4u << 20)
#define NAMES_BYTES (256u << 20)
#define HEAD_MAX (SCRY_RUBY_BODY_BYTES + 8) /* bytes of a body's head that are read */
#define ENTRY_BYTES 48u /* what a layout may say of an entry lies in it; what is behind, not */
#define CELL_WORDS 5u	/* of an object that is not a method entry, its flags among them */
#define IMEMO_TYPE 0xf000u
#define IMEMO_SVAR 0x2000u
#define NAME_MAX_BYTES 1024

enum { W_BODY, W_ENCODED, W_SIZE, W_PATH, W_LABEL, W_LINE, W_INSNS, W_ENTRY };

_Static_assert(W_ENTRY + ENTRY_BYTES / 8 - 1 <= 12, "words of a symbol");

struct look { /* the bytes that are compared */
	uint8_t iseq[SCRY_RUBY_ISEQ_BYTES], body[HEAD_MAX], entry[ENTRY_BYTES];
};

int scry_symbols_init(struct scry_symbols *s)
{
	*s = (struct scry_symbols){.turn = 1, .room = 256};
	scry_intern_init(&s->names, SYMBOLS_MAX, NAMES_BYTES);
	scry_map_init(&s->ids, SYMBOLS_MAX);
	scry_map_init(&s->lines, LINES_MAX);
	scry_map_init(&s->entries, SYMBOLS_MAX);
	s->rows = calloc(s->room, sizeof(*s->rows));
	s->checked = calloc(s->room, sizeof(*s->checked));
	if (s->rows && s->checked)
		return 0;
	scry_symbols_done(s);
	return -ENOMEM;
}

void scry_symbols_done(struct scry_symbols *s)
{
	scry_intern_done(&s->names);
	scry_map_done(&s->ids);
	scry_map_done(&s->lines);
	scry_map_done(&s->entries);
	free(s->rows);
	free(s->checked);
	*s = (struct scry_symbols){0};
}

void scry_symbols_turn(struct scry_symbols *s)
{
	s->turn++;
}

const struct scry_symbol *scry_symbols_get(const struct scry_symbols *s, uint32_t id)
{
	return id && id <= s->count ? &s->rows[id - 1] : NULL;
}

const char *scry_symbols_text(const struct scry_symbols *s, uint32_t name)
{
	const char *text = scry_intern_get(&s->names, name, NULL);

	return text ? text : "";
}

static uint64_t word_at(const uint8_t *bytes, uint32_t at)
{
	uint64_t word;

	memcpy(&word, bytes + at, sizeof(word));
	return word;
}

static size_t head_size(const struct scry_ruby_layout *l)
{
	uint32_t most = l->body_encoded, at[] = {l->body_size,
						 l->body_path,
						 l->body_label,
						 l->body_first_line,
						 l->body_insns_info + l->insns_succ,
						 l->body_insns_info + l->insns_entries};

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		most = at[i] > most ? at[i] : most;
	return most + 8 <= HEAD_MAX ? most + 8 : HEAD_MAX;
}

/* The pieces of one symbol: its iseq, its body as it was last known, its entry. */
static size_t add_spans(const struct scry_ruby *ruby, const struct scry_symbol *symbol,
			struct look *look, struct scry_mem_span *spans)
{
	size_t n = 0;

	memset(look, 0, sizeof(*look));
	if (symbol->iseq) {
		spans[n++] = (struct scry_mem_span){symbol->iseq, look->iseq,
						    ruby->layout.iseq_body + 8, false};
		spans[n++] = (struct scry_mem_span){symbol->code.body, look->body,
						    head_size(&ruby->layout), false};
	}
	if (symbol->entry >= SCRY_RUBY_NIL_MAX && symbol->entry % 8 == 0)
		spans[n++] = (struct scry_mem_span){symbol->entry, look->entry, ENTRY_BYTES, false};
	return n;
}

/* Words behind the flags that stay what they are: a slot more would be of the next object, and a
 * cell of special variables is written with each match. */
static size_t entry_words(const struct scry_ruby_layout *l, uint64_t flags)
{
	uint32_t last = l->me_owner > l->me_def ? l->me_owner : l->me_def;

	if ((flags & l->iseq_flags_mask) == l->me_flags)
		return last / 8 < ENTRY_BYTES / 8 ? last / 8 : ENTRY_BYTES / 8 - 1;
	return (flags & IMEMO_TYPE) == IMEMO_SVAR ? 1 : CELL_WORDS - 1;
}

/* The words by which it is known again. */
static void words_of(const struct scry_ruby_layout *l, const struct look *look, uint64_t ret[12])
{
	memset(ret, 0, 12 * sizeof(*ret));
	ret[W_BODY] = word_at(look->iseq, l->iseq_body);
	ret[W_ENCODED] = word_at(look->body, l->body_encoded);
	ret[W_SIZE] = (uint32_t)word_at(look->body, l->body_size);
	ret[W_PATH] = word_at(look->body, l->body_path);
	ret[W_LABEL] = word_at(look->body, l->body_label);
	ret[W_LINE] = (uint32_t)word_at(look->body, l->body_first_line);
	ret[W_INSNS] = word_at(look->body, l->body_insns_info + l->insns_entries) ^
		       word_at(look->body, l->body_insns_info + l->insns_succ) << 1;
	for (uint32_t i = 0; i < entry_words(l, word_at(look->entry, 0)); i++)
		ret[W_ENTRY + i] = word_at(look->entry, 8 + 8 * i);
}

/* --- names ------------------------------------------------------------------------------------ */

static uint32_t intern(struct scry_symbols *s, const char *text)
{
	uint32_t id = 0;

	scry_intern_put(&s->names, text, strlen(text), &id);
	return id;
}

/* "Foo#" or "Foo." for the class in which the entry is defined; "" when it has no name. */
static void owner_prefix(const struct scry_ruby *ruby, uint64_t entry, char *buf, size_t size)
{
	static const char single[] = "#<Class:";
	char name[NAME_MAX_BYTES];
	uint64_t owner;
	size_t n;

	buf[0] = '\0';
	if (!entry || !ruby->layout.me_owner ||
	    scry_mem_u64(&ruby->mem, entry + ruby->layout.me_owner, &owner) ||
	    scry_ruby_class_name(ruby, owner, name, sizeof(name)))
		return;
	n = strlen(name);
	if (strncmp(name, "#<", 2) != 0) {
		snprintf(buf, size, "%.*s#", (int)size - 2, name);
	} else if (strncmp(name, single, 8) == 0 && name[n - 1] == '>' && name[8] != '#' &&
		   name[8] != '0') {
		snprintf(buf, size, "%.*s.", (int)(n - 9), name + 8);
	}
}

/* The label with the class put before the method: "block in baz" -> "block in Foo#baz". */
static void qualify(const char *label, const char *prefix, char *buf, size_t size)
{
	static const char *const leads[] = {"block in ", "rescue in ", "ensure in ", "block (",
					    "eval in "};
	const char *method = label, *at;

	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < sizeof(leads) / sizeof(leads[0]); i++)
			if (strncmp(method, leads[i], strlen(leads[i])) == 0 &&
			    (at = strstr(method, "in "))) {
				method = at + 3;
				more = true;
			}
	}
	if (*method == '<' && strchr(method, '>') && strncmp(method, "<=", 2) != 0 &&
	    strncmp(method, "<<", 2) != 0)
		prefix = ""; /* <main>, <class:Foo>: not in a method */
	snprintf(buf, size, "%.*s%s%s", (int)(method - label), label, prefix, method);
}

/* Names it from what lies there now. False: something could not be read. */
static bool read_code_names(struct scry_symbols *s, const struct scry_ruby *ruby,
			    struct scry_symbol *ret)
{
	char path[4096], label[NAME_MAX_BYTES], prefix[NAME_MAX_BYTES];
	char name[2 * NAME_MAX_BYTES + 8];

	if (scry_ruby_iseq_read(ruby, ret->iseq, &ret->code) ||
	    scry_ruby_iseq_path(ruby, &ret->code, path, sizeof(path)) < 0 ||
	    scry_ruby_iseq_label(ruby, &ret->code, label, sizeof(label)) < 0 ||
	    scry_ruby_iseq_first_line(ruby, &ret->code, &ret->first_line))
		return false;
	owner_prefix(ruby, scry_walk_entry(ruby, ret->entry), prefix, sizeof(prefix));
	qualify(label, prefix, name, sizeof(name));
	ret->path = intern(s, path);
	ret->label = intern(s, label);
	ret->name = intern(s, name);
	ret->is_internal = strncmp(path, "<internal:", 10) == 0;
	return ret->name != 0;
}

static bool read_c_names(struct scry_symbols *s, const struct scry_ruby *ruby,
			 struct scry_symbol *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t entry = scry_walk_entry(ruby, ret->entry), def, id;
	char label[NAME_MAX_BYTES], prefix[NAME_MAX_BYTES], name[2 * NAME_MAX_BYTES];

	ret->is_c = true;
	if (!l->frame_me) { /* this Ruby's entries are not known */
		ret->label = ret->name = intern(s, "(C method)");
		return true;
	}
	if (!entry || scry_mem_u64(&ruby->mem, entry + l->me_def, &def) ||
	    scry_mem_u64(&ruby->mem, def + l->def_id, &id) ||
	    scry_ruby_id_name(ruby, id, label, sizeof(label)) < 0)
		return false;
	owner_prefix(ruby, entry, prefix, sizeof(prefix));
	snprintf(name, sizeof(name), "%s%s", prefix, label);
	ret->label = intern(s, label);
	ret->name = intern(s, name);
	return ret->name != 0;
}

/* Named by what was reported when it came into being. False: that is not this frame's code, or it
 * was not reported. */
static bool take_reported_names(struct scry_symbols *s, const struct scry_walk_frame *f,
				const struct scry_born *born, struct scry_symbol *ret)
{
	uint32_t pos;

	if (!born || !born->label || scry_ruby_iseq_position(&born->code, f->pc, &pos))
		return false;
	ret->code = born->code;
	ret->path = intern(s, born->path);
	ret->label = ret->name = intern(s, born->label);
	ret->first_line = born->first_line;
	ret->is_internal = strncmp(born->path, "<internal:", 10) == 0;
	ret->is_reported = true;
	return ret->name != 0;
}

static uint64_t key_of(uint64_t iseq, uint64_t entry, uint64_t born)
{
	return iseq ^ (entry << 17 | entry >> 47) ^ born << 48 ^ born >> 16;
}

static uint32_t store(struct scry_symbols *s, const struct scry_symbol *symbol, uint64_t key)
{
	if (s->count == s->room) {
		uint32_t room = s->room * 2;
		struct scry_symbol *rows =
			room > SYMBOLS_MAX ? NULL : reallocarray(s->rows, room, sizeof(*rows));
		uint64_t *checked;

		if (!rows)
			return 0;
		s->rows = rows;
		checked = reallocarray(s->checked, room, sizeof(*checked));
		if (!checked)
			return 0;
		s->checked = checked;
		s->room = room;
	}
	if (scry_map_put(&s->ids, key, s->count + 1))
		return 0;
	s->rows[s->count] = *symbol;
	s->rows[s->count].made_ns = scry_walk_now_ns();
	s->checked[s->count] = s->turn;
	return ++s->count;
}

struct birth {			      /* of a frame's code */
	const struct scry_born *born; /* NULL: none is known */
	bool is_newest;		      /* nothing else was born there since */
};

/*
 * Names from memory. Its words are read before and after its names: equal, they are its names.
 * False when it cannot be named now.
 */
static bool read_names(struct scry_symbols *s, const struct scry_ruby *ruby,
		       const struct scry_walk_frame *f, struct scry_symbol *ret)
{
	struct scry_mem_span spans[3];
	struct look look;
	uint64_t after[12];
	uint32_t pos;

	if (f->iseq && (scry_ruby_iseq_read(ruby, f->iseq, &ret->code) ||
			scry_ruby_iseq_position(&ret->code, f->pc, &pos)))
		return false;
	scry_mem_gather(&ruby->mem, spans, add_spans(ruby, ret, &look, spans));
	words_of(&ruby->layout, &look, ret->words);
	if (!(f->iseq ? read_code_names(s, ruby, ret) : read_c_names(s, ruby, ret)))
		return false;
	scry_mem_gather(&ruby->mem, spans, add_spans(ruby, ret, &look, spans));
	words_of(&ruby->layout, &look, after);
	return memcmp(after, ret->words, sizeof(after)) == 0;
}

/* Both ways are to say the same of the same code. */
static void compare(struct scry_symbols *s, const struct scry_symbol *read,
		    const struct scry_born *born)
{
	struct scry_iseq_log_sums *sums = &s->births->sums;
	bool same;

	if (!born->label || born->code.body != read->code.body ||
	    born->code.encoded != read->code.encoded || born->code.size != read->code.size)
		return;
	same = strcmp(born->label, scry_symbols_text(s, read->label)) == 0 &&
	       strcmp(born->path, scry_symbols_text(s, read->path)) == 0 &&
	       born->first_line == read->first_line;
	sums->agree += same;
	sums->differ += !same;
}

/* A new symbol for the frame; 0 when it cannot be named now. */
static uint32_t make(struct scry_symbols *s, const struct scry_ruby *ruby,
		     const struct scry_walk_frame *f, const struct birth *b, uint64_t epoch)
{
	struct scry_symbol symbol = {.iseq = f->iseq, .entry = f->entry, .epoch = epoch}, reported;
	uint64_t key;

	symbol.born = b->born ? b->born->number : 0;
	key = key_of(f->iseq, f->entry, symbol.born);
	reported = symbol;
	/* What was born there since the walk is what memory says. */
	if (b->is_newest && read_names(s, ruby, f, &symbol)) {
		if (b->born && epoch) /* else it may be gone, and its texts others' */
			compare(s, &symbol, b->born);
		return store(s, &symbol, key);
	}
	return f->iseq && take_reported_names(s, f, b->born, &reported) ? store(s, &reported, key)
									: 0;
}

/* --- frames ----------------------------------------------------------------------------------- */

/*
 * A frame that a JIT has just pushed may still have the pc of one that stood there before it: a pc
 * of the newest frame is believed only where it is of the code that the frame names, at the address
 * at which that was born.
 */
static struct birth birth_of(const struct scry_symbols *s, const struct scry_walk *w,
			     const struct scry_walk_frame *f)
{
	struct scry_iseq_event_ask ask = {f->iseq, f->pc, w->time_ns};
	struct birth b = {NULL, true};

	if (!s->births || !w->time_ns || !f->iseq)
		return b;
	b.born = scry_iseq_log_find(s->births, &ask, &b.is_newest);
	if (b.born && f == w->frames && b.born->code.iseq != f->iseq) {
		ask.pc = 0;
		b.born = scry_iseq_log_find(s->births, &ask, &b.is_newest);
	}
	return b;
}

static uint32_t find(const struct scry_symbols *s, const struct scry_walk_frame *f,
		     const struct birth *b)
{
	uint64_t id = 0, born = b->born ? b->born->number : 0;
	const struct scry_symbol *row;

	if (!scry_map_get(&s->ids, key_of(f->iseq, f->entry, born), &id))
		return 0;
	row = &s->rows[id - 1];
	if (row->iseq != f->iseq || row->entry != f->entry || row->born != born)
		return 0;
	/* Without a birth it is known by its memory, which is other code's now. */
	return b->is_newest || born ? (uint32_t)id : 0;
}

static void forget(struct scry_symbols *s, uint32_t id)
{
	const struct scry_symbol *row = &s->rows[id - 1];
	uint64_t newest = 0, key = key_of(row->iseq, row->entry, row->born);

	if (scry_map_get(&s->ids, key, &newest) && newest == id)
		scry_map_remove(&s->ids, key, NULL);
}

#define BATCH 128

/* Looks at up to BATCH known symbols; those whose words are others are forgotten. But where its
 * birth says which code it is, that the code is gone by now takes nothing from it. */
static void check(struct scry_symbols *s, const struct scry_ruby *ruby, const uint32_t *ids,
		  size_t count, uint64_t epoch)
{
	static _Thread_local struct look looks[BATCH];
	struct scry_mem_span spans[3 * BATCH];
	uint64_t words[12];
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		n += add_spans(ruby, &s->rows[ids[i] - 1], &looks[i], spans + n);
	scry_mem_gather(&ruby->mem, spans, n);
	for (size_t i = 0; i < count; i++) {
		struct scry_symbol *row = &s->rows[ids[i] - 1];

		words_of(&ruby->layout, &looks[i], words);
		if (memcmp(words, row->words, sizeof(words)) == 0 ||
		    (row->born && memcmp(words, row->words, W_ENTRY * sizeof(*words)) != 0)) {
			s->checked[ids[i] - 1] = s->turn;
			row->epoch = epoch;
			continue;
		}
		s->renamed++;
		forget(s, ids[i]);
	}
}

static void check_known(struct scry_symbols *s, const struct scry_ruby *ruby,
			const struct scry_walk *w)
{
	uint32_t ids[BATCH], id;
	size_t n = 0;

	for (size_t i = 0; i < w->count; i++) {
		struct birth b = birth_of(s, w, &w->frames[i]);

		id = find(s, &w->frames[i], &b);
		if (!id || s->checked[id - 1] == s->turn || s->rows[id - 1].is_reported ||
		    !b.is_newest || (w->now.count && s->rows[id - 1].epoch == w->now.count))
			continue;
		s->checked[id - 1] = s->turn; /* once in a batch; undone by forgetting it */
		ids[n++] = id;
		if (n == BATCH) {
			check(s, ruby, ids, n, w->now.epoch);
			n = 0;
		}
	}
	if (n)
		check(s, ruby, ids, n, w->now.epoch);
}

/* The one method entry that was proven to be of this code until now; 0: none, or more than one. It
 * is remembered as 1 then, which is none. */
static uint64_t sole_entry(const struct scry_symbols *s, uint64_t iseq)
{
	uint64_t entry = 0;

	return scry_map_get(&s->entries, iseq, &entry) && entry != 1 ? entry : 0;
}

static void remember_entry(struct scry_symbols *s, uint64_t iseq, uint64_t entry)
{
	uint64_t known;

	if (scry_map_get(&s->entries, iseq, &known))
		entry = known == entry ? entry : 1;
	scry_map_put(&s->entries, iseq, entry);
}

/* Is that the code of the method? A cell may be gone by now, and another method's in its place. */
static bool has_code(const struct scry_ruby *ruby, uint64_t entry, uint64_t iseq)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t def, code;

	return l->def_iseq && scry_mem_u64(&ruby->mem, entry + l->me_def, &def) == 0 &&
	       scry_mem_u64(&ruby->mem, def + l->def_iseq, &code) == 0 && code == iseq;
}

/* Is this code with this entry still what it was? */
static bool stands(struct scry_symbols *s, const struct scry_ruby *ruby, const struct scry_walk *w,
		   const struct scry_walk_frame *f)
{
	struct birth b = birth_of(s, w, f);
	uint32_t id = find(s, f, &b);

	if (id && !s->rows[id - 1].is_reported)
		check(s, ruby, &id, 1, w->now.epoch);
	return id && find(s, f, &b);
}

/* The method entry of a frame of a method that is not known by what stands for it; 0: not sure. */
static uint64_t real_entry(struct scry_symbols *s, const struct scry_ruby *ruby,
			   const struct scry_walk *w, const struct scry_walk_frame *f)
{
	uint64_t entry = scry_walk_entry(ruby, f->entry);
	struct scry_walk_frame sole = *f;

	if (entry && has_code(ruby, entry, f->iseq)) {
		remember_entry(s, f->iseq, entry);
		return entry;
	}
	sole.entry = sole_entry(s, f->iseq);
	return sole.entry && stands(s, ruby, w, &sole) ? sole.entry : 0;
}

/*
 * A method in which a regular expression has matched keeps its entry in a cell, another one in each
 * of its calls: so it is not known by that, and when the cell is gone by now, by its code alone.
 * Its blocks have the same cell. Looked at is only what is not known.
 */
static void see_through_cells(struct scry_symbols *s, const struct scry_ruby *ruby,
			      struct scry_walk *w)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct scry_walk_frame *f = &w->frames[i];
		struct birth b = birth_of(s, w, f);
		uint64_t cell = f->entry, entry;

		if (!f->iseq || !cell || SCRY_FRAME_TYPE(f->flags) != SCRY_FRAME_METHOD ||
		    find(s, f, &b))
			continue;
		entry = real_entry(s, ruby, w, f);
		for (size_t k = 0; entry && entry != cell && k < w->count; k++)
			if (w->frames[k].iseq && w->frames[k].entry == cell)
				w->frames[k].entry = entry;
	}
}

/* The line at which the frame is; 0: none. False: its pc is not in its code. */
static bool line_of(struct scry_symbols *s, const struct scry_ruby *ruby, uint32_t id, uint64_t pc,
		    const struct scry_born *born, uint32_t *ret)
{
	const struct scry_symbol *symbol = &s->rows[id - 1];
	uint64_t line = 0, key;
	uint32_t pos, value = 0;
	int err;

	*ret = 0;
	if (scry_ruby_iseq_position(&symbol->code, pc, &pos))
		return false;
	key = (uint64_t)id << 32 | pos;
	if (scry_map_get(&s->lines, key, &line)) {
		*ret = (uint32_t)line;
		return true;
	}
	err = -ENODATA;
	if (born && born->code.encoded == symbol->code.encoded)
		err = scry_born_line(born, pos, &value);
	if (err == -ENODATA && !symbol->is_reported)
		err = scry_ruby_iseq_line(ruby, &symbol->code, pos, &value);
	if (err && err != -ENOENT)
		return false;
	*ret = value;
	scry_map_put(&s->lines, key, value);
	return true;
}

static bool is_dummy(const struct scry_walk_frame *f)
{
	return SCRY_FRAME_TYPE(f->flags) == SCRY_FRAME_DUMMY ||
	       (!f->iseq && !f->entry && SCRY_FRAME_TYPE(f->flags) != SCRY_FRAME_CFUNC) ||
	       (f->iseq && !f->pc);
}

size_t scry_symbols_name(struct scry_symbols *s, const struct scry_ruby *ruby, struct scry_walk *w,
			 struct scry_named_frame *ret)
{
	size_t unnamed = 0;

	if (s->births && s->births->take)
		s->births->take(s->births->from);
	see_through_cells(s, ruby, w);
	check_known(s, ruby, w);
	for (size_t i = 0; i < w->count; i++) {
		const struct scry_walk_frame *f = &w->frames[i];
		struct birth b;
		uint32_t id;

		ret[i] = (struct scry_named_frame){.is_hidden = is_dummy(f)};
		if (ret[i].is_hidden)
			continue;
		b = birth_of(s, w, f);
		id = find(s, f, &b);
		if (!id)
			id = make(s, ruby, f, &b, w->now.epoch);
		if (!id || (f->iseq && !line_of(s, ruby, id, f->pc, b.born, &ret[i].line))) {
			unnamed++;
			continue;
		}
		s->reported += s->rows[id - 1].is_reported;
		ret[i].symbol = id;
		ret[i].is_hidden = f->iseq && !ret[i].line;
	}
	return unnamed;
}

bool scry_symbols_report(struct scry_symbols *s, const struct scry_ruby *ruby,
			 const struct scry_walk *w, size_t at, struct scry_named_frame *ret)
{
	const struct scry_walk_frame *f = &w->frames[at];
	struct birth b = birth_of(s, w, f);
	struct scry_symbol symbol = {.iseq = f->iseq, .entry = f->entry};
	uint64_t id = 0, key;

	if (!f->iseq || !b.born)
		return false;
	symbol.born = b.born->number;
	key = key_of(f->iseq, f->entry, ~symbol.born); /* beside the one that memory names */
	if (!scry_map_get(&s->ids, key, &id) || s->rows[id - 1].born != symbol.born ||
	    !s->rows[id - 1].is_reported)
		id = take_reported_names(s, f, b.born, &symbol) ? store(s, &symbol, key) : 0;
	if (!id || !line_of(s, ruby, (uint32_t)id, f->pc, b.born, &ret->line))
		return false;
	s->reported++;
	ret->symbol = (uint32_t)id;
	ret->is_hidden = !ret->line;
	return true;
}
