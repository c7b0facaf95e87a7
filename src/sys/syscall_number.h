/*
 * Which system call an instruction makes, by the code before it: `mov $1,%eax` ... `syscall`. For
 * samples without eBPF, whose registers have the number no more, and for who counts there.
 *
 * It is known where a number is put into eax on the straight way to the instruction, and nothing
 * else of the object leads in between (sys/text); and where libc's syscall(2) is called so, by the
 * code that called it. Else it is not known. Files are read, no process's memory.
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

struct scry_syscall_number {
	enum {
		SCRY_SYSCALL_CODE_UNREAD,  /* there is no file to be read */
		SCRY_SYSCALL_CODE_UNCLEAR, /* or it has no function there */
		SCRY_SYSCALL_CODE_OTHER,   /* no system call */
		SCRY_SYSCALL_CODE_64,	   /* `syscall` */
		SCRY_SYSCALL_CODE_32,	   /* `int $0x80` */
	} code;
	bool is_known;
	uint64_t from;	     /* known: the instruction that sets it, and nothing leads past that */
	bool is_behind_call; /* the function has made a call before, by its addresses */
	bool is_argument; /* it is the first argument of this function, which has pushed nothing */
	uint32_t number;
};

/* Of the instruction that ends at `at`. */
struct scry_syscall_number scry_syscall_number(const struct scry_syscall_code *at);

/* Of a call that returns to `at`, of function `callee` of an object. False: it is not known. */
bool scry_syscall_number_passed(const struct scry_syscall_code *at, const char *callee,
				uint32_t *ret);

#endif
