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
