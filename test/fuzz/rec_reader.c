/*
 * Fuzzer of the recording reader, two ways.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: with file names it
 * reads those; without, it changes a valid recording 20,000 times from a fixed seed. Each input is
 * read as it is and once more with its checksums made to hold, else no mutation would get past
 * them.
 */
#include "fuzz.h"

#include "base/err.h"
#include "base/map.h"
#include "rec/check.h"
#include "rec/fields.h"
#include "rec/malloc_pack.h"
#include "rec/reader.h"
#include "rec/writer.h"
#include "view/diff.h"
#include "view/malloc.h"
#include "view/view.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Frames are defined once, after their parents; sites name only frames that are. */
static void must_be_tree(struct scry_map *frames, const struct scry_event *event)
{
	const struct scry_ev_stack *stack = (const void *)(event + 1);
	const struct scry_ev_site *site = (const void *)(event + 1);
	uint64_t known;

	if (event->type == SCRY_EVENT_STACK) {
		must(!stack->parent || scry_map_get(frames, stack->parent, &known), "a parent");
		must(stack->id && !scry_map_get(frames, stack->id, &known), "a frame again");
		must(!scry_map_put(frames, stack->id, 1), "no memory");
	} else if (event->type == SCRY_EVENT_SITE) {
		must(!site->stack || scry_map_get(frames, site->stack, &known), "a stack");
	}
}

static void read_fd(int fd)
{
	struct scry_map frames;
	const struct scry_event *event;
	struct scry_reader_stats stats;
	struct scry_reader *r;
	uint64_t sum = 0;
	size_t i, len;

	if (scry_reader_open(fd, &r)) {
		must(scry_error()[0] != '\0', "a failure without a sentence");
		return;
	}
	scry_map_init(&frames, 1u << 24);
	while (scry_reader_next(r, &event) > 0) {
		must_be_tree(&frames, event);
		must(event->size >= sizeof(*event) && event->size <= SCRY_EVENT_MAX, "size");
		for (i = 0; i < event->size; i++)
			sum += ((const uint8_t *)event)[i];
		if (event->type == SCRY_EVENT_NOTE) {
			const struct scry_ev_note *note = (const void *)(event + 1);
			const char *text = scry_reader_string(r, note->text_str, &len);

			must(!note->text_str || text, "a string id that was not checked");
			must(!text || text[len] == '\0', "a string without its end");
		}
	}
	scry_map_done(&frames);
	scry_reader_stats(r, &stats);
	must(stats.left_out <= stats.file_bytes, "more left out than there is");
	scry_reader_close(r);
	/* Keeps the loop above from being optimized away. */
	__asm__ volatile("" ::"r"(sum));
}

#define SHOWN_OF 2 /* views are slow: one input of so many is shown */

static FILE *sink;

enum form { TEXT, JSON, FOLDED, PICTURE };

static void open_doc(struct scry_doc *doc, const struct scry_view *view, enum form form)
{
	if (!sink)
		sink = fopen("/dev/null", "w");
	must(sink != NULL, "/dev/null");
	*doc = (struct scry_doc){.view = view ? view->name : "fuzz",
				 .is_stream = view && view->is_stream,
				 .out = sink,
				 .talk = sink,
				 .width = form == TEXT ? 60 : 0};
	must(!(form == JSON	 ? scry_out_json_open(doc)
	       : form == FOLDED	 ? scry_out_folded_open(doc)
	       : form == PICTURE ? scry_out_flame_open(doc)
				 : scry_out_text_open(doc)),
	     "a renderer");
}

/* What cmd/report.c lets through. */
static enum form form_of(const struct scry_view *view, unsigned int turn)
{
	bool is_stacks = !strcmp(view->name, "stacks");
	bool can_fold =
		is_stacks || !strcmp(view->name, "objects") || !strcmp(view->name, "malloc");

	switch (turn % 4) {
	case JSON:
		return JSON;
	case FOLDED:
		return can_fold ? FOLDED : TEXT;
	case PICTURE:
		return is_stacks ? PICTURE : JSON;
	default:
		return TEXT;
	}
}

static void fill_opts(struct scry_view_opts *opts, const struct scry_view *view, unsigned int turn)
{
	opts->internal = opts->live = turn % 5 == 0;
	opts->by = opts->stacks ? SCRY_VIEW_BY_LINE : (int)(turn % 5);
	opts->top = turn % 7 ? SCRY_VIEW_TOP_DEFAULT : 1;
	opts->at = turn % 3 == 1 ? "end" : turn % 3 ? "1ms" : NULL;
	if (!strcmp(view->name, "malloc")) { /* what its calls have not is refused */
		opts->internal = opts->live = false;
		if (opts->by == SCRY_VIEW_BY_CLASS || opts->by == SCRY_VIEW_BY_GEM)
			opts->by = SCRY_VIEW_BY_FILE;
	}
	opts->calls.clock = (int)(turn % 4);
	opts->calls.relative = turn % 5 == 1;
	opts->calls.durations = turn % 2;
	opts->calls.indent = turn % 3;
	opts->calls.slow_ns = turn % 11 ? 0 : 5;
	opts->times.cpu = turn % 3 == 1;
	opts->times.gvl = turn % 3 == 2;
}

static void diff_fd(int fd, const struct scry_view_opts *opts, unsigned int turn)
{
	struct scry_diff_side from = {.moment.until_ns = 500 + turn % 3}, to = {0};
	struct scry_doc doc;

	must(!scry_reader_open(fd, &from.reader) && !scry_reader_open(fd, &to.reader), "readers");
	open_doc(&doc, NULL, turn % 2 ? JSON : TEXT);
	must(!scry_moment_find(fd, turn % 2 ? SCRY_MOMENT_END : SCRY_MOMENT_BEGINNING, &to.moment),
	     "a moment");
	must(!scry_view_diff(&from, &to, opts, &doc) && !scry_doc_end(&doc), "the diff");
	scry_reader_close(from.reader);
	scry_reader_close(to.reader);
}

/*
 * A view, and the diff, on the same bytes: they believe the reader, so what it yields must be safe
 * for them. `turn` chooses view, options and form.
 */
static void show_fd(int fd, unsigned int turn)
{
	struct scry_view_opts opts = SCRY_VIEW_OPTS_DEFAULT;
	unsigned int count = 0, way = turn / 16;
	const struct scry_view *view;
	struct scry_reader *reader;
	struct scry_doc doc;
	enum form form;

	while (scry_views[count].name)
		count++;
	view = &scry_views[turn % count];
	form = form_of(view, way);
	if (scry_reader_open(fd, &reader))
		return;
	opts.stacks = way % 3 == 0 || form >= FOLDED;
	fill_opts(&opts, view, way);
	open_doc(&doc, view, form);
	must(!view->run(reader, &opts, &doc) && !scry_doc_end(&doc), view->name);
	scry_reader_close(reader);
	if (turn % 3 == 0)
		diff_fd(fd, &opts, way);
}

/* Makes the checksum of every chunk hold that can be found. */
static void reseal(uint8_t *data, size_t size)
{
	struct scry_chunk chunk;
	size_t at = sizeof(struct scry_file_head);

	while (at + sizeof(chunk) <= size) {
		memcpy(&chunk, data + at, sizeof(chunk));
		if (chunk.bytes > size - at - sizeof(chunk))
			break;
		chunk.check = scry_chunk_check(&chunk, data + at + sizeof(chunk));
		memcpy(data + at, &chunk, sizeof(chunk));
		at += sizeof(chunk) + chunk.bytes;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memory_file(data, size);
	uint8_t *copy = malloc(size + 1);
	uint64_t turn;

	must(copy != NULL, "no memory");
	memcpy(copy, data, size);
	read_fd(fd);
	reseal(copy, size);
	must(pwrite(fd, copy, size, 0) == (ssize_t)size, "pwrite");
	read_fd(fd);
	turn = XXH3_64bits(copy, size);
	if (turn % SHOWN_OF == 0) /* by content: what is found is found again */
		show_fd(fd, (unsigned int)(turn / SHOWN_OF % 65536));
	free(copy);
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 20000

static void put_mallocs(struct scry_writer *w)
{
	const struct scry_producer producer = {1, 0, 5};
	struct scry_ev_malloc call = {.function = SCRY_MALLOC_MALLOC, .thread = 1, .size = 24};
	struct scry_malloc_pack *p;
	uint32_t i, block;

	must(!scry_malloc_pack_new(&producer, &p), "a packer");
	for (i = 0; i < 100; i++) {
		call.function = SCRY_MALLOC_MALLOC;
		call.caller = i % 5;
		must(!scry_malloc_pack_add(p, 500 + i, &call, &block), "a call");
		call.function = i % 3 ? SCRY_MALLOC_FREE : SCRY_MALLOC_REALLOC;
		call.block = block;
		must(!scry_malloc_pack_add(p, 500 + i, &call, &block), "its end");
	}
	must(!scry_malloc_pack_write(p, w), "a chunk");
	scry_malloc_pack_free(p);
}

/* A small recording with every kind of event and packed chunks. */
static size_t valid_recording(uint8_t *ret_bytes, size_t room)
{
	const uint64_t words[] = {1u << 20 | 1, 2u << 20 | 2, 1u << 20};
	struct scry_objects_run run = {{9, 1, 2}, words, 3, 500, 600};
	int fd = memfd_create("valid", MFD_CLOEXEC);
	uint32_t payload[64], id, i;
	struct scry_writer *w;
	uint16_t type;
	ssize_t len;

	must(!scry_writer_open(fd, 0, &w), "open");
	for (i = 0; i < 4; i++)
		scry_writer_string(w, &"/usr/lib/ruby/3.1.0/set.rb"[i], 26 - i, &id);
	for (type = SCRY_EVENT_PROCESS; type <= SCRY_EVENT_SAMPLING; type++) {
		struct scry_event head = {.type = type, .time_ns = type};

		if (!scry_event_kind(type))
			continue;
		for (i = 0; i < 64; i++)
			payload[i] = 1 + i % 2;
		scry_writer_payload(w, &head, payload, sizeof(payload));
		if (type % 5 == 0)
			scry_writer_objects(w, &run);
	}
	put_mallocs(w);
	must(!scry_writer_close(w), "close");
	len = pread(fd, ret_bytes, room, 0);
	must(len > 0 && (size_t)len < room, "pread");
	close(fd);
	return (size_t)len;
}

static size_t mutate(uint8_t *bytes, size_t len)
{
	static const uint32_t edges[] = {
		0, 1, 7, 8, 15, 16, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
	uint32_t changes = 1 + next_random(6);

	while (changes--) {
		size_t at = next_random((uint32_t)len - 4);

		if (next_random(3) == 0)
			bytes[at] ^= (uint8_t)(1u << next_random(8));
		else if (next_random(2))
			bytes[at] = (uint8_t)next_random(256);
		else
			memcpy(bytes + at, &edges[next_random(12)], 1u << next_random(3));
	}
	return next_random(4) ? len : next_random((uint32_t)len + 1);
}

int main(int argc, char **argv)
{
	static uint8_t valid[16384], bytes[16384];
	size_t len;
	int i;

	for (i = 1; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY | O_CLOEXEC);

		must(fd >= 0, argv[i]);
		read_fd(fd);
		close(fd);
	}
	if (argc > 1)
		return 0;
	len = valid_recording(valid, sizeof(valid));
	for (i = 0; i < ROUNDS; i++) {
		memcpy(bytes, valid, len);
		LLVMFuzzerTestOneInput(bytes, mutate(bytes, len));
	}
	printf("1..1\nok 1 - rec_reader: %d changed recordings read\n", ROUNDS);
	return 0;
}

#endif
