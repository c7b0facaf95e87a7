/*
 * An ELF file that a process has mapped.
 *
 * Opened through /proc/PID/map_files/START-END, a link to the very inode that is mapped: right in
 * containers, for deleted files, and not foolable by a file put in its place. Where that needs a
 * privilege we lack, /proc/PID/root + path, which must then be the same device and inode.
 *
 * Must not read the process's memory, and must not trust the file: it may be huge, and cut or
 * changed while we read, so it is never mapped but read, with a bound each. libelf checks the
 * structure, every index and string that comes from it is checked here again. Only 64-bit x86-64
 * files are taken. One trick: bias comes from the program header whose file range covers the
 * mapping's offset, so any mapping of the file will do.
 */
#include "sys/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/proc.h"
#include "sys/regular.h"
#include "sys/served.h"

#define PAGE 4096u
#define PHDRS_MAX 64u
#define SYMBOLS_MAX (16u << 20)
#define SECTIONS_MAX (1u << 20)
#define READ_MAX 256u		 /* sections */
#define SECTION_MAX (512u << 20) /* bytes that are read of one, or of a segment */
#define HELD_MAX (2ull << 30)	 /* of all files */

/* scry_elf_room: the disk may compress, and some file systems do not say. */
#define ROOM_LEAST (16ull << 20)
#define ROOM_PER_BYTE 8u

struct symbol_table {
	Elf_Data *data;
	size_t count;
	size_t strings; /* section index of the string table */
};

struct scry_elf {
	int fd;
	Elf *elf;
	GElf_Ehdr header;
	GElf_Phdr segments[PHDRS_MAX];
	size_t segment_count;
	uint8_t *views[PHDRS_MAX]; /* the file's part of each, read when it is asked for */
	size_t view_sizes[PHDRS_MAX];
	uint64_t held;	       /* bytes read, of views and sections */
	uint64_t room;	       /* how many may be */
	size_t read[READ_MAX]; /* sections that were */
	size_t read_count;
	struct symbol_table tables[2]; /* .dynsym, .symtab */
	const uint8_t *build_id;
	size_t build_id_size;
	struct scry_elf *debug; /* lends its .symtab; NULL */
	bool has_looked;	/* for one */
	char path[512];		/* for messages */
};

/* Bytes of files that are held, by all threads. */
static _Atomic uint64_t held;

/* May so much more be read? Then it is counted. */
static bool take(struct scry_elf *elf, uint64_t size)
{
	if (size > SECTION_MAX || held + size > HELD_MAX || elf->held + size > elf->room)
		return false;
	held += size;
	elf->held += size;
	return true;
}

/*
 * libelf reads a section whole, at its first use, as many bytes as its header says, which are no
 * more than the file has; and unpacks what is compressed. A file that is cut meanwhile is a short
 * read.
 */
static bool may_read(struct scry_elf *elf, size_t section)
{
	Elf_Scn *at = elf_getscn(elf->elf, section);
	GElf_Shdr shdr;

	for (size_t i = 0; i < elf->read_count; i++)
		if (elf->read[i] == section)
			return true;
	if (elf->read_count == READ_MAX || !at || !gelf_getshdr(at, &shdr) ||
	    shdr.sh_flags & SHF_COMPRESSED ||
	    !take(elf, shdr.sh_type == SHT_NOBITS ? 0 : shdr.sh_size))
		return false;
	elf->read[elf->read_count++] = section;
	return true;
}

static Elf_Data *section_data(struct scry_elf *elf, Elf_Scn *section)
{
	return may_read(elf, elf_ndxscn(section)) ? elf_getdata(section, NULL) : NULL;
}

/* The names of sections; false: there are none. */
static bool has_names(struct scry_elf *elf, size_t *ret)
{
	return elf_getshdrstrndx(elf->elf, ret) == 0 && may_read(elf, *ret);
}

static bool is_same_file(const struct stat *st, const struct scry_map_entry *m)
{
	return S_ISREG(st->st_mode) && st->st_ino == m->inode &&
	       major(st->st_dev) == m->dev_major && minor(st->st_dev) == m->dev_minor;
}

/* Section of `type` as a symbol table; left empty when there is none. */
static void find_table(struct scry_elf *elf, Elf64_Word type, struct symbol_table *ret)
{
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Shdr shdr;

		if (!gelf_getshdr(section, &shdr) || shdr.sh_type != type)
			continue;
		ret->data = section_data(elf, section);
		if (!ret->data || !may_read(elf, shdr.sh_link) ||
		    shdr.sh_entsize != sizeof(Elf64_Sym))
			continue;
		ret->count = ret->data->d_size / sizeof(Elf64_Sym);
		if (ret->count > SYMBOLS_MAX)
			ret->count = SYMBOLS_MAX;
		ret->strings = shdr.sh_link;
		return;
	}
	*ret = (struct symbol_table){0};
}

static bool take_build_id(struct scry_elf *elf, Elf_Data *data)
{
	size_t at = 0, name_at, desc_at;
	GElf_Nhdr note;

	while (data && (at = gelf_getnote(data, at, &note, &name_at, &desc_at)) > 0) {
		if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
		    memcmp((char *)data->d_buf + name_at, "GNU", 4) != 0)
			continue;
		elf->build_id = (const uint8_t *)data->d_buf + desc_at;
		elf->build_id_size = note.n_descsz;
		return true;
	}
	return false;
}

/* By sections, which a debug file has kept; where there are none, by program headers. */
static void find_build_id(struct scry_elf *elf)
{
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Shdr shdr;

		if (gelf_getshdr(section, &shdr) && shdr.sh_type == SHT_NOTE &&
		    take_build_id(elf, section_data(elf, section)))
			return;
	}
	for (size_t i = 0; i < elf->segment_count; i++) {
		const GElf_Phdr *p = &elf->segments[i];

		if (p->p_type == PT_NOTE && p->p_offset <= INT64_MAX && take(elf, p->p_filesz) &&
		    take_build_id(elf,
				  elf_getdata_rawchunk(elf->elf, (int64_t)p->p_offset, p->p_filesz,
						       p->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR)))
			return;
	}
}

/* Takes over `fd`, closes it on failure. */
static int open_fd(int fd, const char *path, struct scry_elf **ret)
{
	struct scry_elf *elf = calloc(1, sizeof(*elf));
	size_t segments = 0, sections = 0;
	int err = -ENOEXEC;
	struct stat st;

	if (!elf) {
		close(fd);
		return scry_no_memory("opening '%s'", path);
	}
	elf->fd = fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) { /* one that is read may never end */
		scry_fail(err, "'%s' is not a regular file", path);
		goto out;
	}
	elf->room = st.st_blocks ? ROOM_LEAST + (uint64_t)st.st_blocks * 512 * ROOM_PER_BYTE
				 : UINT64_MAX;
	snprintf(elf->path, sizeof(elf->path), "%s", path);
	elf_version(EV_CURRENT);
	elf->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf->elf || elf_kind(elf->elf) != ELF_K_ELF || !gelf_getehdr(elf->elf, &elf->header)) {
		scry_fail(err, "'%s' is not an ELF file", path);
		goto out;
	}
	if (elf->header.e_ident[EI_CLASS] != ELFCLASS64 || elf->header.e_machine != EM_X86_64 ||
	    elf->header.e_ident[EI_DATA] != ELFDATA2LSB) {
		scry_fail(err, "'%s' is not made for x86-64", path);
		goto out;
	}
	if (elf_getshdrnum(elf->elf, &sections) != 0 || sections > SECTIONS_MAX) {
		scry_fail(err, "'%s' has broken or too many sections", path);
		goto out;
	}
	if (elf_getphdrnum(elf->elf, &segments) != 0 || segments > PHDRS_MAX) {
		scry_fail(err, "'%s' has broken or too many program headers", path);
		goto out;
	}
	for (size_t i = 0; i < segments; i++) {
		if (gelf_getphdr(elf->elf, (int)i, &elf->segments[elf->segment_count]))
			elf->segment_count++;
	}
	find_table(elf, SHT_DYNSYM, &elf->tables[0]);
	find_table(elf, SHT_SYMTAB, &elf->tables[1]);
	find_build_id(elf);
	*ret = elf;
	return 0;
out:
	scry_elf_close(elf);
	return err;
}

/* The first thread may have ended before the others: then only theirs have a root. */
static int open_by_threads(pid_t pid, const struct scry_map_entry *m)
{
	char path[PATH_MAX];
	pid_t *tids;
	ssize_t n = scry_proc_tasks(pid, &tids);
	int fd = -ENOENT;

	for (ssize_t i = 0; i < n && fd < 0; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/root%s", (int)pid, (int)tids[i],
			 m->path);
		fd = scry_regular_open(path);
	}
	if (n >= 0)
		free(tids);
	return fd;
}

int scry_elf_open_mapped(pid_t pid, const struct scry_map_entry *m, struct scry_elf **ret)
{
	char path[4200];
	struct stat st;
	bool is_mapped;
	int fd;

	if (m->inode == 0)
		return scry_fail(-ENOENT, "the mapping at 0x%" PRIx64 " of process %d has no file",
				 m->start, (int)pid);
	if (!scry_served_answers(pid, m))
		return scry_fail(-ETIMEDOUT,
				 "cannot read '%s' of process %d: the server of its file system "
				 "does not answer",
				 m->path, (int)pid);
	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, m->start,
		 m->end);
	fd = scry_regular_open(path);
	is_mapped = fd >= 0;
	if (fd < 0 && !m->deleted) {
		snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, m->path);
		fd = scry_regular_open(path);
	}
	if (fd < 0 && !m->deleted)
		fd = open_by_threads(pid, m);
	if (fd == -ENXIO)
		return scry_fail(-ENOENT, "'%s' of process %d is not a regular file", m->path,
				 (int)pid);
	if (fd < 0)
		return scry_fail(fd, "cannot open '%s' of process %d: %s", m->path, (int)pid,
				 strerror(-fd));
	/* On overlay and btrfs st_dev is not what maps prints; the map_files link needs no such
	 * proof. */
	if (!is_mapped && (fstat(fd, &st) != 0 || !is_same_file(&st, m))) {
		close(fd);
		return scry_fail(-ESTALE, "'%s' is no longer the file that process %d has mapped",
				 m->path, (int)pid);
	}
	return open_fd(fd, m->path, ret);
}

bool scry_elf_is_vdso(const struct scry_map_entry *m)
{
	return m->x && !m->inode && m->start >> 32 && strcmp(m->path, "[vdso]") == 0;
}

int scry_elf_open_path(const char *path, struct scry_elf **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0) {
		int err = -errno;

		return scry_fail(err, "cannot open '%s': %s", path, strerror(-err));
	}
	return open_fd(fd, path, ret);
}

void scry_elf_close(struct scry_elf *elf)
{
	if (!elf)
		return;
	if (elf->elf)
		elf_end(elf->elf);
	for (size_t i = 0; i < elf->segment_count; i++)
		free(elf->views[i]);
	held -= elf->held;
	close(elf->fd);
	scry_elf_close(elf->debug);
	free(elf);
}

/* Entry `i` of a table when it is defined and named. A name without an end is none: many may be one
 * of a hundred megabytes. */
static bool symbol_get(struct scry_elf *elf, const struct symbol_table *table, size_t i,
		       struct scry_sym *ret)
{
	GElf_Sym sym;
	const char *name;

	if (!gelf_getsym(table->data, (int)i, &sym) || sym.st_shndx == SHN_UNDEF)
		return false;
	name = elf_strptr(elf->elf, table->strings, sym.st_name);
	if (!name || !*name || strnlen(name, SCRY_SYMBOL_LENGTH_MAX) == SCRY_SYMBOL_LENGTH_MAX)
		return false;
	*ret = (struct scry_sym){
		.value = sym.st_value,
		.size = sym.st_size,
		.type = GELF_ST_TYPE(sym.st_info),
		.bind = GELF_ST_BIND(sym.st_info),
		.section = sym.st_shndx,
		.name = name,
	};
	return true;
}

/* The names of a table's symbols; NULL: there are none, or they cannot be read. */
static const Elf_Data *names_of(struct scry_elf *elf, const struct symbol_table *table)
{
	Elf_Scn *section = table->count ? elf_getscn(elf->elf, table->strings) : NULL;
	const Elf_Data *names = section ? section_data(elf, section) : NULL;

	return names && names->d_buf ? names : NULL;
}

/* Is entry `i` called so? Compared where both lie, as to have libelf look up each name of a table
 * takes two or three times as long, and a Ruby is asked for some twenty. */
static bool is_called(const struct symbol_table *table, size_t i, const Elf_Data *names,
		      const char *name)
{
	const size_t bytes = strlen(name) + 1;
	Elf64_Sym sym;

	memcpy(&sym, (const char *)table->data->d_buf + i * sizeof(sym), sizeof(sym));
	return sym.st_name < names->d_size && names->d_size - sym.st_name >= bytes &&
	       !memcmp((const char *)names->d_buf + sym.st_name, name, bytes);
}

int scry_elf_symbol(struct scry_elf *elf, const char *name, struct scry_sym *ret)
{
	for (size_t t = 0; t < 2; t++) {
		const struct symbol_table *table = &elf->tables[t];
		const Elf_Data *names = names_of(elf, table);
		struct scry_sym sym;

		for (size_t i = 1; names && i < table->count; i++) {
			if (is_called(table, i, names, name) && symbol_get(elf, table, i, &sym) &&
			    sym.type != STT_FILE && sym.type != STT_SECTION) {
				*ret = sym;
				return 0;
			}
		}
	}
	return -ENOENT;
}

int scry_elf_each_symbol(struct scry_elf *elf, int (*fn)(const struct scry_sym *, void *),
			 void *arg)
{
	for (size_t t = 0; t < 2; t++) {
		struct scry_elf *from = t && elf->debug ? elf->debug : elf;
		struct scry_sym sym;

		for (size_t i = 1; i < from->tables[t].count; i++) {
			int r = symbol_get(from, &from->tables[t], i, &sym) ? fn(&sym, arg) : 0;

			if (r)
				return r;
		}
	}
	return 0;
}

/* Global names are what people know a function by: prefer them to local aliases. */
static bool is_better(const struct scry_sym *sym, const struct scry_sym *best)
{
	if (!best->name || sym->value > best->value)
		return true;
	return sym->value == best->value && sym->bind == STB_GLOBAL && best->bind != STB_GLOBAL;
}

int scry_elf_symbol_at(struct scry_elf *elf, uint64_t addr, struct scry_sym *ret)
{
	struct scry_sym best = {0};

	for (size_t t = 0; t < 2; t++) {
		const struct symbol_table *table = &elf->tables[t];
		struct scry_sym sym;

		for (size_t i = 1; i < table->count; i++) {
			if (!symbol_get(elf, table, i, &sym))
				continue;
			if (sym.type != STT_FUNC && sym.type != STT_GNU_IFUNC)
				continue;
			if (addr < sym.value || addr - sym.value >= (sym.size ? sym.size : 1))
				continue;
			if (is_better(&sym, &best))
				best = sym;
		}
	}
	if (!best.name)
		return -ENOENT;
	*ret = best;
	return 0;
}

static bool is_mapped(const struct scry_map_entry *at, const struct scry_map_entry *m)
{
	return at->inode == m->inode && at->dev_major == m->dev_major &&
	       at->dev_minor == m->dev_minor;
}

/* With this bias, do all loaded segments lie where the file is mapped, or, not `all`, the first?
 * The others may have been replaced by memory of no file. */
static bool bias_holds(struct scry_elf *elf, const struct scry_maps *maps,
		       const struct scry_map_entry *m, uint64_t bias, bool all)
{
	bool is_first = true;

	for (size_t i = 0; i < elf->segment_count && (all || is_first); i++) {
		const GElf_Phdr *p = &elf->segments[i];
		const struct scry_map_entry *at;

		if (p->p_type != PT_LOAD || (!is_first && !p->p_filesz))
			continue;
		at = scry_maps_at(maps, bias + p->p_vaddr);
		if (!at || !is_mapped(at, m) ||
		    bias + p->p_vaddr - at->start + at->offset != p->p_offset)
			return false;
		is_first = false;
	}
	return !is_first;
}

int scry_elf_bias(struct scry_elf *elf, const struct scry_maps *maps,
		  const struct scry_map_entry *m, uint64_t *ret)
{
	if (m < maps->entries || m >= maps->entries + maps->count)
		return scry_fail(-EINVAL, "the mapping of '%s' is not of this snapshot", elf->path);
	/* Two segments may share a page of the file, so each candidate must prove itself. */
	for (size_t n = 0; n < 2 * elf->segment_count; n++) {
		const GElf_Phdr *p = &elf->segments[n % elf->segment_count];
		uint64_t first = p->p_offset & ~(uint64_t)(PAGE - 1);
		uint64_t end = (p->p_offset + p->p_filesz + PAGE - 1) & ~(uint64_t)(PAGE - 1);
		uint64_t bias = m->start - m->offset + p->p_offset - p->p_vaddr;

		if (p->p_type != PT_LOAD || m->offset < first || m->offset >= end)
			continue;
		if (!bias_holds(elf, maps, m, bias, n < elf->segment_count))
			continue;
		*ret = bias;
		return 0;
	}
	return scry_fail(-ENOEXEC, "no segment of '%s' begins at file offset 0x%" PRIx64, elf->path,
			 m->offset);
}

int scry_elf_got_slot(struct scry_elf *elf, const char *name, uint64_t *ret)
{
	Elf_Scn *section = NULL;
	uint64_t data_slot = 0;

	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Shdr shdr;
		Elf_Data *data;

		if (!gelf_getshdr(section, &shdr) || shdr.sh_type != SHT_RELA)
			continue;
		data = section_data(elf, section);
		for (int i = 0; data && i < (int)(data->d_size / sizeof(Elf64_Rela)); i++) {
			uint64_t type;
			GElf_Rela rela;
			GElf_Sym sym;
			const char *at;

			if (!gelf_getrela(data, i, &rela))
				break;
			type = GELF_R_TYPE(rela.r_info);
			if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)
				continue;
			if (!elf->tables[0].data ||
			    !gelf_getsym(elf->tables[0].data, (int)GELF_R_SYM(rela.r_info), &sym))
				continue;
			at = elf_strptr(elf->elf, elf->tables[0].strings, sym.st_name);
			if (!at || strcmp(at, name) != 0)
				continue;
			if (type == R_X86_64_JUMP_SLOT) {
				*ret = rela.r_offset;
				return 0;
			}
			data_slot = rela.r_offset;
		}
	}
	if (!data_slot)
		return -ENOENT;
	*ret = data_slot;
	return 0;
}

int scry_elf_fd(const struct scry_elf *elf)
{
	return elf->fd;
}

uint64_t scry_elf_room(const struct scry_elf *elf)
{
	return elf->room;
}

size_t scry_elf_build_id(struct scry_elf *elf, const uint8_t **ret)
{
	if (elf->build_id_size)
		*ret = elf->build_id;
	return elf->build_id_size;
}

int scry_elf_read(struct scry_elf *elf, uint64_t addr, void *buf, size_t size)
{
	for (size_t i = 0; i < elf->segment_count; i++) {
		const GElf_Phdr *p = &elf->segments[i];

		if (p->p_type != PT_LOAD || addr < p->p_vaddr || addr - p->p_vaddr >= p->p_filesz)
			continue;
		if (size > p->p_filesz - (addr - p->p_vaddr))
			return -EFAULT;
		if (pread(elf->fd, buf, size, (off_t)(p->p_offset + (addr - p->p_vaddr))) !=
		    (ssize_t)size)
			return -EFAULT;
		return 0;
	}
	return -EFAULT;
}

static const GElf_Phdr *segment(struct scry_elf *elf, uint32_t type)
{
	for (size_t i = 0; i < elf->segment_count; i++) {
		if (elf->segments[i].p_type == type)
			return &elf->segments[i];
	}
	return NULL;
}

const Elf64_Phdr *scry_elf_segment(const struct scry_elf *elf, size_t i)
{
	return i < elf->segment_count ? &elf->segments[i] : NULL;
}

int scry_elf_section(struct scry_elf *elf, const char *name, uint64_t *ret_addr, uint64_t *ret_size)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (!has_names(elf, &names))
		return -ENOENT;
	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Shdr shdr;
		const char *at;

		if (!gelf_getshdr(section, &shdr) || !(shdr.sh_flags & SHF_ALLOC))
			continue;
		at = elf_strptr(elf->elf, names, shdr.sh_name);
		if (!at || strcmp(at, name) != 0)
			continue;
		*ret_addr = shdr.sh_addr;
		*ret_size = shdr.sh_size;
		return 0;
	}
	return -ENOENT;
}

bool scry_elf_has_debug_info(struct scry_elf *elf)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (!has_names(elf, &names))
		return false;
	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Shdr shdr;
		const char *at = gelf_getshdr(section, &shdr)
					 ? elf_strptr(elf->elf, names, shdr.sh_name)
					 : NULL;

		if (at && (!strcmp(at, ".debug_info") || !strcmp(at, ".zdebug_info")))
			return true;
	}
	return false;
}

bool scry_elf_has_interp(struct scry_elf *elf)
{
	return segment(elf, PT_INTERP) != NULL;
}

uint64_t scry_elf_entry(struct scry_elf *elf)
{
	return elf->header.e_entry;
}

bool scry_elf_has_tls(struct scry_elf *elf)
{
	return segment(elf, PT_TLS) != NULL;
}

void scry_elf_relro(struct scry_elf *elf, uint64_t *ret_start, uint64_t *ret_end)
{
	const GElf_Phdr *p = segment(elf, PT_GNU_RELRO);

	*ret_start = p ? p->p_vaddr : 0;
	*ret_end = p ? p->p_vaddr + p->p_memsz : 0;
}

/* Segment `i` as far as the file has it: of one that was cut, its beginning. */
static void read_view(struct scry_elf *elf, size_t i)
{
	const GElf_Phdr *p = &elf->segments[i];
	size_t at = 0;
	struct stat st;
	uint64_t size = p->p_filesz;
	ssize_t n = 1;

	if (fstat(elf->fd, &st) < 0 || p->p_offset >= (uint64_t)st.st_size)
		return;
	if (size > (uint64_t)st.st_size - p->p_offset)
		size = (uint64_t)st.st_size - p->p_offset;
	if (!size || !take(elf, size))
		return;
	elf->views[i] = malloc(size);
	while (elf->views[i] && at < size && n > 0) {
		n = pread(elf->fd, elf->views[i] + at, size - at, (off_t)(p->p_offset + at));
		at += n > 0 ? (size_t)n : 0;
	}
	elf->view_sizes[i] = elf->views[i] ? at : 0;
}

size_t scry_elf_view(struct scry_elf *elf, uint64_t addr, const uint8_t **ret)
{
	for (size_t i = 0; i < elf->segment_count; i++) {
		const GElf_Phdr *p = &elf->segments[i];
		uint64_t at = addr - p->p_vaddr;

		if (p->p_type != PT_LOAD || addr < p->p_vaddr || at >= p->p_filesz)
			continue;
		if (!elf->views[i])
			read_view(elf, i);
		if (at >= elf->view_sizes[i])
			return 0;
		*ret = elf->views[i] + at;
		return elf->view_sizes[i] - at;
	}
	return 0;
}

bool scry_elf_dynamic(struct scry_elf *elf, uint64_t *ret_addr, uint64_t *ret_size)
{
	const GElf_Phdr *p = segment(elf, PT_DYNAMIC);

	if (!p)
		return false;
	*ret_addr = p->p_vaddr;
	*ret_size = p->p_filesz;
	return true;
}

bool scry_elf_rela_next(struct scry_elf *elf, size_t *cursor, const uint8_t **ret, size_t *ret_size)
{
	Elf_Scn *section;

	while ((section = elf_getscn(elf->elf, ++*cursor))) {
		GElf_Shdr shdr;
		size_t size;

		if (!gelf_getshdr(section, &shdr) || shdr.sh_type != SHT_RELA ||
		    !(shdr.sh_flags & SHF_ALLOC))
			continue;
		size = scry_elf_view(elf, shdr.sh_addr, ret);
		*ret_size = shdr.sh_size < size ? shdr.sh_size : size;
		if (*ret_size)
			return true;
	}
	return false;
}

bool scry_elf_symtab_next(struct scry_elf *elf, size_t *cursor, struct scry_sym *ret)
{
	struct scry_elf *from = elf->debug ? elf->debug : elf;
	const struct symbol_table *table = &from->tables[1];

	while (++*cursor < table->count)
		if (symbol_get(from, table, *cursor, ret))
			return true;
	return false;
}

bool scry_elf_wants_symbols(struct scry_elf *elf)
{
	bool wants = !elf->tables[1].count && !elf->has_looked;

	elf->has_looked = true;
	return wants;
}

bool scry_elf_debuglink(struct scry_elf *elf, char *ret, size_t room)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (!has_names(elf, &names))
		return false;
	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Shdr shdr;
		const char *name;
		Elf_Data *data;

		if (!gelf_getshdr(section, &shdr) ||
		    !(name = elf_strptr(elf->elf, names, shdr.sh_name)) ||
		    strcmp(name, ".gnu_debuglink") != 0)
			continue;
		data = section_data(elf, section);
		if (!data || !data->d_buf || !data->d_size ||
		    strnlen(data->d_buf, data->d_size) == data->d_size)
			return false;
		snprintf(ret, room, "%s", (const char *)data->d_buf);
		return *ret && !strchr(ret, '/');
	}
	return false;
}

bool scry_elf_lend(struct scry_elf *elf, struct scry_elf *debug)
{
	if (!debug->tables[1].count)
		return false;
	elf->debug = debug;
	return true;
}
