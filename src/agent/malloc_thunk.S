/*
 * Where REPLACE hooks on malloc functions lead to: r11 is the original, which malloc.c gets as one argument more.
 */
#include "agent/keep.h"

	.text

	.macro	entry name
	.globl	\name
	.protected \name
.type	\name, @function
\name:
	endbr64
	.endm

/* rbx as one argument more, for unwinding; rbp the C code finds by itself. */
	.macro	hand_on name, to, argument, bx
	entry	\name
	mov	%r11, \argument
	mov	%rbx, \bx
	jmp	\to
	.size	\name, . - \name
	.endm

	hand_on	scry_agent_malloc, scry_malloc, %rsi, %rdx
	hand_on	scry_agent_calloc, scry_calloc, %rdx, %rcx
	hand_on	scry_agent_realloc, scry_realloc, %rdx, %rcx
	hand_on	scry_agent_reallocarray, scry_reallocarray, %rcx, %r8
	hand_on	scry_agent_free, scry_free, %rsi, %rdx
	hand_on	scry_agent_posix_memalign, scry_posix_memalign, %rcx, %r8
	hand_on	scry_agent_memalign, scry_memalign, %rdx, %rcx
	hand_on	scry_agent_aligned_alloc, scry_aligned_alloc, %rdx, %rcx
	hand_on	scry_agent_valloc, scry_valloc, %rsi, %rdx
	hand_on	scry_agent_pvalloc, scry_pvalloc, %rsi, %rdx
	hand_on	scry_agent_mallocx, scry_mallocx, %rdx, %rcx
	hand_on	scry_agent_rallocx, scry_rallocx, %rcx, %r8
	hand_on	scry_agent_xallocx, scry_xallocx, %r8, %r9
	hand_on	scry_agent_usable_size, scry_usable_size, %rsi, %rdx
	hand_on	scry_agent_fork, scry_fork, %rdi, %rsi

/*
 * operator new: scry_new returns the block, or 0, and then the original runs with no frame of ours on the stack, so
 * that what it throws passes us by. The last argument of the macro is enum scry_nothrow.
 */
	.macro	throwing name, which
	entry	\name
	push	%rdi
	push	%rsi
	push	%r11
	mov	$\which, %edx
	lea	24(%rsp), %rcx
	mov	%rbx, %r8
	call	scry_new
	pop	%r11
	pop	%rsi
	pop	%rdi
	test	%rax, %rax
	jz	1f
	ret
1:	jmp	*%r11
	.size	\name, . - \name
	.endm

	throwing scry_agent_new, 0
	throwing scry_agent_new_array, 1
	throwing scry_agent_new_aligned, 2
	throwing scry_agent_new_array_aligned, 3

/* Three arguments as an array, those that there are not included: rdi, rsi, rdx, r11, the return address. */
	.macro	keep_arguments
	push	%r11
	push	%rdx
	push	%rsi
	push	%rdi
	mov	%rsp, %rdi
	sub	$8, %rsp
	.endm

	.macro	go_home
	add	$40, %rsp
	ret
	.endm

	.macro	nothrow name, function, align
	entry	\name
	keep_arguments
	.if	\align
	.else
	xor	%esi, %esi
	.endif
	mov	$\function, %edx
	mov	%r11, %rcx
	mov	%rbx, %r8
	call	scry_new_nothrow
	go_home
	.size	\name, . - \name
	.endm

	nothrow	scry_agent_new_nothrow, 8, 0
	nothrow	scry_agent_new_array_nothrow, 9, 0
	nothrow	scry_agent_new_aligned_nothrow, 8, 1
	nothrow	scry_agent_new_array_aligned_nothrow, 9, 1

	.macro	deleting name, function
	entry	\name
	keep_arguments
	mov	$\function, %esi
	mov	%r11, %rdx
	call	scry_delete
	go_home
	.size	\name, . - \name
	.endm

	deleting scry_agent_delete, 13
	deleting scry_agent_dallocx, 12
	deleting scry_agent_delete_array, 14

/* A CALL hook on the function that takes a Ruby down: there are no more lines. Registers and flags as found. */
	.globl	scry_agent_lines_end
	.protected scry_agent_lines_end
.type	scry_agent_lines_end, @function
scry_agent_lines_end:
	endbr64
	keep
	call	scry_malloc_down
	give_back
	ret
	.size	scry_agent_lines_end, . - scry_agent_lines_end

	.section .note.GNU-stack, "", @progbits
