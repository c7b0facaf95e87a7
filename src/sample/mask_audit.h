/*
 * What the signal masks of a process are asked for, over a while: does any of its system calls
 * change one? From outside, by the counts of sample/syscalls; and where its processor time goes.
 */
#ifndef SCRY_SAMPLE_MASK_AUDIT_H
#define SCRY_SAMPLE_MASK_AUDIT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SCRY_MASK_AUDIT_PLACES 8
#define SCRY_MASK_AUDIT_NEAR 512u /* bytes of a function in which its system call is */

struct scry_mask_audit {
	/* the caller's: addresses of functions that make the call themselves */
	uint64_t places[SCRY_MASK_AUDIT_PLACES];
	size_t place_count;
	const char
		*spared; /* the last part of an object's path: what else changes masks in it for a
			    moment, as libc's own threads' start does, is counted apart; NULL */
	bool exact;	 /* calls are counted, at some 150 ns each; else ticks only are */
	const volatile sig_atomic_t *stops; /* not 0: it ends now; NULL */
	/* what was found */
	uint64_t calls[SCRY_MASK_AUDIT_PLACES]; /* of rt_sigprocmask */
	uint64_t other_calls;			/* the same from elsewhere */
	uint64_t changes;     /* of all: that set another mask than was in force */
	uint64_t own_changes; /* the same in `spared`, from elsewhere than `places` */
	uint64_t lost;	      /* calls that could not be looked at, as there were too many places */
	uint64_t ticks, inside; /* of the clock: of the process; at the calls of `places` */
	uint64_t watched_ns;
	char changed_by[256]; /* "symbol+offset in object" of one that changed it; "" */
};

/* Watches `pid` for `ns`, or until it is to stop. 0; -errno with a sentence: not permitted, gone,
 * ... */
int scry_mask_audit(pid_t pid, uint64_t ns, struct scry_mask_audit *a);

#endif
