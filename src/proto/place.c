/* See place.h; psABI 3.2.3. */
#include "proto/place.h"

#define STACK_MAX 64u

uint8_t scry_place_next(struct scry_type_places *p, bool is_vector)
{
	if (is_vector && p->vectors < 8)
		return (uint8_t)(SCRY_AT_VECTOR + p->vectors++);
	if (!is_vector && p->registers < 6)
		return (uint8_t)(SCRY_AT_REGISTER + p->registers++);
	if (p->stack < STACK_MAX)
		return (uint8_t)(SCRY_AT_STACK + p->stack++);
	return SCRY_AT_NOWHERE;
}

/* Is there anything but floats in the eight bytes at `word` * 8? Structs in structs are gone
 * through by a list: no deeper than texts nest. */
static bool has_integers(const struct scry_type *type, uint32_t word)
{
	struct {
		const struct scry_type *type;
		uint64_t at;
	} todo[SCRY_PROTO_FIELDS_MAX];
	uint32_t count = 1;

	todo[0].type = type;
	todo[0].at = 0;
	while (count) {
		const struct scry_type *t = todo[--count].type;
		uint64_t at = todo[count].at;

		if (t->kind == SCRY_TYPE_STRUCT || t->kind == SCRY_TYPE_ARRAY) {
			uint64_t n = t->kind == SCRY_TYPE_STRUCT ? t->count
				     : t->inner->size		 ? t->size / t->inner->size
								 : 0;

			for (uint64_t i = 0; i < n && count < SCRY_PROTO_FIELDS_MAX; i++) {
				bool is_field = t->kind == SCRY_TYPE_STRUCT;

				todo[count].type = is_field ? t->fields[i] : t->inner;
				todo[count++].at =
					at + (is_field ? t->offsets[i] : i * t->inner->size);
			}
		} else if (at / 8 == word && !scry_type_is_float(t)) {
			return true;
		}
	}
	return false;
}

static void place_struct(struct scry_type_places *p, const struct scry_type *t,
			 struct scry_place *ret)
{
	uint32_t words = (uint32_t)((t->size + 7) / 8), registers = 0;
	bool is_vector[2] = {false, false};

	for (uint32_t i = 0; i < words && words <= 2; i++) {
		is_vector[i] = !has_integers(t, i);
		registers += !is_vector[i];
	}
	if (words && words <= 2 && p->registers + registers <= 6 &&
	    p->vectors + words - registers <= 8) {
		for (uint32_t i = 0; i < words; i++)
			ret->at[i] = scry_place_next(p, is_vector[i]);
		return;
	}
	ret->is_memory = true;
	ret->is_lost = p->stack + words > STACK_MAX;
	ret->at[0] = (uint8_t)(SCRY_AT_STACK + p->stack);
	p->stack = (uint8_t)(ret->is_lost ? STACK_MAX : p->stack + words);
}

static void place_result(struct scry_type_places *p, const struct scry_type *t,
			 struct scry_place *ret)
{
	static const uint8_t integers[] = {SCRY_AT_RAX, SCRY_AT_RDX};
	uint32_t next_integer = 0, next_vector = 0, words = (uint32_t)((t->size + 7) / 8);

	if (words > 2) { /* room for it is the first argument */
		ret->is_memory = true;
		ret->at[0] = SCRY_AT_RAX;
		p->registers = 1;
		return;
	}
	for (uint32_t i = 0; i < words; i++)
		ret->at[i] = has_integers(t, i) ? integers[next_integer++]
						: (uint8_t)(SCRY_AT_VECTOR + next_vector++);
}

void scry_places_find(const struct scry_proto *proto, struct scry_type_places *ret)
{
	static const struct scry_place nowhere = {.at = {SCRY_AT_NOWHERE, SCRY_AT_NOWHERE}};

	*ret = (struct scry_type_places){.result = nowhere};
	place_result(ret, proto->result, &ret->result);
	for (uint32_t i = 0; i < proto->count; i++) {
		const struct scry_type *t = proto->args[i];

		ret->args[i] = nowhere;
		if (t->kind == SCRY_TYPE_STRUCT)
			place_struct(ret, t, &ret->args[i]);
		else
			ret->args[i].at[0] = scry_place_next(ret, scry_type_is_float(t));
		ret->args[i].is_lost |= t->size && ret->args[i].at[0] == SCRY_AT_NOWHERE;
	}
}
