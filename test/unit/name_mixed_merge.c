/* name/mixed_merge on stacks written down by hand: letters for native frames, digits for control
 * frames.
 */
#include "name/mixed_merge.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "vm/ruby_value.h"

#define INTERPRETER 0x1000u
#define MEMORY_AT 0x100000u
#define ENTRY_FLAGS (SCRY_RUBY_T_IMEMO | 6 << 12)

static uint64_t memory[512]; /* method entries and their definitions, at MEMORY_AT */

static int read_memory(const void *image, uint64_t addr, void *buf, size_t size)
{
	if (addr < MEMORY_AT || addr + size > MEMORY_AT + sizeof(memory))
		return -EFAULT;
	memcpy(buf, (const uint8_t *)image + (addr - MEMORY_AT), size);
	return 0;
}

/* The entry of a C method whose function is `function`. */
static uint64_t entry_of(uint64_t function)
{
	uint64_t *entry = &memory[(function >> 8) % 16 * 16];

	entry[0] = ENTRY_FLAGS;
	entry[1] = MEMORY_AT + (uint64_t)((uint8_t *)(entry + 4) - (uint8_t *)memory);
	entry[5] = function;
	return MEMORY_AT + (uint64_t)((uint8_t *)entry - (uint8_t *)memory);
}

/*
 * native, the newest first: 'I' the interpreter, else a function of its own. ruby: 'r' a method's
 * frame, 'f' one with FINISH, 'c' a C method whose function is the native letter that follows it
 * ('-': none of them), 'd' a dummy.
 */
static const char *merged(const char *native, const char *ruby, enum scry_native_end end)
{
	static char text[64];
	static struct scry_native_frame frames[32];
	static struct scry_walk_frame control[32];
	static struct scry_woven out[64];
	const struct scry_ruby r = {
		.mem = {.fd = -1, .image = memory, .image_read = read_memory},
		.layout = {.frame_me = 16,
			   .me_def = 8,
			   .iseq_flags_mask = 0xf01f,
			   .me_flags = ENTRY_FLAGS},
	};
	const struct scry_mixed_merger w = {.ruby = &r, .interpreter = INTERPRETER};
	struct scry_walk walk = {.frames = control};
	struct scry_native_stack stack = {frames, strlen(native), end};
	enum scry_mixed_merge how;
	size_t n, at = 0;

	for (size_t i = 0; native[i]; i++)
		frames[i].function = native[i] == 'I' ? INTERPRETER : (uint64_t)native[i] << 8;
	for (; *ruby; ruby++) {
		struct scry_walk_frame f = {.iseq = 1, .flags = SCRY_FRAME_METHOD << 16 | 1};

		if (*ruby == 'f')
			f.flags |= 0x20;
		if (*ruby == 'd')
			f = (struct scry_walk_frame){.flags = SCRY_FRAME_DUMMY << 16 | 0x21};
		if (*ruby == 'c') {
			f = (struct scry_walk_frame){.flags = SCRY_FRAME_CFUNC << 16 | 1};
			if (*++ruby != '-')
				f.entry = entry_of((uint64_t)*ruby << 8);
		}
		control[walk.count++] = f;
	}
	n = scry_mixed_merge(&w, &walk, &stack, out, &how);
	for (size_t i = 0; i < n; i++)
		text[at++] = out[i].is_native ? native[out[i].at] : (char)('0' + out[i].at);
	text[at] = '\0';
	return how == SCRY_MIXED_MERGE_EXACT ? text : "apart";
}

#define is(native, ruby, end, text) \
	assert_string_equal(merged(native, ruby, SCRY_NATIVE_##end), text)

static void test_parts(void **state)
{
	is("wIvm", "rfd", WHOLE, "w01vm2");
	/* an empty top: it runs Ruby code; and none of it left */
	is("Ivm", "fd", WHOLE, "0vm1");
	/* a block called by C: two activations */
	is("wIyeIvm", "rfcerfd", WHOLE, "w01ye234vm5");
	/* what calls a C method stands below it */
	is("wIyepqIvm", "fcerfd", WHOLE, "w0ye1pq23vm4");
	/* no Ruby at all, and no native frames at all */
	is("wm", "", WHOLE, "wm");
	is("", "fd", NO_RULE, "01");
}

static void test_c_in_c(void **state)
{
	/* a calls b without an interpreter */
	is("wbpaqIm", "cbcafd", WHOLE, "wb0pa1q2m3");
	/* the newer one is not found: it has what is above the older one's function */
	is("wbpaqIm", "c-cafd", WHOLE, "wbp0a1q2m3");
	/* neither is */
	is("wbpaqIm", "c-c-fd", WHOLE, "wbpaq012m3");
	/* the older one is not found */
	is("wbpaqIm", "cbc-fd", WHOLE, "wb0paq12m3");
}

static void test_ends(void **state)
{
	/* older frames are not known: the newer ones fit all the same */
	is("wIyI", "fcyffrd", NO_REGISTER, "w0y12345");
	is("wIye", "fcerfd", NO_RULE, "w0ye1234");
	/* more activations than frames that began one, or fewer of a whole stack: not woven */
	is("wIyIm", "rfd", WHOLE, "apart");
	is("wIyIm", "rfd", NO_RULE, "apart");
	is("wIm", "ffd", WHOLE, "apart");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_c_in_c),
		cmocka_unit_test(test_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
