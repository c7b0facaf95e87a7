/*
 * What a container takes away, and the options of docker and Kubernetes that give it back: for
 * sentences about what was refused.
 */
#ifndef SCRY_SYS_CONTAINER_H
#define SCRY_SYS_CONTAINER_H

#include <stdint.h>

enum scry_container_need {
	SCRY_CONTAINER_PTRACE,	  /* to trace, and to read other processes' memory */
	SCRY_CONTAINER_BPF,	  /* eBPF programs, and events of perf */
	SCRY_CONTAINER_PROCESSES, /* to see the program's process at all */
	SCRY_CONTAINER_CALLS,	  /* system calls that its seccomp filter refuses */
	SCRY_CONTAINER_FILES,	  /* a folder that may be written to */
};

/* "; in a container: docker run --cap-add ..., in Kubernetes ...", to come behind a fix. "" where
 * nothing says that this is one: no mark of what made it, and root has its rights. */
const char *scry_container_fix(enum scry_container_need need);

/* The inode of our pid namespace; 0 where it is the machine's. */
uint32_t scry_container_pid_ns(void);

#endif
