/*
 * Learning sizes: the samples, and the formulas that may explain a set of them. Private to
 * ruby_infer_size.c (which sets to try, and the proof) and ruby_infer_formula.c (the formulas).
 */
#ifndef SCRY_VM_RUBY_INFER_SIZE_H
#define SCRY_VM_RUBY_INFER_SIZE_H

#include "vm/ruby_infer.h"

#define SCRY_SIZE_HEAD 80u     /* bytes of an object that are looked at */
#define SCRY_SIZE_TYPE_BIT 12u /* flags below belong to all types (fl_type.h, FL_USHIFT) */

enum scry_size_tag {
	SCRY_SAMPLE_PLAIN,
	SCRY_SAMPLE_IVARS,   /* has instance variables of its own and is not a plain object */
	SCRY_SAMPLE_COMPLEX, /* of a class with too many sets of instance variables */
};

struct scry_size_sample {
	uint64_t addr, flags;
	int64_t extra; /* bytes outside the slot, as memsize_of says */
	uint8_t tag;
	bool held_out;
	uint8_t head_size;
	uint8_t head[SCRY_SIZE_HEAD];
};

struct scry_size_set {
	const struct scry_size_sample **at;
	size_t count;
	uint8_t type;
};

/* The one formula that explains all of the set; ret's mask, value and word stay 0. False: none, or
 * more than one, or too few samples to prove it. */
bool scry_infer_leaf(struct scry_infer *infer, const struct scry_size_set *set,
		     struct scry_size_rule *ret);

/* The capacity in the shape of the objects, with the layout's shape_*: the first place that holds
 * the list, which is kept for ever. */
bool scry_infer_shape(struct scry_infer *infer, const struct scry_size_set *set,
		      struct scry_size_rule *ret);

/*
 * A field times a scale plus an amount that a few flag bits select (the terminator of a String, by
 * its encoding). Rules for the values that differ from the most frequent, then that one with mask
 * 0. Returns how many, 0 when this explains nothing.
 */
#define SCRY_SIZE_SELECTED_MAX 16u
size_t scry_infer_selected(const struct scry_size_set *set,
			   struct scry_size_rule ret[SCRY_SIZE_SELECTED_MAX]);

/* Fills the two tables of a TABLE rule that scry_infer_leaf found for this set. */
void scry_infer_table_bytes(struct scry_infer *infer, const struct scry_size_set *set,
			    const struct scry_size_rule *rule, int64_t ret[2][SCRY_SIZE_POWERS]);

#endif
