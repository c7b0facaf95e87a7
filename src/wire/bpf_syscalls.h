/*
 * What bpf/syscalls.bpf.c gets, and what it gives: sums of system calls for each thread and place,
 * counted while the thread is between program and kernel, and copies of native stacks.
 *
 * A place is the address of the instruction behind the one that made the call. An instance is what
 * one process runs from one exec (or fork) to the next; its number is never given out again.
 */
#ifndef SCRY_WIRE_BPF_SYSCALLS_H
#define SCRY_WIRE_BPF_SYSCALLS_H

#include "wire/payload_syscalls.h"
#include "wire/syscall_times.h"

#include <stdint.h>

#define SCRY_SYSCALLS_PIDS 4194304	   /* that the kernel gives out: PID_MAX_LIMIT */
#define SCRY_SYSCALLS_TASKS 32768	   /* processes at once */
#define SCRY_SYSCALLS_SUMS 131072	   /* of calls: thread x place */
#define SCRY_SYSCALLS_TIMED 32768	   /* the same, with times */
#define SCRY_SYSCALLS_STACK_BYTES 4096	   /* of a native stack */
#define SCRY_SYSCALLS_PATH 256		   /* bytes of a path */
#define SCRY_SYSCALLS_RETURNED 0xffffffffu /* as a number: rt_sigreturn, seen when it is over */
#define SCRY_SYSCALLS_UNKNOWN 0xfffffffeu  /* the same: it is not known */
#define SCRY_SYSCALLS_NONE 0xfffffffdu	   /* the same: -1 and -2, which no kernel has */

struct scry_syscalls_setup { /* constants */
	uint32_t pid_ns;     /* in which processes have their numbers: inode; 0: the machine's */
	uint32_t follows;    /* 1: children belong to it */
	uint32_t exact;	     /* 1: calls are counted; 0: only ticks of the clock are */
	uint32_t latency;    /* 1: and timed */
	uint32_t stack_every_ns; /* of one processor: no second copy of a stack before */
};

/* Map `tree`, by process id. Of each of its processes a bit is set in map `filter`, which others
 * are told apart by at once: words of 64 bits, by the machine's number; all, where that is not
 * known. */
struct scry_syscalls_member {
	uint32_t instance; /* 0: counted from its next exec on */
	uint32_t parent;   /* instance of whose fork it is; 0: none */
};

struct scry_syscalls_key { /* no padding */
	uint32_t tid, instance;
	uint32_t number; /* SCRY_SYSCALLS_RETURNED */
	uint32_t abi;	 /* enum scry_syscalls_abi */
	uint64_t ip;
};
enum scry_syscalls_abi {
	SCRY_ABI_64,
	SCRY_ABI_32, /* int 0x80, also of 64-bit code: other numbers, their names are not known */
};

/* Key of map `sums`, or of `timed`: what is known of a thread without asking whose it is. No
 * padding. */
struct scry_syscalls_slot {
	uint32_t tid, execs; /* the machine's number; how often it has exec'd */
	uint32_t number, abi;
	uint64_t ip, born; /* born: when the thread was */
};

struct scry_syscalls_kind_sum {	 /* of calls of one kind at a place */
	uint64_t asked, vain;	 /* of which it is known whether it holds; it does */
	uint64_t ticks;		 /* in those of which it does */
	uint32_t what, reserved; /* enum scry_syscalls_vain */
};

/* Only the thread itself writes, but for `ticks` and `pending`, which its processor's clock does.
 */
struct scry_syscalls_sum {
	struct scry_syscalls_key key;
	uint64_t calls, errors; /* errors: results from -4095 to -1 */
	uint64_t again, absent; /* of them: EAGAIN, ENOENT */
	uint64_t ticks;		/* of the clock, at which it was in this call */
	uint64_t pending;	/* of them: since the last call returned, so in the next one */
	uint64_t again_ticks, absent_ticks; /* in calls that ended so */
	uint64_t last;			    /* result of the last one: what brk is compared with */
	struct scry_syscalls_kind_sum kinds[2];
	int32_t error;		  /* the last one's, that was none of the two; 0 */
	uint32_t absent_reported; /* `absent` when its path was reported last */
};

struct scry_syscalls_timed { /* with --latency in its place */
	struct scry_syscalls_sum sum;
	struct scry_syscalls_times times;
};

enum {			       /* map `counters`, summed over the processors */
       SCRY_SYSCALLS_LOST,     /* records for which there was no room */
       SCRY_SYSCALLS_NOWHERE,  /* calls for which there was no room in `sums` */
       SCRY_SYSCALLS_TICKS,    /* of the clock, while a thread of the tree ran */
       SCRY_SYSCALLS_INSIDE,   /* of them: in a system call */
       SCRY_SYSCALLS_UNPLACED, /* of these: no room in `sums` */
       SCRY_SYSCALLS_EXITS,    /* threads that ended by exit or exit_group: calls without end */
       SCRY_SYSCALLS_KILLED,   /* threads that ended within another call */
       SCRY_SYSCALLS_STRANGE,  /* children for which there was no room in `tree` */
       SCRY_SYSCALLS_CHILDREN, /* that were born and are not followed */
       SCRY_SYSCALLS_COUNTERS,
};

enum scry_syscalls_kind {
	/* in the ring `news`, where a record wakes the thread that polls it: */
	SCRY_SYSCALLS_FORKED, /* `instance` of `pid` is new, and has what `other` has mapped */
	SCRY_SYSCALLS_EXECED, /* `instance` of `pid` is new, in the place of `other` (0: none) */
	SCRY_SYSCALLS_ENDED,  /* thread `tid` of `instance` has ended, called `name` */
	/* in the ring `places`, which wakes no reader: */
	SCRY_SYSCALLS_PLACE,	   /* struct scry_syscalls_place: `key` is new */
	SCRY_SYSCALLS_STACK,	   /* struct scry_syscalls_stack */
	SCRY_SYSCALLS_LINES,	   /* struct scry_syscalls_lines: at the same moment */
	SCRY_SYSCALLS_PATH_ABSENT, /* struct scry_syscalls_path: ENOENT */
};

struct scry_syscalls_record {
	uint32_t kind, pid, tid, instance;
	uint32_t other; /* in `places`: instance of whose fork it is, as that may be reported later;
			 * 0
			 */
	uint32_t is_last; /* ENDED: the process has no other thread */
	char name[16];
	uint64_t weight; /* STACK, LINES, PATH: it stands for so many calls, or ticks */
	struct scry_syscalls_key key;
};

struct scry_syscalls_file {	/* where in which file `ip` is */
	uint64_t inode, offset; /* inode 0: in none */
	uint32_t device;	/* major << 20 | minor */
	uint32_t is_known;	/* it was asked, and answered */
};

struct scry_syscalls_place {
	struct scry_syscalls_record head;
	struct scry_syscalls_file file;
};

struct scry_syscalls_stack {
	struct scry_syscalls_record head;
	struct scry_syscalls_file file;
	uint64_t sp, bp, bx, fs;
	uint32_t size; /* of `bytes`: what was at sp */
	uint32_t reserved;
	uint8_t bytes[SCRY_SYSCALLS_STACK_BYTES];
};

struct scry_syscalls_path {
	struct scry_syscalls_record head;
	char path[SCRY_SYSCALLS_PATH]; /* ends with 0, and may be cut */
};

#endif
