/*
 * For LD_PRELOAD: a thread that takes addresses of its process while all others sleep. It is told
 * by lines of the file that SQUAT names, and answers in the file SQUAT_OUT.
 *
 *   take     maps, and fills, the beginning of each gap between mappings
 *   check    is all of that as it was filled?
 *   free     unmaps it
 *   fork     makes a child, which waits until its input, the parent's end, is closed
 *
 * SQUAT_LOCK: all memory is locked, also what is mapped later.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TAKE 131072u
#define TAKEN_MAX 1024
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static struct taken {
	uint64_t *at;
	size_t words;
} taken[TAKEN_MAX];
static size_t count;
static FILE *out;

/* Beside whatever ends there: an anonymous neighbour becomes one mapping with it. */
static void take_at(uint64_t at, uint64_t end)
{
	size_t size = end - at < TAKE ? end - at : TAKE;
	uint64_t *p = count < TAKEN_MAX
			      ? mmap((void *)at, size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)
			      : MAP_FAILED;

	if (p == MAP_FAILED)
		return;
	taken[count++] = (struct taken){p, size / 8};
	for (size_t i = 0; i < size / 8; i++)
		p[i] = (uint64_t)&p[i];
}

static void take(void)
{
	static char maps[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY);
	uint64_t start, end, last = 0;
	size_t size = 0;
	ssize_t n;

	while ((n = read(fd, maps + size, sizeof(maps) - 1 - size)) > 0)
		size += (size_t)n;
	close(fd);
	maps[size] = 0;
	for (char *line = maps; line && sscanf(line, "%lx-%lx", &start, &end) == 2;) {
		if (last && start - last >= 4096)
			take_at(last, start);
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
		last = line && strncmp(line - 7, "[heap]", 6) ? end : 0;
	}
	fprintf(out, "taken %zu\n", count);
}

static void check(void)
{
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < taken[i].words; k++)
			wrong += taken[i].at[k] != (uint64_t)&taken[i].at[k];
	fprintf(out, "checked %zu wrong %zu\n", count, wrong);
}

static void give_back(void)
{
	for (size_t i = 0; i < count; i++)
		munmap(taken[i].at, taken[i].words * 8);
	count = 0;
	fprintf(out, "freed\n");
}

static void have_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		while (getppid() != 1)
			usleep(50000);
		_exit(0);
	}
	fprintf(out, "child %d\n", pid);
}

static void *listen_to(void *path)
{
	static const struct {
		const char *word;
		void (*does)(void);
	} words[] = {{"take", take}, {"check", check}, {"free", give_back}, {"fork", have_child}};
	FILE *in = fopen(path, "r");
	char line[64];

	while (in && fgets(line, sizeof(line), in)) {
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (!strncmp(line, words[i].word, strlen(words[i].word)))
				words[i].does();
		fflush(out);
	}
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("SQUAT"), *answers = getenv("SQUAT_OUT");
	pthread_t thread;

	out = answers ? fopen(answers, "we") : NULL;
	if (!path || !out)
		return;
	unsetenv("LD_PRELOAD");
	if (getenv("SQUAT_LOCK"))
		mlockall(MCL_CURRENT | MCL_FUTURE);
	pthread_create(&thread, NULL, listen_to, (void *)path);
}
