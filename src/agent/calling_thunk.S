/*
 * Where REPLACE hooks on prctl and syscall lead to: r11 is the original. A thread that is about to
 * put on a filter of system calls, or a dispatcher (Syscall User Dispatch), finds none of ours
 * under way; then, as for all others, the original runs with no frame of ours on the stack.
 */
#define PR_SET_SECCOMP 22
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define SYS_PRCTL 157
#define SYS_SECCOMP 317

	.text
	.macro	entry name
	.globl	\name
	.protected \name
.type	\name, @function
\name:
	endbr64
	.endm

	entry	scry_agent_prctl
	cmp	$PR_SET_SECCOMP, %edi
	je	forbid
	cmp	$PR_SET_SYSCALL_USER_DISPATCH, %edi
	je	forbid
	jmp	*%r11
	.size	scry_agent_prctl, . - scry_agent_prctl

	entry	scry_agent_syscall
	cmp	$SYS_SECCOMP, %edi
	je	forbid
	cmp	$SYS_PRCTL, %edi
	jne	1f
	cmp	$PR_SET_SECCOMP, %esi
	je	forbid
	cmp	$PR_SET_SYSCALL_USER_DISPATCH, %esi
	je	forbid
1:	jmp	*%r11
	.size	scry_agent_syscall, . - scry_agent_syscall

	.type	forbid, @function
forbid:
	push	%rax
	push	%rdi
	push	%rsi
	push	%rdx
	push	%rcx
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	call	scry_calling_forbid
	pop	%r11
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rcx
	pop	%rdx
	pop	%rsi
	pop	%rdi
	pop	%rax
	jmp	*%r11
	.size	forbid, . - forbid

	.section .note.GNU-stack, "", @progbits
