/*
 * Calls in vain: what holds of a single call of a thread, asked when it has returned. What that
 * means for all of them, view/syscall_patterns.c says.
 */
#ifndef SCRY_BPF_VAIN_H
#define SCRY_BPF_VAIN_H

#include "bpf/task.h"
#include "wire/bpf_syscalls.h"

struct entered {   /* the call that a thread is in, or was in last */
	__u64 map; /* what it has mapped last, no file; 0 */
	__u64 ns;  /* 0: it was not seen to begin */
	__u64 ip;
	__u64 mask; /* blocked signals: when it began; without --latency, after the last change */
	__u32 number;
	__u32 flags; /* of the file, or of the descriptor */
	__u8 has_mask, has_flags;
};
enum { /* numbers of system calls */
       NR_READ = 0,
       NR_WRITE = 1,
       NR_OPEN = 2,
       NR_STAT = 4,
       NR_LSTAT = 6,
       NR_POLL = 7,
       NR_LSEEK = 8,
       NR_MMAP = 9,
       NR_MUNMAP = 11,
       NR_BRK = 12,
       NR_SIGPROCMASK = 14,
       NR_IOCTL = 16,
       NR_ACCESS = 21,
       NR_YIELD = 24,
       NR_MADVISE = 28,
       NR_SENDTO = 44,
       NR_RECVFROM = 45,
       NR_SETSOCKOPT = 54,
       NR_CLONE = 56,
       NR_FORK = 57,
       NR_VFORK = 58,
       NR_EXECVE = 59,
       NR_EXIT = 60,
       NR_FCNTL = 72,
       NR_READLINK = 89,
       NR_GETTIMEOFDAY = 96,
       NR_TIME = 201,
       NR_FUTEX = 202,
       NR_CLOCK_GETTIME = 228,
       NR_EXIT_GROUP = 231,
       NR_EPOLL_WAIT = 232,
       NR_EPOLL_CTL = 233,
       NR_OPENAT = 257,
       NR_NEWFSTATAT = 262,
       NR_READLINKAT = 267,
       NR_FACCESSAT = 269,
       NR_EPOLL_PWAIT = 281,
       NR_EXECVEAT = 322,
       NR_STATX = 332,
       NR_CLONE3 = 435,
       NR_OPENAT2 = 437,
       NR_FACCESSAT2 = 439,
};
#define F_SETFD 2
#define F_SETFL 4
#define FIONBIO 0x5421
#define FUTEX_CMD 0x7f
#define FUTEX_WAKE 1
#define FUTEX_WAKE_BITSET 10
#define EPOLL_CTL_MOD 3
#define MAP_ANONYMOUS 0x20
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define CLOCKS_OF_VDSO 0x8e3u /* CLOCK_REALTIME, MONOTONIC, their COARSE ones, BOOTTIME, TAI */

static __always_inline void found(struct scry_syscalls_sum *s, __u32 what, bool is_vain)
{
	if (s->what != what) {
		if (s->what)
			return;
		s->what = what;
	}
	s->asked++;
	s->vain += is_vain;
}

/* The argument that is a path; 0: none is. */
static __always_inline __u64 path_of(__u32 number, const struct pt_regs___kernel *regs)
{
	switch (number) {
	case NR_OPEN:
	case NR_STAT:
	case NR_LSTAT:
	case NR_ACCESS:
	case NR_READLINK:
	case NR_EXECVE:
		return regs->di;
	case NR_OPENAT:
	case NR_NEWFSTATAT:
	case NR_READLINKAT:
	case NR_FACCESSAT:
	case NR_FACCESSAT2:
	case NR_STATX:
	case NR_OPENAT2:
	case NR_EXECVEAT:
		return regs->si;
	}
	return 0;
}

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

/* The mask is the thread's own: nobody else changes it, but for a signal that is delivered. */
static __always_inline void ask_mask(struct scry_syscalls_sum *s, struct task_struct *task,
				     const struct pt_regs___kernel *regs, struct entered *e)
{
	__u64 now = task->blocked.sig[0];

	if (!e)
		return;
	if (regs->si && e->has_mask)
		found(s, SCRY_VAIN_MASK, e->mask == now);
	e->mask = now;
	e->has_mask = 1;
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

/* What is seen of the descriptor `fd` of a thread: its file's flags; or its own (F_SETFD). */
static __always_inline bool
read_flags(struct task_struct *task, const struct pt_regs___kernel *regs, __u32 number, __u32 *ret)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	__u32 fd = (__u32)regs->di, most = BPF_CORE_READ(table, max_fds);
	unsigned long *bits = BPF_CORE_READ(table, close_on_exec), word;
	struct file **files = BPF_CORE_READ(table, fd), *file;

	if (fd >= most)
		return false;
	if (number == NR_FCNTL && (__u32)regs->si == F_SETFD) {
		if (bpf_probe_read_kernel(&word, sizeof(word), bits + fd / 64))
			return false;
		*ret = word >> (fd % 64) & 1;
		return true;
	}
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
		return false;
	*ret = BPF_CORE_READ(file, f_flags);
	return true;
}

static __always_inline bool sets_flags(__u32 number, const struct pt_regs___kernel *regs)
{
	__u32 what = (__u32)regs->si;

	return (number == NR_FCNTL && (what == F_SETFD || what == F_SETFL)) ||
	       (number == NR_IOCTL && what == FIONBIO);
}

static __always_inline void ask_flags(struct scry_syscalls_sum *s, struct task_struct *task,
				      const struct pt_regs___kernel *regs, __u32 number,
				      const struct entered *e)
{
	__u32 now;

	if (e && e->has_flags && sets_flags(number, regs) && read_flags(task, regs, number, &now))
		found(s,
		      number == NR_FCNTL && (__u32)regs->si == F_SETFD ? SCRY_VAIN_CLOEXEC
								       : SCRY_VAIN_FLAGS,
		      now == e->flags);
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
		found(s, SCRY_VAIN_TRIM, (__u64)result < s->last);
		s->last = (__u64)result;
		break;
	case NR_MADVISE:
		found(s, SCRY_VAIN_TRIM, regs->dx == MADV_DONTNEED || regs->dx == MADV_FREE);
		break;
	case NR_YIELD:
		found(s, SCRY_VAIN_YIELD, true);
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
		found(s, SCRY_VAIN_CLOCK, true);
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
