/* Payloads about system calls: see wire/payload.h, which includes this. */
#ifndef SCRY_WIRE_PAYLOAD_SYSCALLS_H
#define SCRY_WIRE_PAYLOAD_SYSCALLS_H

#include <stdint.h>

#define SCRY_SYSCALLS_EXACT 1u	     /* calls were counted; else only ticks of the clock */
#define SCRY_SYSCALLS_LATENCY 2u     /* and timed */
#define SCRY_SYSCALLS_WHOLE 8u	     /* a program from its start to its end */
#define SCRY_SYSCALLS_FOLLOW 4u	     /* children too */
#define SCRY_SYSCALLS_PERF 16u	     /* without eBPF: numbers are read from the code */
#define SCRY_SYSCALLS_AT_SITES 32u   /* counted before them, in the process: ticks are older */
#define SCRY_SYSCALLS_VAIN_TICKS 64u /* it is known which ticks were in calls in vain */

#define SCRY_SYSCALLS_SEVERAL "[several objects]" /* a module */

struct scry_ev_syscalls {   /* of the whole watch: one, at its end */
	uint32_t flags;	    /* SCRY_SYSCALLS_EXACT... */
	uint32_t rate;	    /* ticks a second on each processor */
	uint64_t ticks;	    /* while a thread that was watched ran */
	uint64_t inside;    /* of them: in a system call */
	uint64_t unplaced;  /* of these: without a row */
	uint64_t calls;	    /* that returned; 0 where they were not counted */
	uint64_t nowhere;   /* of them: without a row, as there were too many */
	uint64_t exits;	    /* threads that ended by exit or exit_group, which do not return */
	uint64_t killed;    /* threads that ended within another call */
	uint64_t lost;	    /* records of places and stacks for which there was no room */
	uint64_t strangers; /* children that could not be watched, as there were too many */
	uint64_t unnamed;   /* images that ended before it could be seen what they had mapped */
	uint64_t watched_ns;
	uint64_t cpu_ns;	     /* of the sampler itself */
	uint64_t before_ns, with_ns; /* a getppid() of scry's own, which is not watched; 0 */
	uint64_t line_samples;	     /* calls of Rubies whose line was asked for */
	uint64_t children; /* processes that were started, or were there, and are not watched */
	uint64_t ran_ns;   /* what the threads ran, where the kernel said it; 0 */
};

struct scry_ev_syscall_site { /* an instruction of a process that makes a system call */
	uint32_t site;	      /* number, dense from 1 */
	uint32_t pid;
	uint32_t image;	 /* what the process ran: a number for each exec and fork */
	uint32_t number; /* of the call; 0xffffffff: rt_sigreturn; 0xfffffffe: not known;
			  * 0xfffffffd: none, as -1 */
	uint32_t abi;	 /* 0: of x86_64; 1: of 32 bits (int 0x80) */
	uint32_t name_str;
	uint32_t module_str, symbol_str;
	uint64_t offset;  /* of the instruction: from the symbol, else from the object */
	uint64_t address; /* the same; 0: no place, as of what returns elsewhere */
	uint32_t why_str; /* of AT_SITES: why it is not counted; 0: it is */
	uint32_t reserved;
};

/* What a call did in vain, or may have done: one kind for each number and its arguments. */
enum scry_syscalls_vain {
	SCRY_VAIN_NONE,
	SCRY_VAIN_MASK,	     /* the signal mask was the same before; proven */
	SCRY_VAIN_FLAGS,     /* F_SETFL or FIONBIO: the file's flags were the same before; proven */
	SCRY_VAIN_CLOEXEC,   /* F_SETFD: the descriptor's flag was the same before; proven */
	SCRY_VAIN_WAKE,	     /* futex: it woke no thread */
	SCRY_VAIN_CLOCK,     /* a clock that the vDSO could have read */
	SCRY_VAIN_TRIM,	     /* memory given back: brk to less, MADV_DONTNEED */
	SCRY_VAIN_POLL,	     /* poll, select, epoll_wait that may not wait, and found nothing */
	SCRY_VAIN_YIELD,     /* sched_yield */
	SCRY_VAIN_BYTE,	     /* one byte was read or written */
	SCRY_VAIN_TELL,	     /* lseek(fd, 0, SEEK_CUR) */
	SCRY_VAIN_EPOLL,     /* EPOLL_CTL_MOD */
	SCRY_VAIN_OPTION,    /* setsockopt */
	SCRY_VAIN_LOCALTIME, /* asked for /etc/localtime */
	SCRY_VAIN_MAP,	     /* munmap of what the thread had mapped last */
};

/* What one thread did at a site: at the end of the watch. A second one with no calls has another
 * `what` of these calls. */
struct scry_ev_syscall {
	uint32_t site;
	uint32_t pid, tid;
	uint32_t thread_str; /* its name; 0: not known */
	uint64_t calls, errors;
	uint64_t again, absent; /* of the errors: EAGAIN, ENOENT */
	uint64_t ticks;
	uint64_t asked, vain; /* of the calls: of which is known whether `what` holds; it does */
	uint32_t what;	      /* enum scry_syscalls_vain */
	uint32_t error;	      /* errno of the last error that was neither; 0 */
	uint64_t timed, total_ns, max_ns;
	uint64_t vain_ticks, again_ticks, absent_ticks; /* of `ticks`: in such calls */
};

struct scry_ev_syscall_time { /* of a site: calls that took so long */
	uint32_t site;
	uint32_t reserved;
	uint64_t from_ns, to_ns; /* [from, to) */
	uint64_t calls;
};

struct scry_ev_syscall_stack { /* the caller: samples, each for the calls since the one before */
	uint32_t site;
	uint32_t stack; /* id of a STACK: the frame that has the site */
	uint64_t count; /* of calls, or ticks, that they stand for */
};

struct scry_ev_syscall_line { /* the same of a Ruby's calls: the newest line of Ruby */
	uint32_t site;
	uint32_t stack; /* 0: not known */
	uint64_t count;
};

struct scry_ev_syscall_path { /* that a site's calls asked for, in a sample of them */
	uint32_t site;
	uint32_t path_str;
	uint64_t count;
};

#endif
