/*
 * Fuzzer of the reader of cached prototypes, two ways, as rec_reader.c: libFuzzer, or a main that
 * changes a valid file 20,000 times from a fixed seed. Each input is read as it is and once more
 * with its checksum made to hold.
 */
#include "fuzz.h"

#include "name/proto_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned int taken;

static void read_bytes(const uint8_t *data, size_t size)
{
	struct scry_proto_cache c;
	struct scry_map_slot slot;
	size_t cursor = 0, length;
	const char *text;

	scry_proto_cache_init(&c, 7);
	if (scry_proto_cache_parse(&c, data, size) == 0)
		taken++;
	while (scry_map_next(&c.places, &cursor, &slot)) {
		must(scry_proto_cache_get(&c, slot.key, &text, &length), "a row");
		must(text >= c.rows.data && text + length <= c.rows.data + c.rows.len, "a text");
		for (size_t i = 0; i < length; i++)
			must(text[i] >= ' ' && text[i] <= '~', "its letters");
	}
	scry_proto_cache_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);

	must(copy != NULL, "no memory");
	memcpy(copy, data, size);
	read_bytes(copy, size);
	scry_proto_cache_seal(copy, size);
	read_bytes(copy, size);
	free(copy);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 20000

static size_t mutate(uint8_t *bytes, size_t size)
{
	for (uint32_t changes = 1 + next_random(4); changes; changes--) {
		size_t at = next_random((uint32_t)size);

		if (next_random(2))
			bytes[at] ^= (uint8_t)(1u << next_random(8));
		else
			bytes[at] = (uint8_t)next_random(256);
	}
	return next_random(4) ? size : next_random((uint32_t)size + 1);
}

int main(void)
{
	struct scry_buf valid = {0};
	struct scry_proto_cache c;
	uint8_t *bytes;

	scry_proto_cache_init(&c, 7);
	for (uint64_t i = 0; i < 8; i++)
		scry_proto_cache_put(&c, 0x1000 * i, "int ?(string, addr, ulong)", 3 * i);
	must(scry_proto_cache_format(&c, &valid) == 0, "no memory");
	bytes = malloc(valid.len);
	must(bytes != NULL, "no memory");
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid.data, valid.len);
		LLVMFuzzerTestOneInput(bytes, mutate(bytes, valid.len));
	}
	must(taken > 100 && taken < 2 * ROUNDS, "all taken or none");
	printf("1..1\nok 1 - proto_cache: %d changed files read, %u taken\n", ROUNDS, taken);
	scry_proto_cache_done(&c);
	scry_buf_done(&valid);
	free(bytes);
	return 0;
}

#endif
