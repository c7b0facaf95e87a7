/*
 * Strings that system calls are given, and what they write, for `scry calls -S`: copied in the
 * kernel as each call begins and returns (bpf/strings.bpf.c), and given to the call that perf
 * reports (sys/syscalls).
 *
 * The records of a thread belong to its calls and returns one by one, in their order. If one of the
 * two was lost a string could be another call's, so from then on there are none; nor are there of a
 * thread for which number or arguments of the two do not agree.
 *
 * Perf's events are opened first, so that the kernel lets perf see each call before the program.
 *
 * Life: open, switch on, perf on, take before calls are asked for, perf off, switch off, close.
 */
#ifndef SCRY_INSTRUMENT_CALLS_STRINGS_H
#define SCRY_INSTRUMENT_CALLS_STRINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/protos.h"
#include "sys/syscalls.h"
#include "wire/call_ring.h"

struct scry_calls_strings;

struct scry_calls_strings_opts {
	const struct scry_protos *protos; /* SYS_name of "kernel": which arguments are strings */
	pid_t pid;
	bool with_children;
	uint32_t string_size;
};

/* 0; -EPERM, -ENOTSUP with a sentence: the kernel refuses; -ENOMEM. */
int scry_calls_strings_open(const struct scry_calls_strings_opts *opts,
			    struct scry_calls_strings **ret);
void scry_calls_strings_close(struct scry_calls_strings *s); /* NULL is legal, below too */

/* On before perf is, off after it. 0 or -errno with a sentence. */
int scry_calls_strings_switch(struct scry_calls_strings *s, bool on);
/* Perf was switched on, or will be switched off: a call that it did not see has no string. */
void scry_calls_strings_perf(struct scry_calls_strings *s, bool on);

/* What was copied so far. `lost`: calls that perf has lost. */
void scry_calls_strings_take(struct scry_calls_strings *s, uint64_t lost);

/* The parts (wire/call_ring.h) of an entry or a return; words, 0: none. Asked for each of them. */
size_t scry_calls_strings_of(struct scry_calls_strings *s, const struct scry_syscall *call,
			     uint64_t ret[SCRY_CALL_MORE_MAX]);
/* Some were lost, or did not agree: what came later has none. */
bool scry_calls_strings_ended(const struct scry_calls_strings *s);

#endif
