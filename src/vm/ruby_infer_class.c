/*
 * Infers where a class keeps its name, its superclass, and a singleton class its object.
 *
 * Three shapes exist: a String in the class or its extension (3.3 on), an ivar whose place a shape
 * gives (3.2, see ruby_infer_shape.c), an ivar in the class's st_table (to 3.1), the latter two
 * under a hidden id. All paths of at most three pointers are tried; the right one leads from every
 * known class to a String with its full name, and for ivars, under the same key.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define CLASS_BYTES 192u
#define EXT_BYTES 256u
#define TABLE_BYTES 64u
#define ENTRIES_LOOKED 64u
#define ENTRY_BYTES 24u /* {hash, key, record} */

struct path {
	uint32_t ext, field, entries;
};

/* The base that `field` counts from: the class itself when ext is 0. */
static bool ext_of(struct scry_infer *infer, uint64_t klass, uint32_t ext, uint64_t *ret)
{
	*ret = klass;
	return ext == 0 || scry_infer_word(infer, klass + ext, ret);
}

static uint64_t entries_of(struct scry_infer *infer, uint64_t klass, const struct path *p)
{
	uint64_t base, table, entries;

	if (!ext_of(infer, klass, p->ext, &base) ||
	    !scry_infer_word(infer, base + p->field, &table) ||
	    !scry_infer_word(infer, table + p->entries, &entries))
		return 0;
	return entries;
}

/* The key whose record is a String of this text, 0 when none. */
static uint64_t key_of_text(struct scry_infer *infer, uint64_t entries, const char *text)
{
	for (uint32_t i = 0; i < ENTRIES_LOOKED; i++) {
		uint64_t key, record, at = entries + i * (uint64_t)ENTRY_BYTES;

		if (!scry_infer_word(infer, at + 8, &key) ||
		    !scry_infer_word(infer, at + 16, &record))
			return 0;
		if (scry_infer_is_string(infer, record, text))
			return key;
	}
	return 0;
}

/* The key whose record is `value`, 0 when none. */
static uint64_t key_of_value(struct scry_infer *infer, uint64_t entries, uint64_t value)
{
	for (uint32_t i = 0; i < ENTRIES_LOOKED; i++) {
		uint64_t key, record, at = entries + i * (uint64_t)ENTRY_BYTES;

		if (!scry_infer_word(infer, at + 8, &key) ||
		    !scry_infer_word(infer, at + 16, &record))
			return 0;
		if (record == value)
			return key;
	}
	return 0;
}

/* All facts of `kind` must agree on one key; 0 when they do not. */
static uint64_t common_key(struct scry_infer *infer, const char *kind, const struct path *p)
{
	const struct scry_fact *f = NULL;
	uint64_t common = 0;

	while ((f = scry_fact_next(infer->calib, f, kind))) {
		uint64_t entries = entries_of(infer, scry_fact_addr(f, 1), p), key;
		char text[256];

		if (!entries)
			return 0;
		if (strcmp(kind, "singleton") == 0) {
			key = key_of_value(infer, entries, scry_fact_addr(f, 2));
		} else {
			scry_fact_text(f, 2, text, sizeof(text));
			key = key_of_text(infer, entries, text);
		}
		if (!key || (common && key != common))
			return 0;
		common = key;
	}
	return common;
}

static bool direct_fits(struct scry_infer *infer, uint32_t ext, uint32_t field)
{
	const struct scry_fact *f = NULL;
	int n = 0;

	while ((f = scry_fact_next(infer->calib, f, "class"))) {
		uint64_t base, value;
		char text[256];

		scry_fact_text(f, 2, text, sizeof(text));
		if (!ext_of(infer, scry_fact_addr(f, 1), ext, &base) ||
		    !scry_infer_word(infer, base + field, &value) ||
		    !scry_infer_is_string(infer, value, text))
			return false;
		n++;
	}
	return n > 3;
}

/* The word of the ext that is its object, in all singleton classes. */
static struct scry_pick pick_attached(struct scry_infer *infer, uint32_t ext)
{
	struct scry_pick pick = {0};

	for (uint32_t field = 8; field < EXT_BYTES; field += 8) {
		const struct scry_fact *f = NULL;
		bool fits = false;

		while ((f = scry_fact_next(infer->calib, f, "singleton"))) {
			uint64_t base, word;

			fits = ext_of(infer, scry_fact_addr(f, 1), ext, &base) &&
			       scry_infer_word(infer, base + field, &word) &&
			       word == scry_fact_addr(f, 2);
			if (!fits)
				break;
		}
		if (fits)
			scry_pick_add(&pick, field);
	}
	return pick;
}

static int infer_direct(struct scry_infer *infer, bool *found)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick pick = {.parts = 2}, attached;
	int err;

	for (uint32_t ext = 0; ext < 64; ext += ext ? 8 : 16) {
		for (uint32_t field = 8; field < EXT_BYTES; field += 8) {
			if (direct_fits(infer, ext, field))
				scry_pick_add(&pick, (uint64_t)ext << 32 | field);
		}
	}
	*found = pick.hits > 0;
	if (!*found)
		return 0;
	l->class_ext = (uint32_t)(pick.value >> 32);
	l->class_path = (uint32_t)pick.value;
	err = scry_infer_item(infer, "class name", &pick, "all named classes");
	if (err)
		return err;
	attached = pick_attached(infer, l->class_ext);
	l->class_attached = (uint32_t)attached.value;
	return scry_infer_item(infer, "object of a singleton class", &attached,
			       "all singleton classes");
}

/* The superclass, in the first words of every class whose superclass is not an included module. */
static int infer_super(struct scry_infer *infer)
{
	struct scry_pick pick = {0};

	for (uint32_t at = 16; at < EXT_BYTES; at += 8) {
		const struct scry_fact *f = NULL;
		bool fits = false;

		while ((f = scry_fact_next(infer->calib, f, "super"))) {
			uint64_t word;

			fits = scry_infer_word(infer, scry_fact_addr(f, 1) + at, &word) &&
			       word == scry_fact_addr(f, 2);
			if (!fits)
				break;
		}
		if (fits)
			scry_pick_add(&pick, at);
	}
	infer->child->layout.class_super = (uint32_t)pick.value;
	return scry_infer_item(infer, "superclass", &pick, "all known superclasses");
}

/* Where the table says which entries are in use, from tables with known holes at their beginning.
 */
static int infer_bounds(struct scry_infer *infer, const struct path *p)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick start = {0}, bound = {0};
	int err;

	for (uint32_t at = 0; at < TABLE_BYTES; at += 8) {
		const struct scry_fact *f = NULL;
		bool is_start = true, is_bound = true;

		while ((f = scry_fact_next(infer->calib, f, "table"))) {
			uint64_t base, table, word = ~0ull;

			if (!ext_of(infer, scry_fact_addr(f, 1), p->ext, &base) ||
			    !scry_infer_word(infer, base + p->field, &table) ||
			    !scry_infer_word(infer, table + at, &word))
				word = ~0ull;
			is_start = is_start && word == (uint64_t)scry_fact_number(f, 2);
			is_bound = is_bound && word == (uint64_t)scry_fact_number(f, 3);
		}
		if (is_start)
			scry_pick_add(&start, at);
		if (is_bound)
			scry_pick_add(&bound, at);
	}
	l->st_bound_start = (uint32_t)start.value;
	l->st_bound = (uint32_t)bound.value;
	err = scry_infer_item(infer, "table's first entry", &start, "tables with removed entries");
	if (!err)
		err = scry_infer_item(infer, "table's entry bound", &bound,
				      "tables with removed entries");
	return err;
}

/* The flag of singleton classes: set in all known ones, clear in all others. */
static struct scry_pick pick_singleton_flag(struct scry_infer *infer)
{
	const struct scry_fact *f = NULL;
	uint64_t all = ~0ull, other = 0, flags;
	struct scry_pick pick = {0};

	while ((f = scry_fact_next(infer->calib, f, "singleton"))) {
		if (scry_infer_word(infer, scry_fact_addr(f, 1), &flags))
			all &= flags;
	}
	while ((f = scry_fact_next(infer->calib, f, "class"))) {
		if (scry_infer_word(infer, scry_fact_addr(f, 1), &flags))
			other |= flags;
	}
	while ((f = scry_fact_next(infer->calib, f, "anonymous"))) {
		if (scry_infer_word(infer, scry_fact_addr(f, 1), &flags))
			other |= flags;
	}
	for (int bit = 5; bit < 32; bit++) { /* a shape's number may lie above */
		if (all & ~other & (1ull << bit))
			scry_pick_add(&pick, 1ull << bit);
	}
	return pick;
}

static struct scry_pick pick_table_path(struct scry_infer *infer)
{
	struct scry_pick pick = {.parts = 3};
	struct path p;

	for (p.ext = 0; p.ext < 64; p.ext += p.ext ? 8 : 16) {
		for (p.field = 8; p.field < EXT_BYTES; p.field += 8) {
			for (p.entries = 0; p.entries < TABLE_BYTES; p.entries += 8) {
				if (common_key(infer, "class", &p))
					scry_pick_add(&pick, (uint64_t)p.ext << 32 | p.field << 16 |
								     p.entries);
			}
		}
	}
	return pick;
}

static int infer_table(struct scry_infer *infer, const struct scry_pick *way)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick key = {0};
	struct path p;
	int err = scry_infer_item(infer, "class name table", way, "all named classes");

	if (err)
		return err;
	p = (struct path){(uint32_t)(way->value >> 32), (uint32_t)(way->value >> 16) & 0xffff,
			  (uint32_t)way->value & 0xffff};
	l->class_ext = p.ext;
	l->class_path_table = p.field;
	l->st_entries = p.entries;
	scry_pick_add(&key, common_key(infer, "class", &p));
	l->classpath_id = key.value;
	l->tmp_classpath_id = common_key(infer, "tempclass", &p);
	l->attached_id = common_key(infer, "singleton", &p);
	err = infer_bounds(infer, &p);
	if (!err)
		err = scry_infer_item(infer, "class name key", &key, "all named classes");
	return err;
}

int scry_infer_classes(struct scry_infer *infer)
{
	struct scry_pick way = pick_table_path(infer), flag = pick_singleton_flag(infer);
	bool found = false;
	int err;

	infer->child->layout.singleton_flag = flag.value;
	err = scry_infer_item(infer, "singleton flag", &flag, "all singleton classes");
	if (!err)
		err = infer_super(infer);
	if (err)
		return err;
	if (way.hits)
		return infer_table(infer, &way);
	err = infer_direct(infer, &found);
	return err || found ? err : scry_infer_shapes(infer);
}
