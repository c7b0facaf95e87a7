/*
 * What SCRY_WRAP of scry/patch.h puts before a function, and what its return leads to. Templates, as
 * patch/before.S: words are filled in, and the copy of the function's first instructions follows the
 * first. patch/wrap.h says how it works.
 *
 * All registers and flags are as found, at both ends; but for the result, where the handler changes it.
 */
#include "patch/vectors.h"
#include "patch/wrap.h"

#define CALL 32			/* of the struct scry_patch_call: behind the words that are kept */
#define SLOT (CALL + 128 + 128)	/* behind that, and the bytes below rsp that are spared */
#define CALLS (8 * SCRY_WRAP_THUNKS)
#define HASH $0x9e3779b97f4a7c15

	/* The bucket of the key in \key, into \bucket; its second best way, into \way. rsi is lost. */
	.macro find_bucket key, bucket, way
	movabs HASH, %rsi
	imul \key, %rsi
	mov %rsi, \way
	shr $56, %rsi			/* one of 256 */
	shl $8, %rsi			/* of 4 ways of 64 bytes */
	lea CALLS(%r9, %rsi), \bucket
	shr $54 - 6, \way
	and $3 * 64, \way
	.endm

	/* Of rbx, rbp, r12 to r15, which lie one after the other from \at on, into rax; rsi is lost. */
	.macro hash_caller at
	movabs HASH, %rsi
	mov \at(%rbx), %rax
	imul %rsi, %rax
	xor 8 + \at(%rbx), %rax
	imul %rsi, %rax
	xor 16 + \at(%rbx), %rax
	imul %rsi, %rax
	xor 24 + \at(%rbx), %rax
	imul %rsi, %rax
	xor 32 + \at(%rbx), %rax
	imul %rsi, %rax
	xor 40 + \at(%rbx), %rax
	.endm

	.section .rodata
	.balign 16
	.globl scry_wrap, scry_wrap_words_at, scry_wrap_end
	.hidden scry_wrap, scry_wrap_words_at, scry_wrap_end
scry_wrap:
	save_call
	push $0
	push $0
	push $0
	push $0
	mov %rsp, %rbx
	cld
	save_vectors
	lea CALL(%rbx), %rdi
	mov %rbx, %rsi
	call *1f(%rip)

	/* The return: rdi as it is in the slot r8; table r9, thunks r10, the function's bits r11.
	 */
	lea SLOT(%rbx), %r8
	mov 4f(%rip), %r9
	mov 5f(%rip), %r10
	mov 6f(%rip), %r11
	mov (%r8), %rdi

	/* Followed already, as a function that ends in a jump to this one was called: by this one too,
	 * then there is one return for both; else it goes home by the other's thunk. */
	mov %rdi, %rax
.Lchain:
	mov %rax, %rcx
	sub %r10, %rcx
	cmp $SCRY_WRAP_THUNKS * SCRY_WRAP_THUNK_BYTES, %rcx
	jae .Lnew
	shr $4, %rcx
	mov (%r9, %rcx, 8), %rax
	mov %rax, %rdx
	xor %r11, %rdx
	shr $56, %rdx
	mov %rdi, %rcx
	jz .Lkeep
	shl $8, %rax
	shr $8, %rax
	jmp .Lchain

.Lnew:	/* a thunk for this return address */
	mov %rdi, %rcx
	shr $47, %rcx
	jnz .Lmissed
	or %r11, %rdi
	movabs HASH, %rcx
	imul %rdi, %rcx
	shr $54, %rcx			/* one of 1,024 */
	mov $SCRY_WRAP_THUNKS, %edx
.Lprobe:
	xor %eax, %eax
	cmp %rdi, (%r9, %rcx, 8)
	je .Lhave
	cmp %rax, (%r9, %rcx, 8)
	jne .Lnext
	lock cmpxchg %rdi, (%r9, %rcx, 8)
	je .Lhave
	cmp %rdi, %rax			/* another thread was here first, for the same */
	je .Lhave
.Lnext:
	inc %ecx
	and $SCRY_WRAP_THUNKS - 1, %ecx
	dec %edx
	jnz .Lprobe
.Lmissed:
	mov 7f(%rip), %rax
	lock incq (%rax)
	jmp .Ldone
.Lhave:
	shl $4, %rcx
	add %r10, %rcx

.Lkeep:	/* what the handler keeps, by the slot; rcx is what the slot gets */
	or %r8, %r11
	find_bucket %r11, %r10, %rdi
	xor %edx, %edx
.Lequal:
	cmp %r11, (%r10, %rdx)		/* one that was left by longjmp */
	je .Ltake
	add $64, %edx
	cmp $64 * SCRY_WRAP_WAYS, %edx
	jne .Lequal
	xor %edx, %edx
.Lfree:
	cmpq $0, (%r10, %rdx)
	je .Ltake
	add $64, %edx
	cmp $64 * SCRY_WRAP_WAYS, %edx
	jne .Lfree
	mov %rdi, %rdx			/* none: that of a call that was most likely left */
.Ltake:
	mov (%r10, %rdx), %rax
	cmp $1, %rax
	je .Lfollow			/* not kept */
	mov $1, %esi
	lock cmpxchg %rsi, (%r10, %rdx)
	jne .Lfollow
	mov (%rbx), %rax
	mov %rax, 8(%r10, %rdx)
	mov 8(%rbx), %rax
	mov %rax, 16(%r10, %rdx)
	mov 16(%rbx), %rax
	mov %rax, 24(%r10, %rdx)
	mov 24(%rbx), %rax
	mov %rax, 32(%r10, %rdx)
	hash_caller CALL + 72
	mov %rax, 40(%r10, %rdx)
	mov %r11, (%r10, %rdx)
.Lfollow:
	mov %rcx, (%r8)
.Ldone:
	load_vectors
	lea CALL(%rbx), %rsp
	load_call
	jmp scry_wrap_end
	.balign 8, 0xcc
scry_wrap_words_at:
1:	.quad 0				/* the handler */
2:	.quad 0				/* what of the state is saved */
3:	.quad 0				/* bytes for it */
4:	.quad 0				/* struct scry_wrap_table */
5:	.quad 0				/* thunk 0 */
6:	.quad 0				/* the function's number << 56 */
7:	.quad 0				/* its counter of returns that are not followed */
scry_wrap_end:

/*
 * Where thunks lead to: the caller's rsp less 8 is the slot, and there lies the thunk's number. What the
 * handler gets is a struct scry_patch_return, and the words that were kept.
 */
#define RESULT 32
#define KNOWN (RESULT + 48)
#define NUMBER (RESULT + 56 + 8 * 14)

	.balign 16
	.globl scry_wrap_return, scry_wrap_return_words, scry_wrap_return_end
	.hidden scry_wrap_return, scry_wrap_return_words, scry_wrap_return_end
scry_wrap_return:
	pushfq
	push %r15
	push %r14
	push %r13
	push %r12
	push %rbp
	push %rbx
	push %r11
	push %r10
	push %r9
	push %r8
	push %rcx
	push %rsi
	push %rdi
	push $0				/* is_known */
	lea -32(%rsp), %rsp		/* xmm0, xmm1 */
	push %rdx
	push %rax
	push $0
	push $0
	push $0
	push $0
	mov %rsp, %rbx
	cld
	save_vectors
	movups %xmm0, RESULT + 16(%rbx)
	movups %xmm1, RESULT + 32(%rbx)

	lea NUMBER(%rbx), %r8		/* the slot */
	mov 4f(%rip), %r9
	mov (%r8), %rcx
	and $SCRY_WRAP_THUNKS - 1, %ecx
	mov (%r9, %rcx, 8), %r12
	mov %r12, %r11
	shr $56, %r11
	mov %r11, %r13			/* the function's number */
	shl $56, %r11
	or %r8, %r11
	shl $8, %r12
	shr $8, %r12			/* home */
	mov %r12, (%r8)
	find_bucket %r11, %r10, %rdi
	xor %edx, %edx
1001:	cmp %r11, (%r10, %rdx)
	je 1002f
	add $64, %edx
	cmp $64 * SCRY_WRAP_WAYS, %edx
	jne 1001b
	jmp 1003f
1002:	hash_caller KNOWN + 64
	cmp %rax, 40(%r10, %rdx)	/* another call's, of the same slot: it stays that one's */
	jne 1003f
	mov 8(%r10, %rdx), %rax
	mov %rax, (%rbx)
	mov 16(%r10, %rdx), %rax
	mov %rax, 8(%rbx)
	mov 24(%r10, %rdx), %rax
	mov %rax, 16(%rbx)
	mov 32(%r10, %rdx), %rax
	mov %rax, 24(%rbx)
	xor %esi, %esi
	mov %r11, %rax
	lock cmpxchg %rsi, (%r10, %rdx)	/* taken by another call meanwhile: it is that one's */
	jne 1004f
	movq $1, KNOWN(%rbx)
	jmp 1003f
1004:	xor %eax, %eax
	mov %rax, (%rbx)
	mov %rax, 8(%rbx)
	mov %rax, 16(%rbx)
	mov %rax, 24(%rbx)
1003:	lea RESULT(%rbx), %rdi
	mov %rbx, %rsi
	lea 5f(%rip), %rax
	call *(%rax, %r13, 8)

	load_vectors
	lea RESULT(%rbx), %rsp
	pop %rax
	pop %rdx
	lea 40(%rsp), %rsp
	pop %rdi
	pop %rsi
	pop %rcx
	pop %r8
	pop %r9
	pop %r10
	pop %r11
	pop %rbx
	pop %rbp
	pop %r12
	pop %r13
	pop %r14
	pop %r15
	popfq
	lea 8(%rsp), %rsp
	jmp *-8(%rsp)			/* the return has been done, and predicted */
	.balign 8, 0xcc
scry_wrap_return_words:
2:	.quad 0				/* what of the state is saved */
3:	.quad 0				/* bytes for it */
4:	.quad 0				/* struct scry_wrap_table */
5:	.fill SCRY_WRAP_FUNCTIONS, 8, 0	/* the handlers, by number */
scry_wrap_return_end:
	.section .note.GNU-stack, "", @progbits
