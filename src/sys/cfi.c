/*
 * See cfi.h. A CFA program is run once, and each advance of its location ends a row. Followed are
 * the CFA, rbp, rbx and the return address; all else is read over.
 *
 * FDEs are in no order: each is compiled into the pool as it comes, then the runs are sorted by
 * address and joined, with an unknown row in each gap.
 */
#include "sys/cfi.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "sys/fde.h"
#include "wire/unwind_step.h"

#define REG_BX 3
#define REG_BP 6
#define REG_SP 7
#define REG_RA 16
#define SAVED_MAX 8 /* remembered states, one in the other: compilers need one */
#define RULES_MAX 65536u
#define PROGRAMS_MAX (256u << 20) /* bytes that are run: each FDE runs its CIE's again */

enum kept { IS_SAME, AT_CFA, AT_BP, IS_UNDEFINED, IS_LOST };

struct reg_rule {
	enum kept kept;
	int64_t offset; /* bytes */
};

enum cfa_kind { CFA_UNKNOWN, CFA_REG, CFA_BP_DEREF, CFA_PLT, CFA_SIGNAL };

struct state { /* a row while it is made */
	enum cfa_kind cfa;
	uint64_t reg;
	int64_t offset;
	struct reg_rule bp, bx, ra;
};

struct code { /* instructions that are read */
	const uint8_t *at, *end;
	bool is_bad;
};

struct row {
	uint32_t pc;
	uint16_t rule;
};

struct run { /* the rows of one FDE */
	uint64_t start, end;
	size_t first, count;
};

struct compiler {
	const struct scry_image *image;
	uint64_t base;
	struct row *rows;
	size_t count, room;
	struct run *runs;
	size_t run_count, run_room;
	struct scry_map rule_of; /* packed rule -> number */
	uint64_t *rules;
	uint32_t rule_count, rule_room;
	size_t unknown, bad;
	uint64_t left; /* bytes of instructions that may still be run */
	/* of the FDE */
	const struct scry_fde_program *program;
	struct state now, initial, saved[SAVED_MAX];
	unsigned int depth;
	uint64_t pc;
	bool has_unknown;
};

static uint64_t take_bytes(struct code *c, unsigned int size)
{
	uint64_t value = 0;

	if ((size_t)(c->end - c->at) < size) {
		c->is_bad = true;
		return 0;
	}
	memcpy(&value, c->at, size);
	c->at += size;
	return value;
}

static uint64_t take_uleb(struct code *c)
{
	uint64_t value = 0, byte;
	unsigned int shift = 0;

	do {
		byte = take_bytes(c, 1);
		value |= shift < 64 ? (byte & 0x7f) << shift : 0;
		shift += 7;
	} while (byte & 0x80 && !c->is_bad);
	return value;
}

static int64_t take_sleb(struct code *c)
{
	uint64_t value = 0, byte;
	unsigned int shift = 0;

	do {
		byte = take_bytes(c, 1);
		value |= shift < 64 ? (byte & 0x7f) << shift : 0;
		shift += 7;
	} while (byte & 0x80 && !c->is_bad);
	if (shift < 64 && byte & 0x40)
		value |= ~0ull << shift;
	return (int64_t)value;
}

static struct code take_block(struct code *c)
{
	uint64_t size = take_uleb(c);
	struct code block = {.at = c->at, .end = c->at};

	if (c->is_bad || size > (uint64_t)(c->end - c->at)) {
		c->is_bad = true;
		return block;
	}
	c->at += size;
	block.end = c->at;
	return block;
}

static int64_t times(int64_t a, int64_t b)
{
	int64_t product;

	return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* rows */

/* A register as the rule's words; from the CFA, or rbp where the CFA hangs on that. */
static int16_t words_of(const struct reg_rule *r, bool from_bp)
{
	int64_t words = r->offset / 8;

	if (r->kept == IS_SAME)
		return SCRY_UNWIND_SAME;
	if (r->kept != (from_bp ? AT_BP : AT_CFA) || r->offset % 8 || words <= INT16_MIN ||
	    words >= INT16_MAX)
		return SCRY_UNWIND_LOST;
	return (int16_t)words;
}

static uint64_t pack(const struct state *s, bool is_signal)
{
	const bool from_bp = s->cfa == CFA_BP_DEREF;
	const int16_t same = SCRY_UNWIND_SAME;
	enum scry_unwind_base base = s->reg == REG_SP	? SCRY_UNWIND_SP
				     : s->reg == REG_BP ? SCRY_UNWIND_BP
				     : s->reg == REG_BX ? SCRY_UNWIND_BX
							: SCRY_UNWIND_UNKNOWN;
	int64_t offset = s->offset;

	if (s->ra.kept == IS_UNDEFINED)
		return scry_unwind_pack(SCRY_UNWIND_TOP, 0, same, same);
	if (s->cfa == CFA_SIGNAL)
		return scry_unwind_pack(SCRY_UNWIND_SIGNAL, 0, same, same);
	if (s->cfa == CFA_PLT) {
		base = SCRY_UNWIND_PLT;
		offset = 0;
	}
	if (from_bp)
		base = SCRY_UNWIND_BP_DEREF;
	if (is_signal && s->cfa == CFA_REG && base == SCRY_UNWIND_BP &&
	    s->ra.offset == -SCRY_UNWIND_RED_ZONE_BYTES - 8)
		base = SCRY_UNWIND_RED_ZONE;
	if (s->cfa == CFA_UNKNOWN || base == SCRY_UNWIND_UNKNOWN || s->ra.kept != AT_CFA ||
	    (s->ra.offset != -8 && base != SCRY_UNWIND_RED_ZONE) || offset > SCRY_UNWIND_CFA_MAX ||
	    offset < -SCRY_UNWIND_CFA_MAX)
		return 0;
	return scry_unwind_pack(base, (int32_t)offset, words_of(&s->bp, from_bp),
				words_of(&s->bx, from_bp));
}

static int rule_number(struct compiler *c, uint64_t rule, uint16_t *ret)
{
	uint64_t number;

	if (scry_map_get(&c->rule_of, rule, &number)) {
		*ret = (uint16_t)number;
		return 0;
	}
	if (c->rule_count == RULES_MAX) { /* it has never been met */
		*ret = 0;
		return 0;
	}
	if (c->rule_count == c->rule_room) {
		uint32_t room = c->rule_room ? 2 * c->rule_room : 256;
		uint64_t *more = reallocarray(c->rules, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->rules = more;
		c->rule_room = room;
	}
	if (scry_map_put(&c->rule_of, rule, c->rule_count) < 0)
		return -ENOMEM;
	*ret = (uint16_t)c->rule_count;
	c->rules[c->rule_count++] = rule;
	return 0;
}

static int put_row(struct compiler *c, uint64_t pc, uint64_t rule)
{
	if (c->count == SCRY_CFI_ROWS_MAX)
		return scry_fail(-EFBIG, "the file's unwind tables have more than %u rows",
				 SCRY_CFI_ROWS_MAX);
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 16384;
		struct row *more = reallocarray(c->rows, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->rows = more;
		c->room = room;
	}
	c->rows[c->count].pc = (uint32_t)(pc - c->base);
	return rule_number(c, rule, &c->rows[c->count++].rule);
}

/* The state holds from c->pc on. One of the same place replaces the one before. */
static int end_row(struct compiler *c, const struct run *run)
{
	uint64_t rule = pack(&c->now, c->program->is_signal);
	uint32_t pc = (uint32_t)(c->pc - c->base);
	size_t count = c->count - run->first;

	c->has_unknown |= !rule;
	if (count && c->rows[c->count - 1].pc == pc) {
		c->count--;
		count--;
	}
	if (count && c->rules[c->rows[c->count - 1].rule] == rule)
		return 0;
	return put_row(c, c->pc, rule);
}

/* instructions */

static struct reg_rule *reg_of(struct state *s, uint64_t reg)
{
	static struct reg_rule other;

	return reg == REG_BP ? &s->bp : reg == REG_BX ? &s->bx : reg == REG_RA ? &s->ra : &other;
}

static void set_reg(struct compiler *c, uint64_t reg, enum kept kept, int64_t offset)
{
	*reg_of(&c->now, reg) = (struct reg_rule){kept, offset};
}

static void saved_at(struct compiler *c, uint64_t reg, int64_t factored)
{
	set_reg(c, reg, AT_CFA, times(factored, c->program->data_align));
}

/* The register is at the address that an expression gives: only rbp + n is followed. */
static void saved_by(struct compiler *c, uint64_t reg, struct code block)
{
	int64_t offset = 0;
	bool is_bp = take_bytes(&block, 1) == DW_OP_breg0 + REG_BP;

	if (is_bp)
		offset = take_sleb(&block);
	is_bp &= !block.is_bad && block.at == block.end;
	set_reg(c, reg, is_bp ? AT_BP : IS_LOST, offset);
}

/* What linkers write for a PLT: rsp + 8 + ((rip & 15) >= 11) * 8. */
static const uint8_t plt_expression[] = {
	DW_OP_breg7, 8,	       DW_OP_breg16, 0,		DW_OP_lit15, DW_OP_and,
	DW_OP_lit11, DW_OP_ge, DW_OP_lit3,   DW_OP_shl, DW_OP_plus,
};

static void set_cfa_by(struct compiler *c, struct code block)
{
	const size_t size = (size_t)(block.end - block.at);
	uint8_t first;

	c->now.cfa = CFA_UNKNOWN;
	if (size == sizeof(plt_expression) && !memcmp(block.at, plt_expression, size)) {
		c->now.cfa = CFA_PLT;
		return;
	}
	first = (uint8_t)take_bytes(&block, 1);
	c->now.offset = take_sleb(&block);
	if (take_bytes(&block, 1) != DW_OP_deref || block.is_bad || block.at != block.end)
		return;
	if (first == DW_OP_breg0 + REG_BP)
		c->now.cfa = CFA_BP_DEREF;
	else if (first == DW_OP_breg0 + REG_SP && c->program->is_signal &&
		 c->now.offset == SCRY_UNWIND_UC_SP)
		c->now.cfa = CFA_SIGNAL;
}

static void set_cfa(struct compiler *c, uint64_t reg, int64_t offset)
{
	c->now.cfa = CFA_REG;
	c->now.reg = reg;
	c->now.offset = offset;
}

static void restore(struct compiler *c, uint64_t reg)
{
	*reg_of(&c->now, reg) = *reg_of(&c->initial, reg);
}

static void remember(struct compiler *c, struct code *code)
{
	if (c->depth == SAVED_MAX)
		code->is_bad = true;
	else
		c->saved[c->depth++] = c->now;
}

static void recall(struct compiler *c, struct code *code)
{
	if (c->depth == 0)
		code->is_bad = true;
	else
		c->now = c->saved[--c->depth];
}

static int advance(struct compiler *c, uint64_t factored, const struct run *run)
{
	int64_t by = times((int64_t)factored, (int64_t)c->program->code_align);
	int r = 0;

	if (run && by > 0)
		r = end_row(c, run);
	if (by < 0 || (uint64_t)by >= run->end - c->pc) /* nothing asks of what is behind the end */
		c->pc = run->end;
	else
		c->pc += (uint64_t)by;
	return r;
}

/* Instructions with operands of their own. False: not one of them. */
static bool one_of_registers(struct compiler *c, struct code *code, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case DW_CFA_offset_extended:
		reg = take_uleb(code);
		saved_at(c, reg, (int64_t)take_uleb(code));
		return true;
	case DW_CFA_offset_extended_sf:
		reg = take_uleb(code);
		saved_at(c, reg, take_sleb(code));
		return true;
	case DW_CFA_GNU_negative_offset_extended:
		reg = take_uleb(code);
		saved_at(c, reg, times((int64_t)take_uleb(code), -1));
		return true;
	case DW_CFA_restore_extended:
		restore(c, take_uleb(code));
		return true;
	case DW_CFA_undefined:
		set_reg(c, take_uleb(code), IS_UNDEFINED, 0);
		return true;
	case DW_CFA_same_value:
		set_reg(c, take_uleb(code), IS_SAME, 0);
		return true;
	case DW_CFA_register:
	case DW_CFA_val_offset:
		reg = take_uleb(code);
		take_uleb(code);
		set_reg(c, reg, IS_LOST, 0);
		return true;
	case DW_CFA_val_offset_sf:
		reg = take_uleb(code);
		take_sleb(code);
		set_reg(c, reg, IS_LOST, 0);
		return true;
	case DW_CFA_expression:
		reg = take_uleb(code);
		saved_by(c, reg, take_block(code));
		return true;
	case DW_CFA_val_expression:
		reg = take_uleb(code);
		take_block(code);
		set_reg(c, reg, IS_LOST, 0);
		return true;
	default:
		return false;
	}
}

static bool one_of_cfa(struct compiler *c, struct code *code, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case DW_CFA_def_cfa:
		reg = take_uleb(code);
		set_cfa(c, reg, (int64_t)take_uleb(code));
		return true;
	case DW_CFA_def_cfa_sf:
		reg = take_uleb(code);
		set_cfa(c, reg, times(take_sleb(code), c->program->data_align));
		return true;
	case DW_CFA_def_cfa_register:
		set_cfa(c, take_uleb(code), c->now.offset);
		return true;
	case DW_CFA_def_cfa_offset:
		set_cfa(c, c->now.reg, (int64_t)take_uleb(code));
		return true;
	case DW_CFA_def_cfa_offset_sf:
		set_cfa(c, c->now.reg, times(take_sleb(code), c->program->data_align));
		return true;
	case DW_CFA_def_cfa_expression:
		set_cfa_by(c, take_block(code));
		return true;
	case DW_CFA_remember_state:
		remember(c, code);
		return true;
	case DW_CFA_restore_state:
		recall(c, code);
		return true;
	case DW_CFA_GNU_args_size:
		take_uleb(code);
		return true;
	default:
		return op == DW_CFA_nop;
	}
}

/* Runs instructions; `run` NULL: the CIE's, which have no location. 0, -EINVAL: they make no sense,
 * or the error of a row. */
static int run_code(struct compiler *c, struct code code, const struct run *run)
{
	int r = 0;

	while (code.at < code.end && !code.is_bad && r == 0) {
		uint8_t op = (uint8_t)take_bytes(&code, 1), low = op & 0x3f;
		unsigned int size = op == DW_CFA_advance_loc1	? 1
				    : op == DW_CFA_advance_loc2 ? 2
				    : op == DW_CFA_advance_loc4 ? 4
								: 0;

		if (size || (op & 0xc0) == DW_CFA_advance_loc) {
			uint64_t by = size ? take_bytes(&code, size) : low;

			code.is_bad |= !run;
			if (!code.is_bad)
				r = advance(c, by, run);
		} else if ((op & 0xc0) == DW_CFA_offset) {
			saved_at(c, low, (int64_t)take_uleb(&code));
		} else if ((op & 0xc0) == DW_CFA_restore) {
			restore(c, low);
		} else if (!one_of_registers(c, &code, op) && !one_of_cfa(c, &code, op)) {
			code.is_bad = true;
		}
	}
	return r == 0 && code.is_bad ? -EINVAL : r;
}

static int add_run(struct compiler *c, const struct run *run)
{
	if (c->run_count == c->run_room) {
		size_t room = c->run_room ? 2 * c->run_room : 1024;
		struct run *more = reallocarray(c->runs, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->runs = more;
		c->run_room = room;
	}
	c->runs[c->run_count++] = *run;
	return 0;
}

/* One FDE. What makes no sense leaves its range unknown. */
static int compile(const struct scry_fde_program *p, void *arg)
{
	struct compiler *c = arg;
	const struct scry_image_part *part = scry_image_part(c->image, p->start);
	struct run run = {.start = p->start, .end = p->end, .first = c->count};
	const uint64_t size =
		(uint64_t)(p->initial_end - p->initial) + (uint64_t)(p->own_end - p->own);
	int r;

	if (!part || !(part->flags & PF_X) || p->end > part->end || p->start < c->base ||
	    p->end - c->base > UINT32_MAX || p->return_register != REG_RA ||
	    p->code_align > INT32_MAX || size > c->left) {
		c->bad++;
		return 0;
	}
	c->left -= size;
	c->program = p;
	c->depth = 0;
	c->has_unknown = false;
	c->pc = p->start;
	c->now = c->initial = (struct state){.cfa = CFA_UNKNOWN};
	r = run_code(c, (struct code){.at = p->initial, .end = p->initial_end}, NULL);
	c->initial = c->now;
	if (r == 0)
		r = run_code(c, (struct code){.at = p->own, .end = p->own_end}, &run);
	if (r == 0 && c->pc < run.end)
		r = end_row(c, &run);
	if (r == -EINVAL) {
		c->bad++;
		c->count = run.first;
		return 0;
	}
	run.count = c->count - run.first;
	c->unknown += c->has_unknown;
	return r ? r : add_run(c, &run);
}

static int by_start(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Joined in order. A run that begins inside the one before is left out. */
static int join(struct compiler *c, struct scry_cfi *ret)
{
	uint32_t *pcs = malloc((c->count + c->run_count + 1) * sizeof(*pcs));
	uint16_t *which = malloc((c->count + c->run_count + 1) * sizeof(*which));
	uint64_t end = 0;
	uint32_t n = 0;

	if (!pcs || !which) {
		free(pcs);
		free(which);
		return -ENOMEM;
	}
	qsort(c->runs, c->run_count, sizeof(*c->runs), by_start);
	for (size_t i = 0; i < c->run_count; i++) {
		const struct run *run = &c->runs[i];

		if (run->start < end) {
			c->bad++;
			continue;
		}
		if (end && run->start > end) {
			pcs[n] = (uint32_t)(end - c->base);
			which[n++] = 0;
		}
		for (size_t k = 0; k < run->count; k++) {
			const struct row *row = &c->rows[run->first + k];

			if (n && which[n - 1] == row->rule)
				continue;
			pcs[n] = row->pc;
			which[n++] = row->rule;
		}
		ret->functions++;
		end = run->end;
	}
	pcs[n] = (uint32_t)(end - c->base);
	which[n++] = 0;
	ret->rows = (struct scry_unwind_rows){.pcs = pcs,
					      .which = which,
					      .rules = c->rules,
					      .count = n,
					      .rule_count = c->rule_count};
	c->rules = NULL;
	return 0;
}

int scry_cfi_compile(struct scry_elf *elf, const struct scry_image *image, struct scry_cfi *ret)
{
	struct compiler c = {.image = image, .base = UINT64_MAX, .left = PROGRAMS_MAX};
	struct scry_cfi cfi = {0};
	uint16_t unknown;
	int r;

	for (size_t i = 0; i < image->count; i++)
		if (image->parts[i].start < c.base)
			c.base = image->parts[i].start;
	scry_map_init(&c.rule_of, RULES_MAX);
	r = rule_number(&c, 0, &unknown); /* rule 0 */
	if (r == 0)
		r = scry_fde_each(elf, image, compile, &c, &cfi.bad);
	if (r == 0 && !c.run_count)
		r = scry_fail(-ENOENT, "the file's unwind tables (.eh_frame) name no function");
	if (r == 0)
		r = join(&c, &cfi);
	if (r == -ENOMEM)
		r = scry_no_memory("an unwind table");
	if (r == 0) {
		cfi.base = c.base;
		cfi.unknown = c.unknown;
		cfi.bad += c.bad;
		*ret = cfi;
	}
	scry_map_done(&c.rule_of);
	free(c.rules);
	free(c.rows);
	free(c.runs);
	return r;
}

void scry_cfi_done(struct scry_cfi *cfi)
{
	free((void *)(uintptr_t)cfi->rows.pcs);
	free((void *)(uintptr_t)cfi->rows.which);
	free((void *)(uintptr_t)cfi->rows.rules);
	*cfi = (struct scry_cfi){0};
}

uint64_t scry_cfi_rule(const struct scry_cfi *cfi, uint64_t address)
{
	return address < cfi->base || address - cfi->base > UINT32_MAX
		       ? 0
		       : scry_unwind_find(&cfi->rows, (uint32_t)(address - cfi->base));
}
