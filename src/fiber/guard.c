/*
 * Slabs and the guards of their stacks. A slab is mapped without access, so that a program that
 * locks what it maps does not get it all into memory; then its kind of guard is tried on its first
 * stack:
 *
 * - madvise: the kernel marks pages as guards within one mapping (Linux 6.13). The whole slab is
 *   opened, and neighbours merge.
 * - mprotect: what is not opened stays without access, so each stack is two mappings. They are
 *   counted over all pools, against a ceiling that leaves the program mappings of its own: it would
 *   die of their lack in places that are not checked.
 *
 * A slab whose memory the program locks later (mlockall) goes over from the one to the other: what
 * is not open yet is taken out of reach, as it would have been from the beginning.
 *
 * Guards are set in batches by process_madvise on the process itself, where the kernel takes it;
 * else one by one.
 */
#include "fiber/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define GUARD_INSTALL 102  /* MADV_GUARD_INSTALL, include/uapi/asm-generic/mman-common.h of 6.13 */
#define KEPT_MAPPINGS 1000 /* stacks' worth of mappings that are left to the program */
#define IOVECS 32	   /* they lie on the stack of whoever needs a stack */

static _Atomic long mapped_guards; /* made by mprotect, over all pools */
static _Atomic int batches_fail;   /* process_madvise does not take this advice */

static long ceiling(void)
{
	char text[32] = "";
	int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	long most;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		strcpy(text, "65530"); /* the kernel's default */
	if (fd >= 0)
		close(fd);
	most = strtol(text, NULL, 10) / 2 - KEPT_MAPPINGS;
	return most > 0 ? most : 0;
}

static void write_ceiling(struct scry_stack_pool *pool, const char *why)
{
	snprintf(pool->note, sizeof(pool->note),
		 "guards by mprotect, as %s: at most %ld stacks in this process; raise "
		 "vm.max_map_count for more",
		 why, ceiling());
	if (pool->is_note_written || pool->attr.report_fd < 0)
		return;
	pool->is_note_written = true;
	dprintf(pool->attr.report_fd, "scry_stack: %s\n", pool->note);
}

/* Which kind a new slab can have: MADV_GUARD_INSTALL fails on locked memory and before 6.13. */
static enum scry_guard_kind probe(struct scry_stack_pool *pool, struct scry_stack_slab *slab)
{
	const char *wish = getenv("SCRY_STACK_GUARD");

	if (wish != NULL && strcmp(wish, "mprotect") == 0) {
		write_ceiling(pool, "SCRY_STACK_GUARD says so");
		return SCRY_GUARD_MPROTECT;
	}
	if (madvise(scry_slot_guard(pool, slab, 0), pool->guard, GUARD_INSTALL) == 0)
		return SCRY_GUARD_MADVISE;
	write_ceiling(pool, "the kernel has no lightweight ones for this memory");
	return SCRY_GUARD_MPROTECT;
}

static struct scry_stack_slab *map_slab(struct scry_stack_pool *pool, uint32_t slab_index)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE;
	size_t size = pool->head + pool->slab_slots * pool->stride;
	struct scry_stack_slab *slab = mmap(NULL, size, PROT_NONE, flags, -1, 0);
	enum scry_guard_kind kind;
	size_t opened;

	if (slab == MAP_FAILED)
		return NULL;
	/* MAP_STACK says so by itself from Linux 6.7 on; a kernel without huge pages refuses it */
	madvise(slab, size, MADV_NOHUGEPAGE);
	kind = probe(pool, slab);
	opened = kind == SCRY_GUARD_MADVISE ? size : pool->head;
	if (mprotect(slab, opened, PROT_READ | PROT_WRITE) != 0) {
		int error = errno;

		munmap(slab, size);
		errno = error;
		return NULL;
	}
	pool->slab_kind[slab_index] = kind;
	return slab;
}

/* A cancelled thread would end here with the pool locked: in what is read and written. */
struct scry_stack_slab *scry_guard_map_slab(struct scry_stack_pool *pool, uint32_t slab_index)
{
	struct scry_stack_slab *slab;
	int cancelled;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
	slab = map_slab(pool, slab_index);
	pthread_setcancelstate(cancelled, NULL);
	return slab;
}

void scry_guard_unmap_slab(struct scry_stack_pool *pool, uint32_t slab_index)
{
	struct scry_stack_slab *slab = atomic_exchange(&pool->slabs[slab_index], NULL);

	if (slab == NULL)
		return;
	atomic_fetch_sub(&mapped_guards, (long)slab->mapped_guards);
	munmap(slab, pool->head + pool->slab_slots * pool->stride);
}

/* Advises on many ranges; 0 or -errno of the first that failed. A short count is gone over again.
 */
static int advise_all(struct iovec *ranges, uint32_t count, int advice)
{
	uint32_t done = 0;
	int pidfd = -1;

	if (count > 1 && !atomic_load(&batches_fail)) {
		/* opened each time: one that is kept would be the parent's in a forked child */
		pidfd = syscall(SYS_pidfd_open, getpid(), 0);
		ssize_t bytes =
			pidfd < 0 ? -1
				  : syscall(SYS_process_madvise, pidfd, ranges, count, advice, 0);

		if (pidfd >= 0)
			syscall(SYS_close, pidfd); /* no point of cancellation */
		if (bytes < 0)
			atomic_store(&batches_fail, 1);
		while (bytes > 0 && done < count && (size_t)bytes >= ranges[done].iov_len)
			bytes -= ranges[done++].iov_len;
	}
	for (; done < count; done++)
		if (madvise(ranges[done].iov_base, ranges[done].iov_len, advice) != 0)
			return -errno;
	return 0;
}

static uint32_t open_by_madvise(struct scry_stack_pool *pool, struct scry_stack_slab *slab,
				uint32_t first, uint32_t count, bool *ret_is_locked)
{
	struct iovec ranges[IOVECS];
	uint32_t some = count < IOVECS ? count : IOVECS;
	int error;

	for (uint32_t i = 0; i < some; i++)
		ranges[i] = (struct iovec){scry_slot_guard(pool, slab, first + i), pool->guard};
	error = advise_all(ranges, some, GUARD_INSTALL);
	if (error == 0)
		return some;
	snprintf(pool->note, sizeof(pool->note), "no more stacks: the kernel refused a guard (%s)",
		 strerror(-error));
	*ret_is_locked = error == -EINVAL;
	return 0;
}

/* The stacks that are not open yet, from `first` on, get guards by mprotect. */
static void change_kind(struct scry_stack_pool *pool, uint32_t slab_index, uint32_t first)
{
	char *begin = scry_slot_guard(pool, atomic_load(&pool->slabs[slab_index]), first);

	if (mprotect(begin, (pool->slab_slots - first) * pool->stride, PROT_NONE) != 0)
		return;
	pool->slab_kind[slab_index] = SCRY_GUARD_MPROTECT;
	write_ceiling(pool, "the program has locked its memory");
}

static uint32_t open_by_mprotect(struct scry_stack_pool *pool, struct scry_stack_slab *slab,
				 uint32_t first, uint32_t count)
{
	long most = ceiling();
	uint32_t done;

	for (done = 0; done < count; done++) {
		char *guard = scry_slot_guard(pool, slab, first + done);
		bool is_room = atomic_fetch_add(&mapped_guards, 1) < most;

		if (is_room &&
		    mprotect(guard + pool->guard, pool->size, PROT_READ | PROT_WRITE) == 0)
			continue;
		atomic_fetch_sub(&mapped_guards, 1);
		snprintf(pool->note, sizeof(pool->note),
			 "no more stacks, as each guard takes two mappings and %ld of them leave "
			 "too few: sysctl vm.max_map_count=%ld",
			 most, 4 * (most + KEPT_MAPPINGS));
		break;
	}
	slab->mapped_guards += done;
	return done;
}

uint32_t scry_guard_open(struct scry_stack_pool *pool, uint32_t slab_index, uint32_t first,
			 uint32_t count)
{
	struct scry_stack_slab *slab = atomic_load(&pool->slabs[slab_index]);
	bool is_locked = false;
	uint32_t done = 0;
	int cancelled;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
	if (pool->slab_kind[slab_index] == SCRY_GUARD_MADVISE)
		done = open_by_madvise(pool, slab, first, count, &is_locked);
	if (is_locked)
		change_kind(pool, slab_index, first);
	if (pool->slab_kind[slab_index] == SCRY_GUARD_MPROTECT)
		done = open_by_mprotect(pool, slab, first, count);
	pthread_setcancelstate(cancelled, NULL);
	return done;
}

void scry_guard_release(struct scry_stack_pool *pool, uint32_t first, uint32_t end)
{
	struct iovec ranges[IOVECS];
	uint32_t count = 0;

	for (uint32_t place = first; place < end; place++) {
		uint32_t id = *scry_free_id(pool, place);
		struct scry_stack_slab *slab = atomic_load(&pool->slabs[id / pool->slab_slots]);
		char *guard = scry_slot_guard(pool, slab, id % pool->slab_slots);

		ranges[count++] = (struct iovec){guard + pool->guard, pool->size};
		/* what could not be given back, as locked memory, stays dirty */
		if (count == IOVECS || place + 1 == end) {
			int error = advise_all(ranges, count, MADV_DONTNEED);

			for (uint32_t i = place + 1 - count; i <= place; i++)
				scry_slot_of(pool, *scry_free_id(pool, i))->dirty_pages =
					error == 0 ? 0 : SCRY_DIRTY_UNKNOWN;
			count = 0;
		}
	}
}
