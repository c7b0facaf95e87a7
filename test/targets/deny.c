/*
 * Runs a command where nobody may be entered: deny [--kill|--kill-but-fstat] CMD... Its processes
 * may not ptrace, nor read or write the memory of others: EPERM, as in containers. With --kill they
 * are ended for any of the calls that a simple program does without, and scry might make; newer
 * glibcs call fstat by themselves.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE(number)                                     \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

#define KILL(number)                                       \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

int main(int argc, char **argv)
{
	struct sock_filter killing[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		KILL(SYS_fstat), /* first: killing[2] is its answer */
		KILL(SYS_ptrace),
		KILL(SYS_process_vm_readv),
		KILL(SYS_gettid),
		KILL(SYS_getpid),
		KILL(SYS_open),
		KILL(SYS_stat),
		KILL(SYS_mincore),
		KILL(SYS_nanosleep),
		KILL(SYS_sched_yield),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog killer = {sizeof(killing) / sizeof(killing[0]), killing};
	const int but_fstat = argc > 1 && !strcmp(argv[1], "--kill-but-fstat");
	const int kills = but_fstat || (argc > 1 && !strcmp(argv[1], "--kill"));
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		REFUSE(SYS_ptrace),
		REFUSE(SYS_process_vm_readv),
		REFUSE(SYS_process_vm_writev),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (but_fstat)
		killing[2].k = SECCOMP_RET_ALLOW;
	argv += kills;
	argc -= kills;
	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, kills ? &killer : &program)) {
		perror("deny");
		return 77;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 127;
}
