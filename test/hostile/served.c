/*
 * A program whose memory it serves itself: served KIND LIBRARY DIRECTORY. It is root's for as long
 * as it takes to arrange that, and then nobody's. It calls work_fold all the time, and prints a
 * line each thousand calls.
 *
 * code: it calls that of a copy of LIBRARY on a file system (fuse.h) in DIRECTORY.
 * dead: the same, but the server answers nothing any more; a context of ucontext waits.
 * stack: a thread stands on a stack in a file there, whose oldest pages it has never touched.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <ucontext.h>

#include "test/hostile/fuse.h"
#include "test/targets/libwork.h"

#define PAGE 4096
#define ROUNDS 1000

static char path[256], *memory;
static ucontext_t on_it, back;
static volatile uint64_t sink;

static void stand(void)
{
	for (;;)
		pause();
}

/* Its oldest half is the file's, and is not there. */
static void *second(void *unused)
{
	(void)unused;
	getcontext(&on_it);
	on_it.uc_stack.ss_sp = memory;
	on_it.uc_stack.ss_size = 4 * PAGE;
	makecontext(&on_it, stand, 0);
	swapcontext(&back, &on_it);
	return NULL;
}

static void begin_stack(void)
{
	int fd = open(path, O_RDONLY);
	pthread_t id;

	memory = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (fd < 0 || memory == MAP_FAILED || madvise(memory, 8 * PAGE, MADV_RANDOM) < 0)
		_exit(2);
	close(fd); /* who ends asks the server when it closes a file */
	pthread_create(&id, NULL, second, NULL);
}

__attribute__((noinline)) static void wait_there(void)
{
	swapcontext(&on_it, &back);
	_exit(4);
}

static void begin_context(void)
{
	static char stack[16 * PAGE];

	getcontext(&on_it);
	on_it.uc_stack.ss_sp = stack;
	on_it.uc_stack.ss_size = sizeof(stack);
	makecontext(&on_it, wait_there, 0);
	swapcontext(&back, &on_it);
}

int main(int argc, char **argv)
{
	uint64_t (*fold)(const uint64_t *, size_t) = NULL;
	struct statfs fs;
	void *library;

	if (argc < 4 || fuse_begin(argv[2], argv[3]) < 0) {
		printf("no file system: %s\n", strerror(errno));
		return 3;
	}
	if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
		return 2;
	snprintf(path, sizeof(path), "%s/lib.so", argv[3]);
	if (!strcmp(argv[1], "stack"))
		begin_stack();
	library = dlopen(!strcmp(argv[1], "stack") ? argv[2] : path, RTLD_NOW);
	*(void **)&fold = library ? dlsym(library, "work_fold") : NULL;
	if (!fold) {
		printf("%s\n", dlerror());
		return 2;
	}
	if (!strcmp(argv[1], "dead")) {
		begin_context();
		sink += fold((const uint64_t[]){1, 2}, 2);
		fuse_is_dead = 1; /* seen when it has answered once more */
		statfs(argv[3], &fs);
	}
	usleep(100000);
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (;;) {
		for (int i = 0; i < ROUNDS; i++) {
			sink += fold((const uint64_t[]){1, 2}, 2);
			usleep(100);
		}
		printf("round\n");
		fflush(stdout);
	}
}
