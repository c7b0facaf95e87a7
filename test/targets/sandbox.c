/*
 * A program that forbids itself the system calls that scry's agent makes, and would be ended by
 * one:
 *
 *   sandbox HOW CALLS   HOW: prctl, syscall, bare (its own instruction), none; with `all` appended
 *                       (syscall-all, bare-all) it holds for threads that run already, too
 *
 *   sandbox sit         forbids itself also to map memory, and to return from a signal handler,
 * says "sits", and waits for another line
 *
 * Says "pid", waits for a line, then: a thread that goes on making CALLS calls of work_fold, and as
 * many blocks of memory, some of them large; the filter; the same in the first thread, and in one
 * that begins then. At last "ok SUM". Killed by SIGSYS: 159.
 *
 * A bare filter is seen when the keeper looks next. Until then nothing is called: it says
 * "filtered", and all wait for another line.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libwork.h"

#define BIG 300000

static const int denied[] = {SYS_gettid,  SYS_mincore,	       SYS_futex, SYS_process_vm_readv,
			     SYS_getpid,  SYS_restart_syscall, SYS_mmap,  SYS_munmap,
			     SYS_madvise, SYS_rt_sigreturn};
#define DENIED (sizeof(denied) / sizeof(denied[0]))
#define MAPPING 4 /* the last ones, which are denied to who sits only */

static atomic_ulong sum;
static atomic_int running, done, is_held, holds;
static long calls;

static void *work(void *unused)
{
	const uint64_t values[2] = {1, 2};
	uint64_t own = 0;

	atomic_fetch_add(&running, 1);
	for (long i = 0; i < calls; i++) {
		if (is_held) {
			holds = 1;
			while (is_held)
				;
		}
		char *volatile p = malloc(i % 1000 ? 100 : BIG);

		p[0] = (char)i;
		own += work_fold(values, 2) + (unsigned char)p[0];
		free(p);
	}
	atomic_fetch_add(&sum, own);
	atomic_fetch_add(&done, 1);
	return unused;
}

static long bare(long number, long a, long b, const void *c)
{
	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return number;
}

static int forbid(const char *how)
{
	struct sock_filter rules[1 + 2 * DENIED + 1] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog program = {0, rules};
	size_t count = !strcmp(how, "sit") ? DENIED : DENIED - MAPPING;
	unsigned int flags = strstr(how, "-all") ? SECCOMP_FILTER_FLAG_TSYNC : 0;

	for (size_t i = 0; i < count; i++) {
		rules[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
								(unsigned int)denied[i], 0, 1);
		rules[2 + 2 * i] =
			(struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	}
	rules[1 + 2 * count] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = (unsigned short)(2 + 2 * count);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 1;
	if (!strcmp(how, "prctl") || !strcmp(how, "sit"))
		return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
	if (!strncmp(how, "syscall", 7))
		return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	return (int)bare(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static int sit(void)
{
	char line[16];

	if (forbid("sit"))
		return 3;
	if (write(1, "sits\n", 5) < 0 || read(0, line, sizeof(line)) < 0)
		return 2;
	printf("ok %lu\n", work_fold((const uint64_t[]){1, 2}, 2));
	return 0;
}

static void begin(void)
{
	pthread_attr_t attr;
	pthread_t id;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&id, &attr, work, NULL))
		_exit(2);
}

/* Until the other thread is outside of all functions that are watched, or has ended. */
static void hold(void)
{
	is_held = 1;
	while (!holds && !done)
		;
}

int main(int argc, char **argv)
{
	char line[16];
	bool is_bare;

	calls = argc > 2 ? atol(argv[2]) : 1000;
	printf("pid %d\n", getpid());
	fflush(stdout);
	if (read(0, line, sizeof(line)) < 0)
		return 2;
	if (!strcmp(argv[1], "sit"))
		return sit();
	begin();
	while (!running)
		;
	is_bare = !strncmp(argv[1], "bare", 4);
	if (is_bare)
		hold();
	if (strcmp(argv[1], "none") != 0 && forbid(argv[1])) {
		printf("no filters here\n");
		return 3;
	}
	if (is_bare && (write(1, "filtered\n", 9) < 0 || read(0, line, sizeof(line)) < 0))
		return 2;
	is_held = 0;
	work(NULL);
	begin();
	while (done < 3) /* no waiting: it is a futex */
		;
	printf("ok %lu\n", sum);
	return 0;
}
