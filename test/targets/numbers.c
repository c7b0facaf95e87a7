/*
 * System calls whose numbers are in the code in each way: in libc's wrapper; in one that may be
 * cancelled; passed to syscall(2) by the function that calls it, or by one that jumps to it; handed
 * on by functions that do only that; by two branches to one instruction; by int 0x80, with an
 * argument, as not every kernel has it. The argument says how often each is made, half of them
 * beside another thread; prints its pid.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALONE __attribute__((noinline))

ALONE static long by_wrapper(void)
{
	return getpgid(0);
}

ALONE static long by_passing(void)
{
	return syscall(SYS_getppid) + 1;
}

/* `jmp syscall`: who calls this one is no caller of syscall. */
ALONE static long by_jumping(long first)
{
	return syscall(SYS_getuid, first);
}

ALONE static long by_cancelling(int null)
{
	return write(null, "", 1) + 1;
}

/* As write is from glibc 2.41 on: the number goes over the stack, and from there to a register. */
long by_handing_on(long pid); /* getsid */
__asm__(".text\n"
	".globl by_handing_on\n"
	".type by_handing_on, @function\n"
	"by_handing_on: .cfi_startproc\n"
	"	push $124\n	.cfi_adjust_cfa_offset 8\n"
	"	call outer\n"
	"	pop %rcx\n	.cfi_adjust_cfa_offset -8\n"
	"	ret\n	.cfi_endproc\n"
	"	.size by_handing_on, . - by_handing_on\n"
	".type outer, @function\n"
	"outer:	.cfi_startproc\n"
	"	sub $16, %rsp\n	.cfi_adjust_cfa_offset 16\n"
	"	push 24(%rsp)\n	.cfi_adjust_cfa_offset 8\n"
	"	call inner\n"
	"	add $24, %rsp\n	.cfi_adjust_cfa_offset -24\n"
	"	ret\n	.cfi_endproc\n"
	"	.size outer, . - outer\n"
	".type inner, @function\n"
	"inner:	.cfi_startproc\n"
	"	push %rbx\n	.cfi_adjust_cfa_offset 8\n"
	"	push %r9\n	.cfi_adjust_cfa_offset 8\n"
	"	push %r8\n	.cfi_adjust_cfa_offset 8\n"
	"	mov 32(%rsp), %rsi\n"
	"	mov %rdi, %rdx\n"
	"	call by_register\n"
	"	add $16, %rsp\n	.cfi_adjust_cfa_offset -16\n"
	"	pop %rbx\n	.cfi_adjust_cfa_offset -8\n"
	"	ret\n	.cfi_endproc\n"
	"	.size inner, . - inner\n"
	".type by_register, @function\n"
	"by_register: .cfi_startproc\n"
	"	mov %rsi, %rax\n"
	"	mov %rdx, %rdi\n"
	"	syscall\n"
	"	ret\n	.cfi_endproc\n"
	"	.size by_register, . - by_register\n");

static void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

ALONE static long by_branches(long which)
{
	long result;

	__asm__ volatile("mov $102, %%eax\n\t" /* getuid */
			 "test %1, %1\n\t"
			 "jnz 1f\n\t"
			 "mov $104, %%eax\n" /* getgid */
			 "1: syscall"
			 : "=&a"(result)
			 : "r"(which)
			 : "rcx", "r11", "memory");
	return result;
}

ALONE static long by_interrupt(void)
{
	long result;

	__asm__ volatile("mov $64, %%eax\n\tint $0x80" /* getppid */
			 : "=a"(result)
			 :
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

int main(int argc, char **argv)
{
	const long count = argc > 1 ? atol(argv[1]) : 0;
	const int null = open("/dev/null", O_WRONLY);
	volatile long sum = 0;
	pthread_t thread;

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (long i = 0; i < count; i++) {
		if (i == count / 2 && pthread_create(&thread, NULL, waits, NULL))
			return 1;
		sum += by_cancelling(null) + by_handing_on(0);
		sum += by_wrapper() + by_passing() + by_jumping(39);
		sum += by_branches(i & 1);
		if (argc > 2)
			sum += by_interrupt();
	}
	return sum == 0 && count; /* pids and groups are none */
}
