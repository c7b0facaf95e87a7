/* A system call that a stop has ended is made again. Part of tracee.h. */
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "sys/tracee.h"

#define ERESTARTNOHAND 514 /* include/linux/errno.h */

/*
 * Of calls that say EINTR where others are made again (signal(7), and the kernel's own code): those
 * that have done nothing when they say it. Reading and writing are among them for sockets with a
 * time limit, and for files of FUSE. Not close: what it closed is closed. Those that are not here
 * say ERESTARTSYS, ERESTARTNOHAND or have a restart block, as futex, poll, ppoll, select, pselect6,
 * msgrcv, msgsnd, mq_timedreceive, flock, wait4 and io_pgetevents do.
 */
static bool is_repeatable(uint64_t nr)
{
	static const uint16_t calls[] = {
		SYS_epoll_wait,	    SYS_epoll_pwait, SYS_epoll_pwait2,	  SYS_semop,
		SYS_semtimedop,	    SYS_recvfrom,    SYS_recvmsg,	  SYS_sendto,
		SYS_sendmsg,	    SYS_accept,	     SYS_accept4,	  SYS_connect,
		SYS_io_getevents,   SYS_recvmmsg,    SYS_rt_sigtimedwait, SYS_sendmmsg,
		SYS_io_uring_enter, SYS_read,	     SYS_readv,		  SYS_pread64,
		SYS_preadv,	    SYS_preadv2,     SYS_write,		  SYS_writev,
		SYS_pwrite64,	    SYS_pwritev,     SYS_pwritev2,	  SYS_sendfile,
		SYS_splice,
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (nr == calls[i])
			return true;
	return false;
}

bool scry_tracee_is_cut(const struct scry_tracee *t)
{
	return t->regs.cs == 0x33 && /* in code of 32 bits the numbers are of other calls */
	       (int64_t)t->regs.rax == -EINTR && is_repeatable(t->regs.orig_rax);
}

void scry_tracee_mend(struct scry_tracee *t)
{
	struct user_regs_struct regs = t->regs;

	if (!t->stopped || t->group_stopped || t->was_set || !scry_tracee_is_cut(t))
		return;
	regs.rax = (uint64_t)-ERESTARTNOHAND;
	ptrace(PTRACE_SETREGS, t->tid, NULL, &regs);
}

void scry_tracee_mend_signal(pid_t tid)
{
	struct scry_tracee t = {.tid = tid, .stopped = true};

	if (ptrace(PTRACE_GETREGS, tid, 0, &t.regs) == 0)
		scry_tracee_mend(&t);
}
