/*
 * A program at a fixed address, static: switch tables of absolute addresses, addresses of code as
 * immediates and in data. Prints for each way through its switch an address right behind where the
 * table must have led.
 */
#include <stdio.h>
#include <stdlib.h>

#define HERE(at) __asm__ volatile("lea 0(%%rip), %0" : "=r"(at))

void *fixed_way(int way, int *sum);
__attribute__((noinline)) void *fixed_way(int way, int *sum)
{
	void *at = NULL;

	switch (way) {
	case 0:
		HERE(at);
		*sum += 3;
		break;
	case 1:
		HERE(at);
		*sum *= 5;
		break;
	case 2:
		HERE(at);
		*sum ^= 7;
		break;
	case 3:
		HERE(at);
		*sum -= 11;
		break;
	case 4:
		HERE(at);
		*sum |= 64;
		break;
	case 5:
		HERE(at);
		*sum <<= 2;
		break;
	case 6:
		HERE(at);
		*sum = -*sum;
		break;
	case 7:
		HERE(at);
		*sum %= 77;
		break;
	}
	return at;
}

int main(int argc, char **argv)
{
	int sum = argc;

	(void)argv;
	for (int i = 0; i < 8; i++)
		printf("%lx\n", (unsigned long)fixed_way(i, &sum));
	return 0;
}
