/* Functions that look at their return address, and others that only come near it. */
#include "sys/own_return.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static bool reads(const char *bytes, size_t size)
{
	return scry_own_return_is_read(&(struct scry_x86_code){
		.bytes = (const uint8_t *)bytes, .address = 0x1000, .size = size, .avail = size});
}
#define READS(bytes) reads(bytes, sizeof(bytes) - 1)

static void those_that_ask(void **state)
{
	(void)state;
	/* mov (%rsp), %rax; ret */
	assert_true(READS("\x48\x8b\x04\x24\xc3"));
	/* push %rbp; mov %rsp, %rbp; mov 8(%rbp), %rax; pop %rbp; ret */
	assert_true(READS("\x55\x48\x89\xe5\x48\x8b\x45\x08\x5d\xc3"));
	/* push %rbx; sub $16, %rsp; mov 24(%rsp), %rdi; add $16, %rsp; pop %rbx; ret */
	assert_true(READS("\x53\x48\x83\xec\x10\x48\x8b\x7c\x24\x18\x48\x83\xc4\x10\x5b\xc3"));
	/* pop %rax; jmp *%rax */
	assert_true(READS("\x58\xff\xe0"));
	/* push %rbx; je 1f; pop %rbx; ret; 1: mov 8(%rsp), %rax; pop %rbx; ret */
	assert_true(READS("\x53\x74\x02\x5b\xc3\x48\x8b\x44\x24\x08\x5b\xc3"));
}

static void those_that_do_not(void **state)
{
	(void)state;
	/* mov 8(%rsp), %rax; ret: an argument */
	assert_false(READS("\x48\x8b\x44\x24\x08\xc3"));
	/* push %rbx; mov (%rsp), %rax; pop %rbx; ret: what was pushed */
	assert_false(READS("\x53\x48\x8b\x04\x24\x5b\xc3"));
	/* call 1f; 1: pop %rax; ret: where it stands */
	assert_false(READS("\xe8\x00\x00\x00\x00\x58\xc3"));
	/* push %rbp; mov %rsp, %rbp; mov 16(%rbp), %rax; leave; ret: an argument */
	assert_false(READS("\x55\x48\x89\xe5\x48\x8b\x45\x10\xc9\xc3"));
	/* ret; mov (%rsp), %rax; ret: nobody knows who comes here */
	assert_false(READS("\xc3\x48\x8b\x04\x24\xc3"));
	/* push %rbp; xor %ebp, %ebp; mov 8(%rbp), %rax; pop %rbp; ret: another register by now */
	assert_false(READS("\x55\x31\xed\x48\x8b\x45\x08\x5d\xc3"));
	/* lea (%rsp), %rax; ret: the stack */
	assert_false(READS("\x48\x8d\x04\x24\xc3"));
	/* mov %fs:(%rsp): no word of the stack */
	assert_false(READS("\x64\x48\x8b\x04\x24\xc3"));
	/* cut, and nothing */
	assert_false(READS("\x48\x8b"));
	assert_false(reads("", 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_that_ask),
		cmocka_unit_test(those_that_do_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
