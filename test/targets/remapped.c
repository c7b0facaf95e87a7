/*
 * A call of getppid at one address, in two files that are mapped there one after the other:
 * remapped FIRST SECOND, which it makes. Prints how many calls were made in each.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CALLS 200000

static const unsigned char code[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3}; /* getppid, return */

static void *map(const char *path, void *at)
{
	char page[4096] = {0};
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0700);
	void *p;

	memcpy(page, code, sizeof(code));
	if (fd < 0 || write(fd, page, sizeof(page)) != sizeof(page))
		exit(1);
	p = mmap(at, sizeof(page), PROT_READ | PROT_EXEC, MAP_PRIVATE | (at ? MAP_FIXED : 0), fd,
		 0);
	close(fd);
	if (p == MAP_FAILED)
		exit(1);
	return p;
}

static void call(void *at)
{
	for (int i = 0; i < CALLS; i++)
		((long (*)(void))at)();
}

int main(int argc, char **argv)
{
	void *at;

	if (argc < 3)
		return 2;
	at = map(argv[1], NULL);
	call(at);
	if (map(argv[2], at) != at)
		return 1;
	call(at);
	printf("%d\n", CALLS);
	return 0;
}
