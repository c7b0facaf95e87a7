/*
 * What is before the words in the memory of a replay: wire/replay.h. One side writes each field at
 * a time, by whose turn it is.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_REPLAY_HEAD_H
#define SCRY_WIRE_REPLAY_HEAD_H

#include "wire/replay.h"

enum scry_replay_mode {
	SCRY_REPLAY_TIMED,
	SCRY_REPLAY_SAMPLED, /* times one call in `sample_every`, by kind */
	SCRY_REPLAY_VERIFY,
	SCRY_REPLAY_COUNTED, /* its system calls: replay/syscalls.c */
	SCRY_REPLAY_MODES,
};
enum scry_replay_syscall { /* by which an allocator asks for memory, and waits */
			   SCRY_REPLAY_BRK,
			   SCRY_REPLAY_MMAP,
			   SCRY_REPLAY_MUNMAP,
			   SCRY_REPLAY_MREMAP,
			   SCRY_REPLAY_MADVISE,
			   SCRY_REPLAY_MPROTECT,
			   SCRY_REPLAY_FUTEX, /* private ones */
			   SCRY_REPLAY_SYSCALLS,
};
enum scry_replay_touch { SCRY_TOUCH_NONE, SCRY_TOUCH_FIRST, SCRY_TOUCH_ALL, SCRY_TOUCH_RECORDED };
enum scry_replay_kind {
	SCRY_REPLAY_KIND_MALLOC, /* new, too */
	SCRY_REPLAY_KIND_CALLOC,
	SCRY_REPLAY_KIND_ALIGNED,
	SCRY_REPLAY_KIND_REALLOC,
	SCRY_REPLAY_KIND_FREE,
	SCRY_REPLAY_KIND_USABLE,
	SCRY_REPLAY_KINDS,
};
/* Whose turn it is, and for what: to replay the batch, to end all blocks that live. */
enum scry_replay_turn { SCRY_TURN_FEEDER, SCRY_TURN_BATCH, SCRY_TURN_DRAIN, SCRY_TURN_EXIT };

#define SCRY_REPLAY_BUCKETS 512u /* of a histogram: eight to each doubling of the TSC's ticks */

struct scry_replay_head {
	/* the feeder's, before the start */
	uint64_t magic;
	uint32_t version, mode, touch, sample_every;
	uint32_t is_null;     /* no allocator: what the replay itself costs */
	uint32_t is_paced;    /* AT is heeded */
	uint32_t is_thinking; /* THINK is */
	uint32_t reserved1;
	uint64_t live_max;    /* bytes asked for that may live at once */
	uint64_t address_max; /* bytes, RLIMIT_AS */
	char allocator[1024]; /* path of the object that must serve malloc; "": libc */
	/* the feeder's, before each batch */
	uint32_t turn;		  /* futex; enum scry_replay_turn */
	uint32_t batch;		  /* 1, 2, ... */
	uint32_t streams, blocks; /* in use */
	uint32_t slots;		  /* ever used */
	uint32_t is_building;	  /* what was there before: not measured */
	/* scry-replay's */
	uint64_t position;  /* words done, a block of 512 late */
	uint64_t cpu_ns;    /* of its threads in batches, without what waited */
	uint64_t kernel_ns; /* of that, in the kernel; as exact as the kernel counts it */
	uint64_t wait_ns;   /* for other threads */
	uint64_t waits;
	uint64_t faults;			       /* minor, in batches */
	uint64_t failed;			       /* calls that got no memory */
	uint64_t live_blocks;			       /* at the last batch's end */
	uint64_t wrong;				       /* VERIFY: blocks that were */
	uint64_t syscalls[SCRY_REPLAY_SYSCALLS];       /* COUNTED: in batches */
	uint32_t has_syscalls;			       /* 0: they cannot be counted here */
	uint32_t beats;				       /* it is at something that takes long */
	uint64_t tsc_begin, tsc_end, ns_begin, ns_end; /* one pair of readings each */
	uint32_t timer_ticks;			       /* that reading the TSC twice takes */
	uint32_t has_usable;			       /* the allocator has malloc_usable_size */
	char served[1024];			       /* path of the object that serves */
	char why[512];				       /* a sentence when it refuses, or is wrong */
	uint64_t histogram[SCRY_REPLAY_KINDS][SCRY_REPLAY_BUCKETS];
};

struct scry_replay_memory {
	struct scry_replay_head head;
	uint32_t streams[SCRY_REPLAY_STREAMS]
		__attribute__((aligned(4096))); /* first block or NONE */
	uint64_t words[SCRY_REPLAY_BLOCKS][SCRY_REPLAY_BLOCK] __attribute__((aligned(4096)));
	uint64_t pad[SCRY_REPLAY_BLOCK]; /* may be prefetched */
};

#endif
