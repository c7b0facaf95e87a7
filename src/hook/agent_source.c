/* A minimal reader of our own, trusted, embedded ELF object: two LOAD segments, a dynamic symbol
 * table. */
#include "hook/agent_source.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "wire/control.h"

extern const unsigned char scry_agent_image[], scry_agent_image_end[];

static const Elf64_Ehdr *header(void)
{
	return (const Elf64_Ehdr *)scry_agent_image;
}

static const Elf64_Phdr *load_segment(int executable)
{
	const Elf64_Phdr *ph = (const Elf64_Phdr *)(scry_agent_image + header()->e_phoff);

	for (int i = 0; i < header()->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && !!(ph[i].p_flags & PF_X) == executable)
			return &ph[i];
	return NULL;
}

static const Elf64_Shdr *section(uint32_t type)
{
	const Elf64_Shdr *sh = (const Elf64_Shdr *)(scry_agent_image + header()->e_shoff);

	for (int i = 0; i < header()->e_shnum; i++)
		if (sh[i].sh_type == type)
			return &sh[i];
	return NULL;
}

static uint64_t page_up(uint64_t size)
{
	return (size + SCRY_PAGE - 1) & ~(uint64_t)(SCRY_PAGE - 1);
}

int scry_agent_source_read(struct scry_agent_source *ret)
{
	const Elf64_Phdr *text = load_segment(1), *data = load_segment(0);

	if (!text || !data || text->p_vaddr != 0)
		return scry_fail(-ENOEXEC,
				 "the agent inside this scry is not what the build promised");
	*ret = (struct scry_agent_source){
		.text_size = page_up(text->p_memsz),
		.data_at = data->p_vaddr & ~(uint64_t)(SCRY_PAGE - 1),
		.hash = XXH3_64bits(scry_agent_image,
				    (uintptr_t)scry_agent_image_end - (uintptr_t)scry_agent_image),
	};
	ret->data_size = page_up(data->p_vaddr + data->p_memsz) - ret->data_at;
	ret->data_file = data->p_vaddr + data->p_filesz - ret->data_at;
	return 0;
}

int scry_agent_source_place(const struct scry_agent_source *src, uint64_t base, void *text,
			    void *data)
{
	const Elf64_Phdr *t = load_segment(1), *d = load_segment(0);
	const Elf64_Shdr *rela = section(SHT_RELA);

	memset(text, 0, src->text_size);
	memset(data, 0, src->data_file);
	memcpy(text, scry_agent_image + t->p_offset, t->p_filesz);
	memcpy((char *)data + (d->p_vaddr - src->data_at), scry_agent_image + d->p_offset,
	       d->p_filesz);
	for (size_t i = 0; rela && i < rela->sh_size / sizeof(Elf64_Rela); i++) {
		const Elf64_Rela *r = (const Elf64_Rela *)(scry_agent_image + rela->sh_offset) + i;
		uint64_t value = base + (uint64_t)r->r_addend;

		if (ELF64_R_TYPE(r->r_info) != R_X86_64_RELATIVE || r->r_offset < src->data_at ||
		    r->r_offset + 8 > src->data_at + src->data_file)
			return scry_fail(-ENOEXEC,
					 "the agent inside this scry has a relocation of kind %u",
					 (unsigned)ELF64_R_TYPE(r->r_info));
		memcpy((char *)data + (r->r_offset - src->data_at), &value, 8);
	}
	return 0;
}

uint64_t scry_agent_source_symbol(const char *name)
{
	const Elf64_Shdr *dynsym = section(SHT_DYNSYM);
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(scry_agent_image + header()->e_shoff);
	const Elf64_Sym *sym;
	const char *names;

	if (!dynsym)
		return 0;
	sym = (const Elf64_Sym *)(scry_agent_image + dynsym->sh_offset);
	names = (const char *)scry_agent_image + sections[dynsym->sh_link].sh_offset;
	for (size_t i = 1; i < dynsym->sh_size / sizeof(*sym); i++)
		if (sym[i].st_shndx && !strcmp(names + sym[i].st_name, name))
			return sym[i].st_value;
	return 0;
}
