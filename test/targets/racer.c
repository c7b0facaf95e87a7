/*
 * A program that works against whoever enters it: racer maps|descriptors|sizes FD. It may only read
 * the file behind FD, and wants scry, which may write it, to do so. "won N" at the end: how often
 * it was in time.
 *   maps         maps that file over the pages that scry shares with it, as soon as it knows where
 *   descriptors  puts that file in the place of the descriptor that scry has made in it
 *   sizes        makes that file longer and shorter, and seals it
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/control.h"

#define RACERS 2   /* scry holds one of the threads for its calls */
#define NAP_US 100 /* who starts scry makes it slow */

static int file, mem;
static uint64_t file_size;
static volatile unsigned long won;
static volatile sig_atomic_t over;

static void end(int sig)
{
	(void)sig;
	over = 1;
}

/* The agent's header page; false: there is none. */
static bool find_header(uint64_t *ret)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], perms[8], path[256];
	bool found = false;
	uint64_t start, magic;

	while (maps && !found && fgets(line, sizeof(line), maps)) {
		*path = '\0';
		if (sscanf(line, "%" SCNx64 "-%*x %7s %*s %*s %*s %255s", &start, perms, path) >=
			    2 &&
		    !strcmp(perms, "r-xp") && !*path &&
		    pread(mem, &magic, sizeof(magic), (off_t)start) == sizeof(magic) &&
		    magic == SCRY_AGENT_MAGIC) {
			*ret = start;
			found = true;
		}
	}
	if (maps)
		fclose(maps);
	return found;
}

/* Before scry has mapped anything there it would only look for another place. */
static void cover(uint64_t start, uint64_t size)
{
	unsigned char in_memory;

	if (start && size <= file_size && mincore((void *)start, 4096, &in_memory) == 0 &&
	    mmap((void *)start, size, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED)
		won++;
}

static void race_maps(void)
{
	struct scry_agent_header h;
	uint64_t at;

	if (!find_header(&at))
		return;
	while (!over && pread(mem, &h, sizeof(h), (off_t)at) == sizeof(h) &&
	       h.magic == SCRY_AGENT_MAGIC && h.stage != SCRY_AGENT_LEAVING) {
		cover(h.shared, h.shared_size);
		cover(h.child_buffers, h.child_buffers_size);
		for (uint64_t i = 0; i < h.slab_count && i < SCRY_SLABS_MAX; i++)
			cover(h.slabs[i].counters, h.slabs[i].counters_size);
		usleep(NAP_US);
	}
}

static void meet(const char *mode, int fd)
{
	if (!strcmp(mode, "descriptors")) {
		won += dup2(file, fd) == fd;
		return;
	}
	for (off_t size = 4096; !over && ftruncate(fd, size) == 0; size ^= 1 << 20)
		won++;
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK);
}

static void race_descriptors(const char *mode, DIR *dir)
{
	struct dirent *d;

	rewinddir(dir);
	while (!over && (d = readdir(dir))) {
		char is[64] = "";

		if (readlinkat(dirfd(dir), d->d_name, is, sizeof(is) - 1) > 0 &&
		    strstr(is, "memfd:scry"))
			meet(mode, atoi(d->d_name));
	}
}

static void *race(void *mode)
{
	DIR *dir = opendir("/proc/self/fd");

	for (; !over && dir; usleep(NAP_US))
		if (!strcmp(mode, "maps"))
			race_maps();
		else
			race_descriptors(mode, dir);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[RACERS];

	if (argc != 3)
		return 2;
	file = fcntl(atoi(argv[2]), F_DUPFD_CLOEXEC, 3);
	file_size = (uint64_t)lseek(file, 0, SEEK_END);
	mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	signal(SIGTERM, end);
	if (file < 0 || mem < 0)
		return 1;
	for (int i = 0; i < RACERS; i++)
		if (pthread_create(&threads[i], NULL, race, argv[1]))
			return 1;
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (!over)
		usleep(1000);
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	printf("won %lu\n", won);
	return 0;
}
