/*
 * A system call as it is: no libc, no errno, and nothing that is inlined elsewhere. Those of
 * calling.c ask first whether they may (calling.h); each other file that makes one is named in
 * doc/AGENT.md ("The agent needs nothing").
 *
 * Returns what the kernel does: -errno, or the result. The numbers are those of x86_64 (man 2
 * syscalls; arch/x86/entry/syscalls/syscall_64.tbl), as no system header may be included.
 */
#ifndef SCRY_AGENT_SYSCALL_H
#define SCRY_AGENT_SYSCALL_H

#include <stdint.h>

#define SCRY_SYS_RT_SIGACTION 13
#define SCRY_SYS_GETPID 39
#define SCRY_SYS_GETTID 186
#define SCRY_SYS_FUTEX 202
#define SCRY_SYS_TGKILL 234
#define SCRY_SYS_PROCESS_VM_READV 310

#define SCRY_FUTEX_WAIT 0 /* shared: the keeper has its own mapping of the page */
#define SCRY_FUTEX_WAKE 1
#define SCRY_ETIMEDOUT (-110)

static inline int64_t scry_agent_syscall6(int64_t number, const uint64_t arguments[6])
{
	const uint64_t fourth = arguments[3], fifth = arguments[4], sixth = arguments[5];
	register uint64_t r10 __asm__("r10") = fourth;
	register uint64_t r8 __asm__("r8") = fifth;
	register uint64_t r9 __asm__("r9") = sixth;

	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(r10),
			   "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return number;
}

static inline int64_t scry_agent_syscall4(int64_t number, uint64_t a, uint64_t b, uint64_t c,
					  uint64_t d)
{
	const uint64_t arguments[6] = {a, b, c, d};

	return scry_agent_syscall6(number, arguments);
}

#endif
