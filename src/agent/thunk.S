/*
 * Entries of objects that are not C: the hook that the boot slot leads to, and those that stubs lead to.
 */
#include "agent/keep.h"

#define SCRY_STATE_PAGE_BIRTHS 184 /* wire/state_page.h */

	.text
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

	.globl	scry_agent_born
	.protected scry_agent_born
.type	scry_agent_born, @function
/*
 * In the place of a function that makes an object (a REPLACE hook, hook/stub.h): r11 is the
 * original. At most six arguments in registers and four on the stack (the collector's own, where it
 * is a function, has nine in all), which are copied whether they are there or not; what it returns
 * is the object, and is handed on. rax is not an argument.
 */
scry_agent_born:
	endbr64
	mov	scry_agent(%rip), %rax
	incq	SCRY_STATE_PAGE_BIRTHS(%rax)
	sub	$8, %rsp
	.rept	4
	pushq	40(%rsp)
	.endr
	call	*%r11
	add	$40, %rsp
	mov	%rax, %rdi
	jmp	scry_agent_birth
	.size	scry_agent_born, . - scry_agent_born

	.globl	scry_agent_called
	.protected scry_agent_called
.type	scry_agent_called, @function
/*
 * At the entry of some function (a CALL hook): scry_agent_call gets the six argument registers as an array, the first
 * one first, and the hook's cookie. Registers and flags as found; the agent touches no vector register.
 *
 *   rsp -> rdi rsi rdx rcx r8 r9 r11 r10 flags rax, return address, cookie
 */
scry_agent_called:
	endbr64
	keep
	mov	%rsp, %rdi
	mov	88(%rsp), %rsi
	call	scry_agent_call
	give_back
	ret
	.size	scry_agent_called, . - scry_agent_called

	.data
	.globl	scry_agent_boot_original
	.protected scry_agent_boot_original
.type	scry_agent_boot_original, @object
	.balign	8
scry_agent_boot_original:
	.quad	0
	.size	scry_agent_boot_original, 8

	.section .note.GNU-stack, "", @progbits
