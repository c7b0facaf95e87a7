/*
 * What serves malloc in a process that runs: the object to which its loader binds the name, looked
 * up from outside. What was preloaded is not believed to serve: a program may be static, have a
 * malloc of its own, or have dropped LD_PRELOAD.
 */
#ifndef SCRY_REPLAN_SERVES_H
#define SCRY_REPLAN_SERVES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_malloc_serves {
	char path[512];	    /* of the object */
	bool is_glibc;	    /* it is glibc itself */
	bool is_static;	    /* nothing can be preloaded */
	uint64_t exe_inode; /* of the program that was looked at */
};

/* True: it is known; false: not yet (it loads its libraries), or it is gone. No sentence. */
bool scry_malloc_serves(pid_t pid, struct scry_malloc_serves *ret_serves);

/* The program of a process, as a number that changes with exec; 0: gone. */
uint64_t scry_malloc_serves_exe(pid_t pid);

#endif
