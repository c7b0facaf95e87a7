/*
 * Learns class names that are ivars placed by shapes (3.2).
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
#include "vm/ruby_learn.h"

#define IVS_BYTES 256u
#define VM_BYTES 4096u
#define IVS_LOOKED 32u
#define SHAPE_BYTES 64u

static uint64_t ivs_of(struct scry_learn *learn, uint64_t klass, uint32_t field)
{
	uint64_t ivs;

	return scry_learn_word(learn, klass + field, &ivs) ? ivs : 0;
}

/* Does every class keep its name somewhere in the array at `field`? */
static bool ivs_fit(struct scry_learn *learn, uint32_t field)
{
	const struct scry_fact *f = NULL;

	while ((f = scry_fact_next(learn->calib, f, "class"))) {
		uint64_t ivs = ivs_of(learn, scry_fact_addr(f, 1), field), value;
		char text[256];
		bool has = false;

		scry_fact_text(f, 2, text, sizeof(text));
		for (uint32_t i = 0; i < IVS_LOOKED && !has; i++)
			has = scry_learn_word(learn, ivs + 8ull * i, &value) &&
			      scry_learn_is_string(learn, value, text);
		if (!has)
			return false;
	}
	return scry_fact_next(learn->calib, NULL, "class") != NULL;
}

/* The value of `key` in each class of the facts is what the fact says. */
static bool key_fits(struct scry_learn *learn, const char *kind, uint64_t key)
{
	const struct scry_fact *f = NULL;
	bool any = false;

	while ((f = scry_fact_next(learn->calib, f, kind))) {
		const uint64_t keys[3] = {key};
		uint64_t values[3] = {0};
		char text[256];

		if (scry_ruby_shape_ivars(learn->child, scry_fact_addr(f, 1), keys, values))
			return false;
		scry_fact_text(f, 2, text, sizeof(text));
		if (strcmp(kind, "singleton") == 0 ? values[0] != scry_fact_addr(f, 2)
						   : !scry_learn_is_string(learn, values[0], text))
			return false;
		any = true;
	}
	return any;
}

/* The edge of the newest shape of the first class of `kind`, whose name or object came last. */
static uint64_t edge_of(struct scry_learn *learn, const char *kind)
{
	const struct scry_ruby_layout *l = &learn->child->layout;
	const struct scry_fact *f = scry_fact_next(learn->calib, NULL, kind);
	uint64_t flags, list, edge;

	if (!f || !scry_learn_word(learn, scry_fact_addr(f, 1), &flags) ||
	    !scry_learn_word(learn, learn->vm + l->vm_shapes, &list) ||
	    !scry_learn_word(learn, list + (flags >> 32) * l->shape_size + l->shape_edge, &edge))
		return 0;
	return edge;
}

/* Does the newest shape of the first class say at `shape_index` where its name is? */
static bool index_fits(struct scry_learn *learn)
{
	const struct scry_ruby_layout *l = &learn->child->layout;
	const struct scry_fact *f = scry_fact_next(learn->calib, NULL, "class");
	uint64_t flags, list, value, klass = scry_fact_addr(f, 1);
	uint32_t place;
	char text[256];

	scry_fact_text(f, 2, text, sizeof(text));
	return scry_learn_word(learn, klass, &flags) &&
	       scry_learn_word(learn, learn->vm + l->vm_shapes, &list) &&
	       scry_mem_u32(&learn->child->mem,
			    list + (flags >> 32) * l->shape_size + l->shape_index, &place) == 0 &&
	       place && place <= IVS_LOOKED &&
	       scry_learn_word(learn, ivs_of(learn, klass, l->class_ivs) + 8ull * (place - 1),
			       &value) &&
	       scry_learn_is_string(learn, value, text);
}

/* With the list, the size of a shape, the edge and the index given. */
static void try_parents(struct scry_learn *learn, uint64_t edge, struct scry_pick *list,
			struct scry_pick *places)
{
	struct scry_ruby_layout *l = &learn->child->layout;

	for (l->shape_parent = 0; l->shape_parent < l->shape_size; l->shape_parent += 4) {
		if (!key_fits(learn, "class", edge))
			continue;
		scry_pick_add(list, (uint64_t)l->vm_shapes << 32 | l->shape_size);
		scry_pick_add(places, (uint64_t)l->shape_edge << 32 | l->shape_index << 16 |
					      l->shape_parent);
	}
}

/* With the list and the size of a shape given: all places inside. */
static void try_places(struct scry_learn *learn, struct scry_pick *list, struct scry_pick *places)
{
	struct scry_ruby_layout *l = &learn->child->layout;

	for (l->shape_edge = 0; l->shape_edge < l->shape_size; l->shape_edge += 8) {
		uint64_t edge = edge_of(learn, "class");

		if (!edge)
			continue;
		for (l->shape_index = 0; l->shape_index < l->shape_size; l->shape_index += 4) {
			if (index_fits(learn))
				try_parents(learn, edge, list, places);
		}
	}
}

/* The hidden id of another ivar of classes; 0 when not all know it. */
static uint64_t other_key(struct scry_learn *learn, const char *kind)
{
	uint64_t edge = edge_of(learn, kind);

	return edge && key_fits(learn, kind, edge) ? edge : 0;
}

/* The VM also points at the root shape, which is the first of the array: the same address. */
static bool is_seen(struct scry_learn *learn, const struct scry_pick *list)
{
	uint64_t first, again;

	return list->hits && scry_learn_word(learn, learn->vm + (list->value >> 32), &first) &&
	       scry_learn_word(learn, learn->vm + learn->child->layout.vm_shapes, &again) &&
	       first == again && (uint32_t)(list->value >> 32) != learn->child->layout.vm_shapes;
}

int scry_learn_shapes(struct scry_learn *learn)
{
	struct scry_ruby_layout *l = &learn->child->layout;
	struct scry_pick ivs = {0}, list = {.parts = 2}, places = {.parts = 3};
	int err;

	for (uint32_t field = 8; field < IVS_BYTES; field += 8) {
		if (ivs_fit(learn, field))
			scry_pick_add(&ivs, field);
	}
	err = scry_learn_item(learn, "class name", &ivs, "all named classes, among their ivars");
	if (err)
		return err;
	l->class_ivs = (uint32_t)ivs.value;
	for (l->vm_shapes = 0; l->vm_shapes < VM_BYTES; l->vm_shapes += 8) {
		if (is_seen(learn, &list))
			continue;
		for (l->shape_size = 16; l->shape_size <= SHAPE_BYTES; l->shape_size += 8)
			try_places(learn, &list, &places);
	}
	l->vm_shapes = (uint32_t)(list.value >> 32);
	l->shape_size = (uint32_t)list.value;
	l->shape_edge = (uint32_t)(places.value >> 32);
	l->shape_index = (uint32_t)(places.value >> 16) & 0xffff;
	l->shape_parent = (uint32_t)places.value & 0xffff;
	err = scry_learn_item(learn, "shapes of the VM, and size", &list, "all named classes");
	if (!err)
		err = scry_learn_item(learn, "edge, place, parent", &places, "all named classes");
	l->classpath_id = edge_of(learn, "class");
	l->tmp_classpath_id = other_key(learn, "tempclass");
	l->attached_id = other_key(learn, "singleton");
	return err;
}
