#include "vm/ruby_size.h"

#include <stdlib.h>
#include <string.h>

void scry_ruby_size_rules(const struct scry_ruby *ruby, struct scry_size_rules *ret)
{
	*ret = ruby->layout.sizes;
	if (ret->shape_root)
		ret->shape_root += ruby->bias;
	for (uint32_t i = 0; i < ret->rule_count; i++) {
		if (ret->rule[i].relative)
			ret->rule[i].word += ruby->bias;
	}
}

int scry_ruby_size_load(void *ctx, uint64_t address, uint32_t width, uint64_t *ret)
{
	const struct scry_ruby *ruby = ctx;

	*ret = 0;
	return scry_mem_read(&ruby->mem, address, ret, width);
}

int scry_ruby_sizes(const struct scry_ruby *ruby, const uint64_t *address, size_t count,
		    struct scry_ruby_size *ret)
{
	struct scry_size_rules rules;

	scry_ruby_size_rules(ruby, &rules);
	for (size_t i = 0; i < count; i++) {
		uint64_t flags = 0, page = 0, word = 0;
		int64_t extra;

		ret[i] = (struct scry_ruby_size){.slot_bytes = ruby->layout.slot_size,
						 .slot_known = 1};
		if (scry_mem_u64(&ruby->mem, address[i], &flags) < 0 || !flags) {
			ret[i].is_free = true;
			continue;
		}
		if (ruby->layout.page_mask &&
		    scry_mem_u64(&ruby->mem,
				 (address[i] & ruby->layout.page_mask) + ruby->layout.page_header,
				 &page) == 0 &&
		    scry_mem_read(&ruby->mem, page + ruby->layout.page_slot_size, &word, 2) == 0)
			ret[i].slot_bytes = (uint16_t)word;
		extra = scry_size_extra(&rules, scry_ruby_size_load, (void *)ruby, address[i],
					flags);
		ret[i].extra_known = extra >= 0;
		ret[i].extra_bytes = extra > 0 ? (uint64_t)extra : 0;
	}
	return 0;
}
