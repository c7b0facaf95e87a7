/*
 * Strings that system calls are given, copied in the kernel as a call begins, and what they write,
 * copied as it returns (src/bpf/strings.bpf.c), for `scry calls -S`. Read by programs in the kernel
 * and by the host.
 */
#ifndef SCRY_WIRE_BPF_STRINGS_H
#define SCRY_WIRE_BPF_STRINGS_H

#include <linux/types.h>

#define SCRY_STRINGS_NUMBERS 512u /* of system calls */
#define SCRY_STRINGS_PIDS 16384u
#define SCRY_STRINGS_OF_CALL 2u
#define SCRY_STRINGS_MAX 256u /* bytes of a string */
#define SCRY_STRINGS_ARGS 5u  /* that are compared; strings are among them */
#define SCRY_STRINGS_NONE 0xffffu

struct scry_strings_setup {
	__u32 pid_ns; /* in which processes have their numbers: inode; 0: the machine's */
	__u32 max;    /* bytes of a string, SCRY_STRINGS_MAX at most */
	__u32 follow; /* children, too */
	__u32 pad;
};

/* Arguments, from 1; 0: none. `length`: of so many bytes; 0: up to a NUL. `back`: that the call
 * fills. */
struct scry_strings_wanted {
	__u8 arg[SCRY_STRINGS_OF_CALL], length[SCRY_STRINGS_OF_CALL];
	__u8 back, back_is_counted; /* as many bytes as the result says; else up to a NUL */
	__u8 pad[2];
};

struct scry_strings_record {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 pid, tid, number, is_exit;
	__u64 args[SCRY_STRINGS_ARGS];	   /* of an exit: the result, first; then as they are */
	__u16 bytes[SCRY_STRINGS_OF_CALL]; /* that are there; more than `max`: it goes on; or NONE
					    */
	__u8 arg[SCRY_STRINGS_OF_CALL], pad2[2];
	char text[SCRY_STRINGS_OF_CALL][SCRY_STRINGS_MAX + 8]; /* of an exit: one, no room for more
								*/
};
#define SCRY_STRINGS_EXIT_BYTES __builtin_offsetof(struct scry_strings_record, text[1])

#endif
