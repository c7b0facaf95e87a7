/*
 * See brk_signal.h. The kernel sends the signal only where the owner of the descriptor may send it
 * (sigio_perm in fs/fcntl.c), and says nothing where he may not: only a process that surely may
 * asks for it.
 */
#include "sys/brk_signal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HITS 2		       /* more are not waited for: the kernel then disables it by itself */
#define HOST_USERS 0xeffffffdu /* inode of the first user namespace (linux/proc_ns.h) */

_Static_assert(SCRY_BRK_SIGNAL == SIGURG, "its number on x86-64");

/* All four user ids. */
static bool is_of_user(pid_t tid, uid_t user)
{
	unsigned int ids[4];
	char path[32], line[128];
	bool is = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Uid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) == 4)
			is = ids[0] == user && ids[1] == user && ids[2] == user && ids[3] == user;
	if (f)
		fclose(f);
	return is;
}

static bool may_signal(pid_t tid)
{
	struct stat st;

	return (geteuid() == 0 && stat("/proc/self/ns/user", &st) == 0 &&
		st.st_ino == HOST_USERS) ||
	       is_of_user(tid, geteuid());
}

static bool is_blocked(pid_t tid)
{
	uint64_t mask = 0;

	return ptrace(PTRACE_GETSIGMASK, tid, sizeof(mask), &mask) < 0 ||
	       mask >> (SCRY_BRK_SIGNAL - 1) & 1;
}

int scry_brk_signal_open(pid_t tid, uint64_t address)
{
	const struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = tid}; /* of that very thread */
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = address,
		.bp_len = sizeof(long),
		.sample_period = 1,
		.wakeup_events = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.disabled = 1,
	};
	int fd, err;

	if (is_blocked(tid) || !may_signal(tid))
		return -EPERM;
	fd = (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fd && fcntl(fd, F_SETSIG, SCRY_BRK_SIGNAL) == 0 &&
	    fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) == 0 &&
	    ioctl(fd, PERF_EVENT_IOC_REFRESH, HITS) == 0)
		return fd;
	err = fd ? -errno : -EBADF; /* 0 says: none */
	close(fd);
	return err;
}

/* Disabled first: a descriptor that another process has too, as a child of ours for a moment, keeps
 * the breakpoint. */
void scry_brk_signal_close(int fd)
{
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	close(fd);
}
