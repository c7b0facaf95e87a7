/* execve, which returns to another program than has called it. */
#ifndef SCRY_BPF_EXECS_H
#define SCRY_BPF_EXECS_H

#include "bpf/calls.h"

#define NR_EXECVE_32 11 /* of the other ABI; what execveat becomes too */

static __always_inline bool is_exec(const struct scry_syscalls_slot *slot, long result)
{
	if (slot->abi == SCRY_ABI_32)
		return !result && slot->number == NR_EXECVE_32;
	return !result && (slot->number == NR_EXECVE || slot->number == NR_EXECVEAT);
}

/* It has no place; nor the ABI that it was made with, as that is the new program's now. */
static __always_inline void displace(struct scry_syscalls_slot *slot)
{
	slot->ip = 0;
	if (slot->abi == SCRY_ABI_32 && slot->number == NR_EXECVE_32) {
		slot->abi = SCRY_ABI_64;
		slot->number = NR_EXECVE;
	}
}

#endif
