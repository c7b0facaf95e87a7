/*
 * Walks native stacks of a process or core from outside: rules of .eh_frame (sys/cfi) of the
 * modules that are mapped (sys/modules), one step at a time (wire/unwind_step.h).
 *
 * Reads only. What is walked must not run meanwhile: that is the caller's to see to. Stacks are
 * foreign bytes: any content gives some frames, an end, and no fault.
 */
#ifndef SCRY_SYS_UNWINDER_H
#define SCRY_SYS_UNWINDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/user.h>

#include "sys/mem.h"
#include "sys/modules.h"
#include "wire/unwind_step.h"

#define SCRY_UNWINDER_FRAMES_MAX 1024u

struct scry_native_frame {
	uint64_t pc, sp;   /* sp: as it is there, with what it calls taken off */
	uint64_t function; /* entry of the function that it is in, by the unwind tables; 0 */
	bool is_exact;	   /* pc is the instruction, and not a return address behind it */
};

enum scry_native_end {
	SCRY_NATIVE_WHOLE,	 /* down to the outermost frame */
	SCRY_NATIVE_NO_RULE,	 /* code without unwind tables: a JIT's, or odd */
	SCRY_NATIVE_NO_REGISTER, /* a rule needs a register whose value is not known */
	SCRY_NATIVE_UNREADABLE,	 /* memory is not there */
	SCRY_NATIVE_TOO_DEEP,	 /* SCRY_UNWINDER_FRAMES_MAX */
};

struct scry_unwinder;

/* 0 or -ENOMEM with a sentence. `modules` and `mem` are borrowed. */
int scry_unwinder_open(struct scry_modules *modules, const struct scry_mem *mem,
		       struct scry_unwinder **ret);
void scry_unwinder_close(struct scry_unwinder *u); /* NULL is legal */

/* Other memory to read stacks from, until this is called again: a copy, or the process's. */
void scry_unwinder_use(struct scry_unwinder *u, const struct scry_mem *mem);
/* A walk ends, SCRY_NATIVE_TOO_DEEP, at so many frames. */
void scry_unwinder_limit(struct scry_unwinder *u, size_t frames);

/* Where a walk begins: all registers; or those that /proc/PID/task/TID/syscall shows. */
struct scry_unwind_state scry_unwinder_at(const struct user_regs_struct *regs);
struct scry_unwind_state scry_unwinder_blocked(uint64_t pc, uint64_t sp);

/* The frames from `at` on, the newest first, into ret[SCRY_UNWINDER_FRAMES_MAX]; their count. */
size_t scry_unwinder_walk(struct scry_unwinder *u, struct scry_unwind_state at,
			  struct scry_native_frame *ret, enum scry_native_end *ret_end);

/* Entry of the function that `address` is in, 0: no unwind table says. */
uint64_t scry_unwinder_function(struct scry_unwinder *u, uint64_t address);

#endif
