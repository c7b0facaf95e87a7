/*
 * Following a program that is being started, up to the moment when everything is relocated and no
 * constructor has run.
 *
 * Only syscall stops are used, never a breakpoint: if we die, the kernel lets the program go and
 * nothing of ours is in it. The moment is the return of the loader's mprotect that makes the main
 * program's RELRO read-only: the main program is relocated last. Without RELRO it is the first
 * syscall made from outside the loader; in a static program the first syscall of all.
 */
#ifndef SCRY_SYS_SPAWN_H
#define SCRY_SYS_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/tracee.h"

enum scry_spawn_news {
	SCRY_SPAWN_NOTHING, /* nothing yet: call again soon */
	SCRY_SPAWN_IMAGE, /* a relocated image stands still; *t is stopped and may be used for calls
			   */
	SCRY_SPAWN_EXITED,
};

struct scry_spawn {
	struct scry_tracee t;
	bool starting;			 /* between exec and the relocated moment */
	bool entering;			 /* at a syscall's entry */
	uint64_t relro_start, relro_end; /* run-time, of the main program; 0: has none */
	uint64_t loader_start, loader_end;
	uint64_t nr, arg; /* of the syscall that runs */
};

/* Seizes `pid`, which has not exec'ed yet, and follows its execs. 0 or -errno with a sentence. */
int scry_spawn_open(struct scry_spawn *s, pid_t pid);

/* Takes what has happened, without waiting. */
enum scry_spawn_news scry_spawn_step(struct scry_spawn *s);

/* After IMAGE: not what was looked for; go on to the next exec. */
void scry_spawn_go_on(struct scry_spawn *s);

/* After IMAGE, or at any time: let it go for good. */
void scry_spawn_close(struct scry_spawn *s);

#endif
