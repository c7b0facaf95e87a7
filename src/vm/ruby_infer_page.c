/*
 * Infers where a heap page says how long its slots are (3.2 on: five sizes or more), and what
 * GC.stat says.
 *
 * The memory of a page is aligned, and begins with a pointer to the page's struct. The facts are
 * objects of each size, several pages full, with the size that ObjectSpace.dump says. Only the
 * right places, and no smaller alignment, lead from every one of them to its size.
 */
#include <stdio.h>
#include <string.h>

#include "vm/ruby_infer.h"

#define HEADER_BYTES 64u
#define PAGE_STRUCT_BYTES 128u
#define SMALLEST 12u /* log2 of a page */
#define GREATEST 20u
#define SAMPLES 128

struct sample {
	uint64_t addr;
	uint32_t size;
};

static size_t collect(struct scry_infer *infer, struct sample *samples, unsigned int *ret_sizes)
{
	const struct scry_fact *f = NULL;
	size_t n = 0, before;

	while (n < SAMPLES && (f = scry_fact_next(infer->calib, f, "page"))) {
		samples[n] =
			(struct sample){scry_fact_addr(f, 1), (uint32_t)scry_fact_number(f, 2)};
		for (before = 0; before < n && samples[before].size != samples[n].size; before++)
			;
		*ret_sizes += before == n;
		n++;
	}
	return n;
}

static bool size_fits(struct scry_infer *infer, const struct sample *s, uint64_t page, uint32_t at)
{
	uint16_t size;

	return scry_mem_read(&infer->child->mem, page + at, &size, sizeof(size)) == 0 &&
	       size == s->size;
}

/* All samples with this alignment and header. */
static void try_header(struct scry_infer *infer, const struct sample *samples, size_t n,
		       struct scry_pick *pick)
{
	uint32_t shift = (uint32_t)(pick[1].value >> 32), header = (uint32_t)pick[1].value;
	uint64_t page;

	for (uint32_t at = 0; at < PAGE_STRUCT_BYTES; at += 2) {
		size_t i;

		for (i = 0; i < n; i++) {
			if (!scry_infer_word(infer, (samples[i].addr >> shift << shift) + header,
					     &page) ||
			    !size_fits(infer, &samples[i], page, at))
				break;
		}
		if (i == n)
			scry_pick_add(&pick[0], (uint64_t)shift << 32 | header << 16 | at);
	}
}

int scry_infer_pages(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	const struct scry_fact *f = scry_fact_next(infer->calib, NULL, "gcstat");
	/* [0]: what fits; [1]: what is being tried */
	struct scry_pick pick[2] = {{.parts = 3}, {.parts = 2}};
	struct sample samples[SAMPLES];
	unsigned int sizes = 0;
	size_t n = collect(infer, samples, &sizes);
	char proof[96];

	l->gc_stat_compact = f && scry_fact_number(f, 1) == 1;
	/* the smallest: a greater one leads to a neighbouring page, whose slots may be as long */
	for (uint64_t shift = SMALLEST; shift <= GREATEST && sizes > 1 && !pick[0].hits; shift++) {
		for (uint32_t header = 0; header < HEADER_BYTES; header += 8) {
			pick[1].value = shift << 32 | header;
			try_header(infer, samples, n, pick);
		}
	}
	l->slots_differ = sizes > 1;
	snprintf(proof, sizeof(proof), "%zu objects of %u sizes", n, sizes);
	if (scry_infer_optional(infer, "heap page, its slot size", &pick[0], proof,
				l->slots_differ ? "how long an object's slot is, is not known"
						: "all slots are of one size")) {
		l->page_mask = ~0ull << (pick[0].value >> 32);
		l->page_header = (uint32_t)(pick[0].value >> 16) & 0xffff;
		l->page_slot_size = (uint32_t)pick[0].value & 0xffff;
	}
	return 0;
}
