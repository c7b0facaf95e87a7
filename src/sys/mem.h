/*
 * Reading another process's memory, never writing it (that is sys/edit).
 *
 * A `scry_mem` reads by its /proc/PID/mem fd, large blocks by process_vm_readv confirmed by that
 * fd. Reads are bounded, may fail and never stop the target. The mem fd pins the address space:
 * after the target's exec it reads nothing, so it can not be fooled by pid reuse.
 */
#ifndef SCRY_SYS_MEM_H
#define SCRY_SYS_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_mem {
	pid_t pid;
	int fd;		   /* /proc/PID/mem, O_RDONLY or O_RDWR, owned; -1 for an image */
	const void *image; /* tests: a saved image instead of a process */
	int (*image_read)(const void *image, uint64_t addr, void *buf, size_t size);
	/* of whose ranges only what is in memory is read, NULL: none; borrowed */
	const struct scry_served *served;
};

/* Opens PID's memory; `writable` asks for O_RDWR (for sys/edit). 0 or -errno with a sentence. */
int scry_mem_open(struct scry_mem *mem, pid_t pid, int writable);
void scry_mem_close(struct scry_mem *mem);

/* Reads exactly `size` bytes at `addr`: 0, -EFAULT when any byte is not there, -ESRCH when the
 * process is gone. No sentence: "not there" is an answer. */
int scry_mem_read(const struct scry_mem *mem, uint64_t addr, void *buf, size_t size);

/* Reads up to `size` bytes; returns how many came before the first hole, or -errno when none. */
ssize_t scry_mem_read_some(const struct scry_mem *mem, uint64_t addr, void *buf, size_t size);

/* The first 16 bytes of each of `count` pages (at most SCRY_MEM_HEADS) from `addr` on, by one
 * system call where that can be. Returns how many came before the first that is not there, or
 * -errno when none. */
#define SCRY_MEM_HEADS 256
ssize_t scry_mem_page_heads(const struct scry_mem *mem, uint64_t addr, size_t count,
			    uint64_t (*ret)[2]);

/*
 * Many pieces by few system calls (process_vm_readv). `ok` says of each whether it was read whole.
 * Not confirmed by the fd: before it believes any of many such, a caller reads one word by
 * scry_mem_u64.
 */
struct scry_mem_span {
	uint64_t addr;
	void *buf;
	size_t size;
	bool ok;
};
void scry_mem_gather(const struct scry_mem *mem, struct scry_mem_span *spans, size_t count);

/* Is it still there, by whose memory all was read so far? Of an image always. 0, or -ESRCH with a
 * sentence: the process has ended, or executes another program. For a caller that is about to show
 * what it has read: a word that is not there any more looks like one that never was. */
int scry_mem_check_alive(const struct scry_mem *mem);

/* One little-endian word. Same returns as scry_mem_read; *ret untouched on failure. */
int scry_mem_u64(const struct scry_mem *mem, uint64_t addr, uint64_t *ret);
int scry_mem_u32(const struct scry_mem *mem, uint64_t addr, uint32_t *ret);

#endif
