/*
 * The loader's own code, as far as hooks need to know it.
 *
 * Its symbols are hidden and mostly stripped. The trick: its entry code
 * (sysdeps/x86_64/dl-machine.h, RTLD_START) is the same few instructions since 2004, two calls and
 * an indirect jump to the program:
 *
 *   _start:          mov %rsp, %rdi
 *                    call _dl_start
 *   _dl_start_user:  mov %rax, %r12
 *                    ...
 *                    call _dl_init
 *                    ...
 *                    jmp *%r12
 *
 * Anything else is not believed.
 */
#include "sys/loader.h"

#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"

#define ENTRY_BYTES 192

/* Link-time address of the second of exactly two calls; 0: it is other code. */
static uint64_t second_call(const uint8_t *code, size_t size, uint64_t at)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	uint64_t calls[2] = {0};
	size_t count = 0, done = 0;
	ZydisDecoder d;

	ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	while (done < size && ZYAN_SUCCESS(ZydisDecoderDecodeFull(&d, code + done, size - done,
								  &insn, operands))) {
		bool is_direct = operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;

		if (insn.mnemonic == ZYDIS_MNEMONIC_JMP)
			return !is_direct && count == 2 ? calls[1] : 0;
		if (insn.mnemonic == ZYDIS_MNEMONIC_RET)
			return 0;
		if (insn.mnemonic == ZYDIS_MNEMONIC_CALL) {
			if (!is_direct || count == 2 ||
			    !ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&insn, &operands[0], at + done,
								   &calls[count])))
				return 0;
			count++;
		}
		done += insn.length;
	}
	return 0;
}

static uint64_t find_init(const struct scry_linkmap *lm, const struct scry_object *o)
{
	uint64_t entry = scry_elf_entry(o->elf), init;
	const struct scry_map_entry *m;
	const uint8_t *code;
	size_t size = scry_elf_view(o->elf, entry, &code);

	init = size ? second_call(code, size < ENTRY_BYTES ? size : ENTRY_BYTES, entry) : 0;
	if (!init)
		return 0;
	m = scry_maps_at(&lm->maps, o->bias + init);
	return m && m->x && m->start >= o->start && m->end <= o->end ? o->bias + init : 0;
}

static void find_catch(const struct scry_mem *mem, const struct scry_object *o,
		       struct scry_loader *ret)
{
	for (size_t t = 0; t < o->tables.rela_count; t++) {
		for (size_t i = 0; i < o->tables.rela[t].count; i++) {
			Elf64_Rela rela = scry_dynamic_rela(&o->tables, t, i);
			uint32_t type = (uint32_t)ELF64_R_TYPE(rela.r_info);
			struct scry_dynsym sym;

			if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) ||
			    !scry_dynamic_symbol(&o->tables, ELF64_R_SYM(rela.r_info), &sym) ||
			    strcmp(sym.name, "_dl_catch_exception") != 0 ||
			    scry_mem_u64(mem, o->bias + rela.r_offset, &ret->catch_value) < 0)
				continue;
			ret->catch_slot = o->bias + rela.r_offset;
			return;
		}
	}
}

int scry_loader_find(struct scry_linkmap *lm, const struct scry_mem *mem, struct scry_loader *ret)
{
	struct scry_loader loader = {0};
	int r;

	while (loader.object < lm->count && !lm->objects[loader.object].is_loader)
		loader.object++;
	if (loader.object == lm->count)
		return scry_fail(-ENOENT,
				 "process %d has no dynamic loader: it is a static program",
				 (int)lm->pid);
	r = scry_linkmap_open(lm, loader.object);
	if (r < 0)
		return r;
	loader.init = find_init(lm, &lm->objects[loader.object]);
	find_catch(mem, &lm->objects[loader.object], &loader);
	*ret = loader;
	return 0;
}
