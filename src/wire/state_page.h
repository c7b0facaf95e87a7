/*
 * The process state page of an agent: what every event handler touches. Freestanding.
 */
#ifndef SCRY_WIRE_STATE_PAGE_H
#define SCRY_WIRE_STATE_PAGE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Process state page: private and MADV_WIPEONFORK, so a fork child finds it all zero and knows
 * itself. Everything that an event handler touches each time lies here, on few lines of one page.
 */
struct scry_agent_frames { /* the part of the VM's layout that each event needs, offsets in bytes */
	uint32_t trace_event, trace_ec, trace_cfp, trace_data;
	uint32_t frame_pc, frame_iseq, frame_sp, frame_ep, frame_size;
	uint32_t ec_cfp, ec_stack, ec_stack_size;
	uint32_t pc_advanced; /* bytes that the VM adds to the newest frame's pc around the hook */
	uint16_t with_stacks; /* each object with the stack that made it */
	uint16_t with_pages;  /* pages in which objects are made are noted: agent/pages.c */
};
/*
 * What agent/gvl.c knows of a VM's lock for itself. Its table is shared with fork children, which
 * may have fewer rights: what says which thread's memory may be read lies here, where nothing else
 * writes.
 */
struct scry_state_page_gvl {
	uint64_t th; /* whose the lock was last, by the VM's own word */
	uint64_t nt; /* the VM's struct of the native thread that ran it then, by the plan */
	uint64_t fs; /* that native thread's thread pointer; 0: not seen */
	uint32_t tid, holds; /* its tid; 1: it has the lock still */
	uint64_t watch;	     /* the plan's, when all this was begun */
	uint64_t missed;     /* 1: an event was missed since */
};
#define SCRY_STATE_PAGE_OTHERS 16u
struct scry_state_page {
	uint32_t wanted;   /* 0: off; else the number of the watch that is on; host writes */
	uint32_t taken;	   /* the watch that the handler has taken up */
	uint64_t handling; /* the event handler runs */
	uint64_t head;	   /* ring words ever written, published or not */
	uint64_t ring;	   /* address of the ring's words */
	uint64_t at, end;  /* next word and end of the segment in use, as indices into the ring */
	uint32_t until_lease_check; /* events */
	uint32_t lease_ok;
	uint64_t open; /* 1 in the process that was entered */
	struct scry_agent_frames frames;
	int64_t inflight; /* threads in the agent's other entries: registering, reconciling, booting
			   */
	uint32_t segment;
	uint32_t last_node; /* the stack that the newest word of the ring goes by */
	/* sampling */
	int64_t until_sample; /* objects, or units of the smallest slot, until the next one */
	uint64_t random;      /* xorshift64, never 0 */
	uint64_t gcs;	      /* GCs begun since the watch was taken up */
	uint64_t full_gcs;    /* the VM's own count of full ones, at the end of the last mark */
	uint32_t sweeping;    /* what died in the last mark is being swept */
	uint32_t tracked;     /* sampled objects whose end is waited for */
	uint64_t by_bytes;    /* until_sample counts units of slot bytes, not objects; host writes
			       */
	/* objects by hooks: agent/ruby_hooks.c */
	int64_t births; /* threads inside an allocation function of the VM that is hooked. One that
			   leaves it by an exception stays counted: the agent then stays mapped */
	uint64_t vm_gcs_at; /* where the VM counts its GCs; 0: not known */
	uint64_t vm_gcs;    /* that count, when it was last looked at */
	uint64_t last_born; /* the newest object, while it is not freed: functions that make objects
			       call each other, and both return it */
	uint64_t vm_made_at, vm_made; /* the same of objects made; it, before the first one seen */
	uint64_t seen;		      /* objects since then */
	uint32_t loads;	    /* 1: the keeper wants to know of loaded objects; host writes */
	uint32_t last_slot; /* the slot size that the newest word of the ring goes by */
	/* of an instrument that counts in its pages (wire/gvl.h): where; host. In a fork child: 1,
	 * a thread claims a child buffer; then where (child_buffer.c) */
	uint64_t table __attribute__((aligned(64)));
	struct scry_state_page_gvl gvl;
	/* the same of other ractors' locks, by their tables; 1: a thread changes which mutexes are
	 * looked at */
	struct scry_state_page_gvl gvl_others[SCRY_STATE_PAGE_OTHERS] __attribute__((aligned(64)));
	uint32_t gvl_changes;
};
/* What a VM waits for the keeper for: agent/last.c */
enum scry_look {
	SCRY_LOOK_LAST,	 /* it is about to end: measure the living */
	SCRY_LOOK_JUDGE, /* it runs Ruby code: validate the layout */
};
/* In the process state page: which scry may edit this process (hook/own.h). Host only. */
#define SCRY_OWNER_OFFSET 3072u
struct scry_owner {
	uint64_t nonce;	    /* 0: none */
	uint64_t until_tsc; /* beyond that, as long as the lease is fresh */
	uint64_t pid_space; /* inode of the pid namespace in which it is ... */
	uint64_t start;	    /* ... the process that began then, ... */
	uint32_t pid, pad;  /* ... with this number */
};

#define SCRY_STATE_PAGE_BIRTHS 184 /* for agent/thunk.S */
_Static_assert(offsetof(struct scry_state_page, births) == SCRY_STATE_PAGE_BIRTHS, "see above");
_Static_assert(sizeof(struct scry_state_page) <= 2048 &&
		       offsetof(struct scry_state_page, table) == 256 &&
		       offsetof(struct scry_state_page, gvl_others) == 320,
	       "five cache lines, the third for sampling, the fifth for tables; then ractors");

#endif
