/*
 * Fuzzer of the words that an agent writes while objects are watched (wire/ruby_ring.h). Whatever
 * they say, no counter of a recording may say that more objects ended than were made, and each
 * object that was made is in one row, or damaged.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main that makes up 4,000
 * inputs from a fixed seed.
 */
#include "fuzz.h"

#include "name/objects.h"
#include "rec/reader.h"
#include "wire/event.h"
#include "wire/file.h"
#include "wire/payload.h"
#include "wire/ruby_ring.h"

#include <string.h>

#define WORDS 96u

static void check(int fd, const struct scry_objects_totals *totals)
{
	const struct scry_event *event;
	struct scry_reader *r;
	uint64_t made = 0;

	must(scry_reader_open(fd, &r) == 0, "a recording that cannot be opened");
	while (scry_reader_next(r, &event) > 0) {
		const struct scry_ev_objects *o = (const void *)(event + 1);

		if (event->type != SCRY_EVENT_OBJECTS)
			continue;
		must(o->freed + o->unfollowed <= o->allocated, "more ended than were made");
		made += o->allocated;
	}
	must(made <= totals->allocs && made + totals->damaged >= totals->allocs,
	     "objects that are in no row, or in two");
	scry_reader_close(r);
}

/* A code that means something, mostly: few slots, ends of each kind, escapes of each kind. */
static uint64_t shaped(uint64_t word)
{
	const uint32_t pick = word >> 60;
	uint64_t at = (word >> 32 & 15) * 40 + 0x7f0000000000ull;
	uint32_t code = 1 + (word & 3);

	if (pick < 4)
		code = SCRY_RING_FREED + (word & 3) * SCRY_RING_CLASS + (word >> 2 & 3);
	else if (pick == 4)
		code = word & SCRY_OBJ_CODE_MASK;
	else if (pick < 8)
		return SCRY_RING_ESCAPE_WORD(1 + (word & 7), word >> 3 & 15) | word << 48;
	return at >> 3 << 20 | code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t next_site = 1;
	const struct scry_objects_setup setup = {.limit_bytes = 1 << 20, .next_site = &next_site};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	size_t count = size / 8 < WORDS ? size / 8 : WORDS;
	struct scry_objects *o = scry_objects_new(&setup);
	struct scry_objects_totals totals;
	uint64_t words[WORDS];
	struct scry_writer *w;

	must(o && fd >= 0 && scry_writer_open(fd, 0, &w) == 0, "no recording");
	/* four places, of which two are of objects that are hidden when they are made */
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t def[1 + sizeof(struct scry_ring_def) / 8 + 1] = {
			SCRY_RING_ESCAPE_WORD(SCRY_RING_DEF, sizeof(struct scry_ring_def) / 8 + 1)};
		struct scry_ring_def d = {.slot = (uint32_t)i + 1,
					  .klass = i & 1 ? 0x7f0000001000ull : 0,
					  .flags = i & 2 ? 5 : 7,
					  .class_size = i & 1 ? 3 : 0};

		memcpy(def + 1, &d, sizeof(d));
		memcpy(def + 1 + sizeof(d) / 8, "Foo", 3);
		scry_objects_feed(o, def, sizeof(def) / 8);
	}
	memcpy(words, data, count * 8);
	for (size_t i = 0; i < count; i++)
		words[i] = size % 4 ? shaped(words[i]) : words[i];
	scry_objects_feed(o, words, count / 2);
	scry_objects_measure(o, true);
	must(scry_objects_write(o, w, 1, 1) == 0, "no slice");
	scry_objects_feed(o, words + count / 2, count - count / 2);
	scry_objects_measure(o, true);
	scry_objects_totals(o, &totals);
	must(scry_writer_close(w) == 0, "no end");
	must(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "no file");
	must(scry_writer_open(fd, 0, &w) == 0 && scry_objects_write(o, w, 1, 0) == 0 &&
		     scry_writer_close(w) == 0,
	     "no counters");
	scry_objects_free(o);
	check(fd, &totals);
	close(fd);
	return 0;
}

#ifndef SCRY_LIBFUZZER
#define ROUNDS 4000

/* Codes behind those of the last kind of class end nothing. */
static void of_no_kind(void)
{
	uint32_t next_site = 1;
	const struct scry_objects_setup setup = {.limit_bytes = 1 << 20, .next_site = &next_site};
	const uint64_t end = SCRY_RING_FREED + SCRY_RING_CLASSES * SCRY_RING_CLASS;
	struct scry_objects *o = scry_objects_new(&setup);
	struct scry_objects_totals totals;

	must(o != NULL, "no memory");
	scry_objects_feed(o, (const uint64_t[]){end, SCRY_RING_ESCAPE - 1, end - 1}, 3);
	scry_objects_totals(o, &totals);
	must(totals.frees == 1 && totals.frees_older == 1 && totals.damaged == 2, "no kind");
	scry_objects_free(o);
}

int main(void)
{
	uint8_t data[WORDS * 8 + 8];

	of_no_kind();
	for (int n = 0; n < ROUNDS; n++) {
		size_t size = next_random(sizeof(data));

		for (size_t i = 0; i < size; i++)
			data[i] = (uint8_t)next_random(256);
		LLVMFuzzerTestOneInput(data, size);
	}
	printf("1..1\nok 1 - object_ring: %d inputs\n", ROUNDS);
	return 0;
}
#endif
