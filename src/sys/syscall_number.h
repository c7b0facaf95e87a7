/*
 * Which system call an instruction makes, by the code before it: `mov $1,%eax` ... `syscall`. For
 * samples without eBPF, whose registers have the number no more, and for code that counts there.
 *
 * It is known where a number is put into eax on the straight way to the instruction, and nothing
 * else of the object leads in between (sys/text). A function may get it from its caller, as libc's
 * syscall(2) does, and from glibc 2.41 on the one that makes all calls where a thread may be
 * cancelled:
 *
 *   write: push $1; call __syscall_cancel            (push its own; call)
 *     __internal_syscall_cancel: mov 0x20(%rsp),%rsi; call
 *       __syscall_cancel_arch: mov %rsi,%rax; syscall
 *
 * There it is known where the number comes from, and the caller's code is read the same way. Else
 * it is not known. Files are read, no process's memory.
 */
#ifndef SCRY_SYS_SYSCALL_NUMBER_H
#define SCRY_SYS_SYSCALL_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/elf.h"

struct scry_syscall_code { /* a return address, as it were, in a file */
	struct scry_elf *elf;
	uint64_t address; /* link-time */
};

#define SCRY_SYSCALL_PUSHED 6u /* the word at the stack pointer when the call is made */

struct scry_syscall_number {
	enum {
		SCRY_SYSCALL_CODE_UNREAD,  /* there is no file to be read */
		SCRY_SYSCALL_CODE_UNCLEAR, /* or it has no function there */
		SCRY_SYSCALL_CODE_OTHER,   /* no system call */
		SCRY_SYSCALL_CODE_64,	   /* `syscall` */
		SCRY_SYSCALL_CODE_32,	   /* `int $0x80` */
	} code;
	bool is_known;
	bool is_behind_call; /* the function has made a call before, by its addresses */
	uint32_t number;
	uint64_t from; /* known: the instruction that sets it, and nothing leads past that */
	/* It is not known, but comes from one of these: */
	bool is_argument;      /* of this function, which has pushed nothing */
	bool is_on_stack;      /* a word there, which nothing here has written to since */
	unsigned int argument; /* 0: the first */
	uint32_t above;	       /* of the word: bytes above the stack pointer */
};

/* Of the instruction that ends at `at`. */
struct scry_syscall_number scry_syscall_number(const struct scry_syscall_code *at);

/* What is called: `name` (NULL: none is known), the function that `code` is in. */
struct scry_syscall_callee {
	const char *name;
	const struct scry_syscall_code *code;
};

/* What a call that returns to `at` passes as n->argument of `callee`, put into *n; `above` is that
 * of the stack pointer when it has returned. False: it is not known, or calls another function;
 * then *n is as before. A caller that has seen that a word of the stack is the argument passes
 * SCRY_SYSCALL_PUSHED and no callee. */
bool scry_syscall_number_passed(const struct scry_syscall_code *at,
				const struct scry_syscall_callee *callee,
				struct scry_syscall_number *n);

#endif
