/*
 * Entries of agent/gvl.c: at calls that let a mutex go (CALL hooks). Registers and flags as found.
 *
 * Whoever lets another mutex go than the VM's lock goes on after seven instructions, which leave the
 * flags alone (not does, and lea).
 */
#include "agent/keep.h"

	.text
	.macro	entry name, mutex, waits
	.globl	\name
	.protected \name
.type	\name, @function
\name:
	endbr64
	push	%rcx
	mov	scry_agent_gvl(%rip), %rcx
	not	%rcx
	lea	1(%rcx,\mutex), %rcx
	jrcxz	1f
	pop	%rcx
	ret
1:	pop	%rcx
	keep
	mov	$\waits, %edi
	call	scry_gvl_let_go
	give_back
	ret
	.size	\name, . - \name
	.endm

	entry	scry_agent_gvl_unlock, %rdi, 0
	entry	scry_agent_gvl_wait, %rsi, 1

	.section .note.GNU-stack, "", @progbits
