/* sys/short_jump on assembly of this file, where every byte and distance is known. What
 * trampolines do in real libraries is run by sys_hooked. */
#include "sys/short_jump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

/*
 * spring_entered is entered at +3 by the function before it; 6 bytes of filler lie behind it, and 8
 * behind spring_before. Around them int3 on which nothing may be built: code that goes on into it.
 */
__asm__(".macro fn name\n.globl \\name\n.type \\name,@function\n\\name:\n.cfi_startproc\n.endm\n"
	".macro end name\n.cfi_endproc\n.size \\name,.-\\name\n.endm\n"
	".text\n.skip 256, 0xcc\n" /* out of the reach of other filler */
	"fn spring_before\nxor %eax, %eax\njmp spring_entered + 3\nend spring_before\n"
	".skip 8, 0xcc\n"
	"fn spring_entered\nmov %rdi, %rax\nadd %rsi, %rax\nret\nend spring_entered\n"
	".byte 0x66,0x90,0x0f,0x1f,0x40,0\n"
	"fn spring_second\n1: inc %eax\ndec %ecx\njs 2f\njmp 1b + 1\n2: ret\nend spring_second\n"
	"fn spring_call\ncall *%rax\nret\nend spring_call\n"
	"fn spring_open\nmov %rdi, %rax\n1: inc %rax\njs 1b\nud2\nnop\nend spring_open\n"
	".skip 300, 0xcc\n"
	"fn spring_after\nret\nend spring_after\n"
	".skip 8, 0xcc\n"
	"fn spring_last\nret\nend spring_last\n");

struct opened {
	struct scry_elf *elf;
	struct scry_text *text;
};

static void open_self(struct opened *o)
{
	if (scry_elf_open_path("/proc/self/exe", &o->elf) < 0 ||
	    scry_text_read(o->elf, &o->text) < 0)
		fail_msg("%s", scry_error());
}

static void close_it(struct opened *o)
{
	scry_text_free(o->text);
	scry_elf_close(o->elf);
}

static const struct scry_text_range *range_of(struct opened *o, const char *name)
{
	const struct scry_text_range *range;
	struct scry_sym sym;

	assert_int_equal(scry_elf_symbol(o->elf, name, &sym), 0);
	range = scry_text_at(o->text, sym.value);
	assert_non_null(range);
	assert_int_equal(range->start, sym.value);
	return range;
}

static void test_pads(void **state)
{
	struct scry_short_jump_taken taken[2];
	struct scry_short_jump short_jump;
	struct opened o;

	open_self(&o);
	struct scry_short_jump_request request = {
		.text = o.text, .range = range_of(&o, "spring_entered"), .taken = taken};

	/* Behind the function itself: its 7 bytes and none of the filler. */
	assert_int_equal(scry_short_jump_plan(&request, &short_jump), SCRY_X86_OK);
	assert_int_equal(short_jump.entry, request.range->start);
	assert_int_equal(short_jump.window.bytes, 3);
	assert_int_equal(short_jump.pad, request.range->start + 7);
	assert_memory_equal(short_jump.jump, "\xeb\x05", 2);
	/* One byte of it taken leaves no 5: the filler before it is next. */
	taken[0] = (struct scry_short_jump_taken){short_jump.pad + 2, short_jump.pad + 3};
	request.count = 1;
	assert_int_equal(scry_short_jump_plan(&request, &short_jump), SCRY_X86_OK);
	assert_int_equal(short_jump.pad, request.range->start - 8);
	assert_memory_equal(short_jump.jump, "\xeb\xf6", 2);
	/* Of 8 bytes with the first two taken the pad is the rest. */
	taken[1] = (struct scry_short_jump_taken){short_jump.pad, short_jump.pad + 2};
	request.count = 2;
	assert_int_equal(scry_short_jump_plan(&request, &short_jump), SCRY_X86_OK);
	assert_int_equal(short_jump.pad, request.range->start - 6);
	/* Nothing left within reach: what lies behind spring_open is run into. */
	taken[1].end = request.range->start;
	assert_int_equal(scry_short_jump_plan(&request, &short_jump), SCRY_X86_SHORT);
	close_it(&o);
}

static void test_refusals(void **state)
{
	struct scry_short_jump_taken pad;
	struct scry_short_jump short_jump;
	struct opened o;

	open_self(&o);
	struct scry_short_jump_request request = {
		.text = o.text, .range = range_of(&o, "spring_second"), .taken = &pad};

	assert_int_equal(scry_short_jump_plan(&request, &short_jump),
			 SCRY_X86_SHORT); /* entered at +1 */
	request.range = range_of(&o, "spring_call");
	assert_int_equal(scry_short_jump_plan(&request, &short_jump),
			 SCRY_X86_OK); /* ends the window */
	assert_int_equal(short_jump.window.has & SCRY_X86_CALL, SCRY_X86_CALL);
	/* A lone ret: the short jump takes a byte of the filler, the pad begins behind it. */
	request.range = range_of(&o, "spring_after");
	assert_int_equal(scry_short_jump_plan(&request, &short_jump), SCRY_X86_OK);
	assert_int_equal(short_jump.window.bytes, 2);
	assert_int_equal(short_jump.pad, short_jump.entry + 2);
	assert_memory_equal(short_jump.jump, "\xeb\x00", 2);
	/* Not a byte where the pad of another begins: its jump would be torn. */
	pad = (struct scry_short_jump_taken){short_jump.entry + 1,
					     short_jump.entry + 1 + SCRY_SHORT_JUMP_PAD_BYTES};
	request.count = 1;
	assert_int_equal(scry_short_jump_plan(&request, &short_jump), SCRY_X86_SHORT);
	close_it(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pads),
		cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
