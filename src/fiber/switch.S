/*
 * The switch. A fiber that does not run has what it keeps on its stack (drawn in fiber.h); to switch is to put that there, to
 * exchange the stack pointers, and to take the same from the other stack.
 *
 * The unwind information is true at each instruction: both stacks look alike at the moment of the exchange, so what holds
 * before it holds after it, of another stack. The way out is an indirect jump: a return would miss its prediction each time.
 */
#include "fiber/state.h"

	.text

.macro save reg
	push \reg
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset \reg, 0
.endm

.macro restore reg
	pop \reg
	.cfi_adjust_cfa_offset -8
	.cfi_restore \reg
.endm

/* From: the return address is on the stack. %rdx: this fiber, %rdi: the other, %rax: TLS offset of the current one. */
.macro exchange keeps_fp, clears_busy
	save %rbp
	save %rbx
	save %r12
	save %r13
	save %r14
	save %r15
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	.if \keeps_fp
	stmxcsr (%rsp)
	fnstcw 4(%rsp)
	.endif
	mov %rsp, SCRY_FIBER_SP(%rdx)
	mov %rdi, %fs:(%rax)
	mov SCRY_FIBER_SP(%rdi), %rsp
	arrive \keeps_fp, \clears_busy
.endm

/* On the other stack, with what it keeps on it. */
.macro arrive keeps_fp, clears_busy
	.if \keeps_fp
	ldmxcsr (%rsp)
	fldcw 4(%rsp)
	.endif
	.if \clears_busy
	mov SCRY_FIBER_SCHED(%rdi), %rcx
	movl $0, SCRY_SCHED_BUSY(%rcx)
	.endif
	add $8, %rsp
	.cfi_adjust_cfa_offset -8
	restore %r15
	restore %r14
	restore %r13
	restore %r12
	restore %rbx
	restore %rbp
	pop %rcx
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip, %rcx
	xor %eax, %eax
	jmp *%rcx
.endm

/* The exceptions that are being handled: two words of the C++ library, for each fiber its own. */
.macro exchange_exceptions sched
	mov SCRY_SCHED_CXA(\sched), %rcx
	movdqu (%rcx), %xmm0
	movdqu %xmm0, SCRY_FIBER_CXA(%rdx)
	movdqu SCRY_FIBER_CXA(%rdi), %xmm0
	movdqu %xmm0, (%rcx)
.endm

/* int scry_fiber_transfer(struct scry_fiber *to) */
	.globl scry_fiber_transfer
	.type scry_fiber_transfer, @function
	.p2align 6
scry_fiber_transfer:
	.cfi_startproc
	mov scry_fiber_current@gottpoff(%rip), %rax
	mov %fs:(%rax), %rdx
	mov SCRY_FIBER_STATE(%rdx), %ecx
	cmp SCRY_FIBER_STATE(%rdi), %ecx
	jne 3f
	test $((SCRY_KEEP_CXA | SCRY_KEEP_NOTIFIED) >> 8), %ch
	jnz 2f
	test $(SCRY_KEEP_FP >> 8), %ch
	jz 1f
	.cfi_remember_state
	exchange 1, 0
	.cfi_restore_state
1:	.cfi_remember_state
	exchange 0, 0
	.cfi_restore_state
2:	test $(SCRY_KEEP_NOTIFIED >> 8), %ch
	jnz 3f
	mov SCRY_FIBER_SCHED(%rdi), %r8
	test $(SCRY_KEEP_FP >> 8), %ch
	jz 4f
	.cfi_remember_state
	exchange_exceptions %r8
	exchange 1, 0
	.cfi_restore_state
4:	.cfi_remember_state
	exchange_exceptions %r8
	exchange 0, 0
	.cfi_restore_state
3:	jmp scry_fiber_transfer_slow
	.cfi_endproc
	.size scry_fiber_transfer, . - scry_fiber_transfer

/* Of a call (from, to): what `exchange` takes, and the exceptions exchanged where they are kept. */
.macro begin
	mov scry_fiber_current@gottpoff(%rip), %rax
	mov %rdi, %rdx
	mov %rsi, %rdi
	testl $SCRY_KEEP_CXA, SCRY_FIBER_STATE(%rdi)
	jz 1f
	mov SCRY_FIBER_SCHED(%rdi), %rcx
	exchange_exceptions %rcx
1:
.endm

/* void scry_fiber_switch(struct scry_fiber *from, struct scry_fiber *to) */
	.globl scry_fiber_switch
	.hidden scry_fiber_switch
	.type scry_fiber_switch, @function
	.p2align 6
scry_fiber_switch:
	.cfi_startproc
	begin
	testl $SCRY_KEEP_FP, SCRY_FIBER_STATE(%rdi)
	jz 2f
	.cfi_remember_state
	exchange 1, 1
	.cfi_restore_state
2:	exchange 0, 1
	.cfi_endproc
	.size scry_fiber_switch, . - scry_fiber_switch

/* void scry_fiber_leave(struct scry_fiber *from, struct scry_fiber *to): `from` has ended, and keeps nothing */
	.globl scry_fiber_leave
	.hidden scry_fiber_leave
	.type scry_fiber_leave, @function
	.p2align 6
scry_fiber_leave:
	.cfi_startproc
	begin
	mov %rdi, %fs:(%rax)
	testl $SCRY_KEEP_FP, SCRY_FIBER_STATE(%rdi)
	mov SCRY_FIBER_SP(%rdi), %rsp
	.cfi_def_cfa_offset 64
	.cfi_offset %rbp, -16
	.cfi_offset %rbx, -24
	.cfi_offset %r12, -32
	.cfi_offset %r13, -40
	.cfi_offset %r14, -48
	.cfi_offset %r15, -56
	jz 2f
	.cfi_remember_state
	arrive 1, 1
	.cfi_restore_state
2:	arrive 0, 1
	.cfi_endproc
	.size scry_fiber_leave, . - scry_fiber_leave

/*
 * Where a new fiber goes on: its stack ends here, for all that walk it. The instruction before
 * belongs to it, as a walker looks for the caller one byte before where a waiting fiber goes on.
 */
	.globl scry_fiber_begin
	.hidden scry_fiber_begin
	.type scry_fiber_begin, @function
	.p2align 4
	.cfi_startproc
	.cfi_undefined %rip
	nop
scry_fiber_begin:
	mov %r12, %rdi
	call scry_fiber_main
	ud2
	.cfi_endproc
	.size scry_fiber_begin, . - scry_fiber_begin

	.section .note.GNU-stack, "", @progbits
