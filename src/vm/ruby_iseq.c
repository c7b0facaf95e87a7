/*
 * Reads iseqs of another process.
 *
 * One trick, the VM's own: line entries are not looked up by a search but by rank in a succinct bit
 * table (see the header); entry number = rank - 1. The table's small head answers for short code
 * with one word, and longer code costs three reads.
 */
#include "vm/ruby_iseq.h"

#include <errno.h>

#include "vm/ruby_value.h"

#define IMMEDIATE_PART 54u /* positions in the small head */
#define SIZE_MAX_WORDS (1u << 24)

int scry_ruby_iseq_read(const struct scry_ruby *ruby, uint64_t iseq, struct scry_ruby_iseq *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	struct scry_ruby_iseq r = {.iseq = iseq};
	uint64_t flags;

	if (iseq == 0 || iseq % 8)
		return -EINVAL;
	if (scry_mem_u64(&ruby->mem, iseq, &flags) ||
	    scry_mem_u64(&ruby->mem, iseq + l->iseq_body, &r.body))
		return -EFAULT;
	if ((flags & l->iseq_flags_mask) != l->iseq_flags_value || r.body % 8)
		return -EINVAL;
	if (scry_mem_u64(&ruby->mem, r.body + l->body_encoded, &r.encoded) ||
	    scry_mem_u32(&ruby->mem, r.body + l->body_size, &r.size))
		return -EFAULT;
	if (r.encoded % 8 || r.size == 0 || r.size > SIZE_MAX_WORDS)
		return -EINVAL;
	*ret = r;
	return 0;
}

int scry_ruby_iseq_position(const struct scry_ruby_iseq *iseq, uint64_t pc, uint32_t *ret)
{
	uint64_t pos = (pc - iseq->encoded) / 8;

	if (pc < iseq->encoded || pc % 8 || pos > iseq->size)
		return -EINVAL;
	*ret = (uint32_t)(pos ? pos - 1 : 0);
	return 0;
}

int scry_ruby_succ_rank(const struct scry_mem *mem, uint64_t succ, uint32_t pos, uint32_t *ret)
{
	uint64_t word, block, bits;
	uint32_t rank, at, group;

	if (pos < IMMEDIATE_PART) {
		if (scry_mem_u64(mem, succ + pos / 9 * 8, &word))
			return -EFAULT;
		*ret = (uint32_t)(word >> (pos % 9 * 7)) & 0x7f;
		return 0;
	}
	at = pos - IMMEDIATE_PART;
	block = succ + IMMEDIATE_PART / 9 * 8 + (uint64_t)(at / 512) * 80;
	at %= 512;
	group = at / 64;
	if (scry_mem_u32(mem, block, &rank) || scry_mem_u64(mem, block + 8, &word) ||
	    scry_mem_u64(mem, block + 16 + group * 8, &bits))
		return -EFAULT;
	if (group)
		rank += (uint32_t)(word >> ((group - 1) * 9)) & 0x1ff;
	*ret = rank + (uint32_t)__builtin_popcountll(bits << (63 - at % 64));
	return 0;
}

int scry_ruby_iseq_line(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			uint32_t pos, uint32_t *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t info = iseq->body + l->body_insns_info, entries, succ;
	uint32_t count, rank = 1;

	if (pos >= iseq->size)
		return -EINVAL;
	if (scry_mem_u64(&ruby->mem, info + l->insns_entries, &entries) ||
	    scry_mem_u64(&ruby->mem, info + l->insns_succ, &succ) ||
	    scry_mem_u32(&ruby->mem, info + l->insns_count, &count))
		return -EFAULT;
	if (count == 0)
		return -ENOENT;
	if (count > 1 && scry_ruby_succ_rank(&ruby->mem, succ, pos, &rank))
		return -EFAULT;
	if (rank == 0 || rank > count)
		return -EFAULT;
	return scry_mem_u32(
		&ruby->mem,
		entries + (uint64_t)(rank - 1) * l->insns_entry_size + l->insns_entry_line, ret);
}

/* A path is a String, or an Array of [path, real path]. */
ssize_t scry_ruby_iseq_path(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			    char *buf, size_t size)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t value, flags, at;

	if (scry_mem_u64(&ruby->mem, iseq->body + l->body_path, &value) ||
	    scry_mem_u64(&ruby->mem, value, &flags))
		return -EFAULT;
	if ((flags & SCRY_RUBY_TYPE_MASK) == SCRY_RUBY_T_ARRAY) {
		at = value + l->array_embed_ptr;
		if (!(flags & l->array_embed) &&
		    scry_mem_u64(&ruby->mem, value + l->array_ptr, &at))
			return -EFAULT;
		if (scry_mem_u64(&ruby->mem, at, &value))
			return -EFAULT;
	}
	return scry_ruby_string(ruby, value, buf, size);
}

ssize_t scry_ruby_iseq_label(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			     char *buf, size_t size)
{
	uint64_t value;

	if (scry_mem_u64(&ruby->mem, iseq->body + ruby->layout.body_label, &value))
		return -EFAULT;
	return scry_ruby_string(ruby, value, buf, size);
}

int scry_ruby_iseq_first_line(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			      uint32_t *ret)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint32_t word;

	if (scry_mem_u32(&ruby->mem, iseq->body + l->body_first_line, &word))
		return -EFAULT;
	*ret = l->first_line_fixnum ? word >> 1 : word;
	return 0;
}
