/* sys/elf against the dynamic linker: dlsym, dladdr1, dl_iterate_phdr, and against memory itself.
 */
#include "sys/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/image.h"

int sys_elf_test_marker(int x);
__attribute__((noinline)) int sys_elf_test_marker(int x)
{
	return x * 3 + 1;
}

struct opened {
	struct scry_maps maps;
	struct scry_elf *elf;
	uint64_t bias;
};

static void open_at(struct opened *o, uint64_t addr)
{
	const struct scry_map_entry *m;

	assert_int_equal(scry_maps_read(getpid(), &o->maps), 0);
	m = scry_maps_at(&o->maps, addr);
	assert_non_null(m);
	assert_int_equal(scry_elf_open_mapped(getpid(), m, &o->elf), 0);
	assert_int_equal(scry_elf_bias(o->elf, &o->maps, m, &o->bias), 0);
}

static void close_it(struct opened *o)
{
	scry_elf_close(o->elf);
	scry_maps_done(&o->maps);
}

static void test_libc_symbols(void **state)
{
	const char *names[] = {"read", "malloc", "environ", "_dl_debug_state_not_there"};
	struct opened o;
	struct scry_sym sym;

	open_at(&o, (uintptr_t)dlsym(RTLD_NEXT, "read"));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(scry_elf_symbol(o.elf, names[i], &sym), 0);
		assert_string_equal(sym.name, names[i]);
	}
	assert_int_equal(scry_elf_symbol(o.elf, "read", &sym), 0);
	assert_true(o.bias + sym.value == (uintptr_t)dlsym(RTLD_NEXT, "read"));
	assert_int_equal(sym.type, STT_FUNC);
	assert_int_equal(scry_elf_symbol_at(o.elf, sym.value + 1, &sym), 0);
	assert_true(o.bias + sym.value == (uintptr_t)dlsym(RTLD_NEXT, "read"));
	assert_int_equal(scry_elf_symbol(o.elf, "errno", &sym), 0);
	assert_int_equal(sym.type, STT_TLS);
	assert_int_equal(scry_elf_symbol(o.elf, names[3], &sym), -ENOENT);
	assert_true(scry_elf_has_tls(o.elf));
	close_it(&o);
}

static int check_object(struct dl_phdr_info *info, size_t size, void *data)
{
	char path[4096];
	int *seen = data;
	struct scry_maps maps;

	if (!realpath(info->dlpi_name, path))
		return 0; /* the program itself, the vdso */
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++) {
		struct scry_map_entry *m = &maps.entries[i];
		uint64_t bias, start = info->dlpi_addr, start_relro, end_relro;
		struct scry_elf *elf;

		/* Every mapping of the object, whatever its offset, must give the same bias. */
		if (m->inode == 0 || m->start < start || m->start >= start + 0x4000000 ||
		    strcmp(m->path, path) != 0)
			continue;
		assert_int_equal(scry_elf_open_mapped(getpid(), m, &elf), 0);
		assert_int_equal(scry_elf_bias(elf, &maps, m, &bias), 0);
		assert_true(bias == info->dlpi_addr);
		scry_elf_relro(elf, &start_relro, &end_relro);
		for (int p = 0; p < info->dlpi_phnum; p++) {
			if (info->dlpi_phdr[p].p_type == PT_GNU_RELRO)
				assert_true(start_relro == info->dlpi_phdr[p].p_vaddr);
		}
		scry_elf_close(elf);
		(*seen)++;
	}
	scry_maps_done(&maps);
	return 0;
}

static void test_bias_of_all(void **state)
{
	int seen = 0;

	dl_iterate_phdr(check_object, &seen);
	assert_true(seen >= 4);
}

static void test_self(void **state)
{
	const uint8_t *id = NULL;
	unsigned char text[16];
	uint64_t slot;
	struct opened o;
	struct scry_sym sym;

	open_at(&o, (uintptr_t)sys_elf_test_marker);
	assert_true(o.bias + scry_elf_entry(o.elf) == getauxval(AT_ENTRY));
	assert_true(scry_elf_has_interp(o.elf));
	assert_int_equal(scry_elf_symbol(o.elf, "sys_elf_test_marker", &sym), 0);
	assert_true(o.bias + sym.value == (uintptr_t)sys_elf_test_marker);
	assert_int_equal(scry_elf_symbol_at(o.elf, sym.value + 2, &sym), 0);
	assert_string_equal(sym.name, "sys_elf_test_marker");
	assert_int_equal(scry_elf_read(o.elf, sym.value, text, sizeof(text)), 0);
	assert_memory_equal(text, (void *)(uintptr_t)sys_elf_test_marker, sizeof(text));
	assert_int_equal(scry_elf_read(o.elf, UINT64_MAX - 20, text, sizeof(text)), -EFAULT);

	/* The slot through which we call getpid holds getpid once it has been called. */
	assert_true(getppid() > 0);
	assert_int_equal(scry_elf_got_slot(o.elf, "getppid", &slot), 0);
	assert_true(*(uint64_t *)(o.bias + slot) == (uintptr_t)dlsym(RTLD_DEFAULT, "getppid"));
	assert_int_equal(scry_elf_got_slot(o.elf, "no_such_import", &slot), -ENOENT);
	assert_true(scry_elf_build_id(o.elf, &id) == 0 || id != NULL);
	close_it(&o);
}

static void test_build_id(void **state)
{
	struct link_map *map;
	const uint8_t *id = NULL;
	char command[300], line[200] = "", hex[80] = "";
	struct scry_elf *elf;
	Dl_info info;
	size_t n;
	FILE *f;

	assert_true(dladdr1(dlsym(RTLD_NEXT, "read"), &info, (void **)&map, RTLD_DL_LINKMAP));
	assert_int_equal(scry_elf_open_path(map->l_name, &elf), 0);
	n = scry_elf_build_id(elf, &id);
	for (size_t i = 0; i < n && i < 32; i++)
		sprintf(hex + 2 * i, "%02x", id[i]);
	scry_elf_close(elf);
	snprintf(command, sizeof(command), "readelf -n %s 2>/dev/null | grep 'Build ID'",
		 map->l_name);
	f = popen(command, "r");
	if (!f || !fgets(line, sizeof(line), f)) {
		print_message("skipped: no readelf to compare with\n");
		if (f)
			pclose(f);
		skip();
	}
	pclose(f);
	assert_true(n > 0);
	assert_non_null(strstr(line, hex));
}

static void test_refusals(void **state)
{
	struct scry_maps maps;
	struct scry_elf *elf;
	char path[] = "/tmp/scry_elf.XXXXXX";
	int fd = mkstemp(path);
	Elf64_Ehdr broken = {.e_ident = "\x7f"
					"ELF",
			     .e_phnum = 60000,
			     .e_phoff = 1,
			     .e_shoff = 7,
			     .e_shnum = 9000};

	assert_int_equal(scry_elf_open_path("/nonexistent", &elf), -ENOENT);
	assert_int_equal(scry_elf_open_path("/etc/passwd", &elf), -ENOEXEC);
	assert_non_null(strstr(scry_error(), "not an ELF file"));
	broken.e_ident[EI_CLASS] = ELFCLASS64;
	broken.e_ident[EI_DATA] = ELFDATA2LSB;
	broken.e_ident[EI_VERSION] = EV_CURRENT;
	broken.e_machine = EM_X86_64;
	assert_int_equal(write(fd, &broken, sizeof(broken)), sizeof(broken));
	close(fd);
	if (scry_elf_open_path(path, &elf) == 0) { /* opened as empty: then it must answer no */
		struct scry_sym sym;

		assert_int_equal(scry_elf_symbol(elf, "x", &sym), -ENOENT);
		scry_elf_close(elf);
	}
	unlink(path);

	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++) {
		if (maps.entries[i].inode)
			continue;
		assert_int_equal(scry_elf_open_mapped(getpid(), &maps.entries[i], &elf), -ENOENT);
		break;
	}
	scry_maps_done(&maps);
}

/* Everything that reads the file. */
static void read_all(struct scry_elf *elf)
{
	const uint8_t *bytes;
	struct scry_sym sym;
	uint64_t at, size;
	size_t cursor = 0, n;
	char text[64];

	scry_elf_symbol(elf, "not_there", &sym);
	scry_elf_symbol_at(elf, 0x1234, &sym);
	scry_elf_got_slot(elf, "not_there", &at);
	scry_elf_section(elf, ".not_there", &at, &size);
	scry_elf_debuglink(elf, text, sizeof(text));
	scry_elf_has_debug_info(elf);
	for (size_t i = 0; scry_elf_segment(elf, i); i++) {
		const Elf64_Phdr *p = scry_elf_segment(elf, i);

		n = scry_elf_view(elf, p->p_vaddr, &bytes);
		for (size_t k = 0; k < n; k += 512)
			assert_true(bytes[k] <= 255);
		scry_elf_read(elf, p->p_vaddr, text, sizeof(text));
	}
	while (scry_elf_rela_next(elf, &cursor, &bytes, &n))
		;
	cursor = 0;
	while (scry_elf_symtab_next(elf, &cursor, &sym))
		;
}

/* A copy of this program, opened for writing. */
static int copy(char path[32])
{
	static char text[1 << 16];
	int from = open("/proc/self/exe", O_RDONLY), to;
	ssize_t n;

	strcpy(path, "/tmp/scry-elf-XXXXXX");
	to = mkstemp(path);
	while ((n = read(from, text, sizeof(text))) > 0)
		assert_int_equal(write(to, text, (size_t)n), n);
	close(from);
	return to;
}

/* A mapping would be SIGBUS. */
static void test_cut(void **state)
{
	static const off_t ends[] = {0, 10, 64, 4096, 8192, 20000};
	char path[32];

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct scry_elf *before = NULL, *after = NULL;
		int fd = copy(path);

		assert_int_equal(scry_elf_open_path(path, &before), 0);
		assert_int_equal(ftruncate(fd, ends[i]), 0);
		read_all(before);
		scry_elf_close(before);
		if (scry_elf_open_path(path, &after) == 0)
			read_all(after);
		scry_elf_close(after);
		scry_error_clear();
		unlink(path);
		close(fd);
	}
}

/* What a header says is not what memory is taken for. */
static void test_huge(void **state)
{
	struct scry_elf *elf = NULL;
	struct scry_sym sym;
	Elf64_Ehdr header;
	char path[32];
	int fd = copy(path);

	(void)state;
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	for (size_t i = 0; i < header.e_shnum; i++) {
		off_t at = (off_t)(header.e_shoff + i * sizeof(Elf64_Shdr));
		Elf64_Shdr section;

		assert_int_equal(pread(fd, &section, sizeof(section), at), sizeof(section));
		section.sh_size += 1ull << 40;
		assert_int_equal(pwrite(fd, &section, sizeof(section), at), sizeof(section));
	}
	if (ftruncate(fd, 1ll << 41) == 0 && scry_elf_open_path(path, &elf) == 0) {
		assert_int_equal(scry_elf_symbol(elf, "main", &sym), -ENOENT);
		read_all(elf);
	}
	scry_elf_close(elf);
	scry_error_clear();
	unlink(path);
	close(fd);
}

/* A symbol table of 400 MiB, all hole, is not read; the rest of the file is. */
static void test_sparse(void **state)
{
	char path[32] = "/tmp/scry-elf-XXXXXX";
	struct scry_elf *elf = NULL;
	struct scry_image image;
	struct scry_sym sym;
	struct mallinfo2 before, after;
	Elf64_Ehdr header;
	int fd = copy(path);

	(void)state;
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	for (size_t i = 0; i < header.e_shnum; i++) {
		off_t at = (off_t)(header.e_shoff + i * sizeof(Elf64_Shdr));
		Elf64_Shdr section;

		assert_int_equal(pread(fd, &section, sizeof(section), at), sizeof(section));
		if (section.sh_type != SHT_SYMTAB)
			continue;
		section.sh_size = 24ull << 24;
		section.sh_offset = 16ull << 20;
		assert_int_equal(pwrite(fd, &section, sizeof(section), at), sizeof(section));
	}
	assert_int_equal(ftruncate(fd, 450 << 20), 0);
	before = mallinfo2();
	assert_int_equal(scry_elf_open_path(path, &elf), 0);
	read_all(elf);
	after = mallinfo2();
	assert_true(after.hblkhd + after.uordblks < before.hblkhd + before.uordblks + (64u << 20));
	assert_int_equal(scry_elf_symbol(elf, "main", &sym), -ENOENT);
	scry_elf_close(elf);
	/* the same of a segment */
	for (size_t i = 0; i < header.e_phnum; i++) {
		off_t at = (off_t)(header.e_phoff + i * sizeof(Elf64_Phdr));
		Elf64_Phdr segment;

		assert_int_equal(pread(fd, &segment, sizeof(segment), at), sizeof(segment));
		if (segment.p_type != PT_LOAD || segment.p_flags & PF_X)
			continue;
		segment.p_filesz = segment.p_memsz = 440ull << 20;
		assert_int_equal(pwrite(fd, &segment, sizeof(segment), at), sizeof(segment));
		break;
	}
	assert_int_equal(scry_elf_open_path(path, &elf), 0);
	assert_int_equal(scry_image_open(elf, &image), -EFBIG);
	scry_elf_close(elf);
	scry_error_clear();
	unlink(path);
	close(fd);
}

static int count_long(const struct scry_sym *sym, void *arg)
{
	const size_t length = strlen(sym->name);

	assert_true(length < 16384);
	*(unsigned int *)arg += sym->name[0] == '~';
	return 0;
}

/* 1,000 symbols whose names share four megabytes: only those of a name's length are given. */
static void test_long_names(void **state)
{
	enum { SYMBOLS = 1000, STRINGS = 4 << 20 };
	static char strings[STRINGS];
	static Elf64_Sym symbols[SYMBOLS];
	char path[32] = "/tmp/scry-elf-XXXXXX";
	const off_t at = 64 << 20;
	struct scry_elf *elf = NULL;
	unsigned int given = 0;
	Elf64_Shdr section;
	Elf64_Ehdr header;
	int fd = copy(path);

	memset(strings, '~', STRINGS - 1);
	for (size_t i = 1; i < SYMBOLS; i++)
		symbols[i] = (Elf64_Sym){
			.st_name = (Elf64_Word)(i < SYMBOLS / 2 ? i : STRINGS - 16384 + i - 500),
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = 1,
			.st_value = 0x1000,
			.st_size = 16};
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	for (size_t i = 0; i < header.e_shnum; i++) {
		off_t place = (off_t)(header.e_shoff + i * sizeof(Elf64_Shdr));

		assert_int_equal(pread(fd, &section, sizeof(section), place), sizeof(section));
		if (section.sh_type != SHT_SYMTAB)
			continue;
		section.sh_offset = (Elf64_Off)at;
		section.sh_size = sizeof(symbols);
		assert_int_equal(pwrite(fd, &section, sizeof(section), place), sizeof(section));
		place = (off_t)(header.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
		assert_int_equal(pread(fd, &section, sizeof(section), place), sizeof(section));
		section.sh_offset = (Elf64_Off)at + sizeof(symbols);
		section.sh_size = STRINGS;
		assert_int_equal(pwrite(fd, &section, sizeof(section), place), sizeof(section));
	}
	assert_int_equal(pwrite(fd, symbols, sizeof(symbols), at), sizeof(symbols));
	assert_int_equal(pwrite(fd, strings, STRINGS, at + (off_t)sizeof(symbols)), STRINGS);
	assert_int_equal(scry_elf_open_path(path, &elf), 0);
	assert_int_equal(scry_elf_each_symbol(elf, count_long, &given), 0);
	assert_int_equal(given, SYMBOLS / 2);
	scry_elf_close(elf);
	unlink(path);
	close(fd);
}

/* Nobody writes to it: opening, or reading, would wait for ever. */
static void test_no_file(void **state)
{
	char path[] = "/tmp/scry-elf-fifo-XXXXXX";
	struct scry_elf *elf = NULL;

	(void)state;
	assert_non_null(mkdtemp(path));
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_true(scry_elf_open_path(path, &elf) < 0);
	assert_true(scry_elf_open_path("/dev/zero", &elf) < 0);
	scry_error_clear();
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libc_symbols), cmocka_unit_test(test_bias_of_all),
		cmocka_unit_test(test_self),	     cmocka_unit_test(test_build_id),
		cmocka_unit_test(test_refusals),     cmocka_unit_test(test_cut),
		cmocka_unit_test(test_huge),	     cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_long_names),   cmocka_unit_test(test_no_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
