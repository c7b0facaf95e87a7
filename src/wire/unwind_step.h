/*
 * One step from a frame to its caller's, by the rule for its pc (wire/unwind.h): a pure function of
 * state, rule and memory, for the agent (its own stack) and the host (another process's). What is
 * read where is up to `read`. Freestanding.
 */
#ifndef SCRY_WIRE_UNWIND_STEP_H
#define SCRY_WIRE_UNWIND_STEP_H

#include "wire/unwind.h"

struct scry_unwind_state { /* of a frame */
	uint64_t pc, sp;
	uint64_t bp, bx;       /* rbp and rbx, where they are ... */
	uint64_t bp_at, bx_at; /* ... unless the stack has them here: read when needed */
	uint32_t is_exact;     /* it is at pc, not behind a call: of the innermost frame, and of
				  one that a signal interrupted */
	uint32_t lost;	       /* SCRY_UNWIND_HAS_NO_*: values that are not known */
};
#define SCRY_UNWIND_HAS_NO_BP 1u
#define SCRY_UNWIND_HAS_NO_BX 2u

/* Where a rule is to be looked up. */
static inline uint64_t scry_unwind_at(const struct scry_unwind_state *s)
{
	return s->pc - !s->is_exact;
}

enum scry_unwind_end {
	SCRY_UNWIND_GOES_ON,
	SCRY_UNWIND_IS_TOP,
	SCRY_UNWIND_HAS_NO_RULE, /* frames beyond are not known */
	SCRY_UNWIND_CANNOT_READ,
};

/* One aligned word of the stack; 0: it cannot be read. */
typedef int scry_unwind_read(void *arg, uint64_t address, uint64_t *ret);

/* A signal frame: struct ucontext of the x86_64 kernel, uc_mcontext.gregs (asm/sigcontext.h). */
#define SCRY_UNWIND_UC_BP 120u
#define SCRY_UNWIND_UC_BX 128u
#define SCRY_UNWIND_UC_SP 160u
#define SCRY_UNWIND_UC_PC 168u

static inline __attribute__((always_inline)) enum scry_unwind_end
scry_unwind_signal(struct scry_unwind_state *s, scry_unwind_read *read, void *arg)
{
	struct scry_unwind_state to = {.bp_at = s->sp + SCRY_UNWIND_UC_BP,
				       .bx_at = s->sp + SCRY_UNWIND_UC_BX,
				       .is_exact = 1};

	if (s->sp % 8 || !read(arg, s->sp + SCRY_UNWIND_UC_PC, &to.pc) ||
	    !read(arg, s->sp + SCRY_UNWIND_UC_SP, &to.sp))
		return SCRY_UNWIND_CANNOT_READ;
	*s = to;
	return SCRY_UNWIND_GOES_ON;
}

/* What the CFA is counted from. 0: not known. */
static inline __attribute__((always_inline)) int scry_unwind_from(const struct scry_unwind_state *s,
								  enum scry_unwind_base base,
								  uint64_t *ret,
								  scry_unwind_read *read, void *arg)
{
	if (base == SCRY_UNWIND_SP) {
		*ret = s->sp;
		return 1;
	}
	if (base == SCRY_UNWIND_BX) {
		*ret = s->bx;
		return !(s->lost & SCRY_UNWIND_HAS_NO_BX) &&
		       (!s->bx_at || read(arg, s->bx_at, ret));
	}
	*ret = s->bp;
	return !(s->lost & SCRY_UNWIND_HAS_NO_BP) && (!s->bp_at || read(arg, s->bp_at, ret));
}

/*
 * From a frame to its caller's. The state is changed when it goes on. The stack grows down: a CFA
 * that is not above the frame's rsp is refused, so that a walk ends.
 */
static inline __attribute__((always_inline)) enum scry_unwind_end
scry_unwind_step(struct scry_unwind_state *s, uint64_t rule, scry_unwind_read *read, void *arg)
{
	const enum scry_unwind_base base = scry_unwind_base(rule);
	int16_t bp = scry_unwind_bp(rule), bx = scry_unwind_bx(rule);
	const uint64_t skip = base == SCRY_UNWIND_RED_ZONE ? SCRY_UNWIND_RED_ZONE_BYTES : 0;
	uint64_t cfa, from, pc;

	if (base == SCRY_UNWIND_SIGNAL)
		return scry_unwind_signal(s, read, arg);
	if (base == SCRY_UNWIND_TOP)
		return SCRY_UNWIND_IS_TOP;
	if (base == SCRY_UNWIND_UNKNOWN || base > SCRY_UNWIND_RED_ZONE)
		return SCRY_UNWIND_HAS_NO_RULE;
	if (base == SCRY_UNWIND_PLT)
		cfa = from = s->sp + 8 + ((s->pc & 15) >= 11) * 8;
	else if (!scry_unwind_from(s, base, &from, read, arg))
		return SCRY_UNWIND_CANNOT_READ;
	else
		cfa = from + (uint64_t)scry_unwind_cfa(rule);
	if (base != SCRY_UNWIND_BP_DEREF)
		from = cfa;
	else if (cfa % 8 || !read(arg, cfa, &cfa))
		return SCRY_UNWIND_CANNOT_READ;
	if (cfa <= s->sp || cfa % 8 || from % 8 || !read(arg, cfa - skip - 8, &pc))
		return SCRY_UNWIND_CANNOT_READ;
	s->lost |= (bp == SCRY_UNWIND_LOST) * SCRY_UNWIND_HAS_NO_BP;
	s->lost |= (bx == SCRY_UNWIND_LOST) * SCRY_UNWIND_HAS_NO_BX;
	if (bp != SCRY_UNWIND_SAME && bp != SCRY_UNWIND_LOST) {
		s->bp_at = from + (uint64_t)((int64_t)bp * 8);
		s->lost &= ~SCRY_UNWIND_HAS_NO_BP;
	}
	if (bx != SCRY_UNWIND_SAME && bx != SCRY_UNWIND_LOST) {
		s->bx_at = from + (uint64_t)((int64_t)bx * 8);
		s->lost &= ~SCRY_UNWIND_HAS_NO_BX;
	}
	s->pc = pc;
	s->sp = cfa;
	s->is_exact = skip != 0;
	return SCRY_UNWIND_GOES_ON;
}

#endif
