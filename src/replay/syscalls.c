/*
 * How often the allocator asks the kernel, in a replay of its own that is not timed.
 *
 * A filter hands those system calls to a listener, which is one more thread of this process: it
 * counts them and lets them go on. It was begun before the filter, which is the others' only, so it
 * never waits for itself. No tracer is needed, no right, and no signal comes in between.
 */
#include "replay/replay.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (64u << 10)

static const int numbers[SCRY_REPLAY_SYSCALLS] = {
	[SCRY_REPLAY_BRK] = SYS_brk,	     [SCRY_REPLAY_MMAP] = SYS_mmap,
	[SCRY_REPLAY_MUNMAP] = SYS_munmap,   [SCRY_REPLAY_MREMAP] = SYS_mremap,
	[SCRY_REPLAY_MADVISE] = SYS_madvise, [SCRY_REPLAY_MPROTECT] = SYS_mprotect,
	[SCRY_REPLAY_FUTEX] = SYS_futex,
};

static uint32_t listener; /* futex: file descriptor + 1, NO_LISTENER: there is none */
#define NO_LISTENER UINT32_MAX
static uint32_t is_counting;

static void count(int number)
{
	for (uint32_t i = 0; i < SCRY_REPLAY_SYSCALLS; i++)
		if (numbers[i] == number)
			replay.head->syscalls[i] += __atomic_load_n(&is_counting, __ATOMIC_RELAXED);
}

static void *listen(void *arg)
{
	struct seccomp_notif call;
	struct seccomp_notif_resp answer;
	uint32_t fd;

	while (!(fd = __atomic_load_n(&listener, __ATOMIC_ACQUIRE)))
		replay_futex_wait(&listener, 0);
	while (fd != NO_LISTENER) {
		memset(&call, 0, sizeof(call));
		if (ioctl((int)fd - 1, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			replay_die("system calls cannot be counted any more");
		}
		count(call.data.nr);
		answer = (struct seccomp_notif_resp){.id = call.id,
						     .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		ioctl((int)fd - 1, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return arg;
}

/*
 * The calls by number. Of futex only those on words of one process: locks are, while the replay's
 * own waits, and those of the thread that begins and joins others, are shared ones.
 */
static int filter(void)
{
	enum { HEAD = 4, FUTEX = 3 };
	struct sock_filter code[HEAD + SCRY_REPLAY_SYSCALLS + FUTEX + 1];
	struct sock_fprog program = {.filter = code};
	uint32_t n = 0, end = HEAD + SCRY_REPLAY_SYSCALLS - 1, to_listener = end + FUTEX;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, arch));
	code[n++] =
		(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	for (uint32_t i = 0; i < SCRY_REPLAY_SYSCALLS; i++)
		if (i != SCRY_REPLAY_FUTEX) {
			code[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							       (uint32_t)numbers[i],
							       (uint8_t)(to_listener - n), 0);
			n++;
		}
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 2);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, args[1]));
	code[n++] =
		(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FUTEX_PRIVATE_FLAG, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	program.len = (unsigned short)n;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &program);
}

void replay_syscalls_init(void)
{
	pthread_attr_t attr;
	pthread_t id;
	int fd = -1;

	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, replay_map(STACK_BYTES), STACK_BYTES);
	if (pthread_create(&id, &attr, listen, NULL))
		return;
	if (!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fd = filter();
	replay.head->has_syscalls = fd >= 0;
	__atomic_store_n(&listener, fd >= 0 ? (uint32_t)fd + 1 : NO_LISTENER, __ATOMIC_RELEASE);
	replay_futex_wake(&listener);
}

void replay_syscalls_count(bool on)
{
	__atomic_store_n(&is_counting, on, __ATOMIC_RELAXED);
}
