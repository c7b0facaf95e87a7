/*
 * The entry of agent/entry.c: registers and flags as found.
 */
#include "agent/keep.h"

	.text
	.globl	scry_agent_record
	.protected scry_agent_record
.type	scry_agent_record, @function
/*
 * At the entry of some function (a CALL hook).
 *
 *   rsp -> rdi rsi rdx rcx r8 r9, four more, return address into the stub, cookie
 */
scry_agent_record:
	endbr64
	keep
	mov	%rsp, %rdi
	mov	88(%rsp), %rsi
	call	scry_agent_enter
	give_back
	ret
	.size	scry_agent_record, . - scry_agent_record

	.section .note.GNU-stack, "", @progbits
