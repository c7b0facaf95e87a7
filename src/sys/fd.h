/* Descriptors: those of another process, by /proc; and how many we may have. */
#ifndef SCRY_SYS_FD_H
#define SCRY_SYS_FD_H

#include <stddef.h>
#include <sys/types.h>

/*
 * What descriptor `fd` of `pid` is: a path, "pipe", "tcp 127.0.0.1:33 -> 10.0.0.7:5432", "unix
 * socket /run/x.sock". 0 or -ENOENT: it has none of that number.
 */
int scry_fd_name(pid_t pid, int fd, char *buf, size_t size);

/* We may have as many as is allowed: for callers that hold some of each thread or process. */
void scry_fd_raise_limit(void);

#endif
