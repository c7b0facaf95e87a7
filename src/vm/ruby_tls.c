/*
 * Where a thread keeps its execution context: the thread-local `ruby_current_ec`, by its symbol,
 * or, where that is hidden and stripped, by the offset that was found in a child
 * (instrument/objects/alloc_counts). The number of its module is in the GOT, where the loader has
 * put it for the module's own accesses; the program itself is module 1 (psABI TLS, 6.2).
 */
#include <elf.h>
#include <errno.h>

#include "base/err.h"
#include "sys/dynamic.h"
#include "vm/ruby.h"

/* The GOT word of its module number; 0: none. */
static uint64_t module_word(const struct scry_dynamic *d)
{
	for (size_t t = 0; t < d->rela_count; t++)
		for (size_t i = 0; i < d->rela[t].count; i++) {
			Elf64_Rela r = scry_dynamic_rela(d, t, i);
			struct scry_dynsym sym;
			size_t number = ELF64_R_SYM(r.r_info);

			if (ELF64_R_TYPE(r.r_info) == R_X86_64_DTPMOD64 &&
			    (!number || (scry_dynamic_symbol(d, number, &sym) && sym.is_defined)))
				return r.r_offset;
		}
	return 0;
}

int scry_ruby_tls_module(const struct scry_ruby *ruby, uint64_t *ret)
{
	struct scry_dynamic d = {0};
	uint64_t word, module = 1;
	int r = scry_dynamic_open(ruby->elf, &d);

	if (r < 0)
		return r;
	word = module_word(&d);
	scry_dynamic_done(&d);
	if (!word && !scry_elf_has_interp(ruby->elf))
		return scry_fail(-ENOTSUP, "'%s' has no module number for thread-local storage",
				 ruby->module);
	if (word &&
	    (scry_mem_u64(&ruby->mem, ruby->bias + word, &module) < 0 || !module || module > 65536))
		return scry_fail(-ENOTSUP, "the loader has not given '%s' its thread-local storage",
				 ruby->module);
	*ret = module;
	return 0;
}

int scry_ruby_current_ec(const struct scry_ruby *ruby, uint64_t *ret_module, int64_t *ret_offset)
{
	struct scry_sym sym;
	int r = scry_ruby_tls_module(ruby, ret_module);

	if (r < 0)
		return r;
	if (scry_elf_symbol(ruby->elf, "ruby_current_ec", &sym) == 0 && sym.type == STT_TLS)
		*ret_offset = (int64_t)sym.value;
	else if (ruby->layout.alloc_functions.has_ec)
		*ret_offset = (int64_t)ruby->layout.alloc_functions.ec_offset;
	else
		r = scry_fail(
			-ENOTSUP,
			"this Ruby (%s) does not say where a thread keeps its execution context",
			ruby->description);
	return r;
}

int scry_ruby_tls_block(const struct scry_mem *mem, uint64_t fs, uint64_t module, uint64_t *ret)
{
	uint64_t dtv, block;

	if (scry_mem_u64(mem, fs + 8, &dtv) < 0 ||
	    scry_mem_u64(mem, dtv + 16 * module, &block) < 0 || block + 1 <= 1)
		return -ENOENT;
	*ret = block;
	return 0;
}
