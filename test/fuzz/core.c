/*
 * Fuzzer of sys/core: a core is foreign bytes. With -fsanitize=fuzzer -DSCRY_LIBFUZZER:
 * LLVMFuzzerTestOneInput. Else a main: a small core, changed 20,000 times from a fixed seed, mostly
 * in its headers and notes, or cut off.
 *
 * What is read is held to the header's promises: parts and mappings ascend and do not overlap, all
 * that they hold can be asked for, and answers lie in what was asked.
 */
#include "sys/core.h"

#include <string.h>

#include "../fixtures/core_make.h"
#include "base/err.h"
#include "fuzz.h"

static void check(const struct scry_core *core)
{
	struct scry_mem mem = scry_core_mem(core);
	static uint8_t bytes[8192];

	must(core->thread_count > 0 && core->segment_count > 0, "an empty core");
	must(strlen(core->comm) < sizeof(core->comm), "a name without an end");
	for (size_t i = 0; i < core->segment_count; i++) {
		const struct scry_core_segment *p = &core->segments[i];

		must(p->start < p->end && p->filed <= p->end - p->start, "a part");
		must(!p->filed || p->offset + p->filed <= core->size, "bytes that are not there");
		must(!i || p[-1].end <= p->start, "parts overlap");
		(void)scry_mem_read(&mem, p->start, bytes, 16);
		(void)scry_mem_read_some(&mem, p->end - 8, bytes, sizeof(bytes));
	}
	for (size_t i = 0; i < core->maps.count; i++) {
		const struct scry_map_entry *m = &core->maps.entries[i];

		must(!i || m[-1].end <= m->start, "mappings overlap");
		must(m->inode <= core->file_count, "the number of a file");
		must(!m->inode || strlen(m->path) > 0, "a file without a name");
		(void)scry_core_file(core, m);
	}
	(void)scry_core_program(core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memory_file(data, size);
	struct scry_core *core;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (scry_core_open(path, NULL, &core) == 0) {
		check(core);
		scry_core_close(core);
	} else {
		must(scry_error()[0] != 0, "a failure without a sentence");
	}
	scry_error_clear();
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 20000

static void mutate(uint8_t *bytes)
{
	static const uint64_t edges[] = {0,	  1,	      4096,	 0x7fff,    0xffff,
					 0x10000, UINT32_MAX, INT64_MAX, UINT64_MAX};

	for (uint32_t changes = 1 + next_random(5); changes; changes--) {
		size_t at = next_random(next_random(4) ? 3000 : 9 * CORE_PAGE);

		if (next_random(3))
			bytes[at] ^= (uint8_t)(1u << next_random(8));
		else
			memcpy(bytes + at / 4 * 4, &edges[next_random(9)], 1u << next_random(4));
	}
}

int main(int argc, char **argv)
{
	static uint8_t valid[CORE_SIZE], bytes[CORE_SIZE + 8];
	size_t size = core_make(valid, SCRY_TARGET_DIR "/libplug.so");

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput(bytes, load_file(argv[i], bytes, CORE_SIZE, 0));
	if (argc > 1)
		return 0;
	LLVMFuzzerTestOneInput(valid, size);
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid, size);
		mutate(bytes);
		LLVMFuzzerTestOneInput(bytes, next_random(8) ? size : next_random((uint32_t)size));
	}
	printf("1..1\nok 1 - core: %d changed cores read\n", ROUNDS);
	return 0;
}

#endif
