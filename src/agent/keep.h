/*
 * For thunks (assembly only): every register that C code may change, and the flags, as found; the
 * agent touches no vector register and no x87. From `keep` on:
 *
 *   rsp -> rdi rsi rdx rcx r8 r9 r11 r10 flags rax, then what was on the stack
 */
#ifndef SCRY_AGENT_KEEP_H
#define SCRY_AGENT_KEEP_H

/* clang-format off */

	.macro	keep
	push	%rax
	lahf
	seto	%al
	push	%rax
	push	%r10
	push	%r11
	push	%r9
	push	%r8
	push	%rcx
	push	%rdx
	push	%rsi
	push	%rdi
	.endm

	.macro	give_back
	pop	%rdi
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%r8
	pop	%r9
	pop	%r11
	pop	%r10
	pop	%rax
	add	$127, %al
	sahf
	pop	%rax
	.endm

#endif
