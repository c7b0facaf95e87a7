/*
 * Entries of agent/gvl.c: at calls that let a mutex go (CALL hooks), of pthread functions by the
 * VM's slots. What a call may change by the System V ABI (3.2.1) is changed: flags, and general
 * registers but those with the three arguments that these functions have at most.
 *
 * Whoever lets another mutex go than the VM's lock goes on after three instructions.
 */
	.text
	.macro	entry name, mutex, waits
	.globl	\name
	.protected \name
.type	\name, @function
\name:
	endbr64
	cmp	scry_agent_gvl(%rip), \mutex
	je	1f
	ret
1:	push	%rdi
	push	%rsi
	push	%rdx
	.ifnc	\mutex, %rdi
	mov	\mutex, %rdi
	.endif
	mov	$\waits, %esi
	call	scry_gvl_let_go
	pop	%rdx
	pop	%rsi
	pop	%rdi
	ret
	.size	\name, . - \name
	.endm

	entry	scry_agent_gvl_unlock, %rdi, 0
	entry	scry_agent_gvl_wait, %rsi, 1

	.section .note.GNU-stack, "", @progbits
