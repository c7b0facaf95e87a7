/*
 * How large the living objects of a Ruby are: slot and bytes outside it, as ObjectSpace.memsize_of
 * says. By learned rules (wire/ruby_size.h); what they do not cover is unknown, and only its slot
 * counts.
 *
 * The target runs meanwhile: an object may be freed, made anew or grow under the read, so each size
 * is of some moment of the call. Reads only; whole blocks of the heap at a time.
 */
#ifndef SCRY_VM_RUBY_SIZE_H
#define SCRY_VM_RUBY_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vm/ruby.h"
#include "wire/ruby_size.h"

struct scry_ruby_size {
	uint64_t extra_bytes; /* outside the slot; 0 unless extra_known */
	uint32_t slot_bytes;  /* 0 unless slot_known */
	uint8_t type;	      /* T_type */
	bool slot_known, extra_known;
	bool is_free; /* nothing lives there now (or it could not be read: type 0 too) */
};

/* The rules with the addresses of this process: for the agent's plan, or for the evaluator here. */
void scry_ruby_size_rules(const struct scry_ruby *ruby, struct scry_size_rules *ret);

/* A scry_load_fn; `ctx` is the scry_ruby. One small read each: for few objects. */
int scry_ruby_size_load(void *ctx, uint64_t address, uint32_t width, uint64_t *ret);

/*
 * Sizes of `count` objects at `address`, in any order, into ret[count]. 0, -ENOMEM, -ESRCH when the
 * process is gone.
 */
int scry_ruby_sizes(const struct scry_ruby *ruby, const uint64_t *address, size_t count,
		    struct scry_ruby_size *ret);

#endif
