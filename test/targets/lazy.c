/* Memory that is not there until somebody is asked, or at all:
 *
 *   lazy served    shared pages that a thread of the program itself provides (userfaultfd)
 *   lazy sparse    16 GiB of shared memory behind the end of its file
 *
 * Calls table_get of libfaulty.so all the time. Prints "pid N", or "none: WHY" where it cannot. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SERVED (64ul << 20)
#define SPARSE (16ul << 30)

extern int table_get(unsigned index, int *ret);

static int none(const char *what)
{
	printf("none: %s: %s\n", what, strerror(errno));
	return 0;
}

static void *serve(void *arg)
{
	const int fd = (int)(long)arg;
	struct uffd_msg message;

	while (read(fd, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_zeropage zero = {
			.range = {message.arg.pagefault.address & ~4095ull, 4096}};

		ioctl(fd, UFFDIO_ZEROPAGE, &zero);
	}
	return NULL;
}

static int serve_pages(void)
{
	int memory = memfd_create("lazy", 0), fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t thread;
	void *at;

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		return none("userfaultfd");
	if (memory < 0 || ftruncate(memory, SERVED) < 0)
		return none("memfd");
	at = mmap(NULL, SERVED, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	range.range.start = (unsigned long)at;
	range.range.len = SERVED;
	if (at == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &range) < 0)
		return none("userfaultfd");
	pthread_create(&thread, NULL, serve, (void *)(long)fd);
	return 1;
}

static int map_sparse(void)
{
	int memory = memfd_create("lazy", 0);

	if (memory < 0 || ftruncate(memory, 4096) < 0 ||
	    mmap(NULL, SPARSE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED)
		return none("memfd");
	return 1;
}

int main(int argc, char **argv)
{
	int value;

	if (!(argc > 1 && !strcmp(argv[1], "served") ? serve_pages() : map_sparse()))
		return 0;
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (;;) {
		table_get(3, &value);
		usleep(1000);
	}
}
