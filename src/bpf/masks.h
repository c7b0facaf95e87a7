/* Signal masks that are set in vain. */
#ifndef SCRY_BPF_MASKS_H
#define SCRY_BPF_MASKS_H

#include "bpf/kinds.h"

#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIGKILL 9
#define SIGSTOP 19

/* May somebody have answered in the kernel's place? */
static __always_inline bool has_filter(const struct task_struct *task)
{
	return !bpf_core_field_exists(task->seccomp.mode) || task->seccomp.mode;
}

/* Is `now` what was asked for? Where the old mask was stored over the new one, that is read: they
 * are the same if the call was in vain. */
static __always_inline bool is_mask_asked_for(const struct pt_regs___kernel *regs, __u64 now)
{
	const __u64 never = 1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1);
	__u64 want = 0;

	if (bpf_probe_read_user(&want, sizeof(want), (void *)regs->si))
		return false;
	want &= ~never;
	switch ((int)regs->di) {
	case SIG_BLOCK:
		return (want & ~now) == 0;
	case SIG_UNBLOCK:
		return (want & now) == 0;
	}
	return want == now;
}

/* The mask is the thread's own: nobody else changes it, but for a signal that is delivered, and a
 * tracer. */
static __always_inline void ask_mask(struct scry_syscalls_sum *s, struct task_struct *task,
				     const struct pt_regs___kernel *regs, long result,
				     struct entered *e)
{
	__u64 now = task->blocked.sig[0];

	if (!e)
		return;
	if (regs->si && e->has_mask && !result && !task->ptrace)
		found(s, SCRY_VAIN_MASK,
		      e->mask == now && (!has_filter(task) || is_mask_asked_for(regs, now)));
	e->mask = now;
	e->has_mask = !task->ptrace;
}

#endif
