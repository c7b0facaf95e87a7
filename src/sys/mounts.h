/*
 * What serves the files that a process has mapped, by its /proc/PID/mountinfo: the file itself is
 * not asked, as its server may be a program that is stopped (FUSE), or far away.
 */
#ifndef SCRY_SYS_MOUNTS_H
#define SCRY_SYS_MOUNTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum scry_mount_kind {
	SCRY_MOUNT_UNKNOWN, /* not listed: of another namespace; or overlay, or served by others */
	SCRY_MOUNT_MEMORY,  /* tmpfs: the kernel's own memory */
	SCRY_MOUNT_DISK,    /* a file system of the kernel's on a disk, that knows RWF_NOWAIT */
	SCRY_MOUNT_KERNEL,  /* another one of the kernel's on a disk */
	SCRY_MOUNT_DEVICES,
};

struct scry_mount {
	uint32_t dev_major, dev_minor;
	enum scry_mount_kind kind;
};
struct scry_mounts {
	struct scry_mount *rows; /* only those of a known kind; at most 16,384 */
	size_t count;
};

/* What cannot be read is UNKNOWN. */
void scry_mounts_read(pid_t pid, struct scry_mounts *ret);
void scry_mounts_done(struct scry_mounts *m);

/* By the device that /proc/PID/maps has. */
enum scry_mount_kind scry_mounts_kind(const struct scry_mounts *m, uint32_t dev_major,
				      uint32_t dev_minor);

#endif
