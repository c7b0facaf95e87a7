/*
 * Opening a regular file by a name that another program has chosen. Only the opening of a device,
 * or of a file of tracefs, already does something, so what the name stands for is looked at first,
 * and then that very file is opened, not the name again.
 */
#ifndef SCRY_SYS_REGULAR_H
#define SCRY_SYS_REGULAR_H

#include <stdbool.h>

/* A descriptor to read, or -errno; -ENXIO: it is not a regular file, or one of procfs, sysfs or the
 * like. */
int scry_regular_open(const char *path);

struct stat;
/* The same file, and unchanged: device, inode, size and the times of its last changes. Times lag
 * behind while a process has it mapped to write. */
bool scry_regular_is_same(const struct stat *a, const struct stat *b);
/* May it stay open when no process that is watched needs it any more? Another file system than that
 * of "/" could not be unmounted meanwhile: a container's, a disk that is to be taken out. */
bool scry_regular_may_stay_open(const struct stat *st);

#endif
