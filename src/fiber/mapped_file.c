/*
 * Finds the module of an address in /proc/self/maps, maps its file and looks through its symbol
 * tables. What the file says is checked before it is used as an offset: a damaged file gives no
 * name, never a fault.
 */
#include "fiber/mapped_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* One line of maps: what of it is wanted. */
struct maps_line {
	uintptr_t low, high, offset;
	unsigned long major, minor, inode;
	const char *path; /* up to the end of the line */
};

static const char *number(const char *text, int base, uintptr_t *ret_value)
{
	uintptr_t value = 0;

	for (;; text++) {
		int digit = *text >= '0' && *text <= '9'   ? *text - '0'
			    : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
							   : 99;

		if (digit >= base)
			break;
		value = value * base + digit;
	}
	*ret_value = value;
	return text;
}

static const char *next_word(const char *text)
{
	while (*text != ' ' && *text != '\0')
		text++;
	while (*text == ' ')
		text++;
	return text;
}

/* "low-high perms offset major:minor inode path" */
static bool parse(const char *text, struct maps_line *ret_line)
{
	text = number(text, 16, &ret_line->low);
	if (*text++ != '-')
		return false;
	text = number(text, 16, &ret_line->high);
	text = next_word(next_word(text));
	text = number(text, 16, &ret_line->offset);
	text = number(next_word(text), 16, &ret_line->major);
	if (*text++ != ':')
		return false;
	text = number(text, 16, &ret_line->minor);
	text = number(next_word(text), 10, &ret_line->inode);
	ret_line->path = next_word(text);
	return true;
}

/* The line of maps that has the address, in `text`. */
static int find_line(uintptr_t address, char *text, size_t size, struct maps_line *ret_line)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t held = 0;
	ssize_t got;
	int error = -ENOENT;

	if (fd < 0)
		return -errno;
	while (error != 0 && (got = read(fd, text + held, size - 1 - held)) > 0) {
		char *line = text, *end;

		held += got;
		text[held] = '\0';
		for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
			*end = '\0';
			if (parse(line, ret_line) && address >= ret_line->low &&
			    address < ret_line->high) {
				error = 0;
				break;
			}
		}
		if (error == 0)
			break;
		held = text + held - line;
		if (held == size - 1) /* a path longer than the buffer: the rest of it is skipped */
			held = 0;
		memmove(text, line, held);
	}
	close(fd);
	return error;
}

/* The program header whose file bytes the mapping shows; NULL: not an ELF file, or it does not fit.
 */
static const Elf64_Phdr *program_header(const struct scry_mapped_file *image, uint32_t type,
					uint64_t offset)
{
	const Elf64_Ehdr *head = (const void *)image->bytes;

	if (image->size < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
	    head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_phentsize != sizeof(Elf64_Phdr) ||
	    head->e_phoff > image->size ||
	    head->e_phnum > (image->size - head->e_phoff) / sizeof(Elf64_Phdr))
		return NULL;
	for (int i = 0; i < head->e_phnum; i++) {
		const Elf64_Phdr *segment =
			(const void *)(image->bytes + head->e_phoff + i * sizeof(*segment));

		/* two may share a page of the file, as lld lays them out */
		if (segment->p_type == type &&
		    (type != PT_LOAD || (offset >= segment->p_offset &&
					 offset < segment->p_offset + segment->p_filesz)))
			return segment;
	}
	return NULL;
}

/* Maps the file when it is still the one that was loaded. */
static void map_file(struct scry_mapped_file *image, const struct maps_line *line,
		     uintptr_t address)
{
	int fd = open(image->path, O_RDONLY | O_CLOEXEC);
	const Elf64_Phdr *segment;
	struct stat st;
	void *bytes = MAP_FAILED;

	if (fd < 0)
		return;
	/* overlay file systems show another device in maps than in stat: the inode has to do */
	if (fstat(fd, &st) == 0 && st.st_ino == line->inode && st.st_size > 0)
		bytes = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return;
	image->bytes = bytes;
	image->size = st.st_size;
	segment = program_header(image, PT_LOAD, image->file_offset + (address - image->low));
	if (segment == NULL) {
		munmap(bytes, st.st_size);
		image->bytes = NULL;
		return;
	}
	image->bias = image->low - image->file_offset - (segment->p_vaddr - segment->p_offset);
}

int scry_mapped_file_open(uintptr_t address, struct scry_mapped_file *ret_image)
{
	char text[4096];
	struct maps_line line = {0};
	int error = find_line(address, text, sizeof(text), &line);

	if (error != 0)
		return error;
	memset(ret_image, 0, sizeof(*ret_image));
	ret_image->low = line.low;
	ret_image->high = line.high;
	ret_image->file_offset = line.offset;
	strncpy(ret_image->path, line.path, sizeof(ret_image->path) - 1);
	if (ret_image->path[0] == '/')
		map_file(ret_image, &line, address);
	return 0;
}

void scry_mapped_file_close(struct scry_mapped_file *image)
{
	if (image->bytes != NULL)
		munmap((void *)image->bytes, image->size);
	image->bytes = NULL;
}

const char *scry_mapped_file_name(const struct scry_mapped_file *image)
{
	const char *slash = strrchr(image->path, '/');

	if (image->path[0] == '\0')
		return "memory without a file";
	return slash != NULL ? slash + 1 : image->path;
}

static const Elf64_Shdr *section(const struct scry_mapped_file *image, uint32_t index)
{
	const Elf64_Ehdr *head = (const void *)image->bytes;
	const Elf64_Shdr *found;

	if (index >= head->e_shnum || head->e_shentsize != sizeof(*found) ||
	    head->e_shoff > image->size ||
	    head->e_shnum > (image->size - head->e_shoff) / sizeof(*found))
		return NULL;
	found = (const void *)(image->bytes + head->e_shoff + index * sizeof(*found));
	if (found->sh_offset > image->size || found->sh_size > image->size - found->sh_offset)
		return NULL;
	return found;
}

bool scry_mapped_file_section(const struct scry_mapped_file *image, const char *name,
			      struct scry_mapped_section *ret_section)
{
	const Elf64_Ehdr *head = (const void *)image->bytes;
	const Elf64_Shdr *names = section(image, head->e_shstrndx);
	const size_t size = strlen(name) + 1;

	for (uint32_t i = 0; names != NULL && i < head->e_shnum; i++) {
		const Elf64_Shdr *one = section(image, i);

		if (one == NULL || one->sh_type == SHT_NOBITS || one->sh_name > names->sh_size ||
		    names->sh_size - one->sh_name < size ||
		    memcmp(image->bytes + names->sh_offset + one->sh_name, name, size) != 0)
			continue;
		*ret_section = (struct scry_mapped_section){image->bytes + one->sh_offset,
							    one->sh_size, one->sh_addr};
		return true;
	}
	return false;
}

/* The name of the function of one symbol table that has an address; the last byte of its strings
 * must end one. */
static const char *in_table(const struct scry_mapped_file *image, const Elf64_Shdr *table,
			    uint64_t address, uint64_t *ret_begin)
{
	const Elf64_Shdr *strings = section(image, table->sh_link);
	const Elf64_Sym *symbols = (const void *)(image->bytes + table->sh_offset);
	const char *name = NULL;

	if (strings == NULL || strings->sh_size == 0 ||
	    image->bytes[strings->sh_offset + strings->sh_size - 1] != '\0')
		return NULL;
	for (uint64_t i = 0; i < table->sh_size / sizeof(*symbols); i++) {
		const Elf64_Sym *symbol = &symbols[i];
		int type = ELF64_ST_TYPE(symbol->st_info);

		if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF)
			continue;
		if (address >= symbol->st_value && address - symbol->st_value < symbol->st_size &&
		    symbol->st_name < strings->sh_size) {
			*ret_begin = symbol->st_value;
			name = (const char *)image->bytes + strings->sh_offset + symbol->st_name;
			if (ELF64_ST_BIND(symbol->st_info) != STB_LOCAL)
				break; /* a local one may be an alias that the compiler made */
		}
	}
	return name;
}

const char *scry_mapped_file_function(const struct scry_mapped_file *image, uintptr_t address,
				      uintptr_t *ret_offset)
{
	static const uint32_t types[] = {SHT_SYMTAB, SHT_DYNSYM};
	uint64_t inside = address - image->bias, begin;

	if (image->bytes == NULL)
		return NULL;
	for (int t = 0; t < 2; t++) {
		const Elf64_Shdr *table;

		for (uint32_t i = 0; i < ((const Elf64_Ehdr *)image->bytes)->e_shnum; i++) {
			const char *name = NULL;

			table = section(image, i);
			if (table != NULL && table->sh_type == types[t])
				name = in_table(image, table, inside, &begin);
			if (name != NULL) {
				*ret_offset = inside - begin;
				return name;
			}
		}
	}
	return NULL;
}
