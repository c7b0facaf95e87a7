/*
 * Calls that are given in memory how long they may wait. The kernel writes there how much of that
 * is left: when the call has returned, one that has waited its time looks as one that was given
 * none. So it is read when the call begins, where that is seen. Else a thread that did not sleep
 * between two such calls did not in the second one either.
 */
#ifndef SCRY_BPF_LIMITS_H
#define SCRY_BPF_LIMITS_H

#include "bpf/vain.h"

static __always_inline bool is_limited(__u32 number)
{
	return number == NR_SELECT || number == NR_PSELECT6 || number == NR_PPOLL ||
	       number == NR_EPOLL_PWAIT2;
}

/* A timespec or timeval, for which no time at all is two zeros. False: it cannot be read. */
static __always_inline bool read_limit(__u32 number, const struct pt_regs___kernel *regs,
				       bool *ret_may_wait)
{
	__u64 of_ppoll = regs->dx, of_epoll = regs->r10, of_select = regs->r8, at;
	__u64 limit[2] = {0};

	/* three loads: the kernel's judge takes none at an offset that depends on the number */
	__asm__ volatile("" : "+r"(of_ppoll), "+r"(of_epoll), "+r"(of_select));
	at = number == NR_PPOLL ? of_ppoll : number == NR_EPOLL_PWAIT2 ? of_epoll : of_select;
	if (at && bpf_probe_read_user(limit, sizeof(limit), (void *)at))
		return false;
	*ret_may_wait = !at || limit[0] || limit[1];
	return true;
}

/* It begins. */
static __always_inline void note_limit(struct entered *e, __u32 number,
				       const struct pt_regs___kernel *regs)
{
	bool may_wait;

	e->has_limit = is_limited(number) && read_limit(number, regs, &may_wait);
	if (e->has_limit)
		e->may_wait = may_wait;
}

/* It has returned: could it have waited? False: that is not known. */
static __always_inline bool know_limit(struct entered *e, struct task_struct *task, __u32 number,
				       const struct pt_regs___kernel *regs, bool *ret)
{
	const __u64 switches = task->nvcsw + 1;
	const bool is_awake = e->switches == switches;

	e->switches = switches;
	if (e->has_limit) {
		e->has_limit = 0;
		*ret = e->may_wait;
		return true;
	}
	return read_limit(number, regs, ret) && (*ret || is_awake);
}

/* May it wait no time at all, and did it find nothing? */
static __always_inline void ask_limit(struct scry_syscalls_sum *s, struct task_struct *task,
				      const struct pt_regs___kernel *regs, long result,
				      struct entered *e)
{
	bool may_wait = true;

	if (!e)
		return;
	if (know_limit(e, task, s->key.number, regs, &may_wait) || result)
		found(s, SCRY_VAIN_POLL, !result && !may_wait);
}

#endif
