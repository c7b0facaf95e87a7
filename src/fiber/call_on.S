/*
 * void scry_stack_call_on(void *top, void (*function)(void *), void *argument)
 *
 * Calls a function on another stack, as the signal stack of the program may be small. %rbp holds the frame together, so
 * that both stacks can be walked.
 */
	.text
	.globl scry_stack_call_on
	.hidden scry_stack_call_on
	.type scry_stack_call_on, @function
	.p2align 4
scry_stack_call_on:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov %rdi, %rsp
	mov %rdx, %rdi
	call *%rsi
	mov %rbp, %rsp
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size scry_stack_call_on, . - scry_stack_call_on

	.section .note.GNU-stack, "", @progbits
