/*
 * The line of a Ruby program as a caller of malloc functions: the pc of the newest Ruby frame of
 * this thread, together with the return address, gets a code.
 *
 * Only the thread's own execution context and control frames are read by plain loads. What a frame
 * refers to may be moving, or unreadable, while a GC compacts here or in another thread: the kernel
 * is asked to copy it (code.c), once for each code.
 */
#ifndef SCRY_AGENT_LINES_H
#define SCRY_AGENT_LINES_H

#include "agent/ec.h"
#include "agent/line_tables.h"
#include "agent/thread_buffer.h"

#define SCRY_LINE_PROBES 32u

struct scry_line {
	uint64_t pc; /* | SCRY_MALLOC_LINE_TOP; 0: no Ruby frame */
	uint64_t cfp;
};

/* What is emitted of a line, behind the head of a record. */
struct scry_line_text {
	struct scry_ring_def def;
	uint64_t text[SCRY_DEF_TEXT_MAX / 8];
};
/* How many words; 0: it is not to be emitted, as its end would not be seen. `path_size` 0: it could
 * not be read. */
uint32_t scry_lines_describe(struct scry_line_text *emitted, uint64_t pc, uint64_t iseq);

struct scry_line scry_lines_caller(const struct scry_agent_frames *f, uint64_t cfp, uint64_t end);
uint32_t scry_lines_find(struct scry_agent_thread *t, uint64_t hash, uint64_t address,
			 const struct scry_line *line);
/* The block at `address` is about to be freed. Was it code that was described? Then its codes mean
 * nothing any more. */
int scry_lines_end_start(uint64_t address);
/* The VM is about to be taken down: there are no more lines. Where they were never on, this part is
 * not mapped. */
static inline void scry_lines_over(void)
{
	scry_agent.line_plan.on = 0;
}

/* The newest control frame of this thread, and where they end; 0: it runs no Ruby. */
static inline uint64_t scry_lines_frames(struct scry_agent_thread *t, uint64_t *ret_end)
{
	const struct scry_agent_frames *f = &scry_agent.line_plan.frames;
	uint64_t word = *(volatile uint64_t *)&t->ec_word, ec, stack, size, cfp;

	if (unlikely(t->fs - t->inside < scry_agent.line_plan.depth))
		return 0;
	if (unlikely(!word))
		t->ec_word = word = scry_ec_word();
	ec = word ? load64(word) : 0;
	if (!ec)
		return 0;
	cfp = load64(ec + f->ec_cfp);
	stack = load64(ec + f->ec_stack);
	size = 8 * load64(ec + f->ec_stack_size);
	*ret_end = stack + size;
	return likely(cfp - stack < size) ? cfp : 0;
}

static inline struct scry_line scry_lines_here(struct scry_agent_thread *t)
{
	const struct scry_agent_frames *f = &scry_agent.line_plan.frames;
	struct scry_line line = {0, 0};
	uint64_t end, cfp = scry_lines_frames(t, &end);

	if (!cfp)
		return line;
	line.pc = load64(cfp + f->frame_pc);
	line.cfp = cfp;
	if (likely(line.pc))
		line.pc |= SCRY_MALLOC_LINE_TOP;
	else
		line = scry_lines_caller(f, cfp, end);
	return line;
}

#define SCRY_LINE_CODE ((1u << SCRY_LINE_CODE_BITS) - 1)
static inline int scry_lines_is(uint64_t entry, uint64_t hash)
{
	return entry && !((entry ^ hash) >> SCRY_LINE_CODE_BITS);
}

/* Its code; 0: it has none, the native caller is shown for it. */
static inline uint32_t scry_lines_code(struct scry_agent_thread *t, uint64_t address)
{
	struct scry_line line = scry_lines_here(t);
	uint64_t hash, have;

	if (!line.pc)
		return 0;
	hash = address * 0x9e3779b97f4a7c15ull + line.pc * 0xff51afd7ed558ccdull;
	hash ^= hash >> 32;
	have = __atomic_load_n(&scry_agent_lines.front[hash % SCRY_LINE_FRONT], __ATOMIC_ACQUIRE);
	if (likely(scry_lines_is(have, hash)))
		return have & SCRY_LINE_CODE;
	return scry_lines_find(t, hash, address, &line);
}

static inline uint32_t scry_lines_start_hash(uint64_t address)
{
	return (uint32_t)((address >> 4) * 0x9e3779b97f4a7c15ull >> 48);
}
_Static_assert(SCRY_LINE_START_BITS == 1u << 16, "the shift above");

/* Of each block that ends. */
static inline int scry_lines_may_start(uint64_t address)
{
	uint32_t bit = scry_lines_start_hash(address);

	return scry_agent_lines.starts.bits[bit / 64] >> bit % 64 & 1;
}

#endif
