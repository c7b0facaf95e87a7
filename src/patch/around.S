/*
 * What SCRY_AROUND of scry/patch.h puts in a function's place: its handler is called, with the same
 * arguments in registers, and all other registers that a call may change are put back behind it,
 * but for the control and status words of SSE and x87, which belong to no call. A
 * template, as patch/before.S: the words are filled in, the copy of the function's first
 * instructions follows, which the handler may call.
 */
#include "patch/vectors.h"

#define MXCSR 24 /* in an xsave area (Intel's manual, volume 1, 13.4.1) */

	.section .rodata
	.balign 16
	.globl scry_around, scry_around_words, scry_around_end
	.hidden scry_around, scry_around_words, scry_around_end
scry_around:
	push %rbp
	mov %rsp, %rbp
	push %rbx
	push %rcx
	push %rdx
	push %rsi
	push %rdi
	push %r8
	push %r9
	push %r10
	push %r11
	mov %rax, %rbx			/* of a function with `...`: how many vectors */
	save_vectors
	mov -24(%rbp), %rdx
	mov %rbx, %rax
	call *1f(%rip)
	cmpq $0, 4f(%rip)		/* a function without a result leaves rax, too */
	cmovne %rax, %rbx
	stmxcsr MXCSR(%rsp)		/* rounding, exceptions seen: as the function left them */
	load_vectors
	mov %rbx, %rax
	lea -72(%rbp), %rsp
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rdx
	pop %rcx
	pop %rbx
	pop %rbp
	ret
	.balign 8, 0xcc
scry_around_words:
1:	.quad 0				/* the handler */
2:	.quad 0				/* what of the state is saved, without the x87 unit */
3:	.quad 0				/* bytes for it */
4:	.quad 0				/* 1: rax is the result */
scry_around_end:
	.section .note.GNU-stack, "", @progbits
