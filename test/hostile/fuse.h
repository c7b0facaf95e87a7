/*
 * A file system of one file, "lib.so", which a thread of this very program serves by the kernel's
 * FUSE protocol (linux/fuse.h): who reads of it while all threads stand waits for ever.
 */
#ifndef TEST_HOSTILE_FUSE_H
#define TEST_HOSTILE_FUSE_H

#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <errno.h>
#include <unistd.h>

#define FUSE_FILE 2 /* its number; 1 is the directory */

static int fuse_fd;
static volatile int fuse_is_dead; /* it answers no more */
static char *fuse_bytes;
static size_t fuse_size;

static void fuse_answer(const struct fuse_in_header *in, int error, const void *data, size_t size)
{
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + size), .error = error, .unique = in->unique};
	struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)data, size}};

	if (writev(fuse_fd, parts, size ? 2 : 1) < 0 && errno != ENOENT)
		_exit(4);
}

static struct fuse_attr fuse_attr(uint64_t node)
{
	return (struct fuse_attr){.ino = node,
				  .size = node == FUSE_FILE ? fuse_size : 0,
				  .mode = node == FUSE_FILE ? S_IFREG | 0755 : S_IFDIR | 0755,
				  .nlink = 1};
}

static void fuse_serve_one(const struct fuse_in_header *in, const void *body)
{
	const struct fuse_read_in *read = body;
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
				     .minor = 26,
				     .max_readahead = 65536,
				     .max_write = 65536};
	struct fuse_entry_out entry = {.nodeid = FUSE_FILE, .attr = fuse_attr(FUSE_FILE)};
	struct fuse_attr_out attr = {.attr = fuse_attr(in->nodeid)};
	struct fuse_open_out open_ = {0};
	size_t left;

	switch (in->opcode) {
	case FUSE_INIT:
		return fuse_answer(in, 0, &init, sizeof(init));
	case FUSE_LOOKUP:
		if (strcmp(body, "lib.so"))
			return fuse_answer(in, -ENOENT, NULL, 0);
		return fuse_answer(in, 0, &entry, sizeof(entry));
	case FUSE_GETATTR:
		return fuse_answer(in, 0, &attr, sizeof(attr));
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		return fuse_answer(in, 0, &open_, sizeof(open_));
	case FUSE_READ:
		left = read->offset < fuse_size ? fuse_size - read->offset : 0;
		return fuse_answer(in, 0, fuse_bytes + read->offset,
				   left < read->size ? left : read->size);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		return fuse_answer(in, 0, NULL, 0);
	default:
		return fuse_answer(in, -ENOSYS, NULL, 0);
	}
}

static void *fuse_serve(void *unused)
{
	static char request[1 << 17];

	(void)unused;
	for (;;) {
		const struct fuse_in_header *in = (const struct fuse_in_header *)request;

		while (fuse_is_dead)
			pause();
		if (read(fuse_fd, request, sizeof(request)) > 0)
			fuse_serve_one(in, in + 1);
		else if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
			_exit(0);
	}
}

/* Serves a copy of `path` as `dir`/lib.so, in a mount namespace of this process. 0 or -1. */
static int fuse_begin(const char *path, const char *dir)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	char options[128];
	struct stat st;
	pthread_t id;

	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (file < 0 || fuse_fd < 0 || fstat(file, &st) < 0)
		return -1;
	fuse_size = (size_t)st.st_size;
	fuse_bytes = malloc(fuse_size);
	if (!fuse_bytes || read(file, fuse_bytes, fuse_size) != st.st_size)
		return -1;
	close(file);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 fuse_fd);
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("served", dir, "fuse", 0, options) < 0)
		return -1;
	return pthread_create(&id, NULL, fuse_serve, NULL) ? -1 : 0;
}

#endif
