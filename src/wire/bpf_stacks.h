/*
 * What bpf/stacks.bpf.c gets, and what it gives: the control frames of a thread and the values that
 * they point into, copied while the thread is held at the tick of its clock. Of all threads of the
 * processes that are sampled, or of threads that keep others waiting for a VM's lock.
 */
#ifndef SCRY_WIRE_BPF_STACKS_H
#define SCRY_WIRE_BPF_STACKS_H

#include <stdint.h>

#define SCRY_BPF_NONE 0xffffffffu /* a field that this Ruby has not */

/* Room for what is read of a newest frame, of its method entry, and at its environment, the last
 * word at ep: the layout's offsets must lie in it. Of frame and entry no more is read than to the
 * last word that is wanted. */
#define SCRY_BPF_FRAME_WORDS 16
#define SCRY_BPF_ENTRY_WORDS 6
#define SCRY_BPF_ENV_WORDS 3

struct scry_bpf_layout { /* constants; offsets in bytes, as in vm/ruby_layout.h */
	uint32_t th_ec, th_nt, th_tid;
	uint32_t ec_stack, ec_stack_size, ec_cfp, ec_thread;
	uint32_t frame_size, frame_ep, frame_pc;
	uint32_t frame_me, me_def, def_iseq; /* frame_me 0: methods are not known */
	uint32_t pid_ns; /* in which threads have their numbers: inode; 0: the machine's */
	uint32_t native; /* 1: a SCRY_BPF_NATIVE record comes before each STACK */
};

/*
 * Map `threads`, by thread id. The thread that a fork child begins with has its parent's entry, as
 * all lies where it lay, but for `tid`, which the VM renews at its leisure.
 */
struct scry_bpf_gc { /* addresses of a word and two bytes; 0: not known */
	uint64_t count, during, marking;
};

struct scry_bpf_thread {
	uint64_t th; /* 0: none of the VM's, nothing is reported of it */
	struct scry_bpf_gc gc;
	uint32_t tid; /* as the VM knows it; 0: not known */
	uint32_t pid; /* of its process */
};

/* Map `locks`, by process id: whose lock's holders are reported while others want it. */
struct scry_bpf_lock {
	uint64_t table;	    /* address of struct scry_gvl_table there */
	uint64_t period_ns; /* of the clock: a tick stands for that */
	struct scry_bpf_gc gc;
};

/* Map `ran_map`, by thread id: how long threads of these processes ran, ns by ticks, while they had
 * the lock by the agent's table, and while they had not. */
struct scry_bpf_ran {
	uint64_t held, other;
};

/* Map `tree`, by process id: which processes' children are reported. Value: 1. */

enum scry_bpf_kind {
	SCRY_BPF_STACK,
	SCRY_BPF_EMPTY,	   /* the thread has no frames: it starts or ends */
	SCRY_BPF_REJECTED, /* a page was not there, or the words make no stack */
	SCRY_BPF_STRANGER, /* not in the map, or the map is out of date */
	SCRY_BPF_NATIVE, /* struct scry_bpf_native: of the thread's next record, at the same time */
	/* in the ring `news`, where a record wakes the thread that polls it: */
	SCRY_BPF_FORKED, /* `pid` is a new process, of `tid`, a thread of the tree; no more in it */
	SCRY_BPF_FILLS,	 /* the ring of the others fills; nothing else in it */
};

/*
 * A record. Frames from `cfp`, the newest first, of which there are (end - cfp) / frame_size in the
 * thread, lie at `frames_at` of it; at `values_at` what was at [bottom, top).
 */
struct scry_bpf_stack {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint32_t tid, kind, pid;
	uint32_t holder; /* of the lock, SCRY_GVL_WHO; 0: that was not asked */
	uint64_t th, ec;
	uint64_t stack, end, cfp;
	uint64_t bottom, top;
	uint64_t gc_count;	       /* of the collector, as it stood then; 0 where not known */
	uint8_t gc_during, gc_marking; /* the bytes that have its flags */
	uint16_t waiting;	       /* threads that wanted the holder's lock */
	uint32_t frames_at, frames_size, values_at;
	/* of which of the process's locks: 0, the first ractor's, or its table + 1 and that one's
	 * `uses` (wire/gvl_others.h) */
	uint32_t lock, lock_uses;
	/* of the newest frame, zeros where they were not there: the word before its pc, the flags
	 * of its method entry, the code of that one's definition */
	uint64_t top_word, top_flags, top_code;
};

/* The first words are as in scry_bpf_stack. The user registers from which native frames are walked,
 * and what was on the native stack: bytes [sp, sp + size). */
#define SCRY_BPF_NATIVE_BYTES 32768u
struct scry_bpf_native {
	uint64_t time_ns;
	uint32_t tid, kind, pid, reserved;
	uint64_t pc, sp, bp, bx;
	uint64_t size;
	uint8_t bytes[SCRY_BPF_NATIVE_BYTES];
};

_Static_assert(sizeof(struct scry_bpf_layout) == 60, "shared with the kernel's side");
_Static_assert(sizeof(struct scry_bpf_native) == 64 + SCRY_BPF_NATIVE_BYTES, "the same");
_Static_assert(sizeof(struct scry_bpf_thread) == 40, "shared with the kernel's side");
_Static_assert(sizeof(struct scry_bpf_lock) == 40, "shared with the kernel's side");
_Static_assert(sizeof(struct scry_bpf_ran) == 16, "shared with the kernel's side");
_Static_assert(sizeof(struct scry_bpf_stack) == 136, "shared with the kernel's side");

/* Per-cpu counters of map `counters`. */
enum scry_bpf_counter { SCRY_BPF_LOST, SCRY_BPF_RUNS, SCRY_BPF_NS, SCRY_BPF_COUNTERS };

/* Sizes of records: the least that fits is taken. A stack is cut at the last one's. */
#define SCRY_BPF_SMALL 2048u
#define SCRY_BPF_MIDDLE 8192u
#define SCRY_BPF_LARGE 32768u
#define SCRY_BPF_LARGEST 131072u

#endif
