/*
 * Ruby code objects (iseqs) in another process: what a position in them is called.
 *
 * An iseq lives as long as a frame, method or block refers to it; its body and tables do not change
 * meanwhile. All calls only read, check each pointer, and may fail at any time with -EFAULT.
 */
#ifndef SCRY_VM_RUBY_ISEQ_H
#define SCRY_VM_RUBY_ISEQ_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vm/ruby.h"

struct scry_ruby_iseq {
	uint64_t iseq, body, encoded; /* encoded: run-time address of the instruction words */
	uint32_t size;		      /* words */
};

/* Reads and checks the head of the iseq at `iseq`. 0, -EINVAL: not an iseq, -EFAULT. */
int scry_ruby_iseq_read(const struct scry_ruby *ruby, uint64_t iseq, struct scry_ruby_iseq *ret);

/* Line of word position `pos` (0 .. size-1). 0, -ENOENT: no line table, -EFAULT. */
int scry_ruby_iseq_line(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			uint32_t pos, uint32_t *ret);

/* Position of the instruction that a frame with this pc executes: one word before pc, as the VM
 * counts. -EINVAL: pc is not in the iseq. */
int scry_ruby_iseq_position(const struct scry_ruby_iseq *iseq, uint64_t pc, uint32_t *ret);

/* Path and label as Ruby's backtrace prints them, first line of the code. Length or -errno. */
ssize_t scry_ruby_iseq_path(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			    char *buf, size_t size);
ssize_t scry_ruby_iseq_label(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			     char *buf, size_t size);
int scry_ruby_iseq_first_line(const struct scry_ruby *ruby, const struct scry_ruby_iseq *iseq,
			      uint32_t *ret);

/*
 * Rank of `pos` in the succinct table at `succ`: how many line entries begin at or before it. 0 or
 * -EFAULT. Layout (iseq.c, struct succ_index_table): positions 0..53 are u64 words of nine 7-bit
 * ranks; from 54, blocks of 512 positions of 80 bytes: u32 rank (padded to 8), u64 of seven 9-bit
 * ranks, eight u64 bit sets.
 */
int scry_ruby_succ_rank(const struct scry_mem *mem, uint64_t succ, uint32_t pos, uint32_t *ret);

#endif
