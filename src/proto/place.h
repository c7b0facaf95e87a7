/*
 * Where arguments and results are when a function is entered and when it returns: the calling
 * convention of the x86-64 psABI, for the types of ltrace.conf(5).
 */
#ifndef SCRY_PROTO_PLACE_H
#define SCRY_PROTO_PLACE_H

#include "proto/type.h"
#include "wire/call_plan.h"

/* In registers, eight bytes each; or on the stack, as many words as it has. */
struct scry_place {
	uint8_t at[2];	/* SCRY_AT_*; the second SCRY_AT_NOWHERE where there is one word */
	bool is_memory; /* a result: at the address in rax. An argument: on the stack, from at[0] on
			 */
	bool is_lost;	/* it lies further up than is looked */
};

struct scry_type_places {
	struct scry_place args[SCRY_PROTO_ARGS_MAX];
	struct scry_place result;
	/* used by what is named: where those of a format begin */
	uint8_t registers, vectors, stack;
};

void scry_places_find(const struct scry_proto *proto, struct scry_type_places *ret);

/* The next word of that class: in a register, else on the stack. Of arguments that `...` takes,
 * too. */
uint8_t scry_place_next(struct scry_type_places *p, bool is_vector);

#endif
