/*
 * Where the dynamic loader is led to after it has relocated new objects and before it runs their
 * constructors; see sys/loader.h in the host. Every register and the flags are as found.
 */
	.macro	CALL_LOAD
	push	%rax
	push	%rcx
	push	%rdx
	push	%rsi
	push	%rdi
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	push	%rbp
	mov	%rsp, %rbp
	and	$-16, %rsp
	cld
	mov	%rdx, %rdi
	call	scry_agent_load
	mov	%rbp, %rsp
	pop	%rbp
	pop	%r11
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rdi
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%rax
	.endm

	.text
	.globl	scry_agent_load_slot
	.protected scry_agent_load_slot
.type	scry_agent_load_slot, @function
/*
 * glibc: _dl_catch_exception(exception, operate, args), through the loader's own slot. Only calls without an
 * exception are about constructors and destructors.
 */
scry_agent_load_slot:
	endbr64
	pushfq
	test	%rdi, %rdi
	jne	1f
	CALL_LOAD
1:	popfq
	jmp	*scry_agent_load_original(%rip)
	.size	scry_agent_load_slot, . - scry_agent_load_slot

	.globl	scry_agent_load_brk
	.protected scry_agent_load_brk
.type	scry_agent_load_brk, @function
/* musl: in place of r_brk, which is an empty function without arguments. */
scry_agent_load_brk:
	endbr64
	pushfq
	push	%rdx
	xor	%edx, %edx
	CALL_LOAD
	pop	%rdx
	popfq
	ret
	.size	scry_agent_load_brk, . - scry_agent_load_brk

	.data
	.globl	scry_agent_load_original
	.protected scry_agent_load_original
.type	scry_agent_load_original, @object
	.balign	8
scry_agent_load_original:
	.quad	0
	.size	scry_agent_load_original, 8

	.section .note.GNU-stack, "", @progbits
