/*
 * The system calls of a jail's child: see jail.h.
 *
 * What is named here is allowed, the rest is answered with an errno. Nothing kills: a Ruby that
 * asks for more goes on without it. A call newer than the list is "not there", which every library
 * has an answer to (clone3, openat2, io_uring); an older one is "not permitted". Addresses cannot
 * be looked behind, so a call is judged by its number and its small arguments only.
 */
#include "sys/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEW_CALLS 424u /* of Linux 5.1 and later; the same numbers on all machines */
#define VALUES_MAX 12
#define PROGRAM_MAX 600

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

static const uint16_t allowed[] = {
	/* files that are open already, pipes among them */
	SYS_read,
	SYS_write,
	SYS_readv,
	SYS_writev,
	SYS_pread64,
	SYS_pwrite64,
	SYS_preadv,
	SYS_pwritev,
	SYS_lseek,
	SYS_close,
	SYS_close_range,
	SYS_dup,
	SYS_dup2,
	SYS_dup3,
	SYS_pipe,
	SYS_pipe2,
	SYS_eventfd,
	SYS_eventfd2,
	SYS_memfd_create,
	SYS_ftruncate,
	SYS_fallocate,
	SYS_fadvise64,
	/* names, to look at */
	SYS_stat,
	SYS_fstat,
	SYS_lstat,
	SYS_newfstatat,
	SYS_statx,
	SYS_statfs,
	SYS_fstatfs,
	SYS_access,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_readlink,
	SYS_readlinkat,
	SYS_getdents,
	SYS_getdents64,
	SYS_getcwd,
	SYS_umask,
	/* waiting */
	SYS_poll,
	SYS_ppoll,
	SYS_select,
	SYS_pselect6,
	SYS_epoll_create,
	SYS_epoll_create1,
	SYS_epoll_ctl,
	SYS_epoll_wait,
	SYS_epoll_pwait,
	SYS_epoll_pwait2,
	SYS_timerfd_create,
	SYS_timerfd_settime,
	SYS_timerfd_gettime,
	SYS_pause,
	SYS_nanosleep,
	SYS_clock_nanosleep,
	SYS_restart_syscall,
	SYS_futex,
	/* memory */
	SYS_mmap,
	SYS_mprotect,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	SYS_mincore,
	SYS_msync,
	SYS_munlock,
	SYS_munlockall,
	/* its own signals and timers; not setitimer and alarm, which would take our limit away */
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_rt_sigpending,
	SYS_rt_sigtimedwait,
	SYS_rt_sigsuspend,
	SYS_sigaltstack,
	SYS_timer_create,
	SYS_timer_settime,
	SYS_timer_gettime,
	SYS_timer_getoverrun,
	SYS_timer_delete,
	/* threads and processes */
	SYS_fork,
	SYS_vfork,
	SYS_exit,
	SYS_exit_group,
	SYS_wait4,
	SYS_waitid,
	SYS_set_robust_list,
	SYS_set_tid_address,
	SYS_rseq,
	SYS_arch_prctl,
	SYS_membarrier,
	SYS_sched_yield,
	SYS_sched_getaffinity,
	SYS_sched_getparam,
	SYS_sched_getscheduler,
	SYS_sched_get_priority_max,
	SYS_sched_get_priority_min,
	SYS_getcpu,
	/* which process and when it is */
	SYS_getpid,
	SYS_getppid,
	SYS_gettid,
	SYS_getpgrp,
	SYS_getpgid,
	SYS_getsid,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_getresuid,
	SYS_getresgid,
	SYS_getgroups,
	SYS_getrlimit,
	SYS_getrusage,
	SYS_times,
	SYS_uname,
	SYS_sysinfo,
	SYS_time,
	SYS_gettimeofday,
	SYS_clock_gettime,
	SYS_clock_getres,
	SYS_getrandom,
};

/* By an argument: one of some values, or none of some bits. */
enum kind { ONE_OF, NO_BITS };
struct rule {
	uint16_t number;
	uint8_t argument;
	uint8_t kind;
	uint16_t error;
	uint16_t count;
	uint32_t values[VALUES_MAX];
};

#define WRITES ((uint32_t)(O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY)))
#define NEW_NAMESPACES                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET | CLONE_PARENT | CLONE_PTRACE)

static const struct rule rules[] = {
	{SYS_open, 1, NO_BITS, EACCES, 1, {WRITES}},
	{SYS_openat, 2, NO_BITS, EACCES, 1, {WRITES}},
	{SYS_clone, 0, NO_BITS, EPERM, 1, {NEW_NAMESPACES}},
	{SYS_execveat, 4, ONE_OF, EPERM, 1, {AT_EMPTY_PATH}}, /* how it is begun */
	{SYS_prlimit64, 0, ONE_OF, EPERM, 1, {0}},
	{SYS_fcntl,
	 1,
	 ONE_OF,
	 EINVAL,
	 10,
	 {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_SETPIPE_SZ,
	  F_ADD_SEALS, F_GET_SEALS}},
	{SYS_ioctl,
	 1,
	 ONE_OF,
	 ENOTTY,
	 6,
	 {TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX}},
	{SYS_prctl,
	 0,
	 ONE_OF,
	 EINVAL,
	 6,
	 {PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, PR_GET_DUMPABLE, PR_GET_SECCOMP,
	  PR_SET_THP_DISABLE}},
};

/* To other processes: the first argument is whose. */
static const uint16_t outward[] = {SYS_kill, SYS_tgkill, SYS_process_vm_readv};

struct program {
	struct sock_filter code[PROGRAM_MAX];
	unsigned short count;
};

static void add(struct program *p, struct sock_filter line)
{
	if (p->count < PROGRAM_MAX)
		p->code[p->count++] = line;
}

static void answer(struct program *p, uint32_t value)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value));
}

static void load(struct program *p, size_t offset)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* Compares, and goes `yes` or `no` lines on. */
static void jump(struct program *p, uint16_t how, uint32_t value, const uint8_t yes_no[2])
{
	add(p, (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | BPF_K | how), value, yes_no[0],
					    yes_no[1]));
}

static void allow(struct program *p, uint32_t number)
{
	jump(p, BPF_JEQ, number, (uint8_t[]){0, 1});
	answer(p, SECCOMP_RET_ALLOW);
}

/* The kernel takes of these arguments the lower half, which comes first. */
static void judge(struct program *p, const struct rule *r)
{
	const uint8_t n = (uint8_t)r->count;

	jump(p, BPF_JEQ, r->number, (uint8_t[]){0, (uint8_t)(n + 3)});
	load(p, offsetof(struct seccomp_data, args) + 8u * r->argument);
	for (uint8_t i = 0; i < n; i++)
		if (r->kind == ONE_OF)
			jump(p, BPF_JEQ, r->values[i], (uint8_t[]){(uint8_t)(n - i), 0});
		else
			jump(p, BPF_JSET, r->values[i],
			     (uint8_t[]){(uint8_t)(n - i - 1), (uint8_t)(i + 1 == n)});
	answer(p, SECCOMP_RET_ERRNO | r->error);
	answer(p, SECCOMP_RET_ALLOW);
}

static void write_program(struct program *p, pid_t own)
{
	load(p, offsetof(struct seccomp_data, arch));
	jump(p, BPF_JEQ, AUDIT_ARCH_X86_64, (uint8_t[]){1, 0});
	answer(p, SECCOMP_RET_ERRNO | ENOSYS);
	load(p, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		allow(p, allowed[i]);
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		judge(p, &rules[i]);
	for (size_t i = 0; i < sizeof(outward) / sizeof(outward[0]); i++) {
		const struct rule only = {outward[i], 0, ONE_OF, EPERM, 1, {(uint32_t)own}};

		if (own)
			judge(p, &only);
		else
			allow(p, outward[i]);
	}
	if (!own)
		allow(p, SYS_tkill);
	jump(p, BPF_JGE, NEW_CALLS, (uint8_t[]){0, 1}); /* those of x32 too */
	answer(p, SECCOMP_RET_ERRNO | ENOSYS);
	answer(p, SECCOMP_RET_ERRNO | EPERM);
}

int scry_jail_filter(pid_t own)
{
	struct program program = {.count = 0};
	struct sock_fprog f = {.filter = program.code};

	write_program(&program, own);
	if (program.count == PROGRAM_MAX)
		return -E2BIG;
	f.len = program.count;
	/* Up to Linux 5.15 a filter would slow the program down by a mitigation, too. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &f) == 0)
		return 0;
	return -errno;
}
