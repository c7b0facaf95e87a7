/*
 * Fuzzer of the words that an agent writes while it records malloc (wire/malloc_ring.h), two ways.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main that makes up 20,000
 * inputs from a fixed seed. Whatever the words say, what is recorded must be readable without an
 * error, and as many calls as were told.
 */
#include "fuzz.h"

#include "name/malloc.h"
#include "rec/reader.h"
#include "rec/writer.h"
#include "wire/event.h"
#include "wire/malloc_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 128u

struct input {
	const uint8_t *data;
	size_t left;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	if (in->left < bytes) {
		in->left = 0;
		return 0;
	}
	memcpy(&value, in->data, bytes);
	in->data += bytes;
	in->left -= bytes;
	return value;
}

/* Words as they come, or records with few addresses and near stamps, which meet each other. */
static size_t make_words(struct input *in, uint64_t *words, bool is_raw)
{
	size_t count = take(in, 1) % (WORDS - 2);

	for (size_t i = 0; i < count; i++) {
		uint64_t a;

		if (is_raw) {
			words[i] = take(in, 8);
			continue;
		}
		a = take(in, 4);
		words[i] = (a & 15) | (a >> 4 & 31) << 5 | (a >> 16 & 0xff) << 48;
		if (a >> 28 == 0xf)
			words[i] |= (uint64_t)SCRY_MALLOC_SIZE_LONG << 48;
		words[++i] = take(in, 1) * 7 | (a >> 9 & 0xff) << SCRY_MALLOC_TSC_BITS |
			     (a >> 24 & 7) << SCRY_MALLOC_CODE_AT;
	}
	return count < WORDS ? count : WORDS;
}

static void merge(struct scry_malloc *m, uint64_t watermark, uint64_t now)
{
	scry_stream_clock(scry_malloc_stream(m), &(struct scry_ticks_pair){now, now / 2, now / 2});
	must(!scry_malloc_merge(m, watermark), "merge");
}

static uint64_t feed(struct scry_malloc *m, struct input *in)
{
	struct scry_malloc_stats stats;
	uint64_t words[WORDS + 2], now = 1 << 20;

	while (in->left) {
		uint64_t how = take(in, 1);
		struct scry_stream_words run = {.thread = 1 + how % 4,
						.tid = (uint32_t)(how % 4),
						.has_ended = how >> 2 & how >> 3 & how >> 4 & 1,
						.begin_tick = how >> 5 & 1 ? take(in, 2) << 20 : 0,
						.words = words};

		run.count = make_words(in, words, how >> 6 & 1);
		must(!scry_stream_add(scry_malloc_stream(m), &run), "words");
		if (how >> 7)
			merge(m, take(in, 2) << 20, now += take(in, 2) << 20);
		if (how == 0)
			must(!scry_malloc_flush(m), "flush");
	}
	merge(m, UINT64_MAX, 1ull << 60);
	must(!scry_malloc_finish(m), "finish");
	scry_malloc_stats(m, &stats);
	return stats.calls;
}

static uint64_t read_back(int fd)
{
	struct scry_reader_stats stats;
	const struct scry_event *event;
	struct scry_reader *r;
	uint64_t calls = 0;

	must(!scry_reader_open(fd, &r), "open");
	while (scry_reader_next(r, &event) == 1) {
		const struct scry_ev_malloc *call = (const void *)(event + 1);

		calls += event->type == SCRY_EVENT_MALLOC && call->function < SCRY_MALLOC_OLDER;
	}
	scry_reader_stats(r, &stats);
	must(!stats.errors && !stats.left_out, "what was recorded cannot be read");
	scry_reader_close(r);
	return calls;
}

/* Its child calls nothing. */
static int on_fork(void *arg, struct scry_malloc *parent, uint32_t pid)
{
	static uint32_t part;
	struct scry_malloc_opts opts = {.producer = {.ring = 2 + part++}, .writer = arg};
	struct scry_malloc *child;
	int r = scry_malloc_fork(parent, &opts, &child);

	(void)pid;
	if (r == 0)
		scry_malloc_free(child);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct scry_malloc_opts opts = {.producer = {.ring = 1}, .on_fork = on_fork};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct scry_malloc_stats stats;
	struct scry_malloc *m;
	uint64_t calls;

	must(fd >= 0 && !scry_writer_open(fd, 0, &opts.writer), "open");
	opts.on_fork_arg = opts.writer;
	opts.has_stacks = size & 1;
	must(!scry_malloc_new(&opts, &m), "new");
	scry_stream_clock(scry_malloc_stream(m), &(struct scry_ticks_pair){1, 1, 1});
	scry_stream_clock(scry_malloc_stream(m),
			  &(struct scry_ticks_pair){1 << 20, 1 << 19, 1 << 19});
	calls = feed(m, &in);
	scry_malloc_stats(m, &stats);
	scry_malloc_free(m);
	must(!scry_writer_close(opts.writer), "close");
	/* a block that is ended because another begins there is a call in the recording */
	must(read_back(fd) == calls + stats.mended, "the number of calls");
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER
#define ROUNDS 20000

int main(void)
{
	static uint8_t bytes[4096];

	srandom(1);
	for (int i = 0; i < ROUNDS; i++) {
		size_t size = (size_t)random() % sizeof(bytes) >> random() % 6;

		for (size_t n = 0; n < size; n++)
			bytes[n] = (uint8_t)random();
		LLVMFuzzerTestOneInput(bytes, size);
	}
	printf("1..1\nok 1 - malloc_ring: %d inputs\n", ROUNDS);
	return 0;
}
#endif
