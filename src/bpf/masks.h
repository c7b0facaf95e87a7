/* Signal masks that are set in vain. */
#ifndef SCRY_BPF_MASKS_H
#define SCRY_BPF_MASKS_H

#include "bpf/kinds.h"

/*
 * May a filter have answered in the kernel's place? Not a call that was seen to begin, which is
 * behind the filters; nor one that the kernel knows to pass them all, whatever its arguments.
 */
static __always_inline bool may_be_answered(struct task_struct *task, __u32 number,
					    const struct entered *e)
{
	const char *bits;
	__u64 word = 0;

	if (bpf_core_field_exists(task->seccomp.mode) && !task->seccomp.mode)
		return false;
	if (e->ns && e->number == number)
		return false;
	if (!bpf_core_field_exists(task->seccomp.filter) ||
	    !bpf_core_field_exists(struct seccomp_filter, cache))
		return true;
	bits = (const char *)BPF_CORE_READ(task, seccomp.filter);
	if (!bits)
		return true;
	bits += bpf_core_field_offset(struct seccomp_filter, cache.allow_native) + number / 64 * 8;
	return bpf_probe_read_kernel(&word, sizeof(word), bits) || !(word >> (number % 64) & 1);
}

/* The mask is the thread's own: nothing else changes it, except a signal that is delivered, and a
 * tracer. */
static __always_inline void ask_mask(struct scry_syscalls_sum *s, struct task_struct *task,
				     const struct pt_regs___kernel *regs, long result,
				     struct entered *e)
{
	__u64 now = task->blocked.sig[0];

	if (!e)
		return;
	if (regs->si && e->has_mask && !result && !task->ptrace &&
	    !may_be_answered(task, NR_SIGPROCMASK, e))
		found(s, SCRY_VAIN_MASK, e->mask == now);
	e->mask = now;
	e->has_mask = !task->ptrace;
}

#endif
