/*
 * Makes getppid from N places: a page full of `syscall; ret`, each called once, or K times one
 * after the other. Prints "places N calls M".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACE 4u

static long call(const uint8_t *place)
{
	long result;

	__asm__ volatile("call *%1"
			 : "=a"(result)
			 : "r"(place), "a"(SYS_getppid)
			 : "rcx", "r11", "memory");
	return result;
}

int main(int argc, char **argv)
{
	static const uint8_t code[PLACE] = {0x0f, 0x05, 0xc3, 0xcc};
	const long n = argc > 1 ? atol(argv[1]) : 1, times = argc > 2 ? atol(argv[2]) : 1;
	const size_t size = (size_t)n * PLACE;
	uint8_t *places =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const long want = getppid();

	if (places == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < size; i++)
		places[i] = code[i % PLACE];
	if (mprotect(places, size, PROT_READ | PROT_EXEC) < 0)
		return 1;
	for (long k = 0; k < times; k++)
		for (long i = 0; i < n; i++)
			if (call(places + (size_t)i * PLACE) != want)
				return 1;
	printf("places %ld calls %ld\n", n, n * times + 1);
	return 0;
}
