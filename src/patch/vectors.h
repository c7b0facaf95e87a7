/*
 * For patch/before.S and around.S (assembly only): the state of the vector units, on the stack
 * around a call of a handler. Label 2 is which of it is saved, 3 is how many bytes that takes; rax
 * and rdx are lost.
 */
#ifndef SCRY_PATCH_VECTORS_H
#define SCRY_PATCH_VECTORS_H

/* clang-format off */

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
