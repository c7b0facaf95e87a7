/*
 * A record of bpf/stacks.bpf.c: its stack as a walk, and which of its names are sure. Call it soon:
 * what it leads to is read now.
 */
#ifndef SCRY_SAMPLE_RECORD_H
#define SCRY_SAMPLE_RECORD_H

#include "vm/ruby_symbol.h"
#include "wire/bpf_stacks.h"

/* How the collector stood at the sample. */
struct scry_ruby_gc_now scry_record_gc(const struct scry_walk *w, const struct scry_bpf_stack *r);

/* Its frames are in `w` until the next call. `gc`: of above. `size`: of the record, sizeof(*r) at
 * least. */
enum scry_walk_verdict scry_record_take(struct scry_walk *w, const struct scry_ruby *ruby,
					const struct scry_bpf_stack *r, size_t size,
					struct scry_ruby_gc_now gc);

/*
 * Names are read a moment after the sample, and code may be dead by then, its texts' memory
 * others'. Sure are names that were reported when it came into being, those known before the
 * sample, or when no collection was counted meanwhile, or of frames that are still there; the walk,
 * and `named`, end where one is not. The next sample with that code finds it known, as what has
 * died is on no stack. Returns how many frames have gone; *ret_is_new: of the rest one has another
 * name.
 */
size_t scry_record_keep_sure(struct scry_walk *w, const struct scry_ruby *ruby,
			     struct scry_symbols *symbols, struct scry_named_frame *named,
			     uint64_t taken_ns, bool *ret_is_new);

#endif
