/*
 * From ring words to counters. A *place* is what a DEF record says, by content: the same code
 * defined again (after an eviction, another eval) is the same place, so memory follows the
 * program's size and not its age.
 *
 * Which line? A frame's pc stands behind the running instruction, except for "leaf" instructions
 * that allocate while pc still points at them. The layout knows which handlers are leaf, which are
 * not, and what types they make. Where a leaf follows, on another line, an instruction that makes
 * the same type, both allocate at one pc; then the depth of the value stack tells them apart,
 * because each stands on its own operands: the earlier one lower if it takes none, higher if it
 * takes two or more. That is known only when both were seen, so lines are settled at the end
 * (settle_line). Taking one, it cannot be told.
 */
#include "name/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "base/map.h"
#include "name/live.h"
#include "wire/file.h"
#include "wire/ruby_ring.h"

#define PLACES_MAX ((1u << 20) - 2) /* a packed word has 20 bits for it */
#define NAMES_BYTES_MAX (256u << 20)
#define UNKNOWN 0u    /* string id */
#define T_ICLASS 0x1c /* a module's stand-in among the ancestors */
#define T_IMEMO 0x1a  /* internal to the VM: no class, no Ruby code sees it */

struct place_key { /* hashed as bytes: no padding */
	uint32_t path, label, klass;
	uint32_t line_at, line_before, first_line;
	uint32_t position;
	uint16_t depth;
	uint8_t top, type;
	uint16_t leaf;	/* index + 1 in layout.leaf of the instruction at pc */
	uint16_t after; /* index + 1 in layout.after of the one before it, if it makes this type */
	uint8_t after_takes_none;
	uint8_t internal;
	uint16_t reserved;
};

struct place {
	struct place_key key;
	uint64_t allocated, freed;
	uint32_t written_line; /* of the SITE event already written, +1; 0 none */
	uint32_t site;	       /* its number in the recording; 0: not written yet */
};

struct scry_objects {
	const struct scry_ruby *ruby;
	struct scry_intern names;
	struct scry_intern keys; /* place_key bytes -> place index + 1 */
	struct place *places;
	size_t place_cap;
	struct scry_live live;
	struct scry_map depths;		     /* code_hash -> least depth seen << 16 | greatest */
	uint32_t slots[SCRY_SITE_SLOTS + 1]; /* code -> place index + 1 */
	uint64_t *raw;			     /* scratch of scry_objects_raw */
	struct scry_objects_totals totals;
	uint32_t own_sites, *next_site;
	uint32_t slot_size;
};

struct scry_objects *scry_objects_new(const struct scry_ruby *ruby, size_t limit_bytes)
{
	struct scry_objects *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->ruby = ruby;
	o->next_site = &o->own_sites;
	o->slot_size = ruby ? ruby->layout.slot_size : 0;
	scry_intern_init(&o->names, PLACES_MAX, NAMES_BYTES_MAX);
	scry_intern_init(&o->keys, PLACES_MAX, PLACES_MAX * (sizeof(struct place_key) + 1ul));
	scry_live_init(&o->live, ruby ? ruby->layout.slot_size : 40, limit_bytes);
	scry_map_init(&o->depths, PLACES_MAX);
	return o;
}

void scry_objects_free(struct scry_objects *o)
{
	if (!o)
		return;
	scry_intern_done(&o->names);
	scry_intern_done(&o->keys);
	scry_live_done(&o->live);
	scry_map_done(&o->depths);
	free(o->places);
	free(o->raw);
	free(o);
}

static uint32_t name_id(struct scry_objects *o, const char *bytes, size_t size)
{
	uint32_t id = UNKNOWN;

	if (size)
		scry_intern_put(&o->names, bytes, size, &id);
	return id;
}

/* Length of the record at `i` in words, its head included; 0 when it does not fit: the rest is
 * damaged. */
static size_t record_words(const uint64_t *words, size_t count, size_t i)
{
	size_t n = 1;

	if ((words[i] & SCRY_OBJ_CODE_MASK) == SCRY_RING_ESCAPE)
		n += words[i] >> 32 & 0xffff;
	return n <= count - i ? n : 0;
}

static bool is_record(uint64_t word, enum scry_ring_record kind)
{
	return (word & SCRY_OBJ_CODE_MASK) == SCRY_RING_ESCAPE && (word >> 20 & 0xfff) == kind;
}

static uint64_t code_hash(const struct place_key *k)
{
	uint64_t h = ((uint64_t)k->path << 32 | k->first_line) * 0x9e3779b97f4a7c15ull;

	h = (h ^ ((uint64_t)k->label << 32 | k->position)) * 0xff51afd7ed558ccdull;
	return (h ^ ((uint64_t)k->leaf << 40 | (uint64_t)k->type << 32 | k->line_at)) *
	       0x9e3779b97f4a7c15ull;
}

static uint16_t leaf_index(const struct scry_objects *o, const struct scry_ring_def *def)
{
	const struct scry_ruby_layout *l = o->ruby ? &o->ruby->layout : NULL;

	for (uint32_t i = 0; l && def->top && i < l->leaf_count; i++)
		if (def->opcode == l->leaf[i].word + o->ruby->bias)
			return (uint16_t)(i + 1);
	return 0;
}

/* The instruction that ends at pc, if it is one that makes objects of this type by itself. */
static void find_after(const struct scry_objects *o, const struct scry_ring_def *def,
		       struct place_key *key)
{
	const struct scry_ruby_layout *l = &o->ruby->layout;

	for (uint32_t i = 0; i < l->after_count; i++) {
		const struct scry_ruby_leaf *a = &l->after[i];

		if (!a->words || a->words > SCRY_DEF_BEFORE || !(a->types >> key->type & 1) ||
		    def->before[a->words - 1] != a->word + o->ruby->bias)
			continue;
		key->after = (uint16_t)(i + 1);
		/* `{}` is the instruction that takes n operands with n = 0 */
		key->after_takes_none = a->pops_nothing || (a->words == 2 && def->before[0] == 0);
	}
}

/* The index + 1 of the place that `key` describes; 0 at the limit. */
static uint32_t place_of(struct scry_objects *o, const struct place_key *key)
{
	uint32_t id = 0, before = o->keys.count;

	if (scry_intern_put(&o->keys, (const char *)key, sizeof(*key), &id) < 0)
		return 0;
	if (o->keys.count == before)
		return id;
	if (id > o->place_cap) {
		size_t cap = o->place_cap ? 2 * o->place_cap : 1024;
		struct place *more = realloc(o->places, cap * sizeof(*more));

		if (!more)
			return 0;
		o->places = more;
		o->place_cap = cap;
	}
	o->places[id - 1] = (struct place){.key = *key};
	o->totals.places = id;
	if (key->after && key->depth != 0xffff) {
		uint64_t *seen = scry_map_ref(&o->depths, code_hash(key)), least, most;

		if (seen) {
			least = *seen ? *seen >> 16 : key->depth;
			most = *seen & 0xffff;
			*seen = (least < key->depth ? least : key->depth) << 16 |
				(most > key->depth ? most : key->depth);
		}
	}
	return id;
}

static void define(struct scry_objects *o, const uint64_t *words, size_t count)
{
	struct scry_ring_def def;
	const char *text = (const char *)words + sizeof(def);
	struct place_key key;

	memcpy(&def, words, sizeof(def));
	if (!def.slot || def.slot > SCRY_SITE_SLOTS ||
	    sizeof(def) + def.path_size + def.label_size + def.class_size > count * 8) {
		o->totals.damaged++;
		return;
	}
	o->totals.defs++;
	memset(&key, 0, sizeof(key));
	key.path = name_id(o, text, def.path_size);
	text += def.path_size;
	key.label = name_id(o, text, def.label_size);
	text += def.label_size;
	key.klass = name_id(o, text, def.class_size);
	key.line_at = def.line_at;
	key.line_before = def.line_before;
	key.first_line = def.first_line;
	key.position = def.position;
	key.depth = def.depth;
	key.top = (uint8_t)def.top;
	key.type = def.flags & 0x1f;
	key.leaf = leaf_index(o, &def);
	if (key.leaf && def.line_at != def.line_before)
		find_after(o, &def, &key);
	key.internal = !def.klass || key.type == T_IMEMO || key.type == T_ICLASS;
	o->slots[def.slot] = place_of(o, &key);
}

static void count_alloc(struct scry_objects *o, uint64_t address, uint32_t code)
{
	uint32_t place = code <= SCRY_SITE_SLOTS ? o->slots[code] : 0, *entry;

	o->totals.allocs++;
	if (!place) {
		o->totals.damaged++;
		return;
	}
	o->places[place - 1].allocated++;
	entry = scry_live_at(&o->live, address, 1);
	if (!entry) {
		o->totals.untracked++;
		return;
	}
	if (*entry) {
		o->totals.replaced++;
		o->places[*entry - 1].freed++;
	}
	*entry = place;
}

static void count_free(struct scry_objects *o, uint64_t address)
{
	uint32_t *entry = scry_live_at(&o->live, address, 0);

	o->totals.frees++;
	if (!entry || !*entry) {
		o->totals.frees_older++;
		return;
	}
	o->places[*entry - 1].freed++;
	*entry = 0;
}

static void escape(struct scry_objects *o, const uint64_t *words, size_t n)
{
	if (is_record(*words, SCRY_RING_DEF) && n * 8 >= sizeof(struct scry_ring_def) + 8)
		define(o, words + 1, n - 1);
	else
		o->totals.damaged++;
}

void scry_objects_feed(struct scry_objects *o, const uint64_t *words, size_t count)
{
	size_t n;

	for (size_t i = 0; i < count; i += n) {
		uint32_t code = words[i] & SCRY_OBJ_CODE_MASK;

		n = 1;
		if (code == 0) {
			count_free(o, words[i] >> 20 << 3);
		} else if (code != SCRY_RING_ESCAPE) {
			count_alloc(o, words[i] >> 20 << 3, code);
		} else {
			n = record_words(words, count, i);
			if (!n) {
				o->totals.damaged++;
				return;
			}
			escape(o, &words[i], n);
		}
	}
}

static uint32_t settle_line(const struct scry_objects *o, const struct place_key *k)
{
	uint64_t seen;
	bool is_leaf;

	if (!k->leaf)
		return k->line_before;
	if (!(o->ruby->layout.leaf[k->leaf - 1].types >> k->type & 1))
		return k->line_before; /* the instruction at pc makes something else */
	if (!k->after || k->depth == 0xffff || !scry_map_get(&o->depths, code_hash(k), &seen))
		return k->line_at;
	is_leaf = k->depth == (k->after_takes_none ? seen & 0xffff : seen >> 16);
	return is_leaf ? k->line_at : k->line_before;
}

static int string_event(struct scry_objects *o, struct scry_writer *w, uint32_t name, uint32_t *ret)
{
	size_t size;
	const char *bytes = name ? scry_intern_get(&o->names, name, &size) : NULL;

	*ret = 0;
	return bytes ? scry_writer_string(w, bytes, size, ret) : 0;
}

static int write_site(struct scry_objects *o, struct scry_writer *w, size_t i, uint32_t pid)
{
	struct place *p = &o->places[i];
	uint32_t line = settle_line(o, &p->key);
	struct scry_ev_site site = {.pid = pid, .line = line};
	int r = 0, e;

	if (p->written_line == line + 1)
		return 0;
	if (!p->site)
		p->site = ++*o->next_site;
	site.site = p->site;
	r = string_event(o, w, p->key.path, &site.file_str);
	e = string_event(o, w, p->key.klass, &site.class_str);
	r = r ? r : e;
	e = string_event(o, w, p->key.label, &site.method_str);
	r = r ? r : e;
	site.flags = (p->key.internal ? SCRY_SITE_INTERNAL : 0) |
		     (!p->key.internal && !p->key.klass ? SCRY_SITE_UNNAMED : 0);
	site.slot_bytes = o->slot_size;
	p->written_line = line + 1;
	e = scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_SITE}, &site,
				sizeof(site));
	return r ? r : e;
}

int scry_objects_write(struct scry_objects *o, struct scry_writer *w, uint32_t pid)
{
	uint64_t slot = o->slot_size;
	int r = 0;

	for (size_t i = 0; i < o->totals.places; i++) {
		const struct place *p = &o->places[i];
		struct scry_ev_objects ev = {.allocated = p->allocated,
					     .freed = p->freed,
					     .bytes = p->allocated * slot};
		int e;

		if (!p->allocated)
			continue;
		e = write_site(o, w, i, pid);
		r = r ? r : e;
		ev.site = p->site;
		e = scry_writer_payload(w, &(struct scry_event){.type = SCRY_EVENT_OBJECTS}, &ev,
					sizeof(ev));
		r = r ? r : e;
	}
	return r;
}

int scry_objects_raw(struct scry_objects *o, const struct scry_objects_run *batch,
		     struct scry_writer *w)
{
	struct scry_objects_run run = *batch;
	uint64_t *out = realloc(o->raw, (batch->count + 1) * 8);
	size_t n, count = 0;
	int r = 0, e;

	if (!out)
		return -ENOMEM;
	o->raw = out;
	for (size_t i = 0; i < batch->count; i += n) {
		uint64_t word = batch->words[i];
		uint32_t code = word & SCRY_OBJ_CODE_MASK, place;

		n = record_words(batch->words, batch->count, i);
		if (!n)
			break;
		scry_objects_feed(o, &batch->words[i], n);
		if (code == SCRY_RING_ESCAPE)
			continue;
		place = code && code <= SCRY_SITE_SLOTS ? o->slots[code] : 0;
		if (code && !place)
			continue;
		if (place && !o->places[place - 1].written_line) {
			e = write_site(o, w, place - 1, batch->producer.pid);
			r = r ? r : e;
		}
		if (place && o->places[place - 1].site >= SCRY_RING_ESCAPE) {
			o->totals.damaged++; /* the counters have it; a packed word has no room */
			continue;
		}
		out[count++] = (word & ~(uint64_t)SCRY_OBJ_CODE_MASK) |
			       (place ? o->places[place - 1].site : 0);
	}
	run.words = out;
	run.count = count;
	e = count ? scry_writer_objects(w, &run) : 0;
	return r ? r : e;
}

void scry_objects_share(struct scry_objects *o, struct scry_objects_shared *shared)
{
	o->next_site = &shared->last_site;
	scry_live_share(&o->live, &shared->live_bytes);
}

static uint32_t name_in(struct scry_objects *into, const struct scry_objects *from, uint32_t name)
{
	size_t size;
	const char *bytes = name ? scry_intern_get(&from->names, name, &size) : NULL;

	return bytes ? name_id(into, bytes, size) : UNKNOWN;
}

void scry_objects_merge(struct scry_objects *into, const struct scry_objects *from)
{
	struct scry_objects_totals *t = &into->totals;

	for (size_t i = 0; i < from->totals.places; i++) {
		const struct place *p = &from->places[i];
		struct place_key key;
		uint32_t place;

		memset(&key, 0, sizeof(key));
		key.path = name_in(into, from, p->key.path);
		key.label = name_in(into, from, p->key.label);
		key.klass = name_in(into, from, p->key.klass);
		key.line_at = key.line_before = settle_line(from, &p->key);
		key.internal = p->key.internal;
		place = place_of(into, &key);
		if (!place) {
			t->damaged += p->allocated;
			continue;
		}
		into->places[place - 1].allocated += p->allocated;
		into->places[place - 1].freed += p->freed;
	}
	into->slot_size = from->slot_size;
	t->allocs += from->totals.allocs;
	t->frees += from->totals.frees;
	t->frees_older += from->totals.frees_older;
	t->replaced += from->totals.replaced;
	t->untracked += from->totals.untracked;
	t->damaged += from->totals.damaged;
	t->defs += from->totals.defs;
}

void scry_objects_totals(const struct scry_objects *o, struct scry_objects_totals *ret)
{
	*ret = o->totals;
	ret->unnamed = 0;
	for (size_t i = 0; i < o->totals.places; i++)
		if (!o->places[i].key.internal && !o->places[i].key.klass)
			ret->unnamed += o->places[i].allocated;
}
