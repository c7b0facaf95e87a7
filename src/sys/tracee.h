/*
 * One thread of the target, held by ptrace for as short as possible, and made to run things safely.
 *
 * SEIZE + INTERRUPT, never SIGSTOP. What a thread is made to run is on a synthetic signal frame
 * below its stack pointer whose return is rt_sigreturn: if this process dies at any instant, the
 * thread goes on by itself with every register as it was (an interrupted syscall is restarted by
 * the frame). A thread in a syscall with a restart block (a timed sleep) is resumed by us instead,
 * because sigreturn would drop the block; only when we die in that moment does its caller see
 * EINTR, which is a legal answer.
 *
 * Each stop makes epoll_wait and a few other calls return EINTR, but for scry_tracee_mend, and a
 * write to a full pipe return with what it has written: stop waiting threads seldom, never
 * periodically.
 */
#ifndef SCRY_SYS_TRACEE_H
#define SCRY_SYS_TRACEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "sys/gadgets.h"

struct scry_mem;
struct scry_maps;

#define SCRY_TRACEE_RELEASE_NS 20000000ull /* so long a release waits for a thread to stop */

struct scry_tracee {
	pid_t pid, tid;
	bool seized, stopped, has_frame, restarted;
	bool was_set;		  /* it goes on as we say: no call is made again */
	uint8_t restart;	  /* see tracee.c */
	bool group_stopped;	  /* held by a job-control stop, not by us */
	bool wants_processor;	  /* or had one, before it was asked to stop (sys/stop_the_world) */
	int signal;		  /* to deliver when it goes on */
	uint64_t stopped_at_ns;	  /* CLOCK_MONOTONIC */
	uint64_t held_ns, ran_ns; /* of the last completed hold; between calls */
	uint64_t frame, sigmask;  /* sigmask: its own, valid with a frame */
	uint64_t lent;		  /* the word of ours that says where it is; 0: none */
	struct user_regs_struct regs; /* as found */
	unsigned char *xstate;
	size_t xstate_size;
};

/* Attaches without stopping. 0; -EPERM (with what traces it, or what is missing), -ESRCH. Another
 * scry that holds it for a moment is waited for, half a second at most. */
int scry_tracee_seize(struct scry_tracee *t, pid_t pid, pid_t tid);
/* Without waiting: for a caller that holds another thread, which that scry may want. */
int scry_tracee_seize_now(struct scry_tracee *t, pid_t pid, pid_t tid);
/* With PTRACE_O_* of the caller's beside our own: TRACESYSGOOD and TRACEEXEC. */
int scry_tracee_seize_with(struct scry_tracee *t, pid_t pid, pid_t tid, unsigned long options);
/* Asks for a stop and waits until `deadline_ns`. 0; -ETIMEDOUT (still running; ask again or release
 * it); -ESRCH. Fills regs. */
int scry_tracee_stop(struct scry_tracee *t, uint64_t deadline_ns);
/* The same in two steps, for many threads at once. What it makes meanwhile is released. */
int scry_tracee_interrupt(struct scry_tracee *t);
int scry_tracee_wait_stop(struct scry_tracee *t, uint64_t deadline_ns);
/* Stopped: what it says from now on; exec and system calls always. */
void scry_tracee_options(struct scry_tracee *t, unsigned long options);

/*
 * Stopped: a call that came back with EINTR for the stop alone, as epoll_wait does (signal(7)), is
 * made again when the thread goes on; where a handler is to run first it says EINTR, as without us.
 * Its time limit begins anew. A scry that dies before has left a legal answer. Nothing is done to a
 * thread that was moved; one that made a call for us is led back to make it again by the frame. Not
 * at a stop for a system call or an event.
 */
void scry_tracee_mend(struct scry_tracee *t);
/* Does it come back from such a call? */
bool scry_tracee_is_cut(const struct scry_tracee *t);
/* The same of a thread that is in front of a signal: for one that is not handled the kernel wakes
 * only a thread that is traced. */
void scry_tracee_mend_signal(pid_t tid);

/* Lets it go on and detaches; one that still has to stop for that is mended. Safe in every state;
 * -ESRCH is not an error. */
void scry_tracee_release(struct scry_tracee *t);
/* The same, but one that does not stop until then lingers: scry_tracee_poll_lingering. */
void scry_tracee_release_until(struct scry_tracee *t, uint64_t deadline_ns);

/* Lets go of threads that were released before they could stop, and hears of the end of threads
 * killed meanwhile: their program cannot end before. Loops call it. How many there are: */
void scry_tracee_poll_lingering(void);
size_t scry_tracee_lingering(void);
/* Waits until one of them stops, and holds it: the next seize of `tid` takes it over as it is. Else
 * the next poll lets it go. False: it did not, or it is none of them. */
bool scry_tracee_await(pid_t tid, uint64_t deadline_ns);
/* Has process `pid`, a child of ours whose threads are held now and then, ended? Its status as of
 * wait(2), which would take the stops that we wait for. While no thread is held; of one child,
 * asked for once before it was first held. */
bool scry_tracee_has_ended(pid_t pid, int *ret_status);

/* Stopped by us: has it hit an int3 and not reported it yet? Then it is not a stop:
 * scry_tracee_wait_stop lets it run until it has, for 100 ms more if need be. */
bool scry_tracee_has_trap(pid_t tid);

/* Is it in, or just before, a syscall that only the kernel's restart block can continue (a timed
 * sleep or poll)? A call in it is legal, but another thread is better. */
bool scry_tracee_has_restart(const struct scry_tracee *t);

/* Makes the stopped thread go on at `ip` instead, by one SETREGS. It must not be in a system call
 * that is to be made again. 1, or -errno with a sentence. */
int scry_tracee_move(struct scry_tracee *t, uint64_t ip);

/* The stopped thread runs `count` instructions and is stopped again, or fewer when a signal came:
 * t->signal, which it is given with the next step, or by what lets it go on. Not while a call of
 * ours is made. A tracer that dies leaves it running. 0 or -errno. */
int scry_tracee_step(struct scry_tracee *t, unsigned int count);

/* The stopped thread, without a call of ours, runs on until `until_ns`, or stops earlier, as
 * t->stopped says. It stays ours. 0 or -errno. */
int scry_tracee_run(struct scry_tracee *t, uint64_t until_ns);

/* While stopped: does it have Syscall User Dispatch (prctl(2)), as Wine's threads do? Then a system
 * call that is made in it may end the program. False before Linux 6.4, which does not show it. */
bool scry_tracee_is_dispatched(const struct scry_tracee *t);
/* True when this thread may be made to run something, given a stack: not group-stopped, 64-bit
 * code, a thread control block, no filter or dispatcher of system calls, none of the kernel's. */
bool scry_tracee_can_call(const struct scry_tracee *t);

/* What a call needs below a thread's stack pointer: red zone, xsave area, frame, our code. */
#define SCRY_CALL_ROOM 24576u

/* Runs one syscall in the stopped thread; may be called again before scry_tracee_finish. 0 and its
 * result in *ret, or -errno. `mem_fd` is the writable /proc/PID/mem. */
struct scry_call {
	const struct scry_gadgets *gadgets;
	int mem_fd;
	uint64_t deadline_ns; /* for waiting on the thread */
	void *rests;	      /* hook/hold: NULL: the thread is stopped until all calls are made */
	uint64_t stack;	      /* 0: below its stack pointer, where SCRY_CALL_ROOM was found; else
				 the end of a stack of ours, whose last word is 0: it is the tid
				 from the first call until the thread is back on its own */
};
int scry_tracee_syscall(struct scry_tracee *t, const struct scry_call *how,
			const uint64_t nr_and_args[7], int64_t *ret);
/* Runs void function(void) at `address`, whose return is the frame's restorer. Returns when it has
 * come back. */
int scry_tracee_function(struct scry_tracee *t, const struct scry_call *how, uint64_t address);
/* Gives the thread its registers back through the frame; needed after syscall/function, before
 * release. */
int scry_tracee_finish(struct scry_tracee *t, const struct scry_call *how);

/* CLOCK_MONOTONIC now, ns. */
uint64_t scry_now_ns(void);

#endif
