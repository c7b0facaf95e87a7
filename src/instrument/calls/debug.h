/*
 * Prototypes of functions from the debug information of the objects that define them.
 *
 * Life: objects and protos set, the rest zeroed; proto*, done. Reading may take long: the target
 * should not wait.
 */
#ifndef SCRY_INSTRUMENT_CALLS_DEBUG_H
#define SCRY_INSTRUMENT_CALLS_DEBUG_H

#include "hook/hooks.h"
#include "proto/protos.h"

struct scry_debug_protos;

struct scry_calls_debug {
	const struct scry_linkmap *objects;
	struct scry_protos *protos; /* where they are put, and live */
	/* of the object that was asked last */
	const struct scry_elf *elf;
	struct scry_debug_protos *protos_of;
	uint32_t looked;
};

/* `number` is its own among all that `protos` has. NULL: there is none, or too many have been asked
 * for; no sentence. */
const struct scry_proto *scry_calls_debug_proto(struct scry_calls_debug *d,
						const struct scry_hook *row, uint32_t number);
void scry_calls_debug_done(struct scry_calls_debug *d);

#endif
