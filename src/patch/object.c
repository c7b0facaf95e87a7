/* See object.h. Addresses of the file count from 0: they are offsets in the image. */
#include "patch/object.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "scry/patch.h"

#define PAGE 4096u
#define SEGMENTS_MAX 16
#define RELOCATIONS_MAX 4096u
#define LIBRARIES_MAX 64 /* that an object needs versions of */
#define VERSIONS_MAX 128 /* of each */
/* beside the tags of the first 37: */
enum { TAG_VERSYM = 37, TAG_VERNEED, TAG_VERNEEDNUM };
#define RELRSZ 35 /* DT_RELRSZ of newer elf.h */

#define REFUSE(name, ...) scry_fail(-ENOTSUP, "'%s' " __VA_ARGS__)

static uint64_t page_up(uint64_t n)
{
	return (n + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

static uint64_t image_size(const struct scry_patch_object *o)
{
	return o->text_size + o->constants_size + o->data_size;
}

/* Do `size` bytes at `at` of the file exist? */
static bool has_file(const struct scry_patch_object *o, uint64_t at, uint64_t size)
{
	return at <= o->file_size && size <= o->file_size - at;
}

static bool has_image(const struct scry_patch_object *o, uint64_t at, uint64_t size)
{
	return at <= image_size(o) && size <= image_size(o) - at;
}

/* A string of the image that ends in it. NULL: none. */
static const char *string_at(const struct scry_patch_object *o, uint64_t at)
{
	if (!has_image(o, at, 1) || !memchr(o->image + at, 0, image_size(o) - at))
		return NULL;
	return (const char *)o->image + at;
}

static int check_head(const struct scry_patch_object *o, const char *name)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)o->file;

	if (o->file_size < sizeof(*e) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
	    e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_ident[EI_DATA] != ELFDATA2LSB ||
	    e->e_machine != EM_X86_64 || e->e_type != ET_DYN)
		return REFUSE(name,
			      "is not a shared object for x86_64; fix: cc -shared -fPIC -O2 "
			      "-nostartfiles",
			      name);
	if (e->e_phentsize != sizeof(Elf64_Phdr) || e->e_phnum > SEGMENTS_MAX || !e->e_phnum ||
	    !has_file(o, e->e_phoff, (uint64_t)e->e_phnum * sizeof(Elf64_Phdr)) || e->e_phoff % 8)
		return REFUSE(name, "has no program headers that can be read", name);
	return 0;
}

/* Segments in the order that ld makes: what is not written to before what is, each in pages of its
 * own. */
static int lay_out(struct scry_patch_object *o, const char *name)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)o->file;
	const Elf64_Phdr *p = (const Elf64_Phdr *)(o->file + e->e_phoff);
	uint64_t end = 0, text_end = 0, data_start = 0;

	for (size_t i = 0; i < e->e_phnum; i++, p++) {
		if (p->p_type == PT_TLS)
			return REFUSE(name,
				      "has thread-local variables, for which there is no "
				      "room",
				      name);
		if (p->p_type == PT_GNU_STACK && p->p_flags & PF_X)
			return REFUSE(name,
				      "wants an executable stack; fix: no nested functions, "
				      "-z noexecstack",
				      name);
		if (p->p_type != PT_LOAD)
			continue;
		if (!has_file(o, p->p_offset, p->p_filesz) || p->p_filesz > p->p_memsz ||
		    p->p_vaddr > SCRY_OBJECT_BYTES_MAX || p->p_memsz > SCRY_OBJECT_BYTES_MAX ||
		    p->p_vaddr / PAGE * PAGE < page_up(end) ||
		    (p->p_flags & PF_W && p->p_flags & PF_X))
			return REFUSE(name,
				      "has segments that do not fit: beyond the file, too "
				      "large, in each other's pages, or both written to and "
				      "run",
				      name);
		if (data_start && !(p->p_flags & PF_W))
			return REFUSE(name, "has segments in an order that ld does not make", name);
		end = p->p_vaddr + p->p_memsz;
		if (p->p_flags & PF_X) {
			if (o->code_end)
				return REFUSE(name, "has two segments of code", name);
			o->code_start = p->p_vaddr;
			o->code_end = p->p_vaddr + p->p_filesz;
			text_end = page_up(end);
		}
		if (p->p_flags & PF_W && !data_start)
			data_start = p->p_vaddr / PAGE * PAGE;
	}
	if (!o->code_end || !data_start)
		return REFUSE(name, "has no code, or no data", name);
	o->text_size = text_end;
	o->constants_size = data_start - text_end;
	o->data_size = page_up(end) - data_start;
	return 0;
}

static int load(struct scry_patch_object *o)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)o->file;
	const Elf64_Phdr *p = (const Elf64_Phdr *)(o->file + e->e_phoff);

	o->image = calloc(1, image_size(o));
	if (!o->image)
		return scry_no_memory("the patch");
	for (size_t i = 0; i < e->e_phnum; i++, p++)
		if (p->p_type == PT_LOAD)
			memcpy(o->image + p->p_vaddr, o->file + p->p_offset, p->p_filesz);
	return 0;
}

static int read_dynamic(struct scry_patch_object *o, const char *name)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)o->file;
	const Elf64_Phdr *p = (const Elf64_Phdr *)(o->file + e->e_phoff);
	uint64_t at = 0, size = 0;
	Elf64_Dyn d;

	for (size_t i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_DYNAMIC) {
			at = p[i].p_vaddr;
			size = p[i].p_memsz;
		}
	if (!size || !has_image(o, at, size))
		return REFUSE(name, "has no dynamic section", name);
	for (uint64_t k = 0; k + sizeof(d) <= size; k += sizeof(d)) {
		memcpy(&d, o->image + at + k, sizeof(d));
		if (d.d_tag == DT_NULL)
			break;
		if (d.d_tag == DT_VERSYM)
			o->dynamic[TAG_VERSYM] = d.d_un.d_val;
		else if (d.d_tag == DT_VERNEED)
			o->dynamic[TAG_VERNEED] = d.d_un.d_val;
		else if (d.d_tag == DT_VERNEEDNUM)
			o->dynamic[TAG_VERNEEDNUM] = d.d_un.d_val;
		else if (d.d_tag > 0 && d.d_tag < TAG_VERSYM)
			o->dynamic[d.d_tag] = d.d_un.d_val;
	}
	if (o->dynamic[DT_INIT] || o->dynamic[DT_FINI] || o->dynamic[DT_INIT_ARRAYSZ] ||
	    o->dynamic[DT_FINI_ARRAYSZ] || o->dynamic[DT_PREINIT_ARRAYSZ])
		return REFUSE(name,
			      "has constructors or destructors, which would not run; fix: "
			      "cc -nostartfiles",
			      name);
	if (o->dynamic[DT_TEXTREL] || o->dynamic[DT_FLAGS] & DF_TEXTREL)
		return REFUSE(name, "has relocations in its text; fix: cc -fPIC", name);
	if (o->dynamic[DT_REL] || (o->dynamic[DT_PLTREL] && o->dynamic[DT_PLTREL] != DT_RELA))
		return REFUSE(name, "has relocations of a kind that x86_64 does not have", name);
	if (o->dynamic[RELRSZ])
		return REFUSE(name,
			      "has packed relocations (DT_RELR), which scry does not read; fix: cc "
			      "-Wl,-z,nopack-relative-relocs",
			      name);
	return 0;
}

static int find_section(struct scry_patch_object *o, const char *name)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)o->file;
	const Elf64_Shdr *s, *names;

	if (e->e_shentsize != sizeof(*s) || e->e_shoff % 8 || e->e_shstrndx >= e->e_shnum ||
	    !has_file(o, e->e_shoff, (uint64_t)e->e_shnum * sizeof(*s)))
		return REFUSE(name, "has no section headers", name);
	s = (const Elf64_Shdr *)(o->file + e->e_shoff);
	names = &s[e->e_shstrndx];
	if (!has_file(o, names->sh_offset, names->sh_size) || !names->sh_size ||
	    o->file[names->sh_offset + names->sh_size - 1])
		return REFUSE(name, "has no section headers", name);
	for (size_t i = 0; i < e->e_shnum; i++)
		if (s[i].sh_name < names->sh_size &&
		    !strcmp((char *)o->file + names->sh_offset + s[i].sh_name, "scry_patch")) {
			o->patch_at = s[i].sh_addr;
			o->patch_size = s[i].sh_size;
		}
	if (!o->patch_size || o->patch_size % sizeof(struct scry_patch_entry) ||
	    o->patch_size / sizeof(struct scry_patch_entry) > SCRY_OBJECT_ENTRIES_MAX ||
	    !has_image(o, o->patch_at, o->patch_size))
		return REFUSE(name,
			      "says nothing of what it changes: it has no section "
			      "'scry_patch', as SCRY_REPLACE of scry/patch.h makes it",
			      name);
	return 0;
}

int scry_patch_object_read(uint8_t *file, size_t size, const char *name,
			   struct scry_patch_object *ret)
{
	int r;

	*ret = (struct scry_patch_object){.file = file, .file_size = size};
	r = check_head(ret, name);
	if (r == 0)
		r = lay_out(ret, name);
	if (r == 0)
		r = load(ret);
	if (r == 0)
		r = read_dynamic(ret, name);
	return r < 0 ? r : find_section(ret, name);
}

void scry_patch_object_free(struct scry_patch_object *o)
{
	free(o->image);
	free(o->file);
	*o = (struct scry_patch_object){0};
}

struct binding {
	struct scry_patch_object *o;
	uint64_t address;
	const char *name;
	scry_object_find *find;
	void *arg;
};

/* Library and version of symbol `index`, by the tables of versions needed. */
static int find_version(const struct binding *b, uint64_t index, struct scry_object_import *import)
{
	const struct scry_patch_object *o = b->o;
	uint64_t at = o->dynamic[TAG_VERNEED], strings = o->dynamic[DT_STRTAB];
	Elf64_Half version = 0;

	if (!o->dynamic[TAG_VERSYM] || !has_image(o, o->dynamic[TAG_VERSYM] + 2 * index, 2))
		return 0;
	memcpy(&version, o->image + o->dynamic[TAG_VERSYM] + 2 * index, 2);
	version &= 0x7fff;
	for (uint64_t i = 0; version > 1 && at && i < o->dynamic[TAG_VERNEEDNUM]; i++) {
		Elf64_Verneed need;
		Elf64_Vernaux aux;
		uint64_t next;

		if (!has_image(o, at, sizeof(need)))
			return 0;
		memcpy(&need, o->image + at, sizeof(need));
		if (i >= LIBRARIES_MAX || need.vn_cnt > VERSIONS_MAX)
			return REFUSE(
				b->name,
				"needs more than %d versions of a library, or versions of more "
				"than %d",
				b->name, VERSIONS_MAX, LIBRARIES_MAX);
		next = at + need.vn_aux;
		for (uint64_t k = 0; k < need.vn_cnt && has_image(o, next, sizeof(aux)); k++) {
			memcpy(&aux, o->image + next, sizeof(aux));
			if ((aux.vna_other & 0x7fff) == version) {
				const char *library = string_at(o, strings + need.vn_file),
					   *text = string_at(o, strings + aux.vna_name);

				import->library = library ? library : "";
				import->version = text ? text : "";
				return 0;
			}
			if (!aux.vna_next)
				break;
			next += aux.vna_next;
		}
		at = need.vn_next ? at + need.vn_next : 0;
	}
	return 0;
}

static int symbol_value(struct binding *b, uint64_t index, uint64_t *ret)
{
	struct scry_patch_object *o = b->o;
	const uint64_t at = o->dynamic[DT_SYMTAB] + index * sizeof(Elf64_Sym);
	struct scry_object_import import = {.library = "", .version = ""};
	Elf64_Sym symbol;
	int r;

	if (!index) {
		*ret = 0;
		return 0;
	}
	if (index > RELOCATIONS_MAX || !has_image(o, at, sizeof(symbol)))
		return REFUSE(b->name, "has a symbol beyond its end", b->name);
	memcpy(&symbol, o->image + at, sizeof(symbol));
	import.name = string_at(o, o->dynamic[DT_STRTAB] + symbol.st_name);
	if (!import.name || strlen(import.name) > 200)
		return REFUSE(b->name, "has a symbol without a name", b->name);
	if (symbol.st_shndx != SHN_UNDEF) {
		if (symbol.st_value >= image_size(o) ||
		    ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC ||
		    ELF64_ST_TYPE(symbol.st_info) == STT_TLS)
			return REFUSE(b->name, "has a symbol '%s' of a kind that is not known",
				      b->name, import.name);
		*ret = b->address + symbol.st_value;
		return 0;
	}
	if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT)
		return REFUSE(b->name, "imports '%s', which is data: functions only", b->name,
			      import.name);
	import.is_weak = ELF64_ST_BIND(symbol.st_info) == STB_WEAK;
	r = find_version(b, index, &import);
	return r < 0 ? r : b->find(b->arg, &import, ret);
}

static int relocate(struct binding *b, const Elf64_Rela *rela)
{
	struct scry_patch_object *o = b->o;
	const uint32_t type = (uint32_t)ELF64_R_TYPE(rela->r_info);
	uint64_t value = b->address;
	int r = 0;

	if (type == R_X86_64_NONE)
		return 0;
	if (type != R_X86_64_RELATIVE && type != R_X86_64_64 && type != R_X86_64_GLOB_DAT &&
	    type != R_X86_64_JUMP_SLOT)
		return REFUSE(b->name,
			      "has a relocation of type %u, which is none of RELATIVE, 64, "
			      "GLOB_DAT and JUMP_SLOT%s",
			      b->name, type,
			      type == R_X86_64_IRELATIVE ? " (an IFUNC of its own)" : "");
	if (rela->r_offset < o->text_size + o->constants_size || !has_image(o, rela->r_offset, 8))
		return REFUSE(b->name, "has a relocation outside of its data; fix: cc -fPIC",
			      b->name);
	if (type != R_X86_64_RELATIVE)
		r = symbol_value(b, ELF64_R_SYM(rela->r_info), &value);
	if (type == R_X86_64_RELATIVE || type == R_X86_64_64)
		value += (uint64_t)rela->r_addend;
	if (r == 0)
		memcpy(o->image + rela->r_offset, &value, 8);
	return r;
}

static int relocate_all(struct binding *b, uint64_t at, uint64_t size)
{
	int r = 0;

	if (!size)
		return 0;
	if (size % sizeof(Elf64_Rela) || size / sizeof(Elf64_Rela) > RELOCATIONS_MAX ||
	    !has_image(b->o, at, size))
		return REFUSE(b->name, "has a table of relocations beyond its end", b->name);
	for (uint64_t k = 0; k < size && r == 0; k += sizeof(Elf64_Rela)) {
		Elf64_Rela rela;

		memcpy(&rela, b->o->image + at + k, sizeof(rela));
		r = relocate(b, &rela);
	}
	return r;
}

static bool is_code(const struct scry_patch_object *o, uint64_t at)
{
	return at >= o->code_start && at < o->code_end;
}

static bool is_data(const struct scry_patch_object *o, uint64_t at, uint64_t size)
{
	return at >= o->text_size + o->constants_size && has_image(o, at, size) && at % 8 == 0;
}

static bool makes_sense(const struct scry_patch_object *o, const struct scry_object_entry *e)
{
	switch (e->kind) {
	case SCRY_PATCH_REPLACE:
	case SCRY_PATCH_AROUND:
	case SCRY_PATCH_AROUND_VOID:
		return is_code(o, e->what) && is_data(o, e->original, 8);
	case SCRY_PATCH_BEFORE:
		return is_code(o, e->what);
	case SCRY_PATCH_WRAP:
		return is_code(o, e->what) && is_code(o, e->original);
	case SCRY_PATCH_COUNTER:
		return is_data(o, e->what, 8);
	case SCRY_PATCH_LOG:
		return is_data(o, e->what, sizeof(struct scry_log));
	default:
		return false;
	}
}

/* Pointers of the section, which are relocated by now. */
static int read_entries(struct binding *b)
{
	struct scry_patch_object *o = b->o;

	o->entry_count = o->patch_size / sizeof(struct scry_patch_entry);
	for (size_t i = 0; i < o->entry_count; i++) {
		struct scry_object_entry *e = &o->entries[i];
		struct scry_patch_entry raw;
		const char *text;

		memcpy(&raw, o->image + o->patch_at + i * sizeof(raw), sizeof(raw));
		text = string_at(o, (uint64_t)(uintptr_t)raw.name - b->address);
		*e = (struct scry_object_entry){.kind = raw.kind,
						.what = (uint64_t)(uintptr_t)raw.what - b->address,
						.original = (uint64_t)(uintptr_t)raw.original -
							    b->address};
		if (raw.abi != SCRY_PATCH_ABI)
			return REFUSE(b->name,
				      "was made with version %u of scry/patch.h, and this "
				      "scry has %u; fix: compile it again",
				      b->name, raw.abi, SCRY_PATCH_ABI);
		if (!text || !*text || strlen(text) >= sizeof(e->name) || !makes_sense(o, e))
			return REFUSE(b->name,
				      "has an entry %zu in section 'scry_patch' that makes "
				      "no sense",
				      b->name, i);
		memcpy(e->name, text, strlen(text) + 1);
	}
	return 0;
}

int scry_patch_object_bind(struct scry_patch_object *o, uint64_t address, const char *name,
			   scry_object_find *find, void *arg)
{
	struct binding b = {.o = o, .address = address, .name = name, .find = find, .arg = arg};
	int r = relocate_all(&b, o->dynamic[DT_RELA], o->dynamic[DT_RELASZ]);

	if (r == 0)
		r = relocate_all(&b, o->dynamic[DT_JMPREL], o->dynamic[DT_PLTRELSZ]);
	return r < 0 ? r : read_entries(&b);
}
