/*
 * Fuzzer of the words that an agent writes while calls are traced (wire/call_ring.h), and of what
 * digests of SQL are made from.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main that makes up 20,000
 * inputs from a fixed seed. Whatever the words say, what is recorded must be readable without an
 * error, with each return behind its call, once.
 */
#include "fuzz.h"

#include "name/calls.h"
#include "name/sql.h"
#include "rec/reader.h"
#include "wire/event.h"
#include "wire/ruby_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 128u

static void check(int fd, const struct scry_calls_stats *stats)
{
	static unsigned char has_ended[WORDS * 4];
	const struct scry_event *event;
	struct scry_reader_stats read;
	uint64_t calls = 0, ends = 0;
	struct scry_reader *r;

	memset(has_ended, 0, sizeof(has_ended));
	must(scry_reader_open(fd, &r) == 0, "a recording that cannot be opened");
	while (scry_reader_next(r, &event) > 0) {
		const struct scry_ev_return *ret = (const void *)(event + 1);

		if (event->type == SCRY_EVENT_CALL) {
			must(ret->call == ++calls, "calls out of order");
			continue;
		}
		if (event->type != SCRY_EVENT_RETURN)
			continue;
		must(ret->call && ret->call <= calls && !has_ended[ret->call], "no such call");
		has_ended[ret->call] = 1;
		ends++;
	}
	scry_reader_stats(r, &read);
	must(!read.errors && !read.left_out, "errors in a recording");
	must(calls == stats->calls && calls - ends == stats->open, "calls that are not told");
	scry_reader_close(r);
}

/* Lines and stacks of a Ruby: few numbers and generations, and an entry on one of few slots. */
static void shape_ruby(uint64_t *words)
{
	const uint32_t kind = words[0] % 3;
	struct scry_ring_def def;

	words[0] = SCRY_CALL_RUBY_LINE + kind;
	if (kind == 2) {
		words[2] %= 16;
		words[3] = words[3] % 4 * 8 + 64;
		words[4] = scry_call_head(words[3], 0, 1);
		return;
	}
	words[2] = kind ? words[2] % 16 : 16 + words[2] % 17;
	words[3] %= 20;
	words[4] %= 16;
	memcpy(&def, words + SCRY_CALL_RUBY_LINE_HEAD, sizeof(def));
	def.path_size %= 72;
	def.label_size %= 72;
	if (!kind)
		memcpy(words + SCRY_CALL_RUBY_LINE_HEAD, &def, sizeof(def));
	for (size_t i = SCRY_CALL_RUBY_STACK_HEAD; kind && i < 16; i++)
		words[i] %= 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scry_calls_opts opts = {.pid = 1, .args = size % 3};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct scry_calls_stats stats;
	uint64_t words[WORDS + 32] = {0}; /* a piece is shaped as a whole */
	size_t count = size / 8 < WORDS ? size / 8 : WORDS;
	struct scry_buf buf = {0};
	struct scry_calls *c;
	size_t piece;

	opts.ruby = size % 16 == 5 ? scry_ruby_stacks_new() : NULL; /* it is big */
	piece = opts.ruby ? 32 : 16;
	must(fd >= 0 && scry_writer_open(fd, 0, &opts.writer) == 0, "no recording");
	must(scry_calls_new(&opts, &c) == 0, "no memory");
	for (uint32_t i = 0; i < 4; i++)
		scry_calls_function(c);
	scry_stream_clock(scry_calls_stream(c), &(struct scry_ticks_pair){1000, 1000, 1000});
	scry_stream_clock(scry_calls_stream(c), &(struct scry_ticks_pair){3000, 2000, 2000});
	memcpy(words, data, count * 8);
	for (size_t i = 0; i + 1 < count && size % 2; i += 2) { /* few slots, near stamps */
		words[i] = scry_call_head(words[i] % 4 * 8 + 64, words[i] >> 8 & 7,
					  words[i] >> 16 & 3) |
			   (words[i] & (SCRY_CALL_MORE | SCRY_CALL_TAIL));
		words[i + 1] %= 4096;
	}
	for (size_t i = 0; i + 5 < count && opts.ruby; i += piece)
		shape_ruby(words + i);
	for (size_t i = 0; i < count; i += piece)
		scry_calls_words(c, (uint32_t)i % 3, words + i,
				 count - i < piece ? count - i : piece);
	must(scry_calls_merge(c, 2000) == 0 && scry_calls_merge(c, UINT64_MAX) == 0, "no merge");
	scry_calls_stats(c, &stats);
	scry_calls_free(c);
	scry_ruby_stacks_free(opts.ruby);
	must(scry_writer_close(opts.writer) == 0, "no end");
	check(fd, &stats);
	close(fd);
	scry_sql_digest((const char *)data, size, size % 2, &buf);
	must(buf.len <= size + size / 2 + 1, "a digest longer than its text");
	scry_buf_done(&buf);
	return 0;
}

#ifndef SCRY_LIBFUZZER
#define ROUNDS 20000

int main(void)
{
	static const char letters[] = "'\"`\\$-#/*.e+x01 aE\n";
	uint64_t random = 88172645463325252u;
	uint8_t data[WORDS * 8 + 8];

	for (int n = 0; n < ROUNDS; n++) {
		size_t size = 0;

		for (size_t want = (random >> 20) % sizeof(data); size < want; size++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			data[size] =
				n % 4 ? (uint8_t)(random >> 32)
				      : (uint8_t)letters[(random >> 32) % (sizeof(letters) - 1)];
		}
		random = random * 6364136223846793005u + 1;
		LLVMFuzzerTestOneInput(data, size);
	}
	printf("1..1\nok 1 - call_ring: %d inputs\n", ROUNDS);
	return 0;
}
#endif
