/*
 * What the fuzzers share: the way to end a run that found something, the input as a file, and the
 * random numbers of the runs from a fixed seed. Each fuzzer is one program: nothing is linked.
 */
#ifndef SCRY_TEST_FUZZ_H
#define SCRY_TEST_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Called by libFuzzer, or by the fuzzer's own main. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts, which libFuzzer takes for a crash, unless it holds. */
static inline void must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

/* The bytes as a file in memory: its descriptor, which the caller closes, at offset 0 by pread. */
static inline int memory_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	must(fd >= 0 && write(fd, data, size) == (ssize_t)size, "no file in memory");
	return fd;
}

/* A file's bytes: how many. Ends the program when there are fewer than `least`, or more than room.
 */
static inline size_t load_file(const char *path, uint8_t *bytes, size_t room, size_t least)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, room);

	if (n < (ssize_t)least || (size_t)n == room) {
		fprintf(stderr, "cannot use '%s'\n", path);
		exit(2);
	}
	close(fd);
	return (size_t)n;
}

/* From 0 to below - 1, the same in every run. */
static inline uint32_t next_random(uint32_t below)
{
	static uint64_t state = 0x5c71u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % below;
}

#endif
