/* Functions that are entered behind their first instruction, where a jump at their entry would lie,
 * in ways that only a careful look at the code finds. Built at a fixed address and anywhere, its
 * constants in a segment of their own and in that of the code (meson.build).
 *
 *   jumps [SECONDS]   goes through all of them for so long, then "N rounds right", or "wrong: NAME"
 *
 * Each adds up the numbers from n down to 0, by two or more jumps to NAME_in. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The common body: sum in eax, n in edi; `how` jumps to NAME_in. */
#define JUMPS(name, how, after)                                                                \
	__asm__(".text\n.p2align 4\n.globl jumps_" #name "\n.type jumps_" #name                \
		",@function\njumps_" #name ":\n.cfi_startproc\nxor %eax,%eax\n" #name "_in:\n" \
		"add %edi,%eax\ndec %edi\njs " #name "_out\n" how "\n" #name "_out: ret\n"     \
		".cfi_endproc\n.size jumps_" #name ",.-jumps_" #name "\n" after "\n.text\n");  \
	long jumps_##name(long n)

/* A table of differences from another label than the table's. */
JUMPS(difference,
      "lea difference_out(%rip),%rdx\nmovslq difference_table(%rip),%rcx\nadd %rdx,%rcx\njmp *%rcx",
      ".section .rodata\ndifference_table: .long difference_in - difference_out");

/* The same from the function's own beginning, by a word of data. */
JUMPS(saved,
      "lea jumps_saved(%rip),%rdx\nmovslq saved_table(%rip),%rcx\nadd %rdx,%rcx\n"
      "mov %rcx,saved_word(%rip)\njmp *saved_word(%rip)",
      ".section .rodata\nsaved_table: .long saved_in - jumps_saved\n"
      ".local saved_word\n.comm saved_word,8,8");

/* A switch's table: in .rodata, which may be in the code's segment. */
JUMPS(switch, "lea switch_table(%rip),%rdx\nmovslq (%rdx),%rcx\nadd %rdx,%rcx\njmp *%rcx",
      ".section .rodata\n.p2align 2\nswitch_table: .long switch_in - switch_table");

/* And between two functions. */
JUMPS(between, "lea between_table(%rip),%rdx\nmovslq (%rdx),%rcx\nadd %rdx,%rcx\njmp *%rcx",
      ".p2align 4\nbetween_table: .long between_in - between_table, 0x7f7f7f7f");

/* Code without unwind rules, behind a constant that is no code. */
JUMPS(outside, "xor %ecx,%ecx\njmp outside_code",
      ".p2align 4\n.quad 0x0606060606060606, 0x0706050403020100\noutside_code: jmp outside_in");

/* Behind one that looks like code, and swallows the branch behind it. */
JUMPS(swallowed, "xor %ecx,%ecx\njmp swallowed_code",
      ".p2align 4\n.byte 0x90, 0x48, 0xb8, 1, 2, 3, 4\nswallowed_code: jmp "
      "swallowed_in\nret\nret\nret");

/* The same within a range of the unwind table. */
JUMPS(within,
      "jmp within_code\n.byte 6, 0x48, 0xb8, 1, 2, 3, 4\nwithin_code: jmp within_in\nnop\nnop", "");

/* In a section of its own, behind the last function. */
JUMPS(outer, "jmp outer_code",
      ".section .outer,\"ax\",@progbits\n.p2align 4\n.quad 0x0606060606060606\n"
      "outer_code: jmp outer_in\n.quad 0");

/* A second entry that is exported and has no type; what leads there, nobody could see. */
JUMPS(untyped,
      "lea untyped_table(%rip),%rdx\nmovslq (%rdx),%rcx\nlea 4096(%rdx,%rcx),%rcx\njmp *%rcx",
      ".globl jumps_untyped_way\n.set jumps_untyped_way,untyped_in\n"
      ".section .rodata\nuntyped_table: .long untyped_in - untyped_table - 4096");

#ifdef __PIE__
#define ANYWHERE ".section .data.rel.ro,\"aw\"\n"
#else
#define ANYWHERE ".section .rodata\n"
/* Absolute addresses in instructions. */
JUMPS(displaced, "mov $1,%ecx\nlea displaced_in-1(%rcx),%rcx\njmp *%rcx", "");
JUMPS(immediate, "movabs $immediate_in,%rcx\njmp *%rcx", "");
#endif

/* A table of addresses, in .rodata where they are known. */
JUMPS(words, "mov words_table(%rip),%rcx\njmp *%rcx",
      ANYWHERE ".p2align 3\nwords_table: .quad words_in");

long jumps_labels(const unsigned char *p);

/* What a compiler makes of differences: an interpreter that is entered behind its first bytes. */
__attribute__((noinline)) long jumps_labels(const unsigned char *p)
{
	static const int way[] = {&&inc - &&ret, &&add - &&ret, &&ret - &&ret, &&mul - &&ret};
	long n = 0;

inc:
	n++;
	goto *(&&ret + way[*p++]);
add:
	n += 7;
	goto *(&&ret + way[*p++]);
mul:
	n *= 3;
	goto *(&&ret + way[*p++]);
ret:
	return n;
}

static const struct {
	const char *name;
	long (*call)(long n);
} rows[] = {
	{"difference", jumps_difference}, {"saved", jumps_saved},
	{"switch", jumps_switch},	  {"between", jumps_between},
	{"outside", jumps_outside},	  {"swallowed", jumps_swallowed},
	{"within", jumps_within},	  {"outer", jumps_outer},
	{"untyped", jumps_untyped},	  {"words", jumps_words},
#ifndef __PIE__
	{"displaced", jumps_displaced},	  {"immediate", jumps_immediate},
#endif
};

int main(int argc, char **argv)
{
	static const unsigned char program[] = {0, 1, 3, 0, 1, 0, 0, 2};
	time_t end = time(NULL) + (argc > 1 ? atol(argv[1]) : 0);
	unsigned long rounds = 0;

	puts("ready");
	fflush(stdout);
	do {
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
			for (long n = 0; n < 100; n++)
				if (rows[i].call(n) != n * (n + 1) / 2) {
					printf("wrong: %s\n", rows[i].name);
					return 1;
				}
		if (jumps_labels(program) != 37) {
			printf("wrong: labels\n");
			return 1;
		}
		rounds++;
	} while (time(NULL) < end);
	printf("%lu rounds right\n", rounds);
	return 0;
}
