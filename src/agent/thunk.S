/*
 * Entries that are not C: the restorer of synthetic signal frames and the hook that the boot slot leads to.
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

	.globl	scry_agent_boot_slot
	.protected scry_agent_boot_slot
.type	scry_agent_boot_slot, @function
/*
 * int ruby_options(int, char **), on its way in: run scry_agent_boot, then go on to the original with the
 * registers and the stack as found.
 */
scry_agent_boot_slot:
	endbr64
	push	%rdi
	push	%rsi
	push	%rdx
	push	%rcx
	push	%r8
	push	%r9
	push	%rax
	call	scry_agent_boot
	pop	%rax
	pop	%r9
	pop	%r8
	pop	%rcx
	pop	%rdx
	pop	%rsi
	pop	%rdi
	mov	scry_agent_boot_original(%rip), %r11
	jmp	*%r11
	.size	scry_agent_boot_slot, . - scry_agent_boot_slot

	.data
	.globl	scry_agent_boot_original
	.protected scry_agent_boot_original
.type	scry_agent_boot_original, @object
	.balign	8
scry_agent_boot_original:
	.quad	0
	.size	scry_agent_boot_original, 8

	.section .note.GNU-stack, "", @progbits
