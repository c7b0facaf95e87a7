#ifndef SCRY_VM_RUBY_SIZE_H
#define SCRY_VM_RUBY_SIZE_H
#include "vm/ruby.h"
struct scry_ruby_size {
	uint32_t slot;
	bool known, is_free;
	uint8_t type;
	uint64_t extra;
};
static inline int scry_ruby_sizes(const struct scry_ruby *ruby, const uint64_t *address, size_t count, struct scry_ruby_size *ret)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t flags = 0;
		ret[i] = (struct scry_ruby_size){.slot = ruby->layout.slot_size};
		if (scry_mem_u64(&ruby->mem, address[i], &flags) < 0) return -1;
		ret[i].is_free = flags == 0;
	}
	return 0;
}
static inline uint32_t scry_ruby_slot_size(const struct scry_ruby *ruby, uint64_t address)
{
	uint64_t page; uint64_t word;
	if (!ruby->layout.page_mask || scry_mem_u64(&ruby->mem, (address & ruby->layout.page_mask) + ruby->layout.page_header, &page) < 0 || scry_mem_u64(&ruby->mem, (page + ruby->layout.page_slot_size) & ~7ull, &word) < 0)
	return ruby->layout.slot_size;
	return (uint16_t)(word >> ((page + ruby->layout.page_slot_size) & 7) * 8);
}
#endif
