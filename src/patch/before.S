/*
 * What SCRY_BEFORE of scry/patch.h puts before a function: its handler is called with all registers
 * saved, those of vectors too, and they are put back. A template: words are filled in for each
 * function (patch/before.h), and the copy of the function's first instructions follows.
 *
 * The struct scry_patch_call is what is pushed; behind it the 128 bytes that code which is entered by
 * jumps may use below the stack pointer.
 */
#include "patch/vectors.h"

	.section .rodata
	.balign 16
	.globl scry_before, scry_before_words, scry_before_end
	.hidden scry_before, scry_before_words, scry_before_end
scry_before:
	save_call
	mov %rsp, %rbx
	cld
	save_vectors
	mov %rbx, %rdi
	call *1f(%rip)
	load_vectors
	mov %rbx, %rsp
	load_call
	jmp scry_before_end
	.balign 8, 0xcc
scry_before_words:
1:	.quad 0				/* the handler */
2:	.quad 0				/* what of the state is saved */
3:	.quad 0				/* bytes for it */
scry_before_end:
	.section .note.GNU-stack, "", @progbits
