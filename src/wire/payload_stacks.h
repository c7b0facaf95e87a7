/* Payloads about sampled stacks: see wire/payload.h, which includes this. */
#ifndef SCRY_WIRE_PAYLOAD_STACKS_H
#define SCRY_WIRE_PAYLOAD_STACKS_H

#include <stdint.h>

enum scry_thread_state {
	SCRY_STATE_UNKNOWN,
	SCRY_STATE_CPU,	     /* on a processor */
	SCRY_STATE_RUNNABLE, /* ready, but on none */
	SCRY_STATE_GVL,	     /* waits for the VM's lock */
	SCRY_STATE_BLOCKED,  /* waits in a system call, or for a page */
	SCRY_STATE_SLEEPING, /* waits for a time */
	SCRY_STATE_GC,	     /* collects garbage: a frame of its own says so */
	SCRY_STATES,
};

struct scry_ev_samples { /* samples of one thread with one stack in one state */
	uint32_t pid;
	uint32_t thread;   /* number of a THREAD event of this process */
	uint32_t stack;	   /* id of a STACK event; 0: no Ruby frame */
	uint32_t state;	   /* enum scry_thread_state */
	uint64_t count;	   /* samples */
	uint64_t wall_ns;  /* time that they stand for */
	uint64_t cpu_ns;   /* of it, on a processor, as the kernel counts */
	uint64_t repaired; /* of the samples: only the part that was sure is in the stack */
};

struct scry_ev_sampling { /* how well it went: one per process, at the end */
	uint32_t pid;
	uint32_t rate;	     /* samples a second that were asked for */
	uint64_t ticks;	     /* moments at which all threads were looked at */
	uint64_t missed;     /* that were skipped, as the one before was not done in time */
	uint64_t valid;	     /* samples of a thread: two equal collects */
	uint64_t repaired;   /* what two collects had in common */
	uint64_t rejected;   /* nothing was sure: counted, not shown */
	uint64_t unchanged;  /* of the valid: nothing had changed since the sample before */
	uint64_t dropped;    /* of all: a newest frame on its way in or out was left out */
	uint64_t collects;   /* of stacks */
	uint64_t sampler_ns; /* CPU time of scry itself */
	uint64_t busy_ns;    /* of it, in ticks */
	uint64_t clocked;    /* of the samples: by eBPF, at a tick of the thread's own clock */
	uint64_t lost;	     /* of these: for which there was no room */
	uint64_t kernel_ns;  /* time of that program in the kernel */
};

struct scry_ev_pauses { /* a process that was held for each look: one, at the end */
	uint32_t pid;
	uint32_t threads;   /* most that were held at once */
	uint64_t count;	    /* looks; a thread that waits is not held, so in some none was */
	uint64_t total_ns;  /* from when one may have stood to the last release, each */
	uint64_t median_ns; /* of them: within a sixteenth */
	uint64_t longest_ns;
	uint64_t spared; /* looks left out, so that it was not held for more of the time */
	uint64_t late;	 /* looks left out: some thread would not stop, or another traced it */
	uint64_t again;	 /* looks made again, as a thread woke meanwhile */
};

struct scry_ev_naming { /* of code that came into being while a probe was on: one, at the end */
	uint32_t pid;
	uint32_t differ;   /* comparisons with memory, at first sight and at the end: not alike */
	uint64_t agree;	   /* alike */
	uint64_t gone;	   /* at the end: not there any more */
	uint64_t born;	   /* pieces of code */
	uint64_t lost;	   /* of them, not reported: no room, not to be read, beyond a limit */
	uint64_t late;	   /* of them, loaded from binary form, named from memory a moment later */
	uint64_t nameless; /* gone or not to be read before that */
	uint64_t reported; /* frames that only what was reported could name */
};

#endif
