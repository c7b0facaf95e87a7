/* A program that locks all memory that it has, and all that it will map. It says "pid" and sleeps.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		perror("mlockall");
		return 1;
	}
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}
