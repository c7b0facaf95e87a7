/*
 * What host and agent share: the pages that scry maps into a target, and which side writes which
 * word.
 *
 *   state page     rw- private  process state page, wiped in fork children    agent and host
 *   text           r-x private  header page, then the agent's code            host, once
 *   slabs          r-x, rw-     stubs near what they are hooked into, their counters
 *   private        rw- private  agent data, stack for calls, journal          agent and host
 *   shared         rw- shared   control page, account page, then the ring     agent and keeper
 *   child buffers  rw- shared   with -f: the same for fork children           agents and keeper
 *
 * The account page (wire/account.h) is what single instruments count; here is what all need.
 *
 * State page to shared are one reservation. What an idle agent needs lies at its beginning, up to
 * the header's `tail`.
 *
 * Freestanding. Everything read from these pages by the host is hostile input: copy, then check.
 */
#ifndef SCRY_WIRE_CONTROL_H
#define SCRY_WIRE_CONTROL_H

#include "wire/state_page.h"
#include "wire/header.h"
#include "wire/journal.h"

#include <stdint.h>

#define SCRY_CONTROL_MAGIC 0x31727463797263ull

/* Private, not wiped: a fork child inherits hook list, jobs, frames, and so their accounts. */
struct scry_agent_state {
	uint64_t hooked;	  /* the VM's hook list holds our function ... */
	uint64_t handler;	  /* ... which is this one */
	uint64_t jobs_registered; /* postponed jobs that the VM accepted as new ... */
	uint64_t jobs_run;	  /* ... and those that ran */
	uint64_t jobs_refused;	  /* times that the VM's table had no room */
	uint64_t forking;	  /* calls of fork in the agent's frame; a child has one itself */
};

/*
 * The ring is a pool of segments. The producer fills one, then takes the free one with the lowest
 * number: a few hundred KiB of cache while the keeper keeps up, all 8 MiB when not. `used` (0:
 * open) and `next` are set when one is closed, before the head moves beyond it.
 */
#define SCRY_SEGMENTS 64u
#define SCRY_SEGMENT_WORDS 16384u
#define SCRY_RING_WORDS (SCRY_SEGMENTS * SCRY_SEGMENT_WORDS)
struct scry_segment {
	uint32_t used; /* words; the keeper sets it back to 0 when it has read them */
	uint32_t next;
};

struct scry_control {
	uint64_t magic;
	uint32_t abi, reserved;
	/* the owner: the scry that may edit this process; keeper writes */
	uint32_t owner_pid, owner_uid;
	uint64_t owner_start;	 /* start ticks of that process */
	uint64_t owner_since_ns; /* CLOCK_REALTIME */
	uint64_t lease_tsc; /* each 100 ms: so long a ring is filled, and a thread waits; 0: none */
	uint64_t lease_end_tsc; /* beyond this no keeper comes back: the handler takes itself off */
	uint64_t target_pid, target_start;
	char owner_does[16]; /* "objects", NUL terminated */
	uint64_t turn;	     /* whose stamps may be repeated: wire/thread_buffers.h */
	uint64_t pad0[52];

	uint64_t head;	     /* from here on the agent writes: words ever put into the ring */
	uint64_t armed;	     /* the watch whose `wanted` number the handler last took up */
	uint64_t lost;	     /* events not recorded: ring full or lease gone */
	uint64_t lost_lease; /* of these, because the keeper did not refresh the lease */
	uint64_t busy;	     /* handler entered while it was running: not recorded */
	/* threads in the dynamic loader that wait for the keeper: agent/loads.c */
	uint64_t load_arg;	 /* of the newest: what the loader is about to run */
	uint64_t load_late;	 /* how many went on without having been answered */
	uint32_t load_seq;	 /* tickets given out; a futex */
	uint32_t load_given_up;	 /* the newest ticket whose owner no longer waits */
	uint32_t buffer_waiting; /* 1: wake me, I wait for a thread buffer */
	uint32_t buffer_over;	 /* 1: the lease's end went by: nothing was recorded from then on */
	uint64_t buffer_waits;	 /* how often one had to wait */
	uint64_t child_pid;	 /* whose child buffer it is, in that process's own pid namespace */
	uint64_t filtered;	 /* 1: the program is about to forbid itself system calls */
	uint64_t foreign; /* not recorded: the thread pointer is not that of a libc's thread */
	uint64_t pad1[51];

	/* keeper writes, agent reads */
	uint64_t tail;		       /* words consumed */
	uint32_t taken[SCRY_SEGMENTS]; /* 1: in use; the agent sets it, the keeper clears it */
	uint64_t load_wait_tsc;	       /* so long a sign of life is waited for */
	uint32_t load_done;	       /* tickets answered; a futex */
	uint32_t load_busy;	       /* 1: the keeper writes, trusting that a thread waits */
	uint32_t load_beat;	       /* signs of life, while a ticket is not answered */
	uint32_t buffer_freed; /* thread buffers given back, ever, and signs of life; a futex */
	uint64_t quiet;	       /* 1: it forbids calls of ours: agent/calling.h */
	uint64_t pad2[27];

	struct scry_segment segments[SCRY_SEGMENTS]; /* agent writes, but for `used` = 0 */
};
_Static_assert(sizeof(struct scry_control) == 512 * 4, "three private cache line groups");

#endif
