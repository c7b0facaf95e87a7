/* See ucontext_code.h. Only rax, r10 and r11 are free at an entry: a context has all others. */
#include "patch/ucontext_code.h"

/* offsets in glibc's ucontext_t */
#define R8 40
#define R9 48
#define R12 72
#define R13 80
#define R14 88
#define R15 96
#define RDI 104
#define RSI 112
#define RBP 120
#define RBX 128
#define RDX 136
#define RCX 152
#define RSP 160
#define RIP 168
#define FPREGS 224  /* address of what follows at FPENV */
#define SIGMASK 296 /* 8 bytes, as the kernel has them */
#define FPENV 424   /* 28 bytes, as fnstenv stores them */
#define MXCSR 448

#define GET 0
#define SET 16
#define SWAP 32
#define SLOW 8

	.section .rodata
	.balign 4096
	.globl scry_ucontext_code
	.hidden scry_ucontext_code
scry_ucontext_code:

	.equ words, scry_ucontext_code + UCONTEXT_TEXT
	.equ lines, words + UCONTEXT_LINES

/* Those of one stack count in one line: hardly two at once. A signal between does not tear it. */
.macro count at
	mov %rsp, %rax
	shr $12, %rax
	imul $0x1e3779b1, %eax, %eax
	shr $27, %eax
	shl $6, %eax
	lea lines(%rip), %r10
	incq \at(%r10, %rax)
	xor %r10d, %r10d		/* no address of the patch is left in a register */
.endm

/* Is the context at \ucp one that was saved here or by glibc, with everybody's mask? */
.macro admit ucp
	mov SIGMASK(\ucp), %rax
	cmp words + UCONTEXT_MASK(%rip), %rax
	jne 8f
	lea FPENV(\ucp), %rax
	cmp %rax, FPREGS(\ucp)
	jne 9f
	mov FPENV(\ucp), %eax		/* an exception of the x87 unit that traps: its flags matter */
	not %eax
	test $0x3f, %al
	jnz 9f
.endm

.macro save
	mov %rbx, RBX(%rdi)
	mov %rbp, RBP(%rdi)
	mov %r12, R12(%rdi)
	mov %r13, R13(%rdi)
	mov %r14, R14(%rdi)
	mov %r15, R15(%rdi)
	mov %rdi, RDI(%rdi)
	mov %rsi, RSI(%rdi)
	mov %rdx, RDX(%rdi)
	mov %rcx, RCX(%rdi)
	mov %r8, R8(%rdi)
	mov %r9, R9(%rdi)
	mov (%rsp), %rax
	mov %rax, RIP(%rdi)
	lea 8(%rsp), %rax
	mov %rax, RSP(%rdi)
	lea FPENV(%rdi), %rax
	mov %rax, FPREGS(%rdi)
	fnstcw FPENV(%rdi)			/* control word; all else is as fnstenv has it */
	movw $-1, FPENV + 2(%rdi)
	movq $-65536, FPENV + 4(%rdi)		/* no exceptions, all registers empty */
	movq $0, FPENV + 12(%rdi)
	movl $0, FPENV + 20(%rdi)
	stmxcsr MXCSR(%rdi)
	mov words + UCONTEXT_MASK(%rip), %rax
	mov %rax, SIGMASK(%rdi)
.endm

/* \ucp is rdi or rsi, and the last to be loaded. r11 is free, as after a system call. */
.macro load ucp, other, at, otherat
	fldcw FPENV(\ucp)
	ldmxcsr MXCSR(\ucp)
	mov RSP(\ucp), %rsp
	mov RBX(\ucp), %rbx
	mov RBP(\ucp), %rbp
	mov R12(\ucp), %r12
	mov R13(\ucp), %r13
	mov R14(\ucp), %r14
	mov R15(\ucp), %r15
	mov RIP(\ucp), %r11
	mov RDX(\ucp), %rdx
	mov RCX(\ucp), %rcx
	mov R8(\ucp), %r8
	mov R9(\ucp), %r9
	mov \otherat(\ucp), \other
	mov \at(\ucp), \ucp
	xor %eax, %eax
	jmp *%r11
.endm

.macro entry name
	.balign 64
	.globl scry_ucontext_\name
	.hidden scry_ucontext_\name
scry_ucontext_\name:
.endm

/* 8: the mask of this thread becomes another one: from now on all make the system call. */
.macro slow at, copy
8:	movb $1, words + UCONTEXT_CHANGED(%rip)
9:	count \at + SLOW
	jmp scry_ucontext_copies + \copy * UCONTEXT_COPY
.endm

	entry get
	cmpw $0, words(%rip)
	jne 9f
	count GET
	save
	xor %eax, %eax
	ret
	slow GET, 0

	entry set
	cmpw $0, words(%rip)
	jne 9f
	admit %rdi
	count SET
	load %rdi, %rsi, RDI, RSI
	slow SET, 1

	entry swap
	cmpw $0, words(%rip)
	jne 9f
	admit %rsi
	count SWAP
	save
	load %rsi, %rdi, RSI, RDI
	slow SWAP, 2

/*
 * pthread_sigmask(how, set, old), sigprocmask: does it change the mask that all have? The function
 * itself reads *set. Of SIGKILL, SIGSTOP and libc's own two signals nothing is recorded.
 */
.macro judge copy
	cmpb $0, words + UCONTEXT_CHANGED(%rip)
	jne 9f
	test %rsi, %rsi
	jz 9f
	movabs $0xfffffffe7ffbfeff, %rax
	and (%rsi), %rax
	mov words + UCONTEXT_MASK(%rip), %r10
	cmp $1, %edi
	jb 1f
	je 2f
	cmp %rax, %r10			/* SIG_SETMASK, and what is none of the three */
	je 9f
	jmp 8f
1:	not %r10			/* SIG_BLOCK */
	test %rax, %r10
	jz 9f
	jmp 8f
2:	test %rax, %r10			/* SIG_UNBLOCK */
	jz 9f
8:	movb $1, words + UCONTEXT_CHANGED(%rip)
9:	jmp scry_ucontext_copies + \copy * UCONTEXT_COPY
.endm

	entry mask
	judge 3

	entry mask2
	judge 4

	.balign 16, 0xcc
	.globl scry_ucontext_copies
	.hidden scry_ucontext_copies
scry_ucontext_copies:
	.fill UCONTEXT_COPIES * UCONTEXT_COPY, 1, 0xcc

	.globl scry_ucontext_code_end
	.hidden scry_ucontext_code_end
scry_ucontext_code_end:
	.org scry_ucontext_code + UCONTEXT_TEXT, 0xcc /* an error where the code is larger */
	.section .note.GNU-stack, "", @progbits
