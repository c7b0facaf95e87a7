/*
 * Struct members by name from DWARF.
 *
 * The structs of a VM are defined in headers that most of its files include, so one of the first
 * units has them all: units are gone through in their order and the complete definitions met on the
 * way are kept. A struct that does not exist costs one walk over all units, which is bounded.
 */
#include "vm/ruby_dwarf.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys/debug_info.h"

#define UNITS_MAX 400u
#define NESTED_MAX 8
#define STRUCTS_MAX 64u

struct scry_dwarf {
	struct scry_debug_info *info;
};

struct known { /* the child's */
	Dwarf *dwarf;
	struct {
		char name[48];
		Dwarf_Die die;
		bool found;
	} structs[STRUCTS_MAX];
	size_t struct_count;
};

/* The complete definition of struct `name` in this unit. */
static bool in_unit(Dwarf_Die *unit, const char *name, Dwarf_Die *ret)
{
	Dwarf_Die die;

	if (dwarf_child(unit, &die) != 0)
		return false;
	do {
		const char *found =
			dwarf_tag(&die) == DW_TAG_structure_type ? dwarf_diename(&die) : NULL;

		if (found && strcmp(found, name) == 0 && !dwarf_hasattr(&die, DW_AT_declaration)) {
			*ret = die;
			return true;
		}
	} while (dwarf_siblingof(&die, &die) == 0);
	return false;
}

static bool find_struct(struct known *d, const char *name, Dwarf_Die *ret)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Die unit;
	size_t i;

	for (i = 0; i < d->struct_count; i++) {
		if (strcmp(d->structs[i].name, name) == 0) {
			*ret = d->structs[i].die;
			return d->structs[i].found;
		}
	}
	if (i == STRUCTS_MAX || strlen(name) >= sizeof(d->structs[i].name))
		return false;
	strcpy(d->structs[i].name, name);
	d->struct_count++;
	for (unsigned int n = 0;
	     n < UNITS_MAX && dwarf_get_units(d->dwarf, cu, &cu, NULL, NULL, &unit, NULL) == 0;
	     n++) {
		if (in_unit(&unit, name, ret)) {
			d->structs[i].die = *ret;
			d->structs[i].found = true;
			return true;
		}
	}
	return false;
}

/* The struct or union that a member is, typedefs and qualifiers taken off. */
static bool type_of(Dwarf_Die *member, Dwarf_Die *ret)
{
	Dwarf_Attribute attr;

	return dwarf_attr_integrate(member, DW_AT_type, &attr) && dwarf_formref_die(&attr, ret) &&
	       dwarf_peel_type(ret, ret) == 0;
}

static bool member_offset(Dwarf_Die *member, uint64_t *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word offset = 0;

	if (dwarf_hasattr(member, DW_AT_bit_size))
		return false;
	if (dwarf_attr(member, DW_AT_data_member_location, &attr) &&
	    dwarf_formudata(&attr, &offset) != 0)
		return false;
	*ret = offset; /* none in a union: 0 */
	return true;
}

/*
 * Member `name` (of `length` bytes) of a struct or union, also inside its nameless ones. Follows
 * at most NESTED_MAX levels: the types are foreign data.
 */
static bool find_member(Dwarf_Die *type, const char *name, size_t length, Dwarf_Die *ret,
			uint64_t *ret_offset)
{
	struct {
		Dwarf_Die die;
		uint64_t base;
	} todo[NESTED_MAX] = {{*type, 0}};
	size_t count = 1;

	for (size_t i = 0; i < count; i++) {
		Dwarf_Die die, inner;
		uint64_t offset;

		if (dwarf_child(&todo[i].die, &die) != 0)
			continue;
		do {
			const char *found = dwarf_diename(&die);

			if (dwarf_tag(&die) != DW_TAG_member || !member_offset(&die, &offset))
				continue;
			if (found && strlen(found) == length && memcmp(found, name, length) == 0) {
				*ret = die;
				*ret_offset = todo[i].base + offset;
				return true;
			}
			if (!found && count < NESTED_MAX && type_of(&die, &inner)) {
				todo[count].die = inner;
				todo[count++].base = todo[i].base + offset;
			}
		} while (dwarf_siblingof(&die, &die) == 0);
	}
	return false;
}

/* One "struct:member.member" or "struct", NUL-terminated. */
static bool find_one(struct known *d, char *spec, uint64_t *ret)
{
	char *path = strchr(spec, ':');
	uint64_t sum = 0, offset;
	Dwarf_Die type, member;
	Dwarf_Word size;

	if (path)
		*path++ = '\0';
	if (!find_struct(d, spec, &type))
		return false;
	if (!path) {
		if (dwarf_aggregate_size(&type, &size) != 0)
			return false;
		*ret = size;
		return true;
	}
	for (;;) {
		size_t length = strcspn(path, ".");

		if (!find_member(&type, path, length, &member, &offset))
			return false;
		sum += offset;
		if (path[length] == '\0')
			break;
		if (!type_of(&member, &type))
			return false;
		path += length + 1;
	}
	*ret = sum;
	return true;
}

/* In the child: of "one|another" the first that there is. */
static size_t answer(Dwarf *dwarf, void **state, const void *question, void *ret)
{
	char text[SCRY_DEBUG_QUESTION_MAX + 1], *one, *rest = text;
	struct known *d = *state ? *state : calloc(1, sizeof(*d));
	uint64_t found;

	*state = d;
	if (!d)
		return 0;
	d->dwarf = dwarf;
	snprintf(text, sizeof(text), "%s", (const char *)question);
	while ((one = strsep(&rest, "|"))) {
		if (!find_one(d, one, &found))
			continue;
		memcpy(ret, &found, sizeof(found));
		return sizeof(found);
	}
	return 0;
}

struct scry_dwarf *scry_dwarf_open(struct scry_elf *elf)
{
	struct scry_dwarf *d = calloc(1, sizeof(*d));

	if (d)
		d->info = scry_debug_info_open(elf, answer);
	if (d && d->info)
		return d;
	free(d);
	return NULL;
}

void scry_dwarf_close(struct scry_dwarf *dwarf)
{
	if (!dwarf)
		return;
	scry_debug_info_close(dwarf->info);
	free(dwarf);
}

bool scry_dwarf_find(struct scry_dwarf *dwarf, const char *spec, uint64_t *ret)
{
	char text[SCRY_DEBUG_ANSWER_MAX];

	if (scry_debug_info_ask(dwarf->info, spec, strlen(spec) + 1, text) != sizeof(*ret))
		return false;
	memcpy(ret, text, sizeof(*ret));
	return true;
}
