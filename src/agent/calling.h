/*
 * The only way to a system call of ours: begin, the call, end. A program may forbid itself system
 * calls (seccomp), or have them dispatched to itself (Syscall User Dispatch), and then one of ours
 * could end it. So before it does, none is begun any more, and those that have begun are waited
 * for: scry_calling_forbid, which runs in front of prctl and syscall(). What came by another way
 * the keeper sees in /proc, or when it puts more in, and writes control->quiet. From then on no
 * thread waits, and nothing is read but by loads; what finds no room is counted.
 */
#ifndef SCRY_AGENT_CALLING_H
#define SCRY_AGENT_CALLING_H

#include <stdint.h>

struct scry_agent_piece { /* struct iovec */
	uint64_t address, bytes;
};

struct scry_agent_calling { /* all zero in a fork child */
	uint32_t pid;	    /* in its own namespace; 0: not known. The host writes it too */
	int32_t inside;	    /* threads that are about to make a system call, or make one */
	uint64_t odd_fs;    /* of a thread whose control block may still name the tid of the thread
			       that made it */
};

int scry_calling_is_over(void);

/* 1: a call may be made, and end comes after it. */
int scry_calling_begin(void);
void scry_calling_end(void);

/* From now on none, in all threads; returns when those under way have come back, or after a
 * second or so. No system call of its own. */
void scry_calling_forbid(void) __attribute__((used));

/* The pid of this process; 0: it is not known, and may not be asked for. */
uint32_t scry_calling_pid(void);

struct scry_agent_pieces {
	const struct scry_agent_piece *at;
	uint64_t count;
};
/* Memory of this process, where a load might fault: as many bytes as could be read, in order, or
 * -errno; -1 also when it may not be asked for. */
int64_t scry_calling_read(struct scry_agent_pieces to, struct scry_agent_pieces from);

/* A nap until *word is something else than `value`, of `ns` at most. -errno as futex says; -1: not
 * allowed, or it is not `value` any more. */
int64_t scry_calling_nap(uint32_t *word, uint32_t value, int64_t ns);

#endif
