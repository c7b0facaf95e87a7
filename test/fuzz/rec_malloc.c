/*
 * Fuzzer of the unpacker of malloc calls, two ways as rec_reader.c: libFuzzer, or a main that
 * changes valid chunks from a fixed seed.
 *
 * The input is turned into a recording whose checksums hold and whose columns are compressed here,
 * so that each byte reaches the unpacker: a byte of choices, then for each of three chunks its head
 * and six columns.
 */
#include "fuzz.h"

#include "base/err.h"
#include "rec/check.h"
#include "rec/malloc_effect.h"
#include "rec/malloc_format.h"
#include "rec/malloc_pack.h"
#include "rec/malloc_planes.h"
#include "rec/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#define CALLS_MAX 20000u /* a chunk of the input: more would only be slow */
#define BLOCKS (1u << 17)

#define must(condition, what)                                        \
	do {                                                         \
		if (!(condition)) {                                  \
			fprintf(stderr, "%s: %s\n", __func__, what); \
			abort();                                     \
		}                                                    \
	} while (0)

/* Who lives, told by the calls alone: what the reader yields must make sense. */
struct lives {
	unsigned char *bits[3];
};

static void must_make_sense(struct lives *l, const struct scry_ev_malloc *call)
{
	unsigned char *byte, bit = (unsigned char)(1u << call->block % 8);
	enum scry_malloc_effect effect = scry_malloc_effect_of(call->function, call->flags);

	must(call->function && call->function < SCRY_MALLOC_FUNCTIONS, "a function");
	must(call->pid >= 1 && call->pid <= 2, "a process");
	if (effect == SCRY_MALLOC_EFFECT_NONE) {
		must(call->block == SCRY_MALLOC_NO_BLOCK, "a call that names no block names one");
		return;
	}
	must(call->block < BLOCKS, "numbers are dense");
	byte = &l->bits[call->pid][call->block / 8];
	if (effect == SCRY_MALLOC_EFFECT_BEGIN)
		must(!(*byte & bit), "a block that lives begins");
	else
		must(*byte & bit, "a block that does not live is named");
	if (effect == SCRY_MALLOC_EFFECT_BEGIN || effect == SCRY_MALLOC_EFFECT_END)
		*byte ^= bit;
}

static void read_fd(int fd)
{
	const struct scry_event *event;
	struct scry_reader *r;
	struct lives lives;
	int got;

	for (int i = 0; i < 3; i++)
		must((lives.bits[i] = calloc(BLOCKS / 8, 1)) != NULL, "no memory");
	must(!scry_reader_open(fd, &r), "the head is ours");
	while ((got = scry_reader_next(r, &event)) > 0) {
		const struct scry_ev_malloc *call = (const void *)(event + 1);

		must(event->type == SCRY_EVENT_MALLOC, "an event of malloc");
		must_make_sense(&lives, call);
	}
	must(got == 0, "no error but of memory");
	scry_reader_close(r);
	for (int i = 0; i < 3; i++)
		free(lives.bits[i]);
}

struct input {
	const uint8_t *at, *end;
};

static void take(struct input *in, void *to, size_t bytes)
{
	size_t there = (size_t)(in->end - in->at) < bytes ? (size_t)(in->end - in->at) : bytes;

	memset(to, 0, bytes);
	if (there)
		memcpy(to, in->at, there);
	in->at += there;
}

/* What the input says of a chunk. */
struct told {
	uint8_t who; /* 1: the second process; 2: with a parent; 4: total as it should be; 8: FRESH;
			16: frame damaged; 32: the columns are no planes */
	uint8_t reserved;
	uint16_t count;
	uint16_t columns[SCRY_MALLOC_COLUMNS];
};

/* Any bytes as planes of varints; the packer makes none of more than ten bytes. */
static void split(const uint8_t *bytes, size_t len, uint8_t *ret_planes)
{
	uint8_t column[4096];
	unsigned int more = 0;

	for (size_t i = 0; i < len; i++) {
		column[i] = more == 9 || i + 1 == len ? bytes[i] & 0x7f : bytes[i];
		more = column[i] & 0x80 ? more + 1 : 0;
	}
	scry_malloc_planes_split(column, len, ret_planes);
}

static size_t put_chunk(struct input *in, uint64_t totals[2], uint8_t *to, size_t room)
{
	struct scry_malloc_head head = {0};
	struct scry_chunk chunk = {.magic = SCRY_CHUNK_MAGIC, .kind = SCRY_CHUNK_MALLOC};
	static uint8_t planes[SCRY_MALLOC_COLUMNS * 4096];
	size_t raw = 0, frame, at = 0;
	struct told told;
	int who, i;

	take(in, &told, sizeof(told));
	who = told.who & 1;
	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++) {
		head.columns[i] = told.columns[i] % 4096;
		raw += head.columns[i];
	}
	if (raw > (size_t)(in->end - in->at)) /* as many as there are */
		for (i = 0, raw = 0; i < SCRY_MALLOC_COLUMNS; i++) {
			size_t left = (size_t)(in->end - in->at) - raw;

			head.columns[i] = head.columns[i] < left ? head.columns[i] : (uint32_t)left;
			raw += head.columns[i];
		}
	head.before = told.who & 4 ? told.count : totals[who];
	head.flags = told.who & 8 ? SCRY_MALLOC_CHUNK_FRESH : 0;
	if (told.who & 2) {
		head.parent_pid = 1;
		head.parent_before = totals[0];
	}
	must(room > sizeof(chunk) + sizeof(head) + ZSTD_compressBound(raw) + 8, "room");
	memcpy(planes, in->at, raw);
	for (i = 0; i < SCRY_MALLOC_COLUMNS && !(told.who & 32); i++) {
		split(in->at + at, head.columns[i], planes + at);
		at += head.columns[i];
	}
	frame = ZSTD_compress(to + sizeof(chunk) + sizeof(head),
			      room - sizeof(chunk) - sizeof(head), planes, raw, -5);
	must(!ZSTD_isError(frame), "zstd");
	in->at += raw;
	if (told.who & 16 && frame)
		to[sizeof(chunk) + sizeof(head) + told.count % frame] ^= 0x40;
	head.packed = (uint32_t)frame;
	memcpy(to + sizeof(chunk), &head, sizeof(head));
	chunk.bytes = (sizeof(head) + frame + 7) / 8 * 8;
	memset(to + sizeof(chunk) + sizeof(head) + frame, 0, chunk.bytes - sizeof(head) - frame);
	chunk.count = told.count % CALLS_MAX;
	chunk.producer_pid = 1 + who;
	chunk.check = scry_chunk_check(&chunk, to + sizeof(chunk));
	memcpy(to, &chunk, sizeof(chunk));
	totals[who] += chunk.count;
	return sizeof(chunk) + chunk.bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[1 << 18];
	struct scry_file_head head = {
		.magic = SCRY_FILE_MAGIC, .version = SCRY_FILE_VERSION, .head_size = sizeof(head)};
	struct input in = {data, data + size};
	uint64_t totals[2] = {0};
	size_t len = sizeof(head);
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	must(fd >= 0, "no memory");
	memcpy(file, &head, sizeof(head));
	for (int i = 0; i < 3 && in.at < in.end; i++)
		len += put_chunk(&in, totals, file + len, sizeof(file) - len);
	must(write(fd, file, len) == (ssize_t)len, "write");
	read_fd(fd);
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 5000

/* Some calls, packed: their first chunk's columns as an input. */
static size_t valid_chunk(uint8_t *to)
{
	const struct scry_producer producer = {1, 0, 0};
	struct scry_malloc_pack *p;
	struct scry_malloc_head head;
	struct scry_ev_malloc call = {.function = SCRY_MALLOC_MALLOC, .thread = 1};
	uint8_t payload[16384], planes[16384];
	struct told told = {0};
	struct scry_chunk chunk;
	struct scry_writer *w;
	uint32_t live[64], count = 0, i, block;
	int fd = memfd_create("valid", MFD_CLOEXEC);
	size_t raw;

	must(!scry_writer_open(fd, 0, &w) && !scry_malloc_pack_new(&producer, &p), "open");
	for (i = 0; i < 600; i++) {
		call.function = count && next_random(2) ? SCRY_MALLOC_FREE : SCRY_MALLOC_MALLOC;
		if (count == 64)
			call.function = SCRY_MALLOC_FREE;
		else if (count && !next_random(5))
			call.function = SCRY_MALLOC_REALLOC;
		call.size = call.function == SCRY_MALLOC_FREE ? 0 : 16 * next_random(9);
		call.thread = 1 + !next_random(5);
		call.block = count ? live[count - 1] : 0;
		must(!scry_malloc_pack_add(p, 2000 * i, &call, &block), "add");
		if (call.function == SCRY_MALLOC_FREE)
			count--;
		else if (call.function == SCRY_MALLOC_MALLOC)
			live[count++] = block;
	}
	must(!scry_malloc_pack_write(p, w) && !scry_writer_close(w), "write");
	scry_malloc_pack_free(p);
	must(pread(fd, &chunk, sizeof(chunk), 32) == sizeof(chunk) &&
		     pread(fd, payload, sizeof(payload), 96) >= (ssize_t)chunk.bytes,
	     "pread");
	close(fd);
	memcpy(&head, payload, sizeof(head));
	raw = scry_malloc_raw_bytes(&head);
	told.count = (uint16_t)chunk.count;
	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++)
		told.columns[i] = (uint16_t)head.columns[i];
	memcpy(to, &told, sizeof(told));
	must(raw <= sizeof(planes) &&
		     ZSTD_decompress(planes, raw, payload + sizeof(head), head.packed) == raw,
	     "frame");
	for (i = 0, raw = 0; i < SCRY_MALLOC_COLUMNS; i++) {
		must(scry_malloc_planes_join(planes + raw, head.columns[i],
					     to + sizeof(told) + raw),
		     "planes");
		raw += head.columns[i];
	}
	return sizeof(told) + raw;
}

int main(int argc, char **argv)
{
	static uint8_t valid[65536], bytes[65536];
	size_t len = 0;

	for (int i = 1; i < argc; i++)
		LLVMFuzzerTestOneInput(bytes, load_file(argv[i], bytes, sizeof(bytes), 0));
	if (argc > 1)
		return 0;
	for (int i = 0; i < 2; i++)
		len += valid_chunk(valid + len);
	for (int i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid, len);
		for (uint32_t changes = 1 + next_random(6); changes--;)
			bytes[next_random((uint32_t)len)] ^= (uint8_t)(1u << next_random(8));
		LLVMFuzzerTestOneInput(bytes, next_random(4) ? len : next_random((uint32_t)len));
	}
	printf("1..1\nok 1 - rec_malloc: %d changed chunks read\n", ROUNDS);
	return 0;
}

#endif
