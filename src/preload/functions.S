/*
 * What the object gives to the program: the malloc functions, and fork. Each has a row: its name,
 * its handler in the agent, the function that it would be without us, and where a call goes. That
 * is stored last and loaded first, so a call that sees a handler there sees the original too.
 */
	.text
	.macro	way name, handler, libc
	.globl	\name
	.type	\name, @function
\name:
	endbr64
	mov	90f(%rip), %r10
	mov	89f(%rip), %r11
	jmp	*%r10
	.size	\name, . - \name
91:	lea	88f(%rip), %rax
	jmp	first

	.pushsection .data.rel, "aw"
	.balign	8
88:	.quad	92f, \handler
89:	.quad	\libc
90:	.quad	91b
	.popsection
	.pushsection .rodata.str, "a"
92:	.asciz	"\name"
	.popsection
	.endm

/* The first call of all: rax is the row. The arguments stay. */
	.type	first, @function
first:
	push	%rax
	push	%rdi
	push	%rsi
	push	%rdx
	push	%rcx
	push	%r8
	push	%r9
	call	scry_preload_begin
	pop	%r9
	pop	%r8
	pop	%rcx
	pop	%rdx
	pop	%rsi
	pop	%rdi
	pop	%rax
	mov	16(%rax), %r11
	jmp	*24(%rax)
	.size	first, . - first

	.weak	__libc_malloc, __libc_calloc, __libc_realloc, __libc_free, __libc_memalign, __libc_valloc, __libc_pvalloc
	.pushsection .data.rel, "aw"
	.balign	8
	.globl	scry_preload_rows
	.hidden	scry_preload_rows
scry_preload_rows:
	.popsection

	way	malloc, scry_agent_malloc, __libc_malloc
	way	calloc, scry_agent_calloc, __libc_calloc
	way	realloc, scry_agent_realloc, __libc_realloc
	way	free, scry_agent_free, __libc_free
	way	reallocarray, scry_agent_reallocarray, 0
	way	posix_memalign, scry_agent_posix_memalign, 0
	way	memalign, scry_agent_memalign, __libc_memalign
	way	aligned_alloc, scry_agent_aligned_alloc, 0
	way	valloc, scry_agent_valloc, __libc_valloc
	way	pvalloc, scry_agent_pvalloc, __libc_pvalloc
	way	malloc_usable_size, scry_agent_usable_size, 0
	way	fork, scry_agent_fork, 0
	way	prctl, scry_agent_prctl, 0
	way	syscall, scry_agent_syscall, 0

	.pushsection .data.rel, "aw"
9:	.popsection
	.pushsection .rodata, "a"
	.balign	8
	.globl	scry_preload_count
	.hidden	scry_preload_count
scry_preload_count:
	.quad	(9b - scry_preload_rows) / 32
	.popsection

	.section .init_array, "aw"
	.balign	8
	.quad	scry_preload_begin
	.section .note.GNU-stack, "", @progbits
