/* See debug.h. */
#include "instrument/calls/debug.h"

#include <stdio.h>

#include "base/err.h"
#include "name/debug_proto.h"

#define LOOKS_MAX 1000u /* functions; each may be a search of all units */

const struct scry_proto *scry_calls_debug_proto(struct scry_calls_debug *d,
						const struct scry_hook *row, uint32_t number)
{
	const struct scry_proto *proto = NULL;
	struct scry_buf text = {0};
	char name[24];

	for (size_t i = 0; i < d->objects->count && d->looked < LOOKS_MAX; i++) {
		struct scry_object *o = &d->objects->objects[i];

		if (row->address < o->start || row->address >= o->end || !o->elf)
			continue;
		if (o->elf != d->elf) { /* rows come by address */
			scry_debug_protos_close(d->protos_of);
			d->protos_of = scry_debug_protos_open(o->elf);
			d->elf = o->elf;
		}
		snprintf(name, sizeof(name), "f%u", number);
		if (d->protos_of && d->looked++ < LOOKS_MAX &&
		    scry_debug_proto(d->protos_of, row->address - o->bias, name, &text) &&
		    scry_protos_read(d->protos, "debug information", text.data, text.len) == 0)
			proto = scry_protos_find(d->protos, name, "");
	}
	scry_buf_done(&text);
	scry_error_clear();
	return proto;
}

void scry_calls_debug_done(struct scry_calls_debug *d)
{
	scry_debug_protos_close(d->protos_of);
	d->protos_of = NULL;
	d->elf = NULL;
}
