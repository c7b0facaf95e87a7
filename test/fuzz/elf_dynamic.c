/*
 * Fuzzer of sys/dynamic: files that a process has mapped are foreign bytes.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: with file names it
 * reads those; without, it changes a plug-in of the tests 20,000 times from a fixed seed, mostly in
 * its headers, its dynamic segment and the tables that this leads to.
 */
#include "fuzz.h"

#include "base/err.h"
#include "sys/dynamic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t read_all(const struct scry_dynamic *d)
{
	struct scry_dynsym sym, found;
	uint64_t sum = 0;

	for (size_t i = 0; i < d->symbol_count; i++) {
		if (!scry_dynamic_symbol(d, i, &sym))
			continue;
		sum += strlen(sym.name) + strlen(sym.version);
		if (i < 64 && scry_dynamic_find(d, sym.name, sym.version, &found) == 0 &&
		    strcmp(sym.name, found.name) != 0)
			abort();
	}
	for (size_t t = 0; t < d->rela_count; t++)
		for (size_t i = 0; i < d->rela[t].count; i++)
			sum += scry_dynamic_rela(d, t, i).r_offset;
	for (size_t i = 0; i < d->needed_count; i++)
		sum += scry_dynamic_string(d, d->needed[i]) != NULL;
	return sum + (d->soname ? strlen(d->soname) : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memory_file(data, size);
	struct scry_dynamic d;
	struct scry_elf *elf;
	volatile uint64_t sum;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (scry_elf_open_path(path, &elf) == 0) {
		char name[256];

		if (scry_elf_debuglink(elf, name, sizeof(name)) && strchr(name, '/'))
			abort();
		if (scry_dynamic_open(elf, &d) == 0) {
			sum = read_all(&d);
			(void)sum;
			scry_dynamic_done(&d);
		}
		scry_elf_close(elf);
	} else if (!scry_error()[0]) {
		abort();
	}
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 20000

/* Headers and the first tables, or the dynamic segment: where a change has a meaning. */
static void mutate(uint8_t *bytes, size_t len, size_t dynamic)
{
	static const uint64_t edges[] = {0,	  1,	      7,	 0x7fff,    0xffff,
					 0x10000, UINT32_MAX, INT64_MAX, UINT64_MAX};
	uint32_t changes = 1 + next_random(5);

	while (changes--) {
		uint32_t where = next_random(4);
		size_t at = where == 0	 ? next_random(0x800)
			    : where == 1 ? next_random((uint32_t)len - 8)
					 : dynamic + next_random(0x1c0);

		if (at + 8 > len)
			continue;
		if (next_random(3))
			bytes[at] ^= (uint8_t)(1u << next_random(8));
		else
			memcpy(bytes + at, &edges[next_random(9)], 1u << next_random(4));
	}
}

/* File offset of the dynamic segment. */
static size_t dynamic_of(const uint8_t *bytes, size_t len)
{
	Elf64_Ehdr header;
	Elf64_Phdr p;

	memcpy(&header, bytes, sizeof(header));
	for (size_t i = 0; i < header.e_phnum; i++) {
		size_t at = header.e_phoff + i * sizeof(p);

		if (at + sizeof(p) > len)
			break;
		memcpy(&p, bytes + at, sizeof(p));
		if (p.p_type == PT_DYNAMIC)
			return p.p_offset;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static uint8_t valid[1 << 20], bytes[1 << 20];
	size_t len;

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput(bytes, load_file(argv[i], bytes, sizeof(bytes), 64));
	if (argc > 1)
		return 0;
	len = load_file(SCRY_TARGET_DIR "/libplug.so", valid, sizeof(valid), 64);
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid, len);
		mutate(bytes, len, dynamic_of(valid, len));
		LLVMFuzzerTestOneInput(bytes, len);
	}
	printf("1..1\nok 1 - elf_dynamic: %d changed files read\n", ROUNDS);
	return 0;
}

#endif
