/*
 * Where a starting Ruby can be caught: the main program's call of ruby_options(), when the VM is up
 * and nothing is loaded yet.
 *
 * With libruby the call goes through a GOT slot of the main program. In a static Ruby it is a plain
 * `call rel32` in main(), which is found by decoding: the entry point hands main's address to
 * __libc_start_main in rdi, and main calls ruby_options exactly once. Any other shape is not an
 * answer.
 */
#include "vm/ruby_boot.h"

#include <Zydis/Zydis.h>
#include <errno.h>

#define BOOT_FUNCTION "ruby_options"
#define ENTRY_BYTES 64u
#define MAIN_BYTES 384u
#define CALL_BYTES 5u
#define CALL_OPCODE 0xe8u

struct code {
	uint8_t bytes[MAIN_BYTES];
	uint64_t at; /* link-time address */
	size_t size, done;
	ZydisDecoder decoder;
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
};

static bool begin(struct code *c, struct scry_elf *elf, uint64_t at, size_t size)
{
	c->at = at;
	c->done = 0;
	/* Near the end of a section less is there. */
	for (c->size = size; c->size >= 16; c->size -= 16) {
		if (scry_elf_read(elf, at, c->bytes, c->size) == 0)
			break;
	}
	ZydisDecoderInit(&c->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	return c->size >= 16;
}

/* The next instruction; its address, 0 at the end. */
static uint64_t next(struct code *c)
{
	uint64_t at = c->at + c->done;

	if (c->done >= c->size ||
	    !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&c->decoder, c->bytes + c->done, c->size - c->done,
						 &c->insn, c->op)))
		return 0;
	c->done += c->insn.length;
	return at;
}

/* The link-time address of main(): what the entry point puts into rdi. 0 when it does not. */
static uint64_t find_main(struct scry_elf *elf)
{
	struct code c;
	uint64_t at, value;

	if (!begin(&c, elf, scry_elf_entry(elf), ENTRY_BYTES))
		return 0;
	while ((at = next(&c)) && c.insn.mnemonic != ZYDIS_MNEMONIC_CALL) {
		if (c.op[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    (c.op[0].reg.value != ZYDIS_REGISTER_RDI &&
		     c.op[0].reg.value != ZYDIS_REGISTER_EDI))
			continue;
		if (c.insn.mnemonic != ZYDIS_MNEMONIC_LEA && c.insn.mnemonic != ZYDIS_MNEMONIC_MOV)
			continue;
		if (ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&c.insn, &c.op[1], at, &value)))
			return value;
		if (c.op[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
			return c.op[1].imm.value.u;
	}
	return 0;
}

/* The one `call rel32` of `function` in main(). */
static int find_call(struct scry_elf *elf, uint64_t function, uint64_t *ret)
{
	uint64_t main_at = find_main(elf), at, target, found = 0;
	struct code c;
	int hits = 0;

	if (!main_at || !begin(&c, elf, main_at, MAIN_BYTES))
		return -ENOENT;
	while ((at = next(&c))) {
		if (c.insn.mnemonic != ZYDIS_MNEMONIC_CALL || c.insn.length != CALL_BYTES ||
		    c.bytes[at - c.at] != CALL_OPCODE ||
		    !ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&c.insn, &c.op[0], at, &target)) ||
		    target != function)
			continue;
		found = at;
		hits++;
	}
	if (hits != 1)
		return -ENOENT;
	*ret = found;
	return 0;
}

int scry_ruby_boot(const struct scry_ruby *ruby, struct scry_ruby_boot *ret)
{
	const struct scry_map_entry *m;
	struct scry_ruby_boot boot = {.function = scry_ruby_symbol(ruby, BOOT_FUNCTION)};
	struct scry_elf *elf;
	struct scry_sym sym;
	uint64_t entry, at, bias;
	int err = -ENOENT;

	if (!boot.function || scry_proc_auxv(ruby->pid, 9 /* AT_ENTRY */, &entry) < 0)
		return -ENOENT;
	m = scry_maps_at(&ruby->maps, entry);
	if (!m || scry_elf_open_mapped(ruby->pid, m, &elf) < 0)
		return -ENOENT;
	if (scry_elf_bias(elf, &ruby->maps, m, &bias) == 0) {
		err = scry_elf_got_slot(elf, BOOT_FUNCTION, &at);
		boot.is_call = err && scry_elf_symbol(elf, BOOT_FUNCTION, &sym) == 0;
		if (boot.is_call)
			err = find_call(elf, sym.value, &at);
		boot.addr = at + bias;
	}
	scry_elf_close(elf);
	if (!err)
		*ret = boot;
	return err;
}
