/* A program that calls a function and also takes its address, which must be the one that all
 * others see.
 *
 *   taken N    N calls of labs and of abs, then "labs same" or "labs other", "sum X" */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	long (*volatile pointer)(long) = labs, sum = 0;

	for (long i = 0; i < (argc > 1 ? atol(argv[1]) : 1); i++)
		sum += labs(-i) + abs((int)-i);
	printf("labs %s\nsum %ld\n",
	       (void *)(uintptr_t)pointer == dlsym(RTLD_DEFAULT, "labs") ? "same" : "other", sum);
	return 0;
}
