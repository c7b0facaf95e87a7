/*
 * Programs in which threads are not all there is, or memory is not where it was.
 *
 *   strange clone     a child with the same memory, by clone(CLONE_VM), that is no thread, computes
 *   strange vforks    children that have the same memory for a moment: vfork, again and again
 *   strange dispatch  its system calls are dispatched to itself (Syscall User Dispatch)
 *   strange one       the same of one thread only, which is not the first; it calls snprintf
 *   strange later     the same from SIGUSR1 on; it says "dispatches" then, and goes on
 *   strange limited   may map 60 MiB more than it has, and takes 40 of them now and then
 *   strange moves     at SIGUSR1 its function goes to anonymous memory at the same place
 *   strange files     the same, to memory of another file, as hugetlbfs is
 *   strange block     a thread that clone() made has 64 bytes of its own in the place of libc's
 *                     control block, and computes; what follows them is not mapped
 *   strange blank     the same, and the first of these words, which points to itself, is 0
 *   strange odd       the same, and it is 5, which leads nowhere
 *   strange swaps     its one thread has another thread pointer while it computes
 *   strange pipes     an io_uring worker of the kernel's reads a pipe to which nobody writes
 *
 * Prints "pid N", then "round N" at least twice a second; ends by SIGTERM with status 0, or with 1
 * where a result is wrong. strange_add is what may be hooked.
 */
#include <asm/prctl.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif
#define PAGE 4096

/* On a page of its own. */
__asm__(".section .strange,\"ax\",@progbits\n"
	".balign 4096\n"
	".globl strange_add\n"
	".type strange_add,@function\n"
	"strange_add:\n"
	".cfi_startproc\n"
	"	push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	"	mov %rsp,%rbp\n"
	"	lea (%rdi,%rsi),%rax\n"
	"	pop %rbp\n"
	".cfi_def_cfa_offset 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size strange_add,.-strange_add\n"
	".balign 4096\n"
	".text\n");
long strange_add(long a, long b);

static volatile sig_atomic_t stop, asked;
static volatile char selector; /* 0: system calls pass; 1: they are SIGSYS */
static char stack[65536] __attribute__((aligned(16)));

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

static void on_ask(int sig)
{
	(void)sig;
	asked = 1;
}

static void compute(void)
{
	for (long i = 0; i < 1000; i++) {
		if (strange_add(i, 2 * i) != 3 * i) {
			printf("wrong\n");
			_exit(1);
		}
	}
}

static int other(void *unused)
{
	while (!stop)
		compute();
	(void)unused;
	return 0;
}

static void dispatch(void)
{
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector))
		printf("none here\n");
}

/* Makes no system call itself while one would be SIGSYS, and has no handler that would return by
 * one. */
static void *dispatch_alone(void *is_later)
{
	bool is_on = !is_later;

	if (is_on)
		dispatch();
	while (!stop) {
		if (!is_on && asked) {
			dispatch();
			is_on = true;
			printf("dispatches\n");
		}
		selector = is_on;
		for (int i = 0; i < 1000; i++) {
			char text[16];

			snprintf(text, sizeof(text), "%d", i);
			if (atoi(text) != i) {
				selector = 0;
				printf("wrong\n");
				_exit(1);
			}
		}
		selector = 0;
	}
	return NULL;
}

/* A call may be made in it: it has no restart block. */
static void *wait_for_nothing(void *unused)
{
	while (!unused)
		pause();
	return NULL;
}

static pthread_t begin_alone(bool is_later)
{
	static char later;
	sigset_t all, own;
	pthread_t thread, waiting;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &own);
	if (pthread_create(&waiting, NULL, wait_for_nothing, NULL) ||
	    pthread_create(&thread, NULL, dispatch_alone, is_later ? &later : NULL))
		_exit(2);
	pthread_sigmask(SIG_SETMASK, &own, NULL);
	return thread;
}

/* So many bytes before memory that cannot be read: what libc expects there is missing. `first`: its
 * first word is itself (s), odd (o), or 0. */
static uintptr_t small_block(size_t size, char first)
{
	char *pages =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t block = (uintptr_t)pages + PAGE - size;

	mprotect(pages + PAGE, PAGE, PROT_NONE);
	*(uintptr_t *)block = first == 's' ? block : first == 'o' ? 5 : 0;
	return block;
}

static long raw(long number, long first, long second)
{
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(number), "D"(first), "S"(second)
			 : "rcx", "r11", "memory");
	return ret;
}

/* Without libc, which needs its own control block. */
static int compute_without_libc(void *unused)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	while (!stop) {
		for (long i = 0; i < 10; i++)
			if (strange_add(i, 2 * i) != 3 * i)
				raw(SYS_exit_group, 1, 0);
		raw(SYS_nanosleep, (long)&ms, 0);
	}
	raw(SYS_exit, 0, 0);
	(void)unused;
	return 0;
}

static void begin_without_libc(char first)
{
	if (clone(compute_without_libc, stack + sizeof(stack),
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			  CLONE_SETTLS,
		  NULL, NULL, small_block(64, first), NULL) < 0)
		_exit(2);
}

static void compute_elsewhere(void)
{
	static uintptr_t block;
	uintptr_t own = 0;
	bool is_wrong = false;

	block = block ? block : small_block(256, 's');
	raw(SYS_arch_prctl, ARCH_GET_FS, (long)&own);
	raw(SYS_arch_prctl, ARCH_SET_FS, (long)block);
	for (long i = 0; i < 10; i++)
		is_wrong |= strange_add(i, 2 * i) != 3 * i;
	raw(SYS_arch_prctl, ARCH_SET_FS, (long)own);
	if (is_wrong)
		_exit(1);
}

static void move_page(int file)
{
	char *from = (char *)(uintptr_t)strange_add;
	char *to;

	if (file >= 0 && ftruncate(file, PAGE) < 0)
		_exit(2);
	to = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		  file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE, file, 0);

	memcpy(to, from, PAGE);
	mprotect(to, PAGE, PROT_READ | PROT_EXEC);
	if (mremap(to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) == MAP_FAILED)
		_exit(2);
	printf("moved\n");
}

static void read_by_worker(void)
{
	struct io_uring_params p = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &p), ends[2];
	static char byte;
	struct io_uring_sqe *sqes;
	unsigned int *sq;

	if (ring < 0 || pipe(ends) < 0) {
		printf("none here\n");
		return;
	}
	sqes = mmap(NULL, p.sq_entries * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		    IORING_OFF_SQES);
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		  IORING_OFF_SQ_RING);
	sqes[0] = (struct io_uring_sqe){.opcode = IORING_OP_READ,
					.flags = IOSQE_ASYNC,
					.fd = ends[0],
					.addr = (uintptr_t)&byte,
					.len = 1};
	sq[p.sq_off.array / 4] = 0;
	__atomic_store_n(&sq[p.sq_off.tail / 4], 1, __ATOMIC_RELEASE);
	syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0);
}

static void take_and_give(void)
{
	char *block = malloc(40u << 20);

	if (!block) {
		printf("wrong: %s\n", strerror(errno));
		_exit(1);
	}
	block[0] = 1;
	free(block);
}

static void have_a_child(void)
{
	pid_t child = vfork();

	if (child == 0) {
		usleep(3000);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	struct sigaction term = {.sa_handler = on_term}, ask = {.sa_handler = on_ask};
	const char *how = argc > 1 ? argv[1] : "";
	pid_t child = 0;
	pthread_t thread = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &term, NULL);
	sigaction(SIGUSR1, &ask, NULL);
	if (!strcmp(how, "clone"))
		child = clone(other, stack + sizeof(stack),
			      CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, NULL);
	if (!strcmp(how, "dispatch"))
		dispatch();
	if (!strcmp(how, "one") || !strcmp(how, "later"))
		thread = begin_alone(how[0] == 'l');
	if (!strcmp(how, "limited")) {
		struct rlimit l;
		long pages = 0;
		FILE *f = fopen("/proc/self/statm", "r");

		if (!f || fscanf(f, "%ld", &pages) != 1)
			return 2;
		fclose(f);
		l.rlim_cur = l.rlim_max = (rlim_t)pages * PAGE + (60u << 20);
		setrlimit(RLIMIT_AS, &l);
	}
	if (!strcmp(how, "pipes"))
		read_by_worker();
	if (!strcmp(how, "block"))
		begin_without_libc('s');
	if (!strcmp(how, "blank") || !strcmp(how, "odd"))
		begin_without_libc(how[0]);
	printf("pid %d\n", getpid());
	for (long round = 1; !stop; round++) {
		compute();
		if (!strcmp(how, "limited"))
			take_and_give();
		if (!strcmp(how, "swaps"))
			compute_elsewhere();
		if (!strcmp(how, "vforks"))
			have_a_child();
		if (asked && !strcmp(how, "moves"))
			move_page(-1);
		if (asked && !strcmp(how, "files"))
			move_page(memfd_create("code", 0));
		if (!thread)
			asked = 0;
		if (round % 100 == 0)
			printf("round %ld\n", round);
		usleep(1000);
	}
	if (thread)
		pthread_join(thread, NULL);
	if (child > 0 && (waitpid(child, &argc, 0) != child || argc))
		return 1;
	return 0;
}
