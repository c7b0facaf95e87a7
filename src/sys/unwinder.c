/* See unwinder.h. The stack is read in windows, as a word by a system call of its own is dear. */
#include "sys/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"

#define WINDOW 4096u

struct scry_unwinder {
	struct scry_modules *modules;
	const struct scry_mem *mem;
	size_t depth;
	uint64_t window_at; /* of the stack; 0: none */
	size_t window_size;
	uint8_t window[WINDOW];
};

int scry_unwinder_open(struct scry_modules *modules, const struct scry_mem *mem,
		       struct scry_unwinder **ret)
{
	struct scry_unwinder *u = calloc(1, sizeof(*u));

	if (!u)
		return scry_no_memory("walking native stacks");
	u->modules = modules;
	u->mem = mem;
	u->depth = SCRY_UNWINDER_FRAMES_MAX;
	*ret = u;
	return 0;
}

void scry_unwinder_close(struct scry_unwinder *u)
{
	free(u);
}

/* The entry of the function at `at`, a link-time address; 0: none. */
static uint64_t entry_of(const struct scry_fdes *fdes, uint64_t at)
{
	const size_t low = scry_bisect(fdes->count, i, fdes->rows[i].end <= at);

	return low < fdes->count && fdes->rows[low].start <= at ? fdes->rows[low].start : 0;
}

uint64_t scry_unwinder_function(struct scry_unwinder *u, uint64_t address)
{
	uint64_t bias = 0, entry;
	struct scry_module *m = scry_modules_at(u->modules, address, &bias);

	entry = m ? entry_of(scry_module_fdes(m), address - bias) : 0;
	return entry ? entry + bias : 0;
}

static int read_word(void *arg, uint64_t address, uint64_t *ret)
{
	struct scry_unwinder *u = arg;
	ssize_t n;

	if (address % 8)
		return 0;
	if (address - u->window_at >= u->window_size) {
		n = scry_mem_read_some(u->mem, address, u->window, sizeof(u->window));
		if (n < 8 && scry_mem_read(u->mem, address, u->window, 8) == 0)
			n = 8; /* an image gives whole pages, or what is asked for */
		u->window_at = address;
		u->window_size = n > 0 ? (size_t)n / 8 * 8 : 0;
		if (!u->window_size)
			return 0;
	}
	memcpy(ret, u->window + (address - u->window_at), 8);
	return 1;
}

void scry_unwinder_use(struct scry_unwinder *u, const struct scry_mem *mem)
{
	u->mem = mem;
}

void scry_unwinder_limit(struct scry_unwinder *u, size_t frames)
{
	u->depth = frames < SCRY_UNWINDER_FRAMES_MAX ? frames : SCRY_UNWINDER_FRAMES_MAX;
}

struct scry_unwind_state scry_unwinder_at(const struct user_regs_struct *regs)
{
	return (struct scry_unwind_state){
		.pc = regs->rip, .sp = regs->rsp, .bp = regs->rbp, .bx = regs->rbx, .is_exact = 1};
}

struct scry_unwind_state scry_unwinder_blocked(uint64_t pc, uint64_t sp)
{
	return (struct scry_unwind_state){
		.pc = pc,
		.sp = sp,
		.is_exact = 1,
		.lost = SCRY_UNWIND_HAS_NO_BP | SCRY_UNWIND_HAS_NO_BX,
	};
}

/* Does the rule count from a register that is not known? */
static bool needs_lost(const struct scry_unwind_state *s, uint64_t rule)
{
	switch (scry_unwind_base(rule)) {
	case SCRY_UNWIND_BP:
	case SCRY_UNWIND_BP_DEREF:
		return s->lost & SCRY_UNWIND_HAS_NO_BP;
	case SCRY_UNWIND_BX:
		return s->lost & SCRY_UNWIND_HAS_NO_BX;
	default:
		return false;
	}
}

size_t scry_unwinder_walk(struct scry_unwinder *u, struct scry_unwind_state at,
			  struct scry_native_frame *ret, enum scry_native_end *ret_end)
{
	size_t count = 0;

	u->window_size = 0; /* what was read for the walk before is old */
	*ret_end = SCRY_NATIVE_TOO_DEEP;
	while (count < u->depth) {
		const uint64_t pc = scry_unwind_at(&at);
		uint64_t bias = 0, rule = 0, entry = 0;
		struct scry_module *m = scry_modules_at(u->modules, pc, &bias);

		if (m) {
			rule = scry_cfi_rule(scry_module_cfi(m), pc - bias);
			entry = entry_of(scry_module_fdes(m), pc - bias);
		}
		ret[count++] = (struct scry_native_frame){
			.pc = at.pc,
			.sp = at.sp,
			.function = entry ? entry + bias : 0,
			.is_exact = at.is_exact,
		};
		switch (scry_unwind_step(&at, rule, read_word, u)) {
		case SCRY_UNWIND_GOES_ON:
			if (at.pc)
				continue;
			*ret_end = SCRY_NATIVE_WHOLE; /* as the ABI marks it */
			return count;
		case SCRY_UNWIND_IS_TOP:
			*ret_end = SCRY_NATIVE_WHOLE;
			return count;
		case SCRY_UNWIND_HAS_NO_RULE:
			*ret_end = SCRY_NATIVE_NO_RULE;
			return count;
		case SCRY_UNWIND_CANNOT_READ:
			*ret_end = needs_lost(&at, rule) ? SCRY_NATIVE_NO_REGISTER
							 : SCRY_NATIVE_UNREADABLE;
			return count;
		}
	}
	return count;
}
