/* See fiber_walk.h. What an address of code is stays what it is, so it is looked at once. */
#include "name/fiber_walk.h"

#include <string.h>

#define CODES_MAX (1u << 20)
#define BEFORE 32u /* bytes that are looked at before an address, and from it on */
#define FROM 32u
#define LOOKS 4u /* at return addresses: one may find a changed stack as it was by chance */

enum { /* of the map's values: looked at, is, and the site's number */
       CODE_SEEN = 1,
       CODE_START = 2, /* the beginning of __start_context, to which the function returns */
       CODE_START_LEFT = 4,
       CODE_FINISH = 8,
       CODE_TRAMPOLINE = 16,
       CODE_SITE_SHIFT = 8,
};

void scry_fiber_walker_init(struct scry_fiber_walker *w, const struct scry_maps *maps,
			    const struct scry_mem *mem, struct scry_unwinder *unwinder)
{
	*w = (struct scry_fiber_walker){.maps = maps, .mem = mem, .unwinder = unwinder};
	scry_map_init(&w->codes, CODES_MAX);
}

void scry_fiber_walker_done(struct scry_fiber_walker *w)
{
	scry_map_done(&w->codes);
}

bool scry_fiber_is_code(const struct scry_fiber_walker *w, uint64_t address)
{
	const struct scry_map_entry *m = address ? scry_maps_at(w->maps, address) : NULL;

	return m && m->x;
}

/* --- code ------------------------------------------------------------------------------------- */

static const uint8_t *skip_endbr(const uint8_t *code)
{
	static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};

	return memcmp(code, endbr, sizeof(endbr)) == 0 ? code + sizeof(endbr) : code;
}

/* glibc, sysdeps/unix/sysv/linux/x86_64/__start_context.S: mov %rbx,%rsp, then the uc_link into rdi
 * by a load or a pop. */
static bool is_start(const uint8_t *code)
{
	static const uint8_t load[] = {0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24};
	static const uint8_t pop[] = {0x48, 0x89, 0xdc, 0x5f};

	code = skip_endbr(code);
	return memcmp(code, load, sizeof(load)) == 0 || memcmp(code, pop, sizeof(pop)) == 0;
}

/* Boost, make_x86_64_sysv_elf_gas.S: "push %rbp; jmp *%rbx", and behind it where the entry function
 * would return to: "xor %rdi,%rdi; call _exit". */
static bool is_trampoline(const uint8_t *code)
{
	static const uint8_t jump[] = {0x55, 0xff, 0xe3};

	return memcmp(skip_endbr(code), jump, sizeof(jump)) == 0;
}

static bool is_finish(const uint8_t *pc)
{
	return pc[-2] == 0xff && pc[-1] == 0xe3 &&
	       ((pc[0] == 0x48 && pc[1] == 0x31 && pc[2] == 0xff) ||
		(pc[0] == 0x31 && pc[1] == 0xff));
}

/* Where a call leads, through one slot of a PLT. 0: not known. */
static uint64_t through_plt(const struct scry_fiber_walker *w, uint64_t target)
{
	uint8_t code[16];
	const uint8_t *at;
	int32_t distance;
	uint64_t slot;

	if (!scry_fiber_is_code(w, target) || scry_mem_read(w->mem, target, code, sizeof(code)))
		return 0;
	at = skip_endbr(code);
	at += *at == 0xf2; /* bnd */
	if (at[0] != 0xff || at[1] != 0x25)
		return target;
	memcpy(&distance, at + 2, 4);
	slot = target + (uint64_t)(at + 6 - code) + (uint64_t)(int64_t)distance;
	return scry_mem_u64(w->mem, slot, &target) || !scry_fiber_is_code(w, target) ? 0 : target;
}

/* Boost, jump_x86_64_sysv_elf_gas.S: the control words are stored at the new end of the stack
 * within the first instructions. ontop_fcontext begins with "mov %rdx,%r8". */
static enum scry_fiber_site what_is(const struct scry_fiber_walker *w, uint64_t function)
{
	static const uint8_t store[] = {0x0f, 0xae, 0x1c, 0x24}; /* stmxcsr (%rsp) */
	static const uint8_t ontop[] = {0x49, 0x89, 0xd0};
	uint8_t code[24];

	if (!function || scry_mem_read(w->mem, function, code, sizeof(code)))
		return SCRY_FIBER_SITE_UNKNOWN;
	if (!memmem(code, sizeof(code), store, sizeof(store)))
		return SCRY_FIBER_SITE_OTHER;
	return memcmp(skip_endbr(code), ontop, sizeof(ontop)) == 0 ? SCRY_FIBER_SITE_ONTOP
								   : SCRY_FIBER_SITE_JUMP;
}

/* `pc` points into a copy of the code, with BEFORE bytes before it. */
static enum scry_fiber_site site_of(const struct scry_fiber_walker *w, uint64_t address,
				    const uint8_t *pc)
{
	int32_t distance;
	uint64_t slot, target;

	memcpy(&distance, pc - 4, 4);
	target = address + (uint64_t)(int64_t)distance;
	if (pc[-5] == 0xe8 && scry_fiber_is_code(w, target))
		return what_is(w, through_plt(w, target));
	if (pc[-6] == 0xff && pc[-5] == 0x15) {
		slot = target;
		return scry_mem_u64(w->mem, slot, &target)
			       ? SCRY_FIBER_SITE_UNKNOWN
			       : what_is(w, scry_fiber_is_code(w, target) ? target : 0);
	}
	for (int length = 2; length <= 7; length++) /* call *reg, call *disp(reg), with a REX */
		if (pc[-length] == 0xff && (pc[1 - length] >> 3 & 7) == 2)
			return SCRY_FIBER_SITE_UNKNOWN;
	return SCRY_FIBER_SITE_NONE;
}

static uint64_t look(const struct scry_fiber_walker *w, uint64_t address)
{
	uint8_t copy[BEFORE + FROM];
	const uint8_t *pc = copy + BEFORE;
	uint64_t code = CODE_SEEN;

	if (!scry_fiber_is_code(w, address) ||
	    scry_mem_read(w->mem, address - BEFORE, copy, sizeof(copy)))
		return CODE_SEEN | (uint64_t)SCRY_FIBER_SITE_NONE << CODE_SITE_SHIFT;
	if (is_start(pc))
		code |= CODE_START;
	for (unsigned int i = 8; i <= BEFORE; i++)
		if (pc[-5] == 0xe8 && is_start(pc - i))
			code |= CODE_START_LEFT;
	if (is_finish(pc))
		code |= CODE_FINISH;
	if (is_trampoline(pc))
		code |= CODE_TRAMPOLINE;
	return code | (uint64_t)site_of(w, address, pc) << CODE_SITE_SHIFT;
}

static uint64_t code_at(struct scry_fiber_walker *w, uint64_t address)
{
	uint64_t code;

	if (scry_map_get(&w->codes, address, &code))
		return code;
	code = look(w, address);
	scry_map_put(&w->codes, address, code); /* a full map is a slower one */
	return code;
}

enum scry_fiber_site scry_fiber_site(struct scry_fiber_walker *w, uint64_t pc)
{
	return (enum scry_fiber_site)(code_at(w, pc) >> CODE_SITE_SHIFT);
}

bool scry_fiber_is_boost_begin(struct scry_fiber_walker *w, uint64_t pc)
{
	return code_at(w, pc) & CODE_TRAMPOLINE;
}

bool scry_fiber_is_ucontext_entry(struct scry_fiber_walker *w, uint64_t pc)
{
	return code_at(w, pc) & CODE_START;
}

/* --- walks ------------------------------------------------------------------------------------ */

/* Is `frame`, to which another one returns, where a context was entered? */
static enum scry_fiber_entry entry_of(struct scry_fiber_walker *w,
				      const struct scry_native_frame *frame)
{
	uint64_t code = code_at(w, frame->pc);

	if (code & CODE_START)
		return SCRY_FIBER_ENTRY_UCONTEXT;
	if (code & CODE_START_LEFT)
		return SCRY_FIBER_ENTRY_UCONTEXT_LEFT;
	return code & CODE_FINISH ? SCRY_FIBER_ENTRY_BOOST : SCRY_FIBER_ENTRY_NONE;
}

enum scry_fiber_entry scry_fiber_walk(struct scry_fiber_walker *w, struct scry_unwind_state at,
				      struct scry_fiber_bounds bounds)
{
	enum scry_native_end end;
	size_t count = scry_unwinder_walk(w->unwinder, at, w->frames, &end);
	enum scry_fiber_entry entry;

	w->count = w->walked = 0;
	w->entry_sp = 0;
	for (size_t i = 0; i < count; i++) {
		const struct scry_native_frame *f = &w->frames[i];

		if (f->sp < bounds.low || f->sp > bounds.top)
			return SCRY_FIBER_ENTRY_NONE;
		w->entry_sp = f->sp;
		w->walked++;
		entry = i ? entry_of(w, f) : SCRY_FIBER_ENTRY_NONE;
		if (entry != SCRY_FIBER_ENTRY_NONE)
			return entry;
		if (!scry_fiber_is_code(w, f->pc))
			return SCRY_FIBER_ENTRY_NONE;
		w->count++;
	}
	if (end == SCRY_NATIVE_TOO_DEEP)
		return SCRY_FIBER_ENTRY_DEEP;
	return end == SCRY_NATIVE_WHOLE ? SCRY_FIBER_ENTRY_TABLES : SCRY_FIBER_ENTRY_NONE;
}

/* The return address that the last walk has found for this frame: is it another one now? Frames go
 * up the stack, so what was read for one has the next ones', mostly. */
static bool is_other(struct scry_fiber_walker *w, const struct scry_native_frame *f)
{
	const uint64_t at = f->sp - 8, end = w->frames[w->walked - 1].sp;
	uint64_t word;
	ssize_t n;

	if (at - w->window_at >= w->window_size) {
		n = scry_mem_read_some(w->mem, at, w->window,
				       end - at < sizeof(w->window) ? end - at : sizeof(w->window));
		w->window_at = at;
		w->window_size = n > 0 ? (size_t)n / 8 * 8 : 0;
		if (!w->window_size)
			return true;
	}
	memcpy(&word, w->window + (at - w->window_at), 8);
	return word != f->pc;
}

/* Read at once, the return addresses are of a moment of microseconds, where the walk took a hundred
 * times as long. That of a frame which a signal interrupted is not behind what it calls. */
bool scry_fiber_has_changed(struct scry_fiber_walker *w)
{
	if (w->mem->image_read)
		return false;
	for (unsigned int look = 0; look < LOOKS; look++) {
		w->window_size = 0;
		for (size_t i = 1; i < w->walked; i++)
			if (!w->frames[i].is_exact && is_other(w, &w->frames[i]))
				return true;
	}
	return false;
}
