/* See errno.h. */
#include "instrument/calls/errno.h"

#include "base/err.h"
#include "sys/errno_home.h"

bool scry_calls_errno_is_of(struct scry_calls_errno *e, struct scry_linkmap *objects,
			    uint64_t address)
{
	for (size_t i = 0; i < objects->count && !e->location; i++) {
		struct scry_object *o = &objects->objects[i];
		struct scry_sym sym;

		if (address < o->start || address >= o->end)
			continue;
		if (scry_linkmap_open(objects, i) < 0 || !o->elf ||
		    scry_elf_symbol(o->elf, "__errno_location", &sym) < 0) {
			scry_error_clear();
			return false;
		}
		e->start = o->start;
		e->end = o->end;
		e->location = o->bias + sym.value;
	}
	return e->location && address >= e->start && address < e->end;
}

void scry_calls_errno_find(struct scry_calls_errno *e, const struct scry_mem *mem)
{
	if (e->location && !scry_errno_home(mem, e->location, &e->at))
		e->at = 0;
}
