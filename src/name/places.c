/*
 * See places.h.
 *
 * Which line? A frame's pc is behind the running instruction, except for "leaf" instructions that
 * allocate while pc still points at them. The layout knows which handlers are leaf, which are not,
 * and what types they make. Where a leaf follows, on another line, an instruction that makes the
 * same type, both allocate at one pc; then the depth of the value stack tells them apart, because
 * each is on its own operands: the earlier one lower if it takes none, higher if it takes two or
 * more. That is known only when both were seen, so lines are settled at the end. Taking one, it is
 * not known.
 */
#include "name/places.h"

#include <string.h>

#include "vm/ruby_types.h"

#define NAMES_BYTES_MAX (256u << 20)
#define T_ICLASS 0x1c /* a module's stand-in among the ancestors */
#define T_IMEMO 0x1a  /* internal to the VM: no class, no Ruby code sees it */

void scry_places_init(struct scry_places *p, const struct scry_ruby *ruby)
{
	*p = (struct scry_places){.ruby = ruby};
	scry_intern_init(&p->names, SCRY_PLACES_MAX, NAMES_BYTES_MAX);
	scry_intern_init(&p->keys, SCRY_PLACES_MAX,
			 SCRY_PLACES_MAX * (sizeof(struct scry_place_key) + 1ul));
	scry_map_init(&p->depths, SCRY_PLACES_MAX);
}

void scry_places_done(struct scry_places *p)
{
	scry_intern_done(&p->names);
	scry_intern_done(&p->keys);
	scry_map_done(&p->depths);
}

uint32_t scry_places_name(struct scry_places *p, const char *bytes, size_t size)
{
	uint32_t id = 0;

	if (size)
		scry_intern_put(&p->names, bytes, size, &id);
	return id;
}

static uint64_t code_hash(const struct scry_place_key *k)
{
	uint64_t h = ((uint64_t)k->path << 32 | k->first_line) * 0x9e3779b97f4a7c15ull;

	h = (h ^ ((uint64_t)k->label << 32 | k->position)) * 0xff51afd7ed558ccdull;
	return (h ^ ((uint64_t)k->leaf << 40 | (uint64_t)k->type << 32 | k->line_at)) *
	       0x9e3779b97f4a7c15ull;
}

uint16_t scry_places_leaf(const struct scry_ruby *ruby, uint64_t word)
{
	const struct scry_ruby_layout *l = &ruby->layout;

	for (uint32_t i = 0; i < l->leaf_count; i++)
		if (word == l->leaf[i].word + ruby->bias)
			return (uint16_t)(i + 1);
	return 0;
}

uint32_t scry_places_calling_line(const struct scry_ruby *ruby, const struct scry_ring_def *def)
{
	return def->top && ruby && scry_places_leaf(ruby, def->opcode) ? def->line_at
								       : def->line_before;
}

/* The instruction that ends at pc, if it is one that makes objects of this type by itself. */
static void find_after(const struct scry_places *p, const struct scry_ring_def *def,
		       struct scry_place_key *key)
{
	const struct scry_ruby_layout *l = &p->ruby->layout;

	for (uint32_t i = 0; i < l->after_count; i++) {
		const struct scry_ruby_leaf *a = &l->after[i];

		if (!a->words || a->words > SCRY_DEF_BEFORE || !(a->types >> key->type & 1) ||
		    def->before[a->words - 1] != a->word + p->ruby->bias)
			continue;
		key->after = (uint16_t)(i + 1);
		/* `{}` is the instruction that takes n operands with n = 0 */
		key->after_takes_none = a->pops_nothing || (a->words == 2 && def->before[0] == 0);
	}
}

static uint32_t place_of(struct scry_places *p, const struct scry_place_key *key)
{
	uint32_t id = 0, before = p->keys.count;
	uint64_t *seen, least, most;

	if (scry_intern_put(&p->keys, (const char *)key, sizeof(*key), &id) < 0)
		return 0;
	if (p->keys.count == before || !key->after || key->depth == 0xffff)
		return id;
	seen = scry_map_ref(&p->depths, code_hash(key));
	if (seen) {
		least = *seen ? *seen >> 16 : key->depth;
		most = *seen & 0xffff;
		*seen = (least < key->depth ? least : key->depth) << 16 |
			(most > key->depth ? most : key->depth);
	}
	return id;
}

uint32_t scry_places_add(struct scry_places *p, const struct scry_place_key *key)
{
	return place_of(p, key);
}

uint32_t scry_places_nowhere(struct scry_places *p)
{
	struct scry_place_key key;

	memset(&key, 0, sizeof(key));
	key.depth = 0xffff;
	return place_of(p, &key);
}

uint32_t scry_places_define(struct scry_places *p, const uint64_t *words, size_t count,
			    uint32_t *ret_code)
{
	struct scry_ring_def def;
	const char *text = (const char *)words + sizeof(def);
	struct scry_place_key key;

	if (count * 8 < sizeof(def))
		return 0;
	memcpy(&def, words, sizeof(def));
	if (!def.slot || def.slot > SCRY_SITE_SLOTS ||
	    sizeof(def) + def.path_size + def.label_size + def.class_size > count * 8)
		return 0;
	memset(&key, 0, sizeof(key));
	key.path = scry_places_name(p, text, def.path_size);
	text += def.path_size;
	key.label = scry_places_name(p, text, def.label_size);
	text += def.label_size;
	key.klass = scry_places_name(p, text, def.class_size);
	key.line_at = def.line_at;
	key.line_before = def.line_before;
	key.first_line = def.first_line;
	key.position = def.position;
	key.depth = def.depth;
	key.top = (uint8_t)def.top;
	key.type = def.flags & 0x1f;
	key.leaf = p->ruby && def.top ? scry_places_leaf(p->ruby, def.opcode) : 0;
	if (key.leaf && def.line_at != def.line_before)
		find_after(p, &def, &key);
	key.internal = !def.klass || key.type == T_IMEMO || key.type == T_ICLASS;
	*ret_code = def.slot;
	return place_of(p, &key);
}

uint32_t scry_places_revealed(struct scry_places *p, uint32_t place, bool is_core)
{
	const struct scry_ruby_type *type;
	struct scry_place_key key;
	const char *name;

	scry_places_key(p, place, &key);
	type = &scry_ruby_types[key.type % SCRY_RUBY_TYPES];
	name = is_core ? type->klass : type->name;
	if (!key.internal || !name)
		return 0;
	key.internal = 0;
	key.klass = scry_places_name(p, name, strlen(name));
	return key.klass ? place_of(p, &key) : 0;
}

void scry_places_key(const struct scry_places *p, uint32_t place, struct scry_place_key *ret)
{
	const char *bytes = scry_intern_get(&p->keys, place, NULL);

	memset(ret, 0, sizeof(*ret));
	if (bytes)
		memcpy(ret, bytes, sizeof(*ret));
}

uint32_t scry_places_with_stack(struct scry_places *p, uint32_t place, uint32_t stack)
{
	struct scry_place_key key;

	if (!place || !stack)
		return place;
	scry_places_key(p, place, &key);
	key.stack = stack;
	return place_of(p, &key);
}

uint32_t scry_places_line(const struct scry_places *p, const struct scry_place_key *k)
{
	uint64_t seen;
	bool is_leaf;

	if (!k->leaf)
		return k->line_before;
	if (!(p->ruby->layout.leaf[k->leaf - 1].types >> k->type & 1))
		return k->line_before; /* the instruction at pc makes something else */
	if (!k->after || k->depth == 0xffff || !scry_map_get(&p->depths, code_hash(k), &seen))
		return k->line_at;
	is_leaf = k->depth == (k->after_takes_none ? seen & 0xffff : seen >> 16);
	return is_leaf ? k->line_at : k->line_before;
}
