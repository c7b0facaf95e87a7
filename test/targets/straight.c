/* System calls from instructions whose number is set right before them, and from others.
 *
 * Makes calls at each of its places till a line of its input comes; then does what lines say:
 *
 *   N        N calls at `plain`
 *   fork N   the same in a child
 *   child    "child PID": one that sleeps till its parent ends
 *   load FILE  calls at `hot` of that library, till another line comes: then it is unloaded;
 * "loaded", "unloaded" pace     "pace NS": what a call takes, the least of many rounds; no line of
 * calls
 *
 * Prints "pid N", and after each line "calls N unsure M": so often the call of `plain` was made
 * while the code before it was not as in the file, and so often that was changed meanwhile. Ends
 * with status 1, and "wrong", where a call changes what it should not. */
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOV_EAX 0xb8
#define ROUND 100
#define PACE_ROUNDS 300
#define PACE_CALLS 1000

/* getppid. What it leaves alone: the carry, all registers but rax, rcx and r11, and the 128 bytes
 * below the stack pointer. The bits of the result are what was found changed. */
long plain(void);
extern const volatile uint8_t plain_mov[];
__asm__(".text; .globl plain; .type plain, @function; plain: .cfi_startproc\n"
	"movq $0x1234, -8(%rsp); movq $0x5678, -128(%rsp)\n"
	"mov $1, %edx; mov $2, %esi; mov $3, %edi; mov $4, %r8d; mov $5, %r9d; mov $6, %r10d\n"
	"stc\n"
	".globl plain_mov; plain_mov: mov $110, %eax; syscall\n"
	"setnc %al; movzbl %al, %eax\n"
	"cmpq $0x1234, -8(%rsp); je 1f; or $2, %eax; 1:\n"
	"cmpq $0x5678, -128(%rsp); je 1f; or $4, %eax; 1:\n"
	"lea (%rdx, %rsi), %ecx; add %edi, %ecx; add %r8d, %ecx; add %r9d, %ecx; add %r10d, %ecx\n"
	"cmp $21, %ecx; je 1f; or $8, %eax; 1: ret\n"
	".cfi_endproc; .size plain, . - plain");

/* getuid, or with an argument getgid: a branch leads to the call, past the mov before it. */
long side(long is_group);
__asm__(".text; .globl side; .type side, @function; side: .cfi_startproc\n"
	"mov $104, %eax; test %edi, %edi; jnz 1f\n"
	"mov $102, %eax; 1: syscall; ret\n"
	".cfi_endproc; .size side, . - side");

/* The number is not set right before it. */
long passed(long number);
__asm__(".text; .globl passed; .type passed, @function; passed: .cfi_startproc\n"
	"mov %edi, %eax; syscall; ret\n"
	".cfi_endproc; .size passed, . - passed");

/* The bytes of the mov are the end of another instruction. */
long tail(void);
__asm__(".text; .globl tail; .type tail, @function; tail: .cfi_startproc\n"
	"mov $102, %eax; .byte 0x41, 0xb8, 102, 0, 0, 0; syscall; ret\n"
	".cfi_endproc; .size tail, . - tail");

static long calls, unsure;

static void call(void)
{
	const int before = *plain_mov;
	const long changed = plain();
	const int after = *plain_mov;

	if (changed) {
		printf("wrong: %ld\n", changed);
		fflush(stdout);
		_exit(1);
	}
	calls += before != MOV_EAX && after != MOV_EAX;
	unsure += before != after;
}

static void call_all(void)
{
	for (int i = 0; i < ROUND; i++) {
		call();
		side(i % 2);
		passed(SYS_getegid);
		tail();
	}
}

static void fork_and_call(long n)
{
	const pid_t child = fork();
	int status = 1;

	if (child == 0) {
		while (n-- > 0)
			call();
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		printf("wrong: its child\n");
}

static void fork_and_stay(void)
{
	const pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	printf("child %d\n", (int)child);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void tell_pace(void)
{
	double least = 1e18;

	for (int i = 0; i < PACE_ROUNDS; i++) {
		const double began = now_ns();
		double ns;

		for (int k = 0; k < PACE_CALLS; k++)
			plain();
		ns = (now_ns() - began) / PACE_CALLS;
		least = ns < least ? ns : least;
	}
	printf("pace %.0f\n", least);
}

static void load(const char *file, struct pollfd *in)
{
	void *library = dlopen(file, RTLD_NOW);
	long (*hot)(void) = library ? (long (*)(void))dlsym(library, "hot") : NULL;

	if (!hot) {
		printf("wrong: %s\n", dlerror());
		return;
	}
	printf("loaded\n");
	fflush(stdout);
	while (poll(in, 1, 0) == 0)
		for (int i = 0; i < ROUND; i++)
			hot();
	dlclose(library);
	printf("unloaded\n");
}

int main(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char line[4096];

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (poll(&in, 1, 0) == 0)
		call_all();
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == 'l')
			load(line + sizeof("load"), &in);
		else if (line[0] == 'p')
			tell_pace();
		else if (line[0] == 'c')
			fork_and_stay();
		else if (line[0] == 'f')
			fork_and_call(atol(line + sizeof("fork")));
		else
			for (long n = atol(line); n > 0; n--)
				call();
		if (line[0] != 'p' && line[0] != 'l' && line[0] != 'c')
			printf("calls %ld unsure %ld\n", calls, unsure);
		fflush(stdout);
	}
	return 0;
}
