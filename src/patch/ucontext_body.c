/*
 * A register, or a word that is stored, is one of: a constant; the value that a register had at the
 * entry, plus a number; a word that was loaded from there; unknown. Whatever does not fit into that
 * is not glibc's.
 */
#include "patch/ucontext_body.h"

#include <Zydis/Zydis.h>

#define STEPS_MAX 128
#define CONTEXT_BYTES 456 /* up to and with MXCSR */
#define PUSHED_MAX 8
#define AT_FPREGS 224
#define AT_SIGMASK 296
#define AT_FPENV 424
#define AT_MXCSR 448
#define NR_SIGPROCMASK 14

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15, REGS };

enum kind { UNKNOWN, CONSTANT, ENTRY, LOADED };
struct value {
	enum kind kind;
	int reg;    /* ENTRY, LOADED: of the entry */
	int64_t at; /* the constant; what is added; where it was loaded from */
};

struct state {
	struct value regs[REGS];
	struct value stored[2][CONTEXT_BYTES / 8]; /* at rdi's, at rsi's */
	struct value pushed[PUSHED_MAX];
	int depth;
	struct value mask_set, mask_old, env_saved, env_loaded, mxcsr_loaded;
	int64_t how;
	bool saves_mxcsr, calls, is_below, is_zero;
	const char *why;
};

struct word {
	int at, reg;
	const char *why;
};

static const struct word saved[] = {
	{40, R8, "it does not save r8"},    {48, R9, "it does not save r9"},
	{72, R12, "it does not save r12"},  {80, R13, "it does not save r13"},
	{88, R14, "it does not save r14"},  {96, R15, "it does not save r15"},
	{104, RDI, "it does not save rdi"}, {112, RSI, "it does not save rsi"},
	{120, RBP, "it does not save rbp"}, {128, RBX, "it does not save rbx"},
	{136, RDX, "it does not save rdx"}, {152, RCX, "it does not save rcx"},
};
static const struct word loaded[] = {
	{40, R8, "it does not load r8"},    {48, R9, "it does not load r9"},
	{72, R12, "it does not load r12"},  {80, R13, "it does not load r13"},
	{88, R14, "it does not load r14"},  {96, R15, "it does not load r15"},
	{104, RDI, "it does not load rdi"}, {112, RSI, "it does not load rsi"},
	{120, RBP, "it does not load rbp"}, {128, RBX, "it does not load rbx"},
	{136, RDX, "it does not load rdx"}, {152, RCX, "it does not load rcx"},
};
static const struct value unknown;
static const char strange[] = "it does something that glibc's does not";

static struct value constant(int64_t n)
{
	return (struct value){CONSTANT, 0, n};
}

static struct value entry(int reg, int64_t plus)
{
	return (struct value){ENTRY, reg, plus};
}

static struct value word(int reg, int64_t at)
{
	return (struct value){LOADED, reg, at};
}

static bool is_same(const struct value *a, struct value b)
{
	return a->kind == b.kind && a->reg == b.reg && a->at == b.at;
}

static int number_of(ZydisRegister reg)
{
	const ZydisRegister all = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

	return all >= ZYDIS_REGISTER_RAX && all <= ZYDIS_REGISTER_R15
		       ? (int)(all - ZYDIS_REGISTER_RAX)
		       : -1;
}

/* Where an operand in memory lies. UNKNOWN: not known. */
static struct value address_of(const struct state *s, const ZydisDecodedOperand *o)
{
	struct value base = {0};
	int reg = number_of(o->mem.base);

	if (o->mem.segment == ZYDIS_REGISTER_FS || o->mem.index != ZYDIS_REGISTER_NONE || reg < 0)
		return base;
	base = s->regs[reg];
	if (base.kind == ENTRY)
		base.at += o->mem.disp.value;
	else if (base.kind != LOADED || o->mem.disp.value)
		base.kind = UNKNOWN;
	return base;
}

static struct value *slot_of(struct state *s, struct value at)
{
	if (at.kind != ENTRY || (at.reg != RDI && at.reg != RSI) || at.at < 0 || at.at % 8 ||
	    at.at + 8 > CONTEXT_BYTES)
		return NULL;
	return &s->stored[at.reg == RSI][at.at / 8];
}

static struct value read_memory(struct state *s, const ZydisDecodedOperand *o)
{
	const struct value at = address_of(s, o);
	const struct value *slot = slot_of(s, at);

	if (o->size != 64 || at.kind != ENTRY || (!slot && !(at.reg == RSP && at.at == 0))) {
		s->why = strange;
		return at;
	}
	return slot && slot->kind ? *slot : word(at.reg, at.at);
}

static struct value read_operand(struct state *s, const ZydisDecodedOperand *o)
{
	int reg;

	if (o->type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
		return constant(o->imm.value.s);
	if (o->type == ZYDIS_OPERAND_TYPE_MEMORY)
		return read_memory(s, o);
	reg = number_of(o->reg.value);
	return reg < 0 ? unknown : s->regs[reg];
}

static void write_operand(struct state *s, const ZydisDecodedOperand *o, struct value v)
{
	int reg = o->type == ZYDIS_OPERAND_TYPE_REGISTER ? number_of(o->reg.value) : -1;
	struct value *slot;

	if (o->size == 32 && v.kind == CONSTANT)
		v.at = (int64_t)(uint32_t)v.at;
	else if (o->size != 64)
		v.kind = UNKNOWN;
	if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
		slot = slot_of(s, address_of(s, o));
		if (slot && o->size == 64 && v.kind)
			*slot = v;
		else
			s->why = strange;
	} else if (reg >= 0) {
		s->regs[reg] = v;
	}
}

static void do_syscall(struct state *s)
{
	if (s->calls || !is_same(&s->regs[RAX], constant(NR_SIGPROCMASK)) ||
	    !is_same(&s->regs[R10], constant(8)) || s->regs[RDI].kind != CONSTANT) {
		s->why = "its system call is not rt_sigprocmask";
		return;
	}
	s->calls = true;
	s->how = s->regs[RDI].at;
	s->mask_set = s->regs[RSI];
	s->mask_old = s->regs[RDX];
	s->regs[RAX] = constant(0);
	s->regs[RCX] = s->regs[R11] = (struct value){0};
}

static void push(struct state *s, struct value v)
{
	if (s->depth < PUSHED_MAX)
		s->pushed[s->depth++] = v;
	else
		s->why = strange;
}

static struct value pop(struct state *s)
{
	if (!s->depth) {
		s->why = strange;
		return (struct value){0};
	}
	return s->pushed[--s->depth];
}

/* What a comparison says on the way without errors, where rax is 0 behind the system call; and
 * where no shadow stack is, whose flag is a word of the thread's. */
static void compare(struct state *s, const ZydisDecodedOperand *o)
{
	const bool is_flag =
		o[0].type == ZYDIS_OPERAND_TYPE_MEMORY && o[0].mem.segment == ZYDIS_REGISTER_FS;

	s->is_below = s->is_zero = is_flag;
	if (is_flag)
		return;
	s->is_below = o[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && o[1].imm.value.s == -4095;
	s->is_zero = o[1].type == ZYDIS_OPERAND_TYPE_REGISTER;
	if (!s->calls || number_of(o[0].reg.value) != RAX ||
	    (s->is_zero && number_of(o[1].reg.value) != RAX) || !(s->is_below || s->is_zero))
		s->why = strange;
}

/* Floating-point environments: where. */
static void environment(struct state *s, ZydisMnemonic m, const ZydisDecodedOperand *o)
{
	const struct value at = address_of(s, o);

	if (m == ZYDIS_MNEMONIC_FNSTENV)
		s->env_saved = at;
	else if (m == ZYDIS_MNEMONIC_FLDENV && !is_same(&at, s->env_saved))
		s->env_loaded = at;
	else if (m == ZYDIS_MNEMONIC_STMXCSR)
		s->saves_mxcsr = is_same(&at, entry(RDI, AT_MXCSR));
	else if (m == ZYDIS_MNEMONIC_LDMXCSR)
		s->mxcsr_loaded = at;
}

static bool is_taken(struct state *s, ZydisMnemonic m)
{
	switch (m) {
	case ZYDIS_MNEMONIC_JMP:
		return true;
	case ZYDIS_MNEMONIC_JZ:
		return s->is_zero;
	case ZYDIS_MNEMONIC_JNZ:
		return !s->is_zero;
	case ZYDIS_MNEMONIC_JB:
		return s->is_below;
	case ZYDIS_MNEMONIC_JNB:
	case ZYDIS_MNEMONIC_JNBE:
		return !s->is_below;
	default:
		s->why = strange;
		return false;
	}
}

/* One instruction; *at is behind it by then. True: it was a return. */
static bool step(struct state *s, const ZydisDecodedInstruction *z, const ZydisDecodedOperand *o,
		 size_t *at)
{
	switch (z->mnemonic) {
	case ZYDIS_MNEMONIC_ENDBR64:
	case ZYDIS_MNEMONIC_NOP:
		break;
	case ZYDIS_MNEMONIC_MOV:
		write_operand(s, &o[0], read_operand(s, &o[1]));
		break;
	case ZYDIS_MNEMONIC_LEA:
		write_operand(s, &o[0], address_of(s, &o[1]));
		break;
	case ZYDIS_MNEMONIC_XOR:
		if (o[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    o[1].type != ZYDIS_OPERAND_TYPE_REGISTER || o[0].reg.value != o[1].reg.value)
			s->why = strange;
		write_operand(s, &o[0], constant(0));
		break;
	case ZYDIS_MNEMONIC_PUSH:
		push(s, read_operand(s, &o[0]));
		break;
	case ZYDIS_MNEMONIC_POP:
		write_operand(s, &o[0], pop(s));
		break;
	case ZYDIS_MNEMONIC_CMP:
	case ZYDIS_MNEMONIC_TEST:
		compare(s, o);
		break;
	case ZYDIS_MNEMONIC_FNSTENV:
	case ZYDIS_MNEMONIC_FLDENV:
	case ZYDIS_MNEMONIC_STMXCSR:
	case ZYDIS_MNEMONIC_LDMXCSR:
		environment(s, z->mnemonic, &o[0]);
		break;
	case ZYDIS_MNEMONIC_SYSCALL:
		do_syscall(s);
		break;
	case ZYDIS_MNEMONIC_RET:
		return true;
	default:
		if (o[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !o[0].imm.is_relative)
			s->why = strange;
		else if (is_taken(s, z->mnemonic))
			*at += (size_t)o[0].imm.value.s;
	}
	return false;
}

static void follow(struct state *s, const uint8_t *code, size_t size)
{
	ZydisDecoder decoder;
	ZydisDecodedInstruction z;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	size_t at = 0;
	bool has_returned = false;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (int i = 0; i < STEPS_MAX && !s->why && !has_returned; i++) {
		if (at >= size || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code + at,
								       size - at, &z, operands))) {
			s->why = "it cannot be decoded";
			return;
		}
		at += z.length;
		has_returned = step(s, &z, operands, &at);
	}
	if (!has_returned && !s->why)
		s->why = "it does not return";
}

static const char *check_saved(const struct state *s)
{
	const struct value *stored = s->stored[0];

	for (size_t i = 0; i < sizeof(saved) / sizeof(saved[0]); i++)
		if (!is_same(&stored[saved[i].at / 8], entry(saved[i].reg, 0)))
			return saved[i].why;
	if (!is_same(&stored[160 / 8], entry(RSP, 8)) || !is_same(&stored[168 / 8], word(RSP, 0)))
		return "it does not save its caller";
	if (!is_same(&stored[AT_FPREGS / 8], entry(RDI, AT_FPENV)) ||
	    !is_same(&s->env_saved, entry(RDI, AT_FPENV)) || !s->saves_mxcsr)
		return "it does not save the floating-point environment where glibc does";
	return NULL;
}

static const char *check_loaded(struct state *s, int from)
{
	struct value ip = pop(s);

	for (size_t i = 0; i < sizeof(loaded) / sizeof(loaded[0]); i++)
		if (!is_same(&s->regs[loaded[i].reg], word(from, loaded[i].at)))
			return loaded[i].why;
	if (!is_same(&s->regs[RSP], word(from, 160)) || !is_same(&ip, word(from, 168)) || s->depth)
		return "it does not go on where the context was saved";
	if (!is_same(&s->env_loaded, word(from, AT_FPREGS)) ||
	    !is_same(&s->mxcsr_loaded, entry(from, AT_MXCSR)))
		return "it does not load the floating-point environment from where glibc does";
	return NULL;
}

/* Nothing else may be stored in a context that is loaded, or in one that is saved. */
static const char *check_stores(const struct state *s, enum scry_ucontext_role role)
{
	size_t count[2] = {0}, most = sizeof(saved) / sizeof(saved[0]) + 3;

	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < CONTEXT_BYTES / 8; i++)
			count[k] += s->stored[k][i].kind != UNKNOWN;
	return count[1] || count[0] != (role == SCRY_UCONTEXT_SET ? 0 : most) ? strange : NULL;
}

static const char *check_mask(const struct state *s, enum scry_ucontext_role role)
{
	const int from = role == SCRY_UCONTEXT_SWAP ? RSI : RDI;
	const struct value none = constant(0),
			   set = role == SCRY_UCONTEXT_GET ? none : entry(from, AT_SIGMASK),
			   old = role == SCRY_UCONTEXT_SET ? none : entry(RDI, AT_SIGMASK);

	return s->calls && s->how == (role == SCRY_UCONTEXT_GET ? 0 : 2) &&
			       is_same(&s->mask_set, set) && is_same(&s->mask_old, old)
		       ? NULL
		       : "its system call is not that of glibc's";
}

const char *scry_ucontext_body(const uint8_t *code, size_t size, enum scry_ucontext_role role)
{
	struct state s = {0};
	const char *why;

	for (int i = 0; i < REGS; i++)
		s.regs[i] = entry(i, 0);
	follow(&s, code, size);
	why = s.why;
	if (!why && !is_same(&s.regs[RAX], constant(0)))
		why = "it does not return 0";
	if (!why)
		why = check_mask(&s, role);
	if (!why && role != SCRY_UCONTEXT_SET)
		why = check_saved(&s);
	if (!why && role != SCRY_UCONTEXT_GET)
		why = check_loaded(&s, role == SCRY_UCONTEXT_SWAP ? RSI : RDI);
	if (!why && role == SCRY_UCONTEXT_GET && (s.depth || !is_same(&s.regs[RSP], entry(RSP, 0))))
		why = strange;
	return why ? why : check_stores(&s, role);
}

static bool writes(const ZydisDecodedInstruction *z, const ZydisDecodedOperand *o, int reg)
{
	for (size_t i = 0; i < z->operand_count; i++)
		if (o[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    o[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE &&
		    number_of(o[i].reg.value) == reg)
			return true;
	return false;
}

/* mov $value, reg */
static bool sets(const ZydisDecodedInstruction *z, const ZydisDecodedOperand *o, int reg,
		 int64_t value)
{
	return z->mnemonic == ZYDIS_MNEMONIC_MOV && o[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
	       writes(z, o, reg) && o[1].imm.value.s == value;
}

bool scry_ucontext_is_sigmask(const uint8_t *code, size_t size)
{
	ZydisDecoder decoder;
	ZydisDecodedInstruction z;
	ZydisDecodedOperand o[ZYDIS_MAX_OPERAND_COUNT];
	bool is_number = false, is_size = false;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t at = 0; at < size; at += z.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code + at, size - at, &z, o)) ||
		    z.mnemonic == ZYDIS_MNEMONIC_CALL || z.mnemonic == ZYDIS_MNEMONIC_RET)
			return false;
		if (z.mnemonic == ZYDIS_MNEMONIC_SYSCALL)
			return is_number && is_size;
		if (writes(&z, o, RDI) || writes(&z, o, RDX))
			return false;
		if (writes(&z, o, RAX))
			is_number = sets(&z, o, RAX, NR_SIGPROCMASK);
		if (writes(&z, o, R10))
			is_size = sets(&z, o, R10, 8);
	}
	return false;
}
