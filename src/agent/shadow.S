/*
 * The entries of agent/shadow.c: registers and flags as found.
 */
#include "agent/keep.h"

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
	lea	96(%rsp), %rdi
	mov	88(%rsp), %rsi
	mov	%rbx, %rdx
	call	scry_agent_entered
	give_back
	ret
	.size	scry_agent_timed, . - scry_agent_timed

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
