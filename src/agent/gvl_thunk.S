/*
 * Entries of agent/gvl.c: at calls that let a mutex go (CALL hooks), of pthread functions by the
 * VM's slots. What a call may change by the System V ABI (3.2.1) is changed: flags, and general
 * registers but those with the three arguments that these functions have at most.
 *
 * Whoever lets another mutex go than a VM's lock goes on after seventeen instructions: it is not the
 * first ractor's, nor in its set of those that may be other ractors' (agent/gvl.h).
 */
	.text
	.macro	entry name, mutex, low, waits
	.globl	\name
	.protected \name
.type	\name, @function
\name:
	endbr64
	cmp	scry_agent_gvl(%rip), \mutex
	je	1f
	imul	$0x9e3779b1, \low, %eax
	shr	$27, %eax
	shl	$5, %eax
	lea	scry_agent_gvl + 192(%rip), %rcx
	add	%rax, %rcx
	cmp	(%rcx), \mutex
	je	2f
	cmp	8(%rcx), \mutex
	je	2f
	cmp	16(%rcx), \mutex
	je	2f
	cmp	24(%rcx), \mutex
	je	2f
	ret
1:	push	%rdi
	push	%rsi
	push	%rdx
	.ifnc	\mutex, %rdi
	mov	\mutex, %rdi
	.endif
	mov	$\waits, %esi
	call	scry_gvl_let_go
3:	pop	%rdx
	pop	%rsi
	pop	%rdi
	ret
2:	push	%rdi
	push	%rsi
	push	%rdx
	.ifnc	\mutex, %rdi
	mov	\mutex, %rdi
	.endif
	mov	$\waits, %esi
	call	scry_gvl_let_go_other
	jmp	3b
	.size	\name, . - \name
	.endm

	entry	scry_agent_gvl_unlock, %rdi, %edi, 0
	entry	scry_agent_gvl_wait, %rsi, %esi, 1

	.globl	scry_agent_gvl_made
	.protected scry_agent_gvl_made
.type	scry_agent_gvl_made, @function
scry_agent_gvl_made:
	endbr64
	push	%rdi
	push	%rsi
	push	%rdx
	call	scry_gvl_made
	pop	%rdx
	pop	%rsi
	pop	%rdi
	ret
	.size	scry_agent_gvl_made, . - scry_agent_gvl_made

	.section .note.GNU-stack, "", @progbits
