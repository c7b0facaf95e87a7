/*
 * Inside the agent: its one block of private data, and what its files share.
 *
 * The agent runs in the target: no libc, no malloc, no locks, no TLS, no printing, and no syscalls
 * but those of calling.c, loads.c and trap.c.
 * Built with -mgeneral-regs-only, so no vector register is ever touched. The host fills
 * `scry_agent` before anything of ours can run, and points `gate` and `control` at the pages of
 * wire/control.h.
 */
#ifndef SCRY_AGENT_H
#define SCRY_AGENT_H

#include "agent/calling.h"
#include "agent/calls_ruby.h"
#include "agent/malloc.h"
#include "agent/pages.h"
#include "agent/ractor.h"
#include "agent/sample.h"
#include "agent/sites.h"
#include "agent/stack.h"
#include "agent/threads.h"
#include "wire/breaks.h"
#include "agent/walk.h"
#include "wire/control.h"
#include "wire/lanes.h"
#include "wire/ruby_hooks.h"
#include "wire/ruby_plan.h"
#include "wire/shadow.h"

#define SCRY_EXPORT __attribute__((visibility("protected"), used))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct scry_data_object {      /* a hidden object of the VM's heap: see scry_data_object() */
	uint64_t object, data; /* it; what it owns, 0: none */
};

struct scry_agent_data {
	struct scry_gate *gate;
	struct scry_control *control;
	struct scry_agent_state state;
	uint32_t evict;	     /* round robin */
	uint32_t generation; /* part of every key: a new one forgets all */
	struct scry_agent_ruby ruby;
	struct scry_follow follow;
	struct scry_data_object anchor, last; /* moved.c, last.c */
	uint64_t asked_last;		      /* whose size was asked last: what it owns */
	uint64_t major_gc_count; /* the Symbol; 0: this VM cannot say which GCs are full */
	uint64_t compact_count;	 /* another: compactions; 0: they are followed */
	uint64_t compactions;	 /* when the hook was put on */
	uint64_t made_count;	 /* another: objects made, where no word is known (ruby_hooks.c) */
	struct scry_agent_sampling sampling;
	struct scry_agent_hooks hooks;
	struct scry_agent_tracking tracking;
	struct scry_agent_malloc malloc;
	struct scry_agent_line_plan line_plan;
	struct scry_agent_unwinding unwinding;
	struct scry_agent_trap trap;
	uint32_t forbidden; /* 1: no system calls, see calling.h; fork children inherit it */
	/* `control` leads here in an idle agent, which has no shared pages. */
	struct scry_control aside __attribute__((aligned(4096)));
	/* From here on, the header's `tail`: an idle agent does without, see doc/AGENT.md. */
	struct scry_shadow shadow __attribute__((aligned(4096))); /* shadow.c; inherited by fork */
	/*
	 * From here to its end: tables on pages of their own, MADV_WIPEONFORK like the gate. A fork
	 * child finds them empty and copies nothing.
	 */
	struct scry_agent_sampled sampled __attribute__((aligned(4096)));
	struct scry_agent_stacks stacks;
	struct scry_agent_pages pages;
	struct scry_agent_calling calling;
	struct scry_agent_thread threads[SCRY_THREADS] __attribute__((aligned(4096)));
	struct scry_agent_callers callers;
	struct scry_agent_lines lines __attribute__((aligned(64)));
	struct scry_agent_ruby_calls ruby_calls __attribute__((aligned(64)));
	struct scry_agent_walks walks __attribute__((aligned(64)));
	uint32_t iseq_heads[SCRY_SITE_HEADS];
	uint32_t klass_heads[SCRY_SITE_HEADS];
	struct scry_agent_link links[SCRY_SITE_SLOTS];
	struct scry_agent_front front[SCRY_SITE_FRONT] __attribute__((aligned(64)));
	struct scry_agent_key keys[SCRY_SITE_SLOTS] __attribute__((aligned(64)));
};

_Static_assert(offsetof(struct scry_agent_data, aside) + SCRY_PAGE ==
		       offsetof(struct scry_agent_data, shadow),
	       "the host finds it in the last page before the tail");

extern struct scry_agent_data scry_agent __attribute__((visibility("protected")));

static inline uint64_t word_at(const uint8_t *base, uint32_t offset)
{
	return *(const uint64_t *)(base + offset);
}

/* What a handler knows of the frame that is running. */
struct scry_agent_place {
	uint64_t pc; /* address the frame's pc has outside the hook; 0: no Ruby frame */
	uint64_t iseq;
	uint64_t ec, cfp; /* the frame itself */
	uint32_t depth;	  /* 0xffff unknown */
	uint32_t top;
};

/* ring.c: room for `words`, or 0 and counted as lost. Publishing is one store. */
int scry_ring_reserve(struct scry_gate *g, uint64_t words);
static inline void scry_ring_put(struct scry_gate *g, uint64_t word)
{
	((uint64_t *)g->ring)[g->at++] = word;
	g->head++;
}
static inline void scry_ring_publish(const struct scry_gate *g)
{
	__atomic_store_n(&scry_agent.control->head, g->head, __ATOMIC_RELEASE);
}

/* lane.c: the first event in a fork child. 1: it has a lane and records from now on; 0: nobody
 * follows, or no lane is free. */
int scry_lane_claim(struct scry_gate *g);

/* define.c: what a DEF record says of a piece of code, read with plain loads while its iseq is
 * alive. */
int scry_define(uint32_t slot, const struct scry_agent_place *place, uint64_t klass,
		uint64_t flags);
/* Copies at most `room` bytes of the Ruby String `value`, the end of a longer one; returns how
 * many. */
uint32_t scry_copy_string(uint64_t value, uint8_t *to, uint32_t room);

/* The same of a node of the stack tree. 0: no room in the ring. */
int scry_define_node(uint32_t node, uint32_t parent, uint64_t pc, uint64_t iseq);

/* ruby_events.c: a new watch is taken up; the hook takes itself off the VM's list. */
void scry_take_up(struct scry_gate *g);
void scry_hook_off(const struct scry_gate *g);

/* moved.c: at a safepoint; anywhere the hook may be taken off. */
void scry_moved_on(void);
void scry_moved_off(void);

/* ruby_events.c: the VM runs it in its own time, with the GVL, at a safepoint. */
SCRY_EXPORT void scry_agent_reconcile(void *unused);

/* class_name.c: the watch ends where a ractor begins that breaks the VM, see ractor.h */
void scry_end_before_ractor(struct scry_gate *g, uint64_t flags, uint64_t klass);
/* Writes the class's name; returns its bytes, 0 when it is not known. */
uint32_t scry_class_name(uint64_t klass, uint8_t *to, uint32_t room);

/* No new call is followed until the keeper says so: shadow.c. */
void scry_agent_hold_calls(void);

#endif
