/*
 * Infers class names that are ivars placed by shapes (3.2).
 *
 * A class's flags hold the number of its shape in their upper half; the VM has an array of shapes;
 * a shape says which ivar was added last (its edge), at which place, and what its parent is. The
 * name is the ivar under a hidden id. All places are tried; the right ones lead from every known
 * class, over its chain of shapes, to the place of a String with its full name, always under the
 * same id. Two classes that were named late (their chains differ) keep other words of a shape from
 * looking like ids.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define IVS_BYTES 256u
#define VM_BYTES 4096u
#define IVS_LOOKED 32u
#define SHAPE_BYTES 64u
#define KNOWN_MAX 32u

/* What the child said of its classes, looked up once: the search below asks for it very often. */
struct known {
	uint64_t klass, flags, ivs, value; /* value: of a singleton's object */
	char text[128];			   /* the name */
};
struct search {
	struct known known[KNOWN_MAX];
	size_t count;
	struct scry_pick list, places;
};

static void collect(struct scry_infer *infer, const char *kind, uint32_t field, struct search *ret)
{
	const struct scry_fact *f = NULL;

	ret->count = 0;
	while (ret->count < KNOWN_MAX && (f = scry_fact_next(infer->calib, f, kind))) {
		struct known *k = &ret->known[ret->count];

		*k = (struct known){.klass = scry_fact_addr(f, 1), .value = scry_fact_addr(f, 2)};
		scry_fact_text(f, 2, k->text, sizeof(k->text));
		if (strcmp(kind, "singleton") == 0)
			k->text[0] = '\0';
		if (scry_infer_word(infer, k->klass, &k->flags) &&
		    scry_infer_word(infer, k->klass + field, &k->ivs))
			ret->count++;
	}
}

static bool is_value(struct scry_infer *infer, const struct known *k, uint64_t value)
{
	return k->text[0] ? scry_infer_is_string(infer, value, k->text) : value == k->value;
}

/* Does every class keep its name somewhere in the array at `field`? */
static bool ivs_fit(struct scry_infer *infer, uint32_t field, struct search *s)
{
	uint64_t value;

	collect(infer, "class", field, s);
	for (size_t i = 0; i < s->count; i++) {
		bool has = false;

		for (uint32_t j = 0; j < IVS_LOOKED && !has; j++)
			has = scry_infer_word(infer, s->known[i].ivs + 8ull * j, &value) &&
			      is_value(infer, &s->known[i], value);
		if (!has)
			return false;
	}
	return s->count > 3;
}

/* Under `key` each class has what its fact says. */
static bool key_fits(struct scry_infer *infer, const struct search *s, uint64_t key)
{
	const uint64_t keys[3] = {key};

	for (size_t i = 0; i < s->count; i++) {
		uint64_t values[3] = {0};

		if (scry_ruby_shape_ivars(infer->child, s->known[i].klass, keys, values) ||
		    !is_value(infer, &s->known[i], values[0]))
			return false;
	}
	return s->count > 0;
}

/* Where the newest shape of the first class lies; 0: nowhere. */
static uint64_t shape_of(struct scry_infer *infer, const struct search *s)
{
	const struct scry_ruby_layout *l = &infer->child->layout;
	uint64_t list, word;

	if (!s->count || !scry_infer_word(infer, infer->vm + l->vm_shapes, &list) || list % 8)
		return 0;
	list += (s->known[0].flags >> 32) * l->shape_size;
	return scry_infer_word(infer, list, &word) ? list : 0;
}

/* The edge of that shape: the id of the ivar that came last, the name or object of the class. */
static uint64_t edge_of(struct scry_infer *infer, const struct search *s)
{
	uint64_t shape = shape_of(infer, s), edge;

	if (!shape || !scry_infer_word(infer, shape + infer->child->layout.shape_edge, &edge))
		return 0;
	return edge >> 32 ? 0 : edge; /* an id is not a pointer */
}

/* Does it say at `at` where the name is? */
static bool index_fits(struct scry_infer *infer, const struct search *s, uint64_t shape)
{
	uint64_t value;
	uint32_t place;

	return scry_mem_u32(&infer->child->mem, shape + infer->child->layout.shape_index, &place) ==
		       0 &&
	       place && place <= IVS_LOOKED &&
	       scry_infer_word(infer, s->known[0].ivs + 8ull * (place - 1), &value) &&
	       is_value(infer, &s->known[0], value);
}

/* With the list, the size of a shape, the edge and the index given. */
static void try_parents(struct scry_infer *infer, struct search *s, uint64_t edge)
{
	struct scry_ruby_layout *l = &infer->child->layout;

	for (l->shape_parent = 0; l->shape_parent < l->shape_size; l->shape_parent += 4) {
		if (!key_fits(infer, s, edge))
			continue;
		scry_pick_add(&s->list, (uint64_t)l->vm_shapes << 32 | l->shape_size);
		scry_pick_add(&s->places, (uint64_t)l->shape_edge << 32 | l->shape_index << 16 |
						  l->shape_parent);
	}
}

/* With the list and the size of a shape given: all places inside. */
static void try_places(struct scry_infer *infer, struct search *s)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	uint64_t shape = shape_of(infer, s);

	for (l->shape_edge = 0; shape && l->shape_edge < l->shape_size; l->shape_edge += 8) {
		uint64_t edge = edge_of(infer, s);

		if (!edge)
			continue;
		for (l->shape_index = 0; l->shape_index < l->shape_size; l->shape_index += 4) {
			if (index_fits(infer, s, shape))
				try_parents(infer, s, edge);
		}
	}
}

/* The hidden id of another ivar of classes; 0 when not all know it. */
static uint64_t other_key(struct scry_infer *infer, const char *kind)
{
	struct search s;
	uint64_t edge;

	collect(infer, kind, infer->child->layout.class_ivs, &s);
	edge = edge_of(infer, &s);
	return edge && key_fits(infer, &s, edge) ? edge : 0;
}

/* The VM also points at the root shape, which is the first of the array: the same address. */
static bool is_seen(struct scry_infer *infer, const struct scry_pick *list)
{
	uint64_t first, again;

	return list->hits && scry_infer_word(infer, infer->vm + (list->value >> 32), &first) &&
	       scry_infer_word(infer, infer->vm + infer->child->layout.vm_shapes, &again) &&
	       first == again && (uint32_t)(list->value >> 32) != infer->child->layout.vm_shapes;
}

int scry_infer_shapes(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct search s = {.list = {.parts = 2}, .places = {.parts = 3}};
	struct scry_pick ivs = {0};
	int err;

	for (uint32_t field = 8; field < IVS_BYTES; field += 8) {
		if (ivs_fit(infer, field, &s))
			scry_pick_add(&ivs, field);
	}
	err = scry_infer_item(infer, "class name", &ivs, "all named classes, among their ivars");
	if (err)
		return err;
	l->class_ivs = (uint32_t)ivs.value;
	collect(infer, "class", l->class_ivs, &s);
	for (l->vm_shapes = 0; l->vm_shapes < VM_BYTES; l->vm_shapes += 8) {
		if (is_seen(infer, &s.list))
			continue;
		for (l->shape_size = 16; l->shape_size <= SHAPE_BYTES; l->shape_size += 8)
			try_places(infer, &s);
	}
	l->vm_shapes = (uint32_t)(s.list.value >> 32);
	l->shape_size = (uint32_t)s.list.value;
	l->shape_edge = (uint32_t)(s.places.value >> 32);
	l->shape_index = (uint32_t)(s.places.value >> 16) & 0xffff;
	l->shape_parent = (uint32_t)s.places.value & 0xffff;
	err = scry_infer_item(infer, "shapes of the VM, and size", &s.list, "all named classes");
	if (!err)
		err = scry_infer_item(infer, "edge, place, parent", &s.places, "all named classes");
	l->classpath_id = edge_of(infer, &s);
	l->tmp_classpath_id = other_key(infer, "tempclass");
	l->attached_id = other_key(infer, "singleton");
	return err;
}
