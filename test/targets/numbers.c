/*
 * System calls whose numbers are in the code in each way: in libc's wrapper; passed to syscall(2)
 * by the function that calls it, or by one that jumps to it; by two branches to one instruction; by
 * int 0x80, with an argument, as not every kernel has it. The argument says how often each is made;
 * prints its pid.
 */
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
	volatile long sum = 0;

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (long i = 0; i < count; i++) {
		sum += by_wrapper() + by_passing() + by_jumping(39);
		sum += by_branches(i & 1);
		if (argc > 2)
			sum += by_interrupt();
	}
	return sum == 0 && count; /* pids and groups are none */
}
