/*
 * Fuzzer of sys/text, sys/fde and sys/image: files that lie about themselves. With
 * -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: this program's own file,
 * changed 2,000 times from a fixed seed, mostly in its headers and unwind tables.
 *
 * What is read is held to the header's promises: ranges ascend and do not overlap, their bytes can
 * be read to the last, transfers lead into the object and come in order.
 */
#include "fuzz.h"

#include "sys/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

static unsigned int taken;

static uint32_t check_range(struct scry_text *text, size_t i)
{
	const struct scry_text_range *range = scry_text_range(text, i);
	struct scry_text_function function;
	struct scry_transfer rows[16];
	struct scry_transfers found = {rows, 16};
	struct scry_x86_window w;
	struct scry_x86_code code;
	uint32_t sum = 0;
	size_t n;

	must(range->start < range->end, "an empty range");
	must(i == 0 || scry_text_range(text, i - 1)->end <= range->start, "ranges overlap");
	must(scry_text_at(text, range->start) == range, "a range that is not found");
	must(range->parent == SCRY_TEXT_NO_PARENT || range->parent < scry_text_range_count(text),
	     "a parent");
	must(scry_text_function(text, range->end - 1, &function), "a function");
	must(function.index == i && function.next >= function.end, "the next one");
	scry_text_bytes(text, range, &code);
	must(code.avail >= code.size, "bytes");
	for (size_t k = 0; k < code.avail; k++)
		sum += code.bytes[k];
	(void)scry_x86_window(&code, 5, SCRY_X86_JUMP_OK, &w);
	n = scry_text_enters(text, range->start, range->end, &found);
	for (size_t k = 0; k < n && k < 16; k++) {
		must(rows[k].target > range->start && rows[k].target < range->end, "a target");
		must(k == 0 || rows[k - 1].target <= rows[k].target, "the order");
	}
	sum += (uint32_t)scry_text_sites(text, range->start, &found);
	return sum + (uint32_t)scry_text_loops(text, range->start, 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memory_file(data, size);
	struct scry_text *text;
	struct scry_elf *elf;
	char path[64];
	uint32_t sum = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (scry_elf_open_path(path, &elf) == 0) {
		if (scry_text_read(elf, &text) == 0) {
			for (size_t i = 0; i < scry_text_range_count(text); i++)
				sum += check_range(text, i);
			scry_text_free(text);
			taken++;
		} else {
			must(scry_error()[0] != '\0', "a failure without a sentence");
		}
		scry_elf_close(elf);
	}
	close(fd);
	__asm__ volatile("" ::"r"(sum));
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 2000

/* Where .eh_frame lies in the file, by our own reader on the file as it is. */
static uint32_t find_frames(uint32_t *ret_size)
{
	struct scry_elf *elf;
	uint64_t address, size;

	must(scry_elf_open_path("/proc/self/exe", &elf) == 0 &&
		     scry_elf_section(elf, ".eh_frame", &address, &size) == 0,
	     "our own .eh_frame");
	for (size_t i = 0; scry_elf_segment(elf, i); i++) {
		const Elf64_Phdr *p = scry_elf_segment(elf, i);

		if (p->p_type == PT_LOAD && address >= p->p_vaddr &&
		    address - p->p_vaddr < p->p_filesz)
			address = address - p->p_vaddr + p->p_offset;
	}
	scry_elf_close(elf);
	*ret_size = (uint32_t)size;
	return (uint32_t)address;
}

static void mutate(uint8_t *bytes, uint32_t size, uint32_t frames, uint32_t frames_size)
{
	static const uint32_t edges[] = {0,	 1,	     7,		 0x7fff,    0xffff,
					 0x1000, 0x7fffffff, 0x80000000, 0xffffffff};

	for (uint32_t n = 1 + next_random(4); n; n--) {
		uint32_t where = next_random(4), at;

		at = where == 0	  ? next_random(1024)
		     : where == 1 ? next_random(size - 8)
				  : frames + next_random(frames_size - 8);
		if (next_random(2))
			bytes[at] = (uint8_t)next_random(256);
		else
			memcpy(bytes + at, &edges[next_random(9)], 4);
	}
}

int main(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	uint32_t frames, frames_size;
	struct stat st;
	uint8_t *file, *copy;

	must(fd >= 0 && fstat(fd, &st) == 0, "our own file");
	file = malloc((size_t)st.st_size);
	copy = malloc((size_t)st.st_size);
	must(file && copy && read(fd, file, (size_t)st.st_size) == st.st_size, "its bytes");
	close(fd);
	frames = find_frames(&frames_size);
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(copy, file, (size_t)st.st_size);
		mutate(copy, (uint32_t)st.st_size, frames, frames_size);
		LLVMFuzzerTestOneInput(copy, (size_t)st.st_size);
	}
	must(taken > ROUNDS / 10, "too few of the files can be read: nothing is tested");
	printf("1..1\nok 1 - text: %d changed files, %u of them read\n", ROUNDS, taken);
	free(file);
	free(copy);
	return 0;
}

#endif
