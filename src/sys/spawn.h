/*
 * Following programs that are being started, up to the moment when everything is relocated and no
 * constructor has run.
 *
 * Only stops are used that end with us, never an int3: if we die, the kernel lets the program go
 * and nothing of ours is in it. By syscall stops the moment is the return of the loader's mprotect
 * that makes the main program's RELRO read-only: the main program is relocated last. In glibc the
 * loader relocates itself once more after that, and then makes its own RELRO read-only (elf/rtld.c,
 * dl_main): it is that return, or, should there be none, that of its munmap of ld.so.cache or of
 * libc's early getrlimit, which come later and before constructors too. Without RELRO it is the
 * first syscall made from outside the loader; in a static program the first syscall of all.
 *
 * Where it can be had, a program of glibc is not stopped at its syscalls, but where its loader says
 * that all is loaded and relocated (sys/brk_signal, `_dl_debug_state`): after its own RELRO, before
 * that munmap. Where that signal does not come in time, or elsewhere, its system calls are looked
 * at from then on; where the start is over by then, it is late (scry_spawn_is_late).
 *
 * A set of them: with `follows` the processes and threads that a followed one makes are followed
 * too, from their first instruction (PTRACE_O_TRACEFORK and its brothers), until they are released.
 */
#ifndef SCRY_SYS_SPAWN_H
#define SCRY_SYS_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/tracee.h"

struct scry_spawn { /* one followed thread */
	struct scry_tracee t;
	bool starting;			 /* between exec and the relocated moment */
	uint64_t relro_start, relro_end; /* run-time, of the main program; 0: has none */
	uint64_t loader_start, loader_end;
	/* of a static program: the slot that is filled last with what an IFUNC chose, 0: it has
	 * none, and what it holds until then */
	uint64_t irelative, irelative_was;
	uint32_t syscalls;	     /* since the image began */
	bool is_glibc, is_main_done; /* done: the main program's RELRO is read-only */
	int brk_fd;		     /* it is waited for at `brk` (sys/brk_signal); 0: it is not */
	uint64_t brk;
	int brk_number;	       /* that descriptor's, open or not: its signals name it */
	uint64_t brk_until_ns; /* so long it is waited for; 0: it is not */
	uint32_t brks;	       /* so often it came there */
	uint64_t nr, arg;      /* of the syscall that runs */
	uint64_t since_ns;     /* it was kept, or made by one that is followed; 0: neither */
	bool is_kept;	       /* that, or one of its */
	uint32_t signals;      /* that have stopped it since then */
	bool is_vforked, is_late;
	bool is_paused; /* see scry_spawns_pause */
	bool is_thread; /* no process's first one */
	bool is_ready;	/* its program is stopped, and step has not handed it out yet */
};

struct scry_spawns {
	struct scry_spawn *
		*rows; /* each stays where it is: a caller that was handed one may step on */
	size_t count, capacity;
	bool follows;
	size_t refused; /* children that were released, because there were too many */
	size_t dropped; /* that were kept, and are followed no more */
	size_t missed;	/* programs that another thread than the first started, which ended at once
			 */
};

#define SCRY_SPAWNS_MAX 4096

/* Follows `pid`, which has not exec'ed yet. 0 or -errno with a sentence. */
int scry_spawns_add(struct scry_spawns *s, pid_t pid);

/*
 * Follows `pid`, which exec'ed a moment ago. 1: it is in its start, and scry_spawns_step says when
 * its program is stopped; 0: it was relocated already and is stopped now (*ret as there); or
 * -errno, and it is not followed.
 */
int scry_spawns_catch(struct scry_spawns *s, pid_t pid, struct scry_tracee **ret);

/*
 * Takes what has happened, without waiting. Returns a thread of a process whose relocated program
 * is stopped: it may be used for calls, and is then released; or NULL. Call again soon, at once
 * while one is `starting`. Those that end are forgotten.
 */
struct scry_tracee *scry_spawns_step(struct scry_spawns *s);
/* The same without handing one out: for a caller that holds one, and waits for what others do. */
void scry_spawns_pass(struct scry_spawns *s);
bool scry_spawns_is_starting(const struct scry_spawns *s);

/* After step: not what was looked for; it goes on to the next exec, followed. */
void scry_spawns_go_on(struct scry_spawns *s, struct scry_tracee *t);
/* After step: it goes on, and step says when it has become another program; with `follows` the
 * processes that it makes too. Each signal stops it, which takes some 30 us, and as long as we are
 * stopped ourselves: from the 33rd on it goes on alone. SIGCHLD does not count, as a child takes
 * longer than that. */
void scry_spawns_keep(struct scry_spawns *s, struct scry_tracee *t);
/* Was it made by vfork, so that nothing but its parent's image ran before its own? */
bool scry_spawn_is_vforked(const struct scry_tracee *t);
/* Was its start missed? It is stopped, but may have run its own code and have other threads, which
 * run: it is to be released, and entered as any that lives. */
bool scry_spawn_is_late(const struct scry_tracee *t);
/* Is it followed? And: it is no more, running or not. */
bool scry_spawns_has(const struct scry_spawns *s, pid_t pid);
void scry_spawns_drop(struct scry_spawns *s, pid_t pid);
/* Others may hold the threads of `pid`, which was kept, until resume; the processes that it makes
 * meanwhile are not followed. Resume: was it paused? Ask then whether it is another program by now.
 */
void scry_spawns_pause(struct scry_spawns *s, pid_t pid);
bool scry_spawns_resume(struct scry_spawns *s, pid_t pid);
/* Those that have been followed since before `ns` and are not a new program yet. */
void scry_spawns_drop_older(struct scry_spawns *s, uint64_t ns);
/* After step: it goes on alone. Returns for how long it was held, ns. */
uint64_t scry_spawns_let_go(struct scry_spawns *s, struct scry_tracee *t);

/* Lets all go. */
void scry_spawns_done(struct scry_spawns *s);

#endif
