/*
 * Fuzzer of sys/elf_memory: memory that says it is a loaded object is foreign bytes.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: a library of the
 * tests as it would be loaded, changed 5,000 times from a fixed seed, mostly in its headers and its
 * dynamic segment.
 */
#include "fuzz.h"

#include "base/err.h"
#include "sys/dynamic.h"
#include "sys/elf_memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define AT 0x7f0000000000ull

static unsigned int opened;

struct bytes {
	const uint8_t *data;
	size_t size;
};

static int read_bytes(const void *image, uint64_t addr, void *buf, size_t size)
{
	const struct bytes *b = image;

	if (addr < AT || addr - AT > b->size || size > b->size - (addr - AT))
		return -EFAULT;
	memcpy(buf, b->data + (addr - AT), size);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct bytes bytes = {data, size};
	const struct scry_mem mem = {.fd = -1, .image = &bytes, .image_read = read_bytes};
	struct scry_elf_copies copies = {.mem = &mem, .left = SCRY_ELF_MEMORY_BYTES_MAX};
	struct scry_dynamic d;
	struct scry_dynsym sym;
	struct scry_elf *elf;
	const uint8_t *id;
	uint64_t bias;

	if (scry_elf_open_memory(&copies, AT, &elf, &bias)) {
		must(scry_error()[0] != 0, "a failure without a sentence");
		scry_error_clear();
		return 0;
	}
	opened++;
	(void)scry_elf_build_id(elf, &id);
	(void)scry_elf_prove(elf, &mem, bias);
	if (scry_dynamic_open(elf, &d) == 0) {
		for (size_t i = 0; i < d.symbol_count; i++)
			if (scry_dynamic_symbol(&d, i, &sym))
				must(strlen(sym.name) < SCRY_SYMBOL_LENGTH_MAX, "a name");
		scry_dynamic_done(&d);
	}
	scry_elf_close(elf);
	scry_elf_copies_done(&copies);
	scry_error_clear();
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 5000

static void put(uint8_t *loaded, size_t room, const uint8_t *file, const Elf64_Phdr *p)
{
	must(p->p_vaddr + p->p_filesz <= room, "a library of the tests");
	memcpy(loaded + p->p_vaddr, file + p->p_offset, p->p_filesz);
}

int main(int argc, char **argv)
{
	static const uint64_t edges[] = {0, 1, 64, 0xffff, UINT32_MAX, INT64_MAX, UINT64_MAX};
	static uint8_t file[1 << 20], loaded[1 << 17], bytes[1 << 17];
	size_t dynamic = 0;
	Elf64_Ehdr head;
	Elf64_Phdr p;

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput(bytes, load_file(argv[i], bytes, sizeof(bytes), 64));
	if (argc > 1)
		return 0;
	load_file(SCRY_TARGET_DIR "/libwork.so", file, sizeof(file), 64);
	memcpy(&head, file, sizeof(head));
	for (size_t i = 0; i < head.e_phnum; i++) {
		memcpy(&p, file + head.e_phoff + i * sizeof(p), sizeof(p));
		if (p.p_type == PT_LOAD)
			put(loaded, sizeof(loaded), file, &p);
		if (p.p_type == PT_DYNAMIC)
			dynamic = p.p_vaddr;
	}
	for (int round = 0; round < ROUNDS; round++) {
		memcpy(bytes, loaded, sizeof(bytes));
		for (uint32_t n = next_random(5); n; n--) {
			size_t at =
				next_random(2) ? next_random(0x300) : dynamic + next_random(0x200);

			if (next_random(2))
				bytes[at] ^= (uint8_t)(1u << next_random(8));
			else
				memcpy(bytes + at, &edges[next_random(7)], 1u << next_random(4));
		}
		LLVMFuzzerTestOneInput(bytes, sizeof(bytes));
	}
	must(opened > ROUNDS / 4, "most of it is no object");
	printf("1..1\nok 1 - elf_memory: %d changed objects copied\n", ROUNDS);
	return 0;
}

#endif
