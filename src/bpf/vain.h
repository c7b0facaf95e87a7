/*
 * Calls in vain: what holds of a single call of a thread, asked when it has returned. What that
 * means for all of them, view/syscall_patterns.c says.
 */
#ifndef SCRY_BPF_VAIN_H
#define SCRY_BPF_VAIN_H

#include "bpf/masks.h"
#include "bpf/task.h"
#include "wire/bpf_syscalls.h"

static __always_inline void ask_localtime(struct scry_syscalls_sum *s,
					  const struct scry_syscalls_key *key,
					  const struct pt_regs___kernel *regs)
{
	static const char wanted[16] = "/etc/localtime";
	__u64 path[2] = {0}, want[2];

	__builtin_memcpy(want, wanted, sizeof(want));
	if (bpf_probe_read_user_str(path, sizeof(path), (void *)path_of(key->number, regs)) < 0)
		return;
	found(s, SCRY_VAIN_LOCALTIME, path[0] == want[0] && path[1] == want[1]);
}

/* Memory that is mapped and given back in turn, as malloc does with great blocks. */
static __always_inline void ask_map(struct scry_syscalls_sum *s,
				    const struct pt_regs___kernel *regs, __u32 number, long result,
				    struct entered *e)
{
	if (!e)
		return;
	if (number == NR_MMAP) {
		e->map = regs->r10 & MAP_ANONYMOUS && result > 0 ? (__u64)result : 0;
		return;
	}
	found(s, SCRY_VAIN_MAP, result == 0 && e->map && regs->di == e->map);
	e->map = 0;
}

/* The same before and after, and what was asked for: another thread may have changed it meanwhile.
 */
static __always_inline void ask_flags(struct scry_syscalls_sum *s, struct task_struct *task,
				      const struct pt_regs___kernel *regs, __u32 number,
				      long result, const struct entered *e)
{
	const bool is_fd = number == NR_FCNTL && (__u32)regs->si == F_SETFD;
	__u32 now, want = (__u32)regs->dx, mask = is_fd ? 1 : SETFL_MASK;

	/* one that did not begin was answered by a filter */
	if (result || !e || !e->ns || e->number != number || !e->has_flags ||
	    !sets_flags(number, regs) || !read_flags(task, regs, number, &now))
		return;
	if (number == NR_IOCTL) {
		if (bpf_probe_read_user(&want, sizeof(want), (void *)regs->dx))
			return;
		want = want ? O_NONBLOCK : 0;
		mask = O_NONBLOCK;
	}
	found(s, is_fd ? SCRY_VAIN_CLOEXEC : SCRY_VAIN_FLAGS,
	      now == e->flags && (now & mask) == (want & mask));
}

static __always_inline void ask(struct scry_syscalls_sum *s, const struct scry_syscalls_key *key,
				const struct pt_regs___kernel *regs, long result)
{
	switch (key->number) {
	case NR_READ:
	case NR_WRITE:
	case NR_SENDTO:
	case NR_RECVFROM:
		found(s, SCRY_VAIN_BYTE, regs->dx == 1 && result == 1);
		break;
	case NR_POLL:
		found(s, SCRY_VAIN_POLL, (int)regs->dx == 0 && result == 0);
		break;
	case NR_EPOLL_WAIT:
	case NR_EPOLL_PWAIT:
		found(s, SCRY_VAIN_POLL, (int)regs->r10 == 0 && result == 0);
		break;
	case NR_LSEEK:
		found(s, SCRY_VAIN_TELL, regs->dx == 1 && regs->si == 0 && result >= 0);
		break;
	case NR_BRK:
		/* what a filter answers is not an end of the heap */
		found(s, SCRY_VAIN_TRIM,
		      result > 0 && (__u64)result == regs->di && (__u64)result < s->last);
		if (result > 0)
			s->last = (__u64)result;
		break;
	case NR_MADVISE:
		found(s, SCRY_VAIN_TRIM,
		      result == 0 &&
			      ((int)regs->dx == MADV_DONTNEED || (int)regs->dx == MADV_FREE));
		break;
	case NR_YIELD:
		found(s, SCRY_VAIN_YIELD, result == 0);
		break;
	case NR_SETSOCKOPT:
		found(s, SCRY_VAIN_OPTION, result == 0);
		break;
	case NR_FUTEX:
		if ((regs->si & FUTEX_CMD) == FUTEX_WAKE ||
		    (regs->si & FUTEX_CMD) == FUTEX_WAKE_BITSET)
			found(s, SCRY_VAIN_WAKE, result == 0);
		break;
	case NR_CLOCK_GETTIME:
		found(s, SCRY_VAIN_CLOCK,
		      regs->di < 32 && CLOCKS_OF_VDSO >> regs->di & 1 && result == 0);
		break;
	case NR_GETTIMEOFDAY:
	case NR_TIME:
		found(s, SCRY_VAIN_CLOCK, result >= 0);
		break;
	case NR_EPOLL_CTL:
		found(s, SCRY_VAIN_EPOLL, regs->si == EPOLL_CTL_MOD && result == 0);
		break;
	case NR_STAT:
	case NR_LSTAT:
	case NR_STATX:
	case NR_NEWFSTATAT:
		ask_localtime(s, key, regs);
		break;
	}
}

#endif
