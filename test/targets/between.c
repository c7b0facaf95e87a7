/*
 * Calls that something comes between, or that are none:
 *
 *   between handlers MS   tgkill to itself, with a handler, for so long of its own processor time
 *   between enosys N      the same N times, and its handlers leave ENOSYS in ax
 *   between none N        N calls each of the numbers -1 and -2, N by int $0x80 of -1
 *   between answered N    N times the signal mask that is in force, which a filter answers with 0
 *   between passed N      the same below a filter of other calls
 *   between paths N       first 300 slow ones, then N that ask for a file that is not there
 *   between localtime N   200 of those, and N for /etc/localtime, from the same instruction
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long hits;
static int leaves_enosys;

static void handle(int sig, siginfo_t *info, void *context)
{
	ucontext_t *at = context;

	hits++;
	if (leaves_enosys)
		at->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

static void take_signal(void)
{
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
}

static int answer(unsigned int number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(*code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int set_masks(long n, unsigned int answered)
{
	sigset_t none;

	sigemptyset(&none);
	if (answer(answered)) {
		perror("between: seccomp");
		return 1;
	}
	for (long i = 0; i < n; i++)
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
	return 0;
}

static void ask_for(long n, const char *path, unsigned int rest_us)
{
	struct stat st;

	for (long i = 0; i < n; i++) {
		stat(path, &st);
		if (rest_us)
			usleep(rest_us);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";
	const long n = argc == 3 ? atol(argv[2]) : 0;
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};

	sigaction(SIGUSR1, &action, NULL);
	leaves_enosys = !strcmp(what, "enosys");
	if (!strcmp(what, "handlers")) {
		while (clock() < n * (CLOCKS_PER_SEC / 1000))
			for (int i = 0; i < 1000; i++)
				take_signal();
	} else if (leaves_enosys) {
		for (long i = 0; i < n; i++)
			take_signal();
	} else if (!strcmp(what, "none")) {
		for (long i = 0; i < n; i++) {
			long result = -1;

			syscall(-1L);
			syscall(0xfffffffeL);
			__asm__ volatile("int $0x80" : "+a"(result) : : "memory");
		}
	} else if (!strcmp(what, "answered")) {
		return set_masks(n, SYS_rt_sigprocmask);
	} else if (!strcmp(what, "passed")) {
		return set_masks(n, SYS_getppid);
	} else if (!strcmp(what, "paths")) {
		ask_for(300, "/nowhere/early/file", 1000);
		ask_for(n, "/nowhere/late/file", 0);
	} else if (!strcmp(what, "localtime")) {
		ask_for(200, "/nowhere/early/file", 0);
		ask_for(n, "/etc/localtime", 0);
	} else {
		fprintf(stderr,
			"usage: between handlers|enosys|none|answered|passed|paths|localtime N\n");
		return 2;
	}
	printf("hits %ld\n", hits);
	return 0;
}
