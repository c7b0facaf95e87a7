/*
 * Notice, at once, that a process runs another program: a perf event of the software kind "dummy"
 * writes a record at each exec (perf_event_open(2), comm_exec), before the new program's first
 * instruction. Of the process's first thread; where it is not permitted there is no such news and
 * one must look again and again.
 */
#ifndef SCRY_SYS_EXECS_H
#define SCRY_SYS_EXECS_H

#include <stddef.h>
#include <sys/types.h>

struct scry_execs {
	int fd; /* readable: there was one, or a new name; look. -1 */
	void *ring;
	size_t count; /* taken, ever */
};

/* 0 or -errno, without a sentence. */
int scry_execs_open(struct scry_execs *e, pid_t pid);
/* Takes the news, to `count`. */
void scry_execs_take(struct scry_execs *e);
/* `count` stays. Legal when it was never opened, as long as fd is -1. */
void scry_execs_close(struct scry_execs *e);

#endif
