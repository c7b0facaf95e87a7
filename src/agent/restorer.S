/*
 * The restorer of synthetic signal frames: sys/tracee.h in the host.
 */
	.text
	.globl	scry_agent_restorer
	.protected scry_agent_restorer
.type	scry_agent_restorer, @function
/* Where a call made by the host returns to: rt_sigreturn takes back every register. Bytes as unwinders know them. */
scry_agent_restorer:
	mov	$15, %rax
	syscall
	.size	scry_agent_restorer, . - scry_agent_restorer

	.section .note.GNU-stack, "", @progbits
