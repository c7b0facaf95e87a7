/*
 * SIGTRAP, when a breakpoint was hit and no keeper traces any more: it was killed. The thread goes
 * on in the copy of the instruction, as a tracer would have had it do, so the program lives on,
 * slower, until `scry undo` puts the bytes back. While a keeper traces, this never runs.
 *
 * A SIGTRAP that has nothing to do with us ends the process, as it would have without us.
 */
#include "agent/agent.h"
#include "agent/syscall.h"
#include "wire/breaks.h"

#define SIGTRAP 5
#define SI_KERNEL 0x80
#define INT3 0xcc
#define SIGINFO_CODE 8	/* asm-generic/siginfo.h */
#define UCONTEXT_IP 168 /* asm/sigcontext.h, behind uc_flags, uc_link and uc_stack */

/* Where a thread that is at `ip` goes on; 0: it is none of ours. The keeper may have died between
 * sending it on and letting it go. */
static uint64_t next_ip(const struct scry_agent_trap *trap, uint64_t ip)
{
	for (uint64_t i = 0; i < trap->slab_count; i++) {
		uint64_t copy = trap->slabs[i].code + SCRY_BREAKS_HEAD, of;

		if (ip >= copy && ip < copy + trap->slabs[i].copies * SCRY_BREAKS_SLOT)
			return ip;
		for (uint64_t k = 0; k < trap->slabs[i].copies; k++, copy += SCRY_BREAKS_SLOT) {
			of = *(const volatile uint64_t *)(copy + SCRY_BREAKS_COPY);
			if (!of)
				break;
			if (of == ip)
				return ip;
			if (of == ip - 1) /* undone meanwhile: there; else in its copy */
				return *(const volatile uint8_t *)of == INT3 ? copy : of;
		}
	}
	return 0;
}

/* Is this an int3 of the program's own? A thread that was sent on by a keeper that died is behind
 * none then. */
static int is_behind_int3(uint64_t ip)
{
	const volatile uint8_t *at = (const volatile uint8_t *)ip;

	return at[-1] == INT3 || (at[-2] == 0xcd && at[-1] == 3);
}

void scry_agent_trap(int signal, const uint8_t *info, uint8_t *context) SCRY_EXPORT;
void scry_agent_trap(int signal, const uint8_t *info, uint8_t *context)
{
	const struct scry_sigaction by_default = {0};
	uint64_t *ip = (uint64_t *)(context + UCONTEXT_IP), next = 0;
	int32_t code = *(const int32_t *)(info + SIGINFO_CODE);

	if (code == SI_KERNEL) {
		next = next_ip(&scry_agent.trap, *ip);
		if (!next && !is_behind_int3(*ip))
			next = *ip;
	}
	if (next) {
		*ip = next;
		return;
	}
	scry_agent_syscall4(SCRY_SYS_RT_SIGACTION, SIGTRAP, (uint64_t)&by_default, 0, 8);
	scry_agent_syscall4(
		SCRY_SYS_TGKILL, (uint64_t)scry_agent_syscall4(SCRY_SYS_GETPID, 0, 0, 0, 0),
		(uint64_t)scry_agent_syscall4(SCRY_SYS_GETTID, 0, 0, 0, 0), (uint64_t)signal, 0);
}
