/*
 * All threads of a process held at once, for the one moment in which code is changed.
 *
 * Threads come and go: the list is read again until nothing new appears. A thread that cannot stop
 * (vfork in flight, D state) must not hold the others: after the deadline all are released. The
 * pause is that of the threads that have a processor, or wait for one: those that sleep are stopped
 * first and released last, and where none runs it is that of the sleeping ones once all are
 * stopped.
 */
#ifndef SCRY_SYS_STOP_THE_WORLD_H
#define SCRY_SYS_STOP_THE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/hurry.h"
#include "sys/tracee.h"

#define SCRY_STW_FOUND_MAX 64u

struct scry_saved_ip { /* where a thread goes on when a signal handler of its returns */
	uint64_t at;   /* address of the word on its stack */
	uint64_t ip, sp;
	uint64_t end; /* of its frame, floating-point state and all, when looked for by a hunt; 0 */
};

/* What scry_stw_look_everywhere looks for beside signal frames: addresses at which a context that
 * is resumed later would go on within what is about to be changed. */
struct scry_stw_hunt {
	bool (*is_one)(const void *arg, uint64_t word);
	const void *arg;
	uint64_t low, high; /* all lie in [low, high) */
	uint64_t bytes;	    /* of memory, that may be looked at */
	bool is_again;	    /* the caller's: it was looked for once */
	pid_t alone_since;  /* likewise: the newest when no other had the same memory; 0: unknown */
};

struct scry_stw {
	pid_t pid;
	struct scry_tracee *threads;
	size_t count, capacity;
	struct scry_saved_ip *saved;
	size_t saved_count, saved_capacity;
	uint64_t found_at[SCRY_STW_FOUND_MAX]; /* words of a hunt, those of frames among them */
	size_t found_count;		       /* may be more */
	uint64_t first_ns;    /* the first was asked to stop: some that slept may have been stopped
				 since then */
	uint64_t deadline_ns; /* what is done to them ends then: the longest pause after that */
	uint64_t pause_ns; /* from first_ns until all were released: none was stopped for longer */
	struct scry_hurry hurry;
};

/* Stops all threads within three quarters of `max_pause_ns`, up to five tries; the rest is for what
 * they are stopped for. 0; -EBUSY with a sentence (which would not stop), all released; -EPERM;
 * -ESRCH. */
int scry_stw_stop(struct scry_stw *w, pid_t pid, uint64_t max_pause_ns);
/* Have they stood for as long as they may? Work that can be cut into pieces goes on in another
 * stop, after one piece at least. */
bool scry_stw_is_late(const struct scry_stw *w);
/* Lets all go but `keep`, and measures their pause: it alone is stopped until scry_stw_release. */
void scry_stw_release_others(struct scry_stw *w, const struct scry_tracee *keep);
/* Lets all go, mended, measures the pause, frees the list. Legal after a failed stop. */
void scry_stw_release(struct scry_stw *w);

/*
 * Finds the signal frames on the stacks of the stopped threads, whatever restorer they return to,
 * and on those that the frames hold (alternate stacks). Looks at no more than 8 MiB above each
 * stack pointer, or 256 KiB within a large mapping that is not a thread's stack; a handler that
 * itself uses more hides its frame. 0; -ENOMEM; -EAGAIN: not done by w->deadline_ns.
 */
int scry_stw_look(struct scry_stw *w, const struct scry_mem *mem, const struct scry_maps *maps);
/*
 * After that: those on stacks that no thread is on, too, in all private memory that was written to,
 * then in the kernel's own shared memory (MAP_ANONYMOUS, memfd_create, SysV) as far as the process
 * has used it; some may be no frames any more. Then scry_stw_doubt. 0; -ENOMEM; -EAGAIN: not done
 * by w->deadline_ns; -E2BIG: more than hunt->bytes, some was not looked at.
 */
int scry_stw_look_everywhere(struct scry_stw *w, const struct scry_mem *mem,
			     const struct scry_maps *maps, const struct scry_stw_hunt *hunt);
/* Forgets frames that no thread returns to: below where a thread's own stack ends, as w->threads
 * stood, and on stacks of threads that have ended; and those on alternate stacks that lead there.
 */
void scry_stw_forget_dead(struct scry_stw *w, const struct scry_mem *mem,
			  const struct scry_maps *maps);
/* Where a word of the hunt lies that is not a frame's; 0: nowhere. */
uint64_t scry_stw_doubt(const struct scry_stw *w);
/* How long that look will take, about: asked before any thread is held. */
uint64_t scry_stw_look_ns(pid_t pid, const struct scry_maps *maps);

/* Is any thread in [start, end), or go on there after a signal that was looked for? Only while
 * stopped. */
bool scry_stw_inside(const struct scry_stw *w, uint64_t start, uint64_t end);

/*
 * Makes threads go on elsewhere: `to` says where an ip is to go, or returns it unchanged. One
 * SETREGS a thread, one word written a frame: whoever dies in between leaves each thread at a place
 * that is right by itself, as long as both places do the same. Returns how many were moved, or
 * -errno.
 */
int scry_stw_move(struct scry_stw *w, int mem_fd, uint64_t (*to)(const void *arg, uint64_t ip),
		  const void *arg);
/* A thread in which a call may be made on its own stack, preferring one without a restart block;
 * NULL: none. *ret_stack is for struct scry_call: 0, or, where all are on other stacks, the unused
 * end of that thread's (sys/stack). */
struct scry_tracee *scry_stw_caller(const struct scry_stw *w, const struct scry_mem *mem,
				    const struct scry_maps *maps, uint64_t *ret_stack);

/* Is any thread on the stack [start, end), or does one come back to it when a signal that was
 * looked for has been handled? */
bool scry_stw_stands_on(const struct scry_stw *w, uint64_t start, uint64_t end);

#endif
