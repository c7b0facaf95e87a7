/*
 * For patch/before.S, around.S and wrap.S (assembly only): what is saved on the stack around a call
 * of a handler. A call: a struct scry_patch_call of scry/patch.h, behind the 128 bytes that code
 * which is entered by jumps may use below the stack pointer. The state of the vector units: label 2
 * is which of it is saved, 3 is how many bytes that takes; rax and rdx are lost.
 */
#ifndef SCRY_PATCH_VECTORS_H
#define SCRY_PATCH_VECTORS_H

/* clang-format off */

	.macro save_call
	lea -128(%rsp), %rsp
	pushfq
	push %r15
	push %r14
	push %r13
	push %r12
	push %rbp
	push %rbx
	push %r11
	push %r10
	push %rax
	push %r9
	push %r8
	push %rcx
	push %rdx
	push %rsi
	push %rdi
	.endm

	.macro load_call
	pop %rdi
	pop %rsi
	pop %rdx
	pop %rcx
	pop %r8
	pop %r9
	pop %rax
	pop %r10
	pop %r11
	pop %rbx
	pop %rbp
	pop %r12
	pop %r13
	pop %r14
	pop %r15
	popfq
	lea 128(%rsp), %rsp
	.endm

	.macro save_vectors
	sub 3f(%rip), %rsp
	and $-64, %rsp
	xor %eax, %eax			/* the head of an xsave area must be 0 */
	mov %rax, 512(%rsp)
	mov %rax, 520(%rsp)
	mov %rax, 528(%rsp)
	mov %rax, 536(%rsp)
	mov %rax, 544(%rsp)
	mov %rax, 552(%rsp)
	mov %rax, 560(%rsp)
	mov %rax, 568(%rsp)
	mov 2f(%rip), %eax
	mov 2f + 4(%rip), %edx
	xsave (%rsp)
	.endm

	.macro load_vectors
	mov 2f(%rip), %eax
	mov 2f + 4(%rip), %edx
	xrstor (%rsp)
	.endm

#endif
