/*
 * How large the living objects of a Ruby are: slot and bytes outside it, as ObjectSpace.memsize_of
 * says. By learned rules (wire/ruby_size.h); what they do not cover is unknown, and only its slot
 * counts.
 *
 * The target runs meanwhile: an object may be freed, made anew or grow under the read, so each size
 * is of some moment of the call. Reads only.
 */
#ifndef SCRY_VM_RUBY_SIZE_H
#define SCRY_VM_RUBY_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vm/ruby.h"
#include "wire/ruby_ring.h"
#include "wire/ruby_size.h"

struct scry_ruby_size {
	uint64_t extra;			/* bytes outside the slot; 0 when not known */
	uint32_t slot;			/* bytes of the slot */
	bool known;			/* extra is known */
	bool is_free;			/* the slot was read, and nothing lives there; type is 0 */
	uint8_t type;			/* T_type */
	enum scry_ring_class end_class; /* of what kind its class is */
};

/* The rules with the addresses of this process: for the agent's plan, or for the evaluator here. */
void scry_ruby_size_rules(const struct scry_ruby *ruby, struct scry_size_rules *ret);

/* A scry_load_fn; `ctx` is the scry_ruby. One small read each: for few objects. */
int scry_ruby_size_load(void *ctx, uint64_t address, uint32_t width, uint64_t *ret);

/* Bytes of the slots in the heap page that `address` lies in: two small reads where pages differ,
 * layout.slot_size where they do not or the page cannot be read. */
uint32_t scry_ruby_slot_size(const struct scry_ruby *ruby, uint64_t address);

/*
 * Sizes of `count` objects at `address`, into ret[count]. Any order; sorted is faster, since
 * neighbours are read together, up to 64 KiB at a time. 0, -ENOMEM, or -ESRCH: the process is gone,
 * or not bound yet (scry_ruby_like).
 */
int scry_ruby_sizes(const struct scry_ruby *ruby, const uint64_t *address, size_t count,
		    struct scry_ruby_size *ret);

#endif
