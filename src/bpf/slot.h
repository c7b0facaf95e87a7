/*
 * Which call a thread is in, or returns from, and from where. That is what its registers say, as
 * long as they are the caller's: where a handler is about to run, or a new program, they are those
 * of its first instruction, while the call's number is still there.
 */
#ifndef SCRY_BPF_SLOT_H
#define SCRY_BPF_SLOT_H

#include "bpf/execs.h"

#define ENOSYS 38
#define NR_RT_SIGRETURN 15
#define NR_SIGRETURN_32 119
#define NR_RT_SIGRETURN_32 173
/* From a handler's first stack pointer to where it was interrupted: struct rt_sigframe of
 * asm/sigframe.h, uc.uc_mcontext.ip */
#define FRAME_IP 176

static __always_inline void set_slot(struct scry_syscalls_slot *slot,
				     const struct task_struct *task,
				     const struct pt_regs___kernel *regs)
{
	slot->tid = (__u32)task->pid;
	slot->execs = (__u32)task->self_exec_id;
	slot->born = task->start_time;
	slot->number = (__u32)regs->orig_ax;
	if (slot->number >= SCRY_SYSCALLS_UNKNOWN && (long)regs->orig_ax != -1)
		slot->number = SCRY_SYSCALLS_NONE; /* what we need for ourselves */
	slot->abi = task->thread_info.status & TS_COMPAT ? SCRY_ABI_32 : SCRY_ABI_64;
	slot->ip = regs->ip;
}

/* Do the bytes before `ip` make a call? False also where they cannot be read: *is_read. */
static __always_inline bool is_behind_call(__u64 ip, bool *is_read)
{
	__u16 code = 0;

	*is_read = bpf_probe_read_user(&code, sizeof(code), (void *)(ip - 2)) == 0;
	return *is_read && (code == 0x050f || code == 0x80cd || code == 0x340f);
}

/* Behind a call, or on one that is to be made again: the place behind it. 0: neither. */
static __always_inline __u64 place_at(__u64 ip, bool *is_read)
{
	bool is_other;

	if (is_behind_call(ip, is_read))
		return ip;
	return is_behind_call(ip + 2, &is_other) ? ip + 2 : 0;
}

static __always_inline bool is_sigreturn(const struct scry_syscalls_slot *slot)
{
	return slot->abi == SCRY_ABI_64
		       ? slot->number == NR_RT_SIGRETURN
		       : slot->number == NR_SIGRETURN_32 || slot->number == NR_RT_SIGRETURN_32;
}

/*
 * In the midst of a call. On the way to a handler the place is in the signal's frame; a new program
 * has none. rt_sigreturn is named and placed as when it returns (displace). What is not mapped
 * right now is believed.
 */
static __always_inline void find_place(struct scry_syscalls_slot *slot,
				       const struct pt_regs___kernel *regs)
{
	__u64 ip, was = 0;
	bool is_read, is_frame_read;

	if (is_sigreturn(slot)) {
		slot->number = SCRY_SYSCALLS_RETURNED;
		slot->ip = 0;
		return;
	}
	ip = place_at(slot->ip, &is_read);
	if (!ip && !is_read && !is_exec(slot, 0))
		return;
	if (!ip && slot->abi == SCRY_ABI_64 && !is_exec(slot, 0) &&
	    !bpf_probe_read_user(&was, sizeof(was), (void *)(regs->sp + FRAME_IP)))
		ip = place_at(was, &is_frame_read);
	slot->ip = ip;
}

/*
 * The number -1 at a return is that of rt_sigreturn, which leaves none, or the call's own: there is
 * no such call, and ENOSYS is its result. That may also have been in ax before a signal; then the
 * stack is where it was when the signal came. The same of two handlers within each other is not
 * reported of the outer one.
 */
static __always_inline bool is_none(struct scry_syscalls_slot *slot,
				    const struct pt_regs___kernel *regs, struct entered *e,
				    long result)
{
	if (e && e->signal_sp == regs->sp) {
		e->signal_sp = 0;
		return false;
	}
	if (result == -ENOSYS)
		slot->number = SCRY_SYSCALLS_NONE;
	return result == -ENOSYS;
}

#endif
