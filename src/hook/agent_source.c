/* A minimal reader of our own, trusted, embedded ELF object: sections and a table of symbols. */
#include "hook/agent_source.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "wire/header.h"

extern const unsigned char scry_agent_image[], scry_agent_image_end[];

/* A section's name begins with that of its part. */
static const struct {
	const char *name;
	uint32_t part;
} parts[] = {
	{".core.", SCRY_PART_CORE},	  {".vm.", SCRY_PART_VM},
	{".objects.", SCRY_PART_OBJECTS}, {".lines.", SCRY_PART_LINES},
	{".walk.", SCRY_PART_WALK},	  {".calls.", SCRY_PART_CALLS},
	{".malloc.", SCRY_PART_MALLOC},	  {".gvl.", SCRY_PART_GVL},
};

static const Elf64_Ehdr *header(void)
{
	return (const Elf64_Ehdr *)scry_agent_image;
}

static const Elf64_Shdr *sections(void)
{
	return (const Elf64_Shdr *)(scry_agent_image + header()->e_shoff);
}

static const char *name_of(const Elf64_Shdr *s)
{
	return (const char *)scry_agent_image + sections()[header()->e_shstrndx].sh_offset +
	       s->sh_name;
}

/* 0: of none. */
static uint32_t part_of(const Elf64_Shdr *s)
{
	for (size_t i = 0; s->sh_flags & SHF_ALLOC && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!strncmp(name_of(s), parts[i].name, strlen(parts[i].name)))
			return parts[i].part;
	return 0;
}

static enum scry_agent_access access_of(const Elf64_Shdr *s)
{
	const char *kind = strrchr(name_of(s), '.');

	return s->sh_flags & SHF_EXECINSTR ? SCRY_AGENT_CODE
	       : !strcmp(kind, ".wiped")   ? SCRY_AGENT_WIPED
					   : SCRY_AGENT_DATA;
}

static uint64_t page_up(uint64_t size)
{
	return (size + SCRY_PAGE - 1) & ~(uint64_t)(SCRY_PAGE - 1);
}

size_t scry_agent_source_ranges(uint32_t wanted, struct scry_agent_range ret[SCRY_AGENT_RANGES_MAX])
{
	const Elf64_Shdr *s = sections();
	size_t n = 0;

	for (int i = 0; i < header()->e_shnum; i++) {
		struct scry_agent_range r, *last = n ? &ret[n - 1] : NULL;

		if (!(part_of(&s[i]) & wanted) || !s[i].sh_size)
			continue;
		r = (struct scry_agent_range){s[i].sh_addr, page_up(s[i].sh_size),
					      access_of(&s[i])};
		if (last && last->access == r.access && last->at + last->size == r.at)
			last->size += r.size;
		else if (n < SCRY_AGENT_RANGES_MAX)
			ret[n++] = r;
	}
	return n;
}

size_t scry_agent_source_contents(uint32_t wanted,
				  struct scry_agent_content ret[SCRY_AGENT_RANGES_MAX])
{
	const Elf64_Shdr *s = sections();
	size_t n = 0;

	for (int i = 0; i < header()->e_shnum && n < SCRY_AGENT_RANGES_MAX; i++)
		if (part_of(&s[i]) & wanted && s[i].sh_type == SHT_PROGBITS)
			ret[n++] = (struct scry_agent_content){s[i].sh_addr,
							       scry_agent_image + s[i].sh_offset,
							       s[i].sh_size, access_of(&s[i])};
	return n;
}

int scry_agent_source_read(struct scry_agent_source *ret)
{
	const Elf64_Shdr *s = sections();
	struct scry_agent_source is = {
		.hash = XXH3_64bits(scry_agent_image,
				    (uintptr_t)scry_agent_image_end - (uintptr_t)scry_agent_image),
	};

	for (int i = 0; i < header()->e_shnum; i++) {
		if (!part_of(&s[i]))
			continue;
		is.end = s[i].sh_addr + page_up(s[i].sh_size);
		if (access_of(&s[i]) == SCRY_AGENT_CODE)
			is.data_at = is.end;
		if (s[i].sh_type == SHT_PROGBITS)
			is.tail_at = is.end;
	}
	if (!is.data_at || is.tail_at <= is.data_at || is.end <= is.tail_at)
		return scry_fail(-ENOEXEC,
				 "the agent inside this scry is not what the build promised");
	*ret = is;
	return 0;
}

uint64_t scry_agent_source_symbol(const char *name)
{
	const Elf64_Shdr *s = sections(), *table = NULL;
	const Elf64_Sym *sym;
	const char *names;

	for (int i = 0; i < header()->e_shnum && !table; i++)
		table = s[i].sh_type == SHT_SYMTAB ? &s[i] : NULL;
	if (!table)
		return 0;
	sym = (const Elf64_Sym *)(scry_agent_image + table->sh_offset);
	names = (const char *)scry_agent_image + s[table->sh_link].sh_offset;
	for (size_t i = 1; i < table->sh_size / sizeof(*sym); i++)
		if (sym[i].st_shndx && !strcmp(names + sym[i].st_name, name))
			return sym[i].st_value;
	return 0;
}
