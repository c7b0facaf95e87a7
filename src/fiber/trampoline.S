/*
 * Where a fiber goes on that a tick took off the processor. The signal handler has returned by then, on its own stack; it left
 *
 *     | where the fiber was | 128 bytes: the red zone | the stack as the fiber had it
 *     ^ rsp
 *
 * Everything the fiber can see is saved: flags, all general registers, and what XSAVE saves. Protection keys are not: they
 * are the thread's.
 */
#define RED_ZONE 128
#define PUSHED (8 * 16) /* flags and fifteen registers */
#define PKRU_OFF 0xfffffdff

	.text

.macro keep reg, slot
	push \reg
	.cfi_adjust_cfa_offset 8
	.cfi_offset \reg, -(RED_ZONE + 8 + 8 * \slot)
.endm

	.globl scry_preempt_trampoline
	.hidden scry_preempt_trampoline
	.type scry_preempt_trampoline, @function
	.p2align 4
scry_preempt_trampoline:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa %rsp, RED_ZONE + 8
	.cfi_offset %rip, -(RED_ZONE + 8)
	pushfq
	.cfi_adjust_cfa_offset 8
	cld
	keep %rax, 2
	keep %rcx, 3
	keep %rdx, 4
	keep %rbx, 5
	keep %rsi, 6
	keep %rdi, 7
	keep %r8, 8
	keep %r9, 9
	keep %r10, 10
	keep %r11, 11
	keep %r12, 12
	keep %r13, 13
	keep %r14, 14
	keep %r15, 15
	keep %rbp, 16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	sub scry_preempt_xsave_bytes(%rip), %rsp
	and $-64, %rsp
	/* the header of the area: what XSAVEC does not write has to be zero for XRSTOR (SDM volume 1, 13.4.2) */
	xor %eax, %eax
	lea 512(%rsp), %rdi
	mov $8, %ecx
	rep stosq
	mov $PKRU_OFF, %eax
	mov $-1, %edx
	cmpl $0, scry_preempt_has_xsavec(%rip)
	je 1f
	xsavec64 (%rsp)
	jmp 2f
1:	xsave64 (%rsp)
	/* others find the x87 stack empty, as at any call (psABI 3.2.1): else theirs overflows */
2:	fnstcw -8(%rsp)
	fninit
	fldcw -8(%rsp)
	call scry_preempt_leave
	mov $PKRU_OFF, %eax
	mov $-1, %edx
	xrstor64 (%rsp)
	mov %rbp, %rsp
	.cfi_def_cfa_register %rsp
	.cfi_remember_state
	pop %rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	pop %r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r15
	pop %r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r14
	pop %r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r13
	pop %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	pop %r11
	.cfi_adjust_cfa_offset -8
	pop %r10
	.cfi_adjust_cfa_offset -8
	pop %r9
	.cfi_adjust_cfa_offset -8
	pop %r8
	.cfi_adjust_cfa_offset -8
	pop %rdi
	.cfi_adjust_cfa_offset -8
	pop %rsi
	.cfi_adjust_cfa_offset -8
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	pop %rdx
	.cfi_adjust_cfa_offset -8
	pop %rcx
	.cfi_adjust_cfa_offset -8
	pop %rax
	.cfi_adjust_cfa_offset -8
	popfq
	.cfi_adjust_cfa_offset -8
	ret $RED_ZONE
	.cfi_endproc
	.size scry_preempt_trampoline, . - scry_preempt_trampoline

	.section .note.GNU-stack, "", @progbits
