/*
 * The entries of agent/shadow.c: registers and flags as found.
 */
#include "agent/keep.h"

#define SCRY_AGENT_TID_OFFSET 184 /* of tracking.tid_offset in struct scry_agent_data: instrument/locks.c asserts it */

	.text
	.globl	scry_agent_timed
	.protected scry_agent_timed
.type	scry_agent_timed, @function
/*
 * At the entry of some function (a CALL hook).
 *
 *   rsp -> ten registers, return address into the stub, cookie, [128 bytes,] the slot
 */
scry_agent_timed:
	endbr64
	keep
.Lfollow:
	lea	96(%rsp), %rdi
	mov	88(%rsp), %rsi
	mov	%rbx, %rdx
	call	scry_agent_entered
.Lpass:
	give_back
	ret
	.size	scry_agent_timed, . - scry_agent_timed

	.globl	scry_agent_asked
	.protected scry_agent_asked
.type	scry_agent_asked, @function
/* The same at the entry of a function that looks at its caller. */
scry_agent_asked:
	endbr64
	keep
	lea	96(%rsp), %rdi
	mov	88(%rsp), %rsi
	call	scry_agent_asked_by
	give_back
	ret
	.size	scry_agent_asked, . - scry_agent_asked

	.globl	scry_agent_locked
	.protected scry_agent_locked
.type	scry_agent_locked, @function
/*
 * The same at the entry of a function that locks a mutex of glibc's, where a thread has it: rdi ->
 * struct __pthread_mutex_s (bits/struct_mutex.h): lock, count, owner, users, kind, int each. The
 * function reads these words itself, at once: where they cannot be read it faults as we do.
 *
 * A thread that finds `lock` 0 goes on after six instructions, which leave the flags alone. No
 * thread waits for what is its own already, either, where that is counted or refused (recursive,
 * error-checking); nor for one of a priority ceiling (a bit of the kind), where nothing but the
 * ceiling is in `lock`.
 */
#define LOCK 0
#define OWNER 8
#define KIND 16
#define RECURSIVE 1
#define CHECKING 2
#define TYPES 3
#define HAS_CEILING 64
#define HOLDS 0x7ffff /* of `lock`: what lies above is the ceiling */
scry_agent_locked:
	endbr64
	push	%rcx
	mov	LOCK(%rdi), %ecx
	jecxz	.Lfree
	pop	%rcx
	keep
	mov	KIND(%rdi), %eax
	test	$HAS_CEILING, %al
	jz	1f
	testl	$HOLDS, LOCK(%rdi)
	jz	.Lpass
1:	and	$TYPES, %eax
	cmp	$RECURSIVE, %eax
	je	2f
	cmp	$CHECKING, %eax
	jne	.Lfollow
2:	mov	scry_agent + SCRY_AGENT_TID_OFFSET(%rip), %edx
	test	%edx, %edx
	jz	.Lfollow
	mov	%fs:(%rdx), %edx
	cmp	OWNER(%rdi), %edx
	jne	.Lfollow
	jmp	.Lpass
.Lfree:
	pop	%rcx
	ret
	.size	scry_agent_locked, . - scry_agent_locked

	.globl	scry_agent_return
	.protected scry_agent_return
.type	scry_agent_return, @function
/*
 * Where thunks lead to: rsp is where it was when the function returned, less 8, and there lies the thunk's number. The
 * caller has nothing below its rsp. Goes on by a jump, as the return has been predicted and done; the word is read from
 * the red zone, which signals spare.
 */
scry_agent_return:
	keep
	lea	80(%rsp), %rdi
	call	scry_agent_returned
	give_back
	lea	8(%rsp), %rsp
	notrack jmp *-8(%rsp)
	.size	scry_agent_return, . - scry_agent_return

	.globl	scry_agent_find_fde
	.protected scry_agent_find_fde
.type	scry_agent_find_fde, @function
/* In the place of _Unwind_Find_FDE(pc, bases) (a REPLACE hook): r11 is the original. */
scry_agent_find_fde:
	endbr64
	mov	%r11, %rdx
	jmp	scry_agent_unwound
	.size	scry_agent_find_fde, . - scry_agent_find_fde

	.section .note.GNU-stack, "", @progbits
