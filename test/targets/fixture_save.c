/*
 * fixture_save PID OUT: the calibration child of the ruby in PID, as a file from which the learners
 * can learn again without any Ruby (test/unit/vm_fixtures.c). tools/save-fixture calls it.
 *
 * The file is a row of sections, each "name SIZE\n" and SIZE bytes: facts, maps, elf (the module's
 * file with everything blanked that learners do not read: symbols of .dynsym and the beginnings of
 * some functions stay), and page ADDRESS for each page that the learners looked at. Debug
 * information is blanked too: it is the judge of the test and not its input.
 */
#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define CODE_KEPT 256u

static const char *const functions[] = {"rb_tracearg_", "rb_iseq_",	 "rb_thread_",
					"rb_gc_",	"rb_postponed_", "rb_current",
					"rb_profile",	"ruby_",	 "rb_during_gc"};

static void die(const char *what)
{
	fprintf(stderr, "fixture_save: %s: %s\n", what, scry_error());
	exit(1);
}

static char *slurp(const char *path, size_t *ret_size)
{
	FILE *f = fopen(path, "re");
	size_t size = 0, room = 1u << 16;
	char *text = malloc(room + 1);

	if (!f || !text)
		die(path);
	for (size_t n; (n = fread(text + size, 1, room - size, f)) > 0;) {
		size += n;
		if (size == room && !(text = realloc(text, (room *= 2) + 1)))
			die(path);
	}
	fclose(f);
	text[size] = '\0';
	*ret_size = size;
	return text;
}

static void section(FILE *out, const char *name, const void *bytes, size_t size)
{
	fprintf(out, "%s %zu\n", name, size);
	fwrite(bytes, 1, size, out);
}

struct page {
	uint64_t addr;
	uint8_t bytes[4096];
};
static struct page *pages;
static size_t page_count;

static void add_page(void *arg, uint64_t addr, const uint8_t *bytes)
{
	pages = realloc(pages, (page_count + 1) * sizeof(*pages));
	if (!pages)
		die("no memory");
	pages[page_count].addr = addr;
	memcpy(pages[page_count++].bytes, bytes, 4096);
}

static int by_address(const void *a, const void *b)
{
	const struct page *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

/* In the order of their addresses: similar ones beside each other compress better. */
static void save_pages(FILE *out, struct scry_still *still)
{
	scry_still_each(still, add_page, NULL);
	qsort(pages, page_count, sizeof(*pages), by_address);
	for (size_t i = 0; i < page_count; i++) {
		char name[32];

		snprintf(name, sizeof(name), "page %" PRIx64, pages[i].addr);
		section(out, name, pages[i].bytes, 4096);
	}
}

static void save_facts(FILE *out, const struct scry_calib *calib)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	for (size_t i = 0; i < calib->fact_count; i++) {
		for (int j = 0; j < calib->facts[i].count; j++)
			fprintf(f, "%s%s", j ? " " : "", calib->facts[i].words[j]);
		fprintf(f, "\n");
	}
	fclose(f);
	section(out, "facts", text, size);
	free(text);
}

struct file {
	char *old, *blank;
	size_t size;
};

static void keep(struct file *f, uint64_t at, uint64_t size)
{
	if (at <= f->size && size <= f->size - at)
		memcpy(f->blank + at, f->old + at, size);
}

static uint64_t file_offset(const struct file *f, uint64_t addr)
{
	const Elf64_Ehdr *e = (const void *)f->old;
	const Elf64_Phdr *p = (const void *)(f->old + e->e_phoff);

	for (int i = 0; i < e->e_phnum; i++) {
		if (p[i].p_type == PT_LOAD && addr >= p[i].p_vaddr &&
		    addr - p[i].p_vaddr < p[i].p_filesz)
			return p[i].p_offset + (addr - p[i].p_vaddr);
	}
	return UINT64_MAX;
}

static void keep_functions(struct file *f, const Elf64_Shdr *dynsym, const Elf64_Shdr *strings)
{
	const Elf64_Sym *sym = (const void *)(f->old + dynsym->sh_offset);

	for (size_t i = 0; i < dynsym->sh_size / sizeof(*sym); i++) {
		const char *name = f->old + strings->sh_offset + sym[i].st_name;

		for (size_t j = 0; j < sizeof(functions) / sizeof(functions[0]); j++) {
			if (ELF64_ST_TYPE(sym[i].st_info) == STT_FUNC && sym[i].st_value &&
			    strncmp(name, functions[j], strlen(functions[j])) == 0)
				keep(f, file_offset(f, sym[i].st_value),
				     sym[i].st_size < CODE_KEPT ? sym[i].st_size : CODE_KEPT);
		}
	}
}

/* A valid ELF file of the same shape that compresses to little; trusted input: a ruby of ours. */
static void save_elf(FILE *out, const char *path)
{
	struct file f = {.old = slurp(path, &f.size)};
	const Elf64_Ehdr *e = (const void *)f.old;
	const Elf64_Shdr *s = (const void *)(f.old + e->e_shoff);
	size_t end = 0;

	f.blank = calloc(1, f.size);
	keep(&f, 0, sizeof(*e));
	keep(&f, e->e_phoff, (uint64_t)e->e_phnum * sizeof(Elf64_Phdr));
	for (int i = 0; i < e->e_shnum; i++) {
		if (s[i].sh_type == SHT_NOTE || s[i].sh_type == SHT_DYNAMIC)
			keep(&f, s[i].sh_offset, s[i].sh_size);
		if (s[i].sh_type != SHT_DYNSYM)
			continue;
		keep(&f, s[i].sh_offset, s[i].sh_size);
		keep(&f, s[s[i].sh_link].sh_offset, s[s[i].sh_link].sh_size);
		keep_functions(&f, &s[i], &s[s[i].sh_link]);
	}
	/* Section headers follow the loaded part; debug information and .symtab become nothing. */
	for (int i = 0; i < e->e_shnum; i++) {
		if ((s[i].sh_flags & SHF_ALLOC) && s[i].sh_type != SHT_NOBITS &&
		    s[i].sh_offset + s[i].sh_size > end)
			end = s[i].sh_offset + s[i].sh_size;
	}
	end = (end + 7) & ~(size_t)7;
	Elf64_Ehdr *head = (void *)f.blank;
	Elf64_Shdr *table = (void *)(f.blank + end);
	if (end + e->e_shnum * sizeof(*s) > f.size)
		die("a file without room for its section headers");
	memcpy(table, s, e->e_shnum * sizeof(*s));
	for (int i = 0; i < e->e_shnum; i++) {
		if (!(s[i].sh_flags & SHF_ALLOC))
			table[i] = (Elf64_Shdr){0};
	}
	head->e_shoff = end;
	head->e_shstrndx = SHN_UNDEF;
	section(out, "elf", f.blank, end + e->e_shnum * sizeof(*s));
	free(f.old);
	free(f.blank);
}

static void save_maps(FILE *out, pid_t pid)
{
	char path[64], *text;
	size_t size;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	text = slurp(path, &size);
	section(out, "maps", text, size);
	free(text);
}

int main(int argc, char **argv)
{
	static struct scry_ruby target, child;
	static struct scry_infer infer;
	struct scry_calib calib;
	struct scry_proc proc;
	struct scry_mem live;
	FILE *out;

	if (argc != 3 || scry_proc_open(&proc, atoi(argv[1])) || scry_calib_start(&proc, &calib) ||
	    scry_mem_open(&live, calib.pid, 0))
		die("usage: fixture_save PID OUT");
	child.pid = calib.pid;
	infer = (struct scry_infer){.calib = &calib,
				    .still = scry_still_new(&live),
				    .child = &child,
				    .target = &target};
	child.mem = scry_still_mem(infer.still);
	if (scry_infer_module(&infer) || scry_infer_all(&infer))
		die("cannot learn");
	out = fopen(argv[2], "we");
	if (!out)
		die(argv[2]);
	section(out, "module", child.module, strlen(child.module));
	save_facts(out, &calib);
	save_maps(out, calib.pid);
	save_elf(out, child.module);
	save_pages(out, infer.still);
	if (fclose(out) != 0)
		die(argv[2]);
	scry_calib_stop(&calib);
	return 0;
}
