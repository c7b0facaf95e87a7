/*
 * Fuzzer of name/fibers: the memory of a process is foreign bytes, and claims to have fibers. With
 * -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput, whose input is the memory of a small
 * core. Else a main: memory made of what the finders look for, 3,000 times from a fixed seed.
 *
 * What is found is held to the headers' promises: sums agree, bounds and marks lie in what there
 * is.
 */
#include "name/fibers.h"

#include <string.h>

#include "../fixtures/core_make.h"
#include "base/err.h"
#include "fuzz.h"

/* In the core: the file's data, then the heap's two parts. */
#define DATA_AT (3 * CORE_PAGE)
#define MEMORY (4 * CORE_PAGE)
#define DATA (CORE_CODE + 2 * CORE_PAGE)

static void check(const struct scry_fibers *f)
{
	uint64_t sum = 0, grouped = 0;

	for (int kind = 0; kind < SCRY_FIBER_KINDS; kind++)
		for (int state = 0; state < SCRY_FIBER_STATES; state++)
			sum += f->sums.found[kind][state];
	must(sum == f->total, "a sum of states");
	must(f->count + f->sums.unlisted == f->total, "a list that lacks some");
	for (uint32_t i = 0; i < f->group_keys.count; i++) {
		uint64_t frames[SCRY_FIBER_FRAMES_MAX];

		grouped += f->groups[i].count;
		must(scry_fibers_frames(f, f->groups[i].stack, frames) <= SCRY_FIBER_FRAMES_MAX,
		     "a stack that is too deep");
	}
	must(grouped == f->total, "a sum of groups");
	for (size_t i = 0; i < f->count; i++) {
		const struct scry_fiber *one = &f->all[i];

		must(one->group < f->group_keys.count, "a group that is none");
		must(!one->low || one->low < one->top, "bounds");
		must(!one->has_used || one->used_bytes + one->left_bytes <= one->top - one->low,
		     "more used than there is");
	}
	for (size_t i = 1; i < f->marks.area_count; i++)
		must(f->marks.areas[i - 1].top <= f->marks.areas[i].low, "areas overlap");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[CORE_SIZE];
	size_t core_size = core_make(bytes, SCRY_TARGET_DIR "/libplug.so");
	struct scry_core *core;
	char path[64];
	int fd;

	memcpy(bytes + DATA_AT, data, size < MEMORY ? size : MEMORY);
	fd = memory_file(bytes, core_size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (scry_core_open(path, NULL, &core) == 0) {
		const struct scry_space space = {.pid = core->pid, .core = core};
		struct scry_fibers *f;

		if (scry_fibers_open(&space, 1000000000, &f) == 0) {
			check(f);
			scry_fibers_close(f);
		} else {
			must(scry_error()[0] != 0, "a failure without a sentence");
		}
		scry_core_close(core);
	}
	scry_error_clear();
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 3000

/* The address of the word `i` of the memory. */
static uint64_t address_of(uint32_t i)
{
	const uint32_t page = CORE_PAGE / 8;

	if (i < page)
		return DATA + 8ull * i;
	return i < 3 * page ? CORE_HEAP + 8ull * (i - page)
			    : CORE_HEAP + 4 * CORE_PAGE + 8ull * (i - 3 * page);
}

static uint64_t one_word(uint32_t i)
{
	switch (next_random(12)) {
	case 0:
		return 0x0000037f00001f80ull;
	case 1:
		return address_of(i);
	case 2:
		return address_of(i) + 200;
	case 3:
		return CORE_CODE + CORE_PAGE + next_random(CORE_PAGE);
	case 4:
		return CORE_CODE + CORE_PAGE + 16 * next_random(64);
	case 5:
		return next_random(8) ? next_random(256) : 1ull << next_random(64);
	case 6:
		return CORE_PAGE * (uint64_t)next_random(8);
	case 7:
		return 0;
	case 8:
		return SCRY_FIBER_REGISTRY_MAGIC;
	default:
		return address_of(next_random(MEMORY / 8));
	}
}

/* A registry whose tables lead into the memory. */
static void put_registry(uint64_t *memory)
{
	uint32_t *words = (uint32_t *)&memory[2 * next_random(16)];

	memcpy(words, &(uint64_t){SCRY_FIBER_REGISTRY_MAGIC}, 8);
	words[2] = 1;
	words[3] = next_random(64);
	memcpy(&words[4], &(uint64_t){address_of(next_random(MEMORY / 8))}, 8);
	memcpy(&words[6], &(uint64_t){next_random(2) * 8}, 8);
	for (int i = 8; i < 25; i++)
		words[i] = 4 * next_random(16);
	words[17] = 64 + 8 * next_random(16); /* fiber_bytes */
}

int main(int argc, char **argv)
{
	static uint64_t memory[MEMORY / 8 + 1];

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput((uint8_t *)memory,
				       load_file(argv[i], (uint8_t *)memory, MEMORY, 0));
	if (argc > 1)
		return 0;
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < MEMORY / 8; i++)
			memory[i] = one_word(i);
		put_registry(memory);
		LLVMFuzzerTestOneInput((uint8_t *)memory, MEMORY);
	}
	printf("1..1\nok 1 - fibers: %d memories looked through\n", ROUNDS);
	return 0;
}

#endif
