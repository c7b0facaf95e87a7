/*
 * Fuzzer of vm/ruby_walk, vm/ruby_symbol, vm/ruby_gvl, the lists of threads and what the collector
 * says: the memory of a running Ruby is foreign bytes.
 *
 * With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: with file names it
 * reads those; without, it makes 5,000 memories from a fixed seed, most words of which are
 * addresses within it.
 */
#include "vm/ruby_gvl.h"
#include "vm/ruby_symbol.h"
#include "vm/ruby_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE 0x100000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct image {
	const uint8_t *data;
	size_t size;
};

static int image_read(const void *image, uint64_t addr, void *buf, size_t size)
{
	const struct image *i = image;

	if (addr < BASE || addr - BASE > i->size || size > i->size - (addr - BASE))
		return -1;
	memcpy(buf, i->data + (addr - BASE), size);
	return 0;
}

/* As of one Ruby (3.1): any that is learned will do. */
static void fill_layout(struct scry_ruby_layout *l)
{
	*l = (struct scry_ruby_layout){
		.frame_size = 64,
		.frame_sp = 8,
		.frame_iseq = 16,
		.frame_self = 24,
		.frame_ep = 32,
		.ec_stack_size = 8,
		.ec_cfp = 16,
		.ec_thread = 48,
		.iseq_body = 16,
		.body_encoded = 8,
		.body_size = 4,
		.body_path = 64,
		.body_label = 80,
		.body_first_line = 88,
		.first_line_fixnum = true,
		.body_insns_info = 120,
		.insns_entry_size = 12,
		.insns_count = 16,
		.insns_succ = 24,
		.iseq_flags_mask = 0xf01f,
		.iseq_flags_value = 0x701a,
		.string_noembed = 1 << 13,
		.string_ptr = 24,
		.string_len = 16,
		.string_embed = 16,
		.string_embed_len_mask = 0x1f << 14,
		.string_embed_len_shift = 14,
		.array_embed = 1 << 13,
		.array_embed_ptr = 16,
		.array_ptr = 32,
		.frame_me = 16,
		.me_def = 16,
		.def_id = 32,
		.me_flags = 0x601a,
		.me_owner = 32,
		.def_iseq = 8,
		.leave_word = 0x1234,
		.ids_root = BASE + 8,
		.class_ext = 16,
		.class_super = 8,
		.class_path = 24,
		.class_attached = 32,
		.singleton_flag = 1 << 12,
		.vm_root = BASE + 40,
		.vm_ractors = 8,
		.ractor_node = 24,
		.ractor_threads = 40,
		.th_ec = 16,
		.th_tid = 56,
	};
}

/* Copies whose bounds are any words of the image. */
static void take_copies(struct scry_walk *walk, const struct scry_ruby *ruby,
			const struct image *image)
{
	uint64_t words[6];

	for (size_t at = 0; at + sizeof(words) <= image->size && at < 4096; at += 32) {
		size_t bytes = image->size - at, half = bytes / 2;
		struct scry_walk_copy copy;

		memcpy(words, image->data + at, sizeof(words));
		copy = (struct scry_walk_copy){.ec = words[3],
					       .stack = words[0],
					       .end = words[0] + words[1] % 65536 * 8,
					       .cfp = words[2],
					       .bottom = words[0],
					       .top = words[0] + words[4] % (half + 1),
					       .frames = image->data + at,
					       .values = image->data + at + half,
					       .frames_size = words[5] % (half + 1)};
		if (scry_walk_take(walk, ruby, &copy) == SCRY_WALK_VALID &&
		    (!walk->count || walk->count > SCRY_WALK_FRAMES_MAX ||
		     scry_walk_alive(walk, ruby) > walk->count))
			abort();
	}
}

/* The rings of ractors and threads, from the VM's word on; and the heap's bytes. */
static void list(const struct scry_ruby *ruby)
{
	const struct scry_ruby_gc gc = {.is_known = true,
					.has_epochs = true,
					.objspace = 32,
					.count = 24,
					.size = 32,
					.during = {3, 0x20},
					.marking = {4, 8}};
	uint64_t heap = scry_ruby_gc_heap(ruby, &gc);
	struct scry_ruby_thread *threads = NULL;
	uint8_t bytes[32];
	ssize_t count = scry_ruby_threads(ruby, &threads);

	if (count > 65536)
		abort();
	free(threads);
	if (heap && !scry_mem_read(&ruby->mem, heap, bytes, sizeof(bytes)) &&
	    scry_ruby_gc_say(&gc, bytes).epoch > scry_ruby_gc_say(&gc, bytes).count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	const struct image image = {data, size};
	static struct scry_ruby ruby;
	struct scry_ruby_thread threads[4];
	struct scry_walk_hint hint = {0};
	struct scry_symbols symbols;
	struct scry_walk walk;
	bool waits[4];

	fill_layout(&ruby.layout);
	ruby.mem = (struct scry_mem){.fd = -1, .image = &image, .image_read = image_read};
	if (scry_walk_init(&walk) || scry_symbols_init(&symbols))
		abort();
	for (uint64_t i = 0; i < 4; i++) {
		threads[i] = (struct scry_ruby_thread){
			.th = BASE + 64 * i, .ec = BASE + 64 * i, .ractor = BASE};
		for (int again = 0; again < 2; again++) {
			enum scry_walk_verdict verdict =
				scry_walk_collect(&walk, &ruby, &threads[i], &hint);

			if (walk.count > SCRY_WALK_FRAMES_MAX ||
			    (verdict <= SCRY_WALK_REPAIRED) != (walk.count > 0))
				abort();
			scry_symbols_turn(&symbols);
			if (verdict <= SCRY_WALK_REPAIRED &&
			    scry_symbols_name(&symbols, &ruby, &walk, named) > walk.count)
				abort();
		}
	}
	take_copies(&walk, &ruby, &image);
	list(&ruby);
	scry_ruby_gvl_waiters(&ruby, threads, 4, waits);
	scry_symbols_done(&symbols);
	scry_walk_done(&walk);
	return 0;
}

#ifndef SCRY_LIBFUZZER

static uint64_t seed = 88172645463325252ull;

static uint64_t random_number(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* A VM with rings of ractors and of their threads, most of them closed. */
static void make_rings(uint64_t *words, size_t count)
{
	const uint64_t vm = count - 64, nodes = 1 + random_number() % 3;

	words[5] = BASE + 8 * vm;
	for (uint64_t ring = 0; ring < 2; ring++) {
		uint64_t head = vm + (ring ? 8 + 5 : 1),
			 at = head; /* the VM's; the first ractor's */

		for (uint64_t i = 0; i < nodes; i++) {
			uint64_t next = vm + 8 + 16 * i + (ring ? 11 : 3);

			words[at] = BASE + 8 * next;
			words[next + 1] = BASE + 8 * at;
			at = next;
		}
		words[at] = BASE + 8 * head;
		words[head + 1] = BASE + 8 * at;
	}
	if (random_number() % 2)
		words[vm + random_number() % 64] = BASE + random_number() % count * 8;
}

static void make(uint64_t *words, size_t count)
{
	static const uint64_t kinds[] = {0x701a,     0x601a,	 0x201a, 0x5,	     0x2005,
					 0x7,	     0x2,	 0x1c,	 0x11110003, 0x22220001,
					 0x55550083, 0x79990003, 0,	 4};

	for (size_t i = 0; i < count; i++)
		words[i] = random_number() % 4 ? BASE + random_number() % count * 8
					       : kinds[random_number() % 14];
	for (size_t i = 0; i < 4; i++) { /* threads whose stacks may hold */
		words[i * 8] = BASE + 64 * (4 + random_number() % 8);
		words[i * 8 + 1] = 8 * (8 + random_number() % (count / 16));
		words[i * 8 + 2] =
			words[i * 8] + 8 * words[i * 8 + 1] - 64 * (1 + random_number() % 24);
		words[i * 8 + 6] = BASE + 64 * i;
	}
	make_rings(words, count);
}

#define IMAGES 5000

int main(int argc, char **argv)
{
	static uint64_t words[4096];

	for (int i = 1; i < argc; i++) {
		FILE *file = fopen(argv[i], "re");
		size_t size = file ? fread(words, 1, sizeof(words), file) : 0;

		if (file)
			fclose(file);
		LLVMFuzzerTestOneInput((const uint8_t *)words, size);
	}
	for (int i = 0; i < IMAGES && argc < 2; i++) {
		size_t count = 512 + random_number() % 3584;

		make(words, count);
		LLVMFuzzerTestOneInput((const uint8_t *)words, count * 8);
	}
	if (argc < 2)
		printf("1..1\nok 1 - ruby_walk: %d images of threads walked\n", IMAGES);
	return 0;
}
#endif
