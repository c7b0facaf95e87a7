/* A program that calls a function and also takes its address, which must be the one that all
 * others see.
 *
 *   taken N    N calls of labs and of abs, and of strlen through what dlsym gives, then "labs same"
 *              or "labs other", "sum X" */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	long (*volatile pointer)(long) = labs, sum = 0;

	size_t (*volatile length)(const char *) =
		(size_t(*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "strlen");

	for (long i = 0; i < (argc > 1 ? atol(argv[1]) : 1); i++)
		sum += labs(-i) + abs((int)-i) + (long)length("three");
	printf("labs %s\nsum %ld\n",
	       (void *)(uintptr_t)pointer == dlsym(RTLD_DEFAULT, "labs") ? "same" : "other", sum);
	return 0;
}
