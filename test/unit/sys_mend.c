/*
 * sys/tracee_mend: waits that the kernel does not make again after a stop (signal(7)), and some
 * that it does, know nothing of twenty stops, nor of a call that was made in their thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/gadgets.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"
#include "sys/tracee.h"
#include "sys/stop_the_world.h"

#define ROUNDS 20

enum { READY, CUT, CAME, ERROR, WORDS };
static volatile int *shared;
static const struct timespec long_time = {.tv_sec = 1000};
static int pair[2];		/* of sockets, both with time limits */
static int semaphore, messages; /* taken away at the end */

static long in_epoll_wait(void)
{
	static int fd;
	struct epoll_event event;

	fd = fd ? fd : epoll_create1(0);
	return epoll_wait(fd, &event, 1, 1000000);
}

static long in_epoll_pwait2(void)
{
	static int fd;
	struct epoll_event event;

	fd = fd ? fd : epoll_create1(0);
	return syscall(SYS_epoll_pwait2, fd, &event, 1, &long_time, NULL, 8);
}

static long in_io_uring_enter(void)
{
	static int fd;
	struct io_uring_params p = {0};

	fd = fd ? fd : (int)syscall(SYS_io_uring_setup, 8, &p);
	return syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

static long in_io_getevents(void)
{
	static aio_context_t context;
	struct io_event event;

	if (!context && syscall(SYS_io_setup, 1, &context) < 0)
		return -1;
	return syscall(SYS_io_getevents, context, 1, 1, &event, &long_time);
}

static long in_io_pgetevents(void)
{
	static aio_context_t context;
	struct io_event event;

	if (!context && syscall(SYS_io_setup, 1, &context) < 0)
		return -1;
	return syscall(SYS_io_pgetevents, context, 1, 1, &event, &long_time, NULL);
}

static long in_read(void)
{
	char byte;

	return read(pair[0], &byte, 1);
}

static long in_readv(void)
{
	char byte;
	struct iovec to = {&byte, 1};

	return readv(pair[0], &to, 1);
}

static long in_recv(void)
{
	char byte;

	return recv(pair[0], &byte, 1, 0);
}

static long in_recvmmsg(void)
{
	struct mmsghdr message = {0};

	return recvmmsg(pair[0], &message, 1, 0, NULL);
}

static void fill(void)
{
	char bytes[4096] = {0};

	while (send(pair[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

static long in_write(void)
{
	char bytes[4096] = {0};

	fill();
	return write(pair[0], bytes, sizeof(bytes));
}

static long in_sendmmsg(void)
{
	char bytes[4096] = {0};
	struct iovec from = {bytes, sizeof(bytes)};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &from, .msg_iovlen = 1}};

	fill();
	return sendmmsg(pair[0], &message, 1, 0);
}

static long in_splice(void)
{
	static int pipes[2];

	if (!pipes[0] && pipe(pipes) < 0)
		return -1;
	return splice(pair[0], NULL, pipes[1], NULL, 4096, 0);
}

static long in_accept(void)
{
	static int fd;
	struct timeval limit = {.tv_sec = 1000};

	if (!fd) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		listen(fd, 1);
	}
	return accept(fd, NULL, NULL);
}

static long in_semop(void)
{
	struct sembuf down = {.sem_op = -1};

	return semop(semaphore, &down, 1);
}

static long in_semtimedop(void)
{
	struct sembuf down = {.sem_op = -1};

	return semtimedop(semaphore, &down, 1, &long_time);
}

static long in_msgrcv(void)
{
	char message[32];

	return msgrcv(messages, message, 8, 0, 0);
}

static long in_sigtimedwait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return sigtimedwait(&set, NULL, &long_time);
}

static long in_ppoll(void)
{
	return ppoll(NULL, 0, &long_time, NULL);
}

static long in_pselect(void)
{
	return pselect(0, NULL, NULL, NULL, &long_time, NULL);
}

static long in_futex_wait(void)
{
	static uint32_t word;

	return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL);
}

static long in_futex_wait_bitset(void)
{
	static uint32_t word;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 1000;
	return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &until, NULL, ~0u);
}

static long in_futex_waitv(void)
{
	static uint32_t word;
	struct {
		uint64_t value, address;
		uint32_t flags, reserved;
	} waits = {0, (uintptr_t)&word, 2 /* 32 bits */ | FUTEX_PRIVATE_FLAG, 0};

	return syscall(449 /* futex_waitv */, &waits, 1, 0, NULL, CLOCK_MONOTONIC);
}

static long in_wait(void)
{
	static pid_t child;

	if (!child && (child = fork()) == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return waitpid(child, NULL, 0);
}

static const struct {
	const char *name;
	long (*call)(void);
} waits[] = {
	{"epoll_wait", in_epoll_wait},
	{"epoll_pwait2", in_epoll_pwait2},
	{"io_uring_enter", in_io_uring_enter},
	{"io_getevents", in_io_getevents},
	{"io_pgetevents", in_io_pgetevents},
	{"read with SO_RCVTIMEO", in_read},
	{"readv with SO_RCVTIMEO", in_readv},
	{"recv with SO_RCVTIMEO", in_recv},
	{"recvmmsg with SO_RCVTIMEO", in_recvmmsg},
	{"write with SO_SNDTIMEO", in_write},
	{"sendmmsg with SO_SNDTIMEO", in_sendmmsg},
	{"splice with SO_RCVTIMEO", in_splice},
	{"accept with SO_RCVTIMEO", in_accept},
	{"semop", in_semop},
	{"semtimedop", in_semtimedop},
	{"msgrcv", in_msgrcv},
	{"sigtimedwait", in_sigtimedwait},
	{"ppoll", in_ppoll},
	{"pselect", in_pselect},
	{"futex wait", in_futex_wait},
	{"futex wait bitset", in_futex_wait_bitset},
	{"futex waitv", in_futex_waitv},
	{"waitpid", in_wait},
};

static pid_t start(long (*call)(void))
{
	const struct timeval limit = {.tv_sec = 1000};
	pid_t pid;

	for (int i = 0; i < WORDS; i++)
		shared[i] = 0;
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		_exit(1);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	for (shared[READY] = 1;;) {
		long r = call();

		if (r < 0 && errno == EINTR) {
			shared[CUT]++;
		} else {
			shared[ERROR] = r < 0 ? errno : 0;
			shared[CAME]++;
			for (;;)
				pause();
		}
	}
}

static bool sleeps(pid_t pid)
{
	for (int tries = 0; tries < 5000; tries++) {
		if (shared[READY] && scry_proc_task_state(pid, pid) == 'S')
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

static void call_in(struct scry_stw *w, const struct scry_mem *mem)
{
	const uint64_t getppid_call[7] = {SYS_getppid};
	struct scry_gadgets gadgets;
	struct scry_call how = {.gadgets = &gadgets, .mem_fd = mem->fd};
	struct scry_maps maps;
	struct scry_tracee *t;
	int64_t got = 0;

	assert_int_equal(scry_maps_read(w->pid, &maps), 0);
	assert_int_equal(scry_gadgets_find(mem, &maps, &gadgets), 0);
	t = scry_stw_caller(w, mem, &maps, &how.stack);
	assert_non_null(t);
	how.deadline_ns = scry_now_ns() + 10000000000;
	assert_int_equal(scry_tracee_syscall(t, &how, getppid_call, &got), 0);
	assert_int_equal(scry_tracee_finish(t, &how), 0);
	assert_int_equal(got, getpid());
	scry_maps_done(&maps);
}

static void know_nothing_of_stops(void **state)
{
	struct scry_stw w;
	struct scry_mem mem;

	(void)state;
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		pid_t pid = start(waits[i].call);

		assert_int_equal(scry_mem_open(&mem, pid, 1), 0);
		for (int round = 0; round < ROUNDS; round++) {
			assert_true(sleeps(pid));
			assert_int_equal(scry_stw_stop(&w, pid, 1000000000), 0);
			if (round >= ROUNDS / 2)
				call_in(&w, &mem);
			scry_stw_release(&w);
		}
		assert_true(sleeps(pid));
		if (shared[CAME] && shared[ERROR])
			print_message("%s: %s\n", waits[i].name, strerror(shared[ERROR]));
		if (shared[CUT] || (shared[CAME] && !shared[ERROR]))
			fail_msg("%s: cut short %d times, came back %d", waits[i].name, shared[CUT],
				 shared[CAME]);
		scry_mem_close(&mem);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

static int share(void **state)
{
	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	messages = msgget(IPC_PRIVATE, 0600);
	return shared == MAP_FAILED || semaphore < 0 || messages < 0;
}

static int unshare_all(void **state)
{
	(void)state;
	return semctl(semaphore, 0, IPC_RMID) | msgctl(messages, IPC_RMID, NULL);
}

/* i386 numbers other calls: its 0 restarts one, its 3 reads. */
static void code_of_32_bits(void **state)
{
	struct scry_tracee t = {
		.regs = {.rax = (unsigned long long)-EINTR, .orig_rax = SYS_read, .cs = 0x33}};

	(void)state;
	assert_true(scry_tracee_is_cut(&t));
	t.regs.cs = 0x23;
	assert_false(scry_tracee_is_cut(&t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(know_nothing_of_stops),
					   cmocka_unit_test(code_of_32_bits)};

	return cmocka_run_group_tests(tests, share, unshare_all);
}
