/*
 * Fuzzer of the reader of cached layouts, two ways, as rec_reader.c: libFuzzer, or a main that
 * changes a valid entry 20,000 times from a fixed seed. Each input is read as it is and once more
 * with its checksum made to hold.
 */
#include "fuzz.h"

#include "vm/ruby_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct scry_cache_key key = {.id = {1, 2, 3}, .id_size = 20, .learners = 7};
static unsigned int taken;

static void read_bytes(const uint8_t *data, size_t size)
{
	struct scry_cached c;

	if (scry_cache_parse(&key, data, size, &c) != 0)
		return;
	taken++;
	must(c.layout.leaf_count <= SCRY_RUBY_LEAF_MAX, "leaves");
	must(c.layout.after_count <= SCRY_RUBY_LEAF_MAX, "afters");
	must(c.layout.sizes.rule_count <= SCRY_SIZE_RULES_MAX, "rules");
	for (size_t i = 0; i < SCRY_SIZE_TYPES; i++)
		must(c.layout.sizes.type[i].first + c.layout.sizes.type[i].count <=
			     SCRY_SIZE_RULES_MAX,
		     "rules of a type");
	for (size_t i = 0; i < c.layout.sizes.rule_count; i++)
		must(c.layout.sizes.rule[i].table < SCRY_SIZE_TABLES, "table");
	must(c.check_count <= SCRY_CACHE_CHECKS_MAX, "rows");
	for (size_t i = 0; i < c.check_count; i++) {
		must(memchr(c.checks[i].item, 0, sizeof(c.checks[i].item)) != NULL, "item");
		must(memchr(c.checks[i].proof, 0, sizeof(c.checks[i].proof)) != NULL, "proof");
		must(c.checks[i].ok || strlen(c.checks[i].value) < 40, "value");
	}
	scry_cached_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);

	must(copy != NULL, "no memory");
	memcpy(copy, data, size);
	read_bytes(copy, size);
	scry_cache_seal(copy, size);
	read_bytes(copy, size);
	free(copy);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 20000

/* Most of an entry is numbers that may be anything: half of the changes go to its head and rows. */
static size_t mutate(uint8_t *bytes, size_t size)
{
	size_t head = 256, at;

	for (uint32_t changes = 1 + next_random(4); changes; changes--) {
		at = next_random(2) ? next_random((uint32_t)head) : next_random((uint32_t)size);
		if (next_random(2))
			bytes[at] ^= (uint8_t)(1u << next_random(8));
		else
			bytes[at] = (uint8_t)next_random(256);
	}
	return next_random(4) ? size : next_random((uint32_t)size + 1);
}

int main(int argc, char **argv)
{
	struct scry_ruby_check rows[3] = {{"an item", "1", "child", "3 of 3", "", true},
					  {"b", "2", "c", "d", "e", false},
					  {"e", "", "", "", "", true}};
	struct scry_cached c = {.checks = rows, .check_count = 3, .learned_s = 1};

	c.layout.sizes.rule_count = 5;
	c.layout.sizes.type[5] = (struct scry_size_type){.first = 1, .count = 4};
	size_t size = 0;
	uint8_t *valid = scry_cache_format(&key, &c, &size), *bytes = malloc(size);

	must(valid && bytes, "no memory");
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid, size);
		LLVMFuzzerTestOneInput(bytes, mutate(bytes, size));
	}
	must(taken > 100 && taken < 2 * ROUNDS, "all taken or none");
	free(valid);
	free(bytes);
	printf("1..1\nok 1 - ruby_cache: %d changed entries read, %u taken\n", ROUNDS, taken);
	return 0;
}

#endif
