/*
 * Fuzzer of sys/cfi and wire/unwind: unwind tables of files that a process has mapped are foreign
 * bytes, and so is the stack that is walked by them.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: with file names it
 * reads those; without, it changes the unwind tables of a plug-in of the tests 20,000 times from a
 * fixed seed.
 */
#include "fuzz.h"

#include "base/err.h"
#include "sys/cfi.h"
#include "wire/unwind_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_WORDS 512
#define STACK_AT 0x7ffc00000000ull
#define STEPS_MAX 100000

static int read_word(void *arg, uint64_t address, uint64_t *ret)
{
	const uint64_t *stack = arg;

	if (address % 8 || address < STACK_AT || address >= STACK_AT + 8 * STACK_WORDS)
		return 0;
	*ret = stack[(address - STACK_AT) / 8];
	return 1;
}

/* By all of the rows, from each of them: every walk ends. */
static void walk(const struct scry_cfi *cfi, const uint64_t *stack)
{
	for (uint32_t i = 0; i < cfi->rows.count; i += 1 + cfi->rows.count / 64) {
		struct scry_unwind_state s = {.pc = cfi->base + cfi->rows.pcs[i],
					      .sp = STACK_AT + 8 * (i % STACK_WORDS),
					      .bp = STACK_AT + 8 * (i * 7 % STACK_WORDS),
					      .bx = STACK_AT + i,
					      .is_exact = 1};

		for (int n = 0; n < STEPS_MAX; n++) {
			uint64_t rule = scry_cfi_rule(cfi, scry_unwind_at(&s));

			if (scry_unwind_step(&s, rule, read_word, (void *)(uintptr_t)stack))
				break;
			if (scry_unwind_base(rule) == SCRY_UNWIND_SIGNAL)
				break; /* it may lead to any stack, and in circles */
			if (n == STEPS_MAX - 1)
				abort();
		}
	}
}

static void check(const struct scry_cfi *cfi)
{
	for (uint32_t i = 0; i < cfi->rows.count; i++) {
		if (cfi->rows.which[i] >= cfi->rows.rule_count)
			abort();
		if (i && cfi->rows.pcs[i] < cfi->rows.pcs[i - 1])
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memory_file(data, size);
	uint64_t stack[STACK_WORDS];
	struct scry_image image;
	struct scry_cfi cfi;
	struct scry_elf *elf;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (size_t i = 0; i < STACK_WORDS; i++)
		stack[i] = i % 3 ? STACK_AT + 8 * (i + i % 7) : 0x1000 + i * 16;
	if (scry_elf_open_path(path, &elf) == 0) {
		if (scry_image_open(elf, &image) == 0) {
			if (scry_cfi_compile(elf, &image, &cfi) == 0) {
				check(&cfi);
				walk(&cfi, stack);
				scry_cfi_done(&cfi);
			} else if (!scry_error()[0]) {
				abort();
			}
			scry_image_close(&image);
		}
		scry_elf_close(elf);
	}
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 20000

int main(int argc, char **argv)
{
	static uint8_t valid[1 << 20], bytes[1 << 20];
	uint64_t address, size;
	struct scry_elf *elf;
	const uint8_t *frames, *file;
	size_t len, at;

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput(bytes, load_file(argv[i], bytes, sizeof(bytes), 64));
	if (argc > 1)
		return 0;
	len = load_file(SCRY_TARGET_DIR "/libplug.so", valid, sizeof(valid), 64);
	if (scry_elf_open_path(SCRY_TARGET_DIR "/libplug.so", &elf) < 0 ||
	    scry_elf_section(elf, ".eh_frame", &address, &size) < 0 ||
	    !scry_elf_view(elf, address, &frames)) {
		fprintf(stderr, "%s\n", scry_error());
		return 2;
	}
	file = memmem(valid, len, frames, size);
	if (!file)
		return 2;
	at = (size_t)(file - valid);
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid, len);
		for (uint32_t changes = 1 + next_random(6); changes--;)
			bytes[at + next_random((uint32_t)size)] =
				next_random(2) ? (uint8_t)next_random(256)
					       : (uint8_t)(next_random(0x30));
		LLVMFuzzerTestOneInput(bytes, len);
	}
	scry_elf_close(elf);
	printf("1..1\nok 1 - cfi: %d changed files read\n", ROUNDS);
	return 0;
}

#endif
