/*
 * Fuzzer of vm/ruby_iseq_log: what a probe tells is of foreign bytes. Two ways as rec_reader.c:
 * libFuzzer, or a main that makes 2,000 inputs from a fixed seed.
 *
 * The input is a row of records: two bytes of size, then as many bytes; each begins with a head
 * whose address and rooms are made small, so that addresses meet and rooms are met.
 */
#include "vm/ruby_iseq_log.h"

#include <string.h>

#include "fuzz.h"

static const struct scry_ruby_layout layout = {
	.insns_entry_size = 12, .insns_positions = 8, .insns_count = 16, .insns_succ = 24};

static void ask(const struct scry_iseq_log *b, uint64_t iseq, uint64_t pc, uint64_t time_ns)
{
	bool newest;
	const struct scry_born *born =
		scry_iseq_log_find(b, &(struct scry_iseq_event_ask){iseq, pc, time_ns}, &newest);
	uint32_t line;

	if (!born)
		return;
	must(born->time_ns <= time_ns && time_ns < born->died_ns && pc >= born->code.encoded &&
		     pc <= born->code.encoded + 8ul * born->code.size,
	     "another's code");
	must(!born->label == !born->path, "half a name");
	must(!born->label || strlen(born->label) + strlen(born->path) < 1u << 17, "a long name");
	for (uint32_t pos = 0; pos < 40; pos++)
		scry_born_line(born, pos, &line);
	scry_born_line(born, UINT32_MAX, &line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scry_iseq_log b;
	uint64_t taken = 0;

	scry_iseq_log_init(&b, &layout);
	while (size > 2) {
		size_t part = (size_t)(data[0] | data[1] << 8) % (size - 2) + 1;
		uint8_t *record = malloc(part); /* of just this size: overruns are seen */
		struct scry_iseq_event head;

		must(record != NULL, "memory");
		memcpy(record, data + 2, part);
		if (part >= sizeof(head)) {
			memcpy(&head, record, sizeof(head));
			head.iseq %= 32; /* 8, 16, 24 are legal */
			head.encoded =
				0x10000 - 512 + head.encoded % 128 * 8; /* over a page's end */
			head.size %= 700;
			head.time_ns %= 64;
			head.label_room %= 64;
			head.path_room %= 64;
			head.line_room %= 8;
			memcpy(record, &head, sizeof(head));
		}
		must(scry_iseq_log_add(&b, record, part) == 0, "memory");
		taken++;
		free(record);
		for (uint64_t iseq = 0; iseq < 32; iseq += 8)
			ask(&b, iseq, 0x10000 - 512 + data[2] * 8ul, data[2] % 64);
		data += 2 + part;
		size -= 2 + part;
	}
	must(b.count <= 3 * SCRY_ISEQ_LOG_DEEP, "rows beyond the limit");
	must(b.sums.born + b.sums.bad == taken, "a record that is not counted");
	scry_iseq_log_done(&b);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 2000

int main(int argc, char **argv)
{
	static uint8_t file[1 << 20], data[4096];

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput(file, load_file(argv[i], file, sizeof(file), 0));
	for (int run = 0; argc == 1 && run < ROUNDS; run++) {
		for (size_t i = 0; i < sizeof(data); i++) /* small numbers, mostly */
			data[i] = (uint8_t)next_random(next_random(4) ? 24 : 256);
		LLVMFuzzerTestOneInput(data, next_random(sizeof(data)));
	}
	printf("1..1\nok 1 - iseq_events: %d inputs\n", ROUNDS);
	return 0;
}

#endif
