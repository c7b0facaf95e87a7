/*
 * Forges child buffers of fork children (wire/child_buffers.h) as any process of their family
 * could: forge_lanes free|taken PID SECONDS [NAME]. It takes child buffers that are free, in the
 * name of nobody, or all in that of process NAME, or waits for those of children; what it has taken
 * holds, a moment later, more words than there can be. The process that it does so to is none of
 * its own, so that it may go on. "forged N", all of them; without one it goes on for longer.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "wire/child_buffers.h"

#define LONGER 30 /* seconds, until one of them stood: on a busy machine it is seen too soon */

static int mem;
static uint64_t name; /* 0: nobody */

/* Where its child buffers are; 0: it has none. */
static uint64_t find_child_buffers(const char *pid)
{
	char path[64], line[512];
	uint64_t start, end, child_buffers = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%.10s/maps", pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 &&
		    strstr(line, "memfd:scry-") && end - start == SCRY_CHILD_BUFFERS_BYTES)
			child_buffers = start;
	if (maps)
		fclose(maps);
	return child_buffers;
}

/* False: it is there no more. */
static int put(uint64_t at, const void *value, size_t size)
{
	return pwrite(mem, value, size, (off_t)at) == (ssize_t)size;
}

static int forge(uint64_t child_buffers, uint32_t child_buffer, int is_free)
{
	const uint64_t taken = child_buffers + offsetof(struct scry_child_buffers, taken) +
			       4ull * child_buffer,
		       head = child_buffers + SCRY_PAGE + child_buffer * SCRY_CHILD_BUFFER_BYTES +
			      offsetof(struct scry_control, head),
		       many = 1ull << 40,
		       whose = child_buffers + SCRY_PAGE + child_buffer * SCRY_CHILD_BUFFER_BYTES +
			       offsetof(struct scry_control, child_pid);
	uint32_t is_taken = 1;

	if (is_free && !put(taken, &is_taken, sizeof(is_taken)))
		return 0;
	if (is_free && name && !put(whose, &name, sizeof(name)))
		return 0;
	usleep(5000); /* it is seen, and looked for */
	if (pread(mem, &is_taken, sizeof(is_taken), (off_t)taken) != sizeof(is_taken) || !is_taken)
		return 0;
	return put(head, &many, sizeof(many));
}

int main(int argc, char **argv)
{
	struct timespec now, end;
	unsigned long forged = 0;
	char path[64];
	int is_free;
	uint64_t child_buffers;

	if (argc < 4 || argc > 5)
		return 2;
	name = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
	is_free = !strcmp(argv[1], "free");
	snprintf(path, sizeof(path), "/proc/%.10s/mem", argv[2]);
	mem = open(path, O_RDWR | O_CLOEXEC);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += atol(argv[3]);
	for (uint32_t i = 0; clock_gettime(CLOCK_MONOTONIC, &now) == 0 &&
			     now.tv_sec < end.tv_sec + (forged ? 0 : LONGER);
	     i++) {
		child_buffers = find_child_buffers(argv[2]);
		if (child_buffers)
			forged += (unsigned long)forge(child_buffers, is_free ? 3 + i % 50 : i % 2,
						       is_free);
		usleep(2000);
	}
	printf("forged %lu\n", forged);
	return forged == 0;
}
