/* System calls that are looked at more closely: their numbers, arguments, and what they are about.
 */
#ifndef SCRY_BPF_CALLS_H
#define SCRY_BPF_CALLS_H

#include "bpf/task.h"
#include "wire/bpf_syscalls.h"

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
       NR_SELECT = 23,
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
       NR_PSELECT6 = 270,
       NR_PPOLL = 271,
       NR_EPOLL_PWAIT = 281,
       NR_EXECVEAT = 322,
       NR_STATX = 332,
       NR_CLONE3 = 435,
       NR_OPENAT2 = 437,
       NR_FACCESSAT2 = 439,
       NR_EPOLL_PWAIT2 = 441,
};
#define F_SETFD 2
#define O_NONBLOCK 04000
#define SETFL_MASK 01046000u /* O_APPEND, O_NONBLOCK, O_DIRECT, O_NOATIME */
#define F_SETFL 4
#define FIONBIO 0x5421
#define FUTEX_CMD 0x7f
#define FUTEX_WAKE 1
#define FUTEX_WAKE_BITSET 10
#define EPOLL_CTL_MOD 3
#define MAP_ANONYMOUS 0x20
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define CLOCKS_OF_VDSO 0x8f3u /* CLOCK_REALTIME, MONOTONIC, _RAW, COARSE ones, BOOTTIME, TAI */

struct entered {   /* the call that a thread is in, or was in last */
	__u64 map; /* what it has mapped last, no file; 0 */
	__u64 ns;  /* 0: it was not seen to begin */
	__u64 ip;
	__u64 mask; /* blocked signals: when it began; without --latency, after the last change */
	__u64 signal_sp; /* where the stack was when a signal came whose handler runs; 0 */
	__u32 number;
	__u32 flags;	/* of the file, or of the descriptor */
	__u64 switches; /* 1 + how often it had slept when such a call (limits.h) had ended; 0 */
	__u8 has_mask, has_flags, has_limit, may_wait;
};
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

/* Of either ABI: 120 is clone, 2 fork, 190 vfork of the other one. */
static __always_inline bool may_be_birth(const struct scry_syscalls_slot *slot)
{
	if (slot->abi == SCRY_ABI_32)
		return slot->number == 2 || slot->number == 120 || slot->number == 190 ||
		       slot->number == NR_CLONE3;
	return slot->number == NR_CLONE || slot->number == NR_FORK || slot->number == NR_VFORK ||
	       slot->number == NR_CLONE3;
}

#endif
