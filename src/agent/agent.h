/*
 * Inside the agent: its one block of private data, and what its files share.
 *
 * The agent runs in the target: no libc, no malloc, no locks, no TLS, no syscalls, no printing.
 * Built with -mgeneral-regs-only, so no vector register is ever touched. The host fills
 * `scry_agent` before anything of ours can run, and points `gate` and `control` at the pages of
 * wire/control.h.
 */
#ifndef SCRY_AGENT_H
#define SCRY_AGENT_H

#include "wire/control.h"
#include "wire/ruby_ring.h"

#define SCRY_EXPORT __attribute__((visibility("protected"), used))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A slot of the site table: (pc, klass, depth) -> code. Four ways to a set; `pc` 0 means empty. */
struct scry_agent_site {
	uint64_t pc;
	uint64_t klass;
	uint64_t iseq;
	uint32_t depth;	    /* and the object's type, see site.c */
	uint32_t next_iseq; /* chains of slot numbers, 0 ends */
	uint32_t next_klass;
	uint32_t reserved;
};

#define SCRY_SITE_HEADS 4096u

struct scry_agent_data {
	struct scry_gate *gate;
	struct scry_control *control;
	uint64_t *ring;
	uint64_t head, tail_seen, ring_mask;
	uint64_t until_lease_check;
	uint32_t lease_ok;
	uint32_t watch; /* number of the watch whose sites the table holds */
	uint32_t reserved;
	uint32_t evict; /* round robin */
	struct scry_agent_ruby ruby;
	uint32_t iseq_heads[SCRY_SITE_HEADS];
	uint32_t klass_heads[SCRY_SITE_HEADS];
	struct scry_agent_site sites[SCRY_SITE_SLOTS];
};

extern struct scry_agent_data scry_agent __attribute__((visibility("protected")));

/* What the event handler knows of the frame that is running. */
struct scry_agent_place {
	uint64_t pc; /* address the frame's pc has outside the hook; 0: no Ruby frame */
	uint64_t iseq;
	uint32_t depth; /* 0xffff unknown */
	uint32_t top;
};

/* ring.c: room for `words`, or 0 and counted as lost. Publishing is one store. */
int scry_ring_reserve(uint64_t words);
static inline void scry_ring_put(uint64_t word)
{
	scry_agent.ring[scry_agent.head++ & scry_agent.ring_mask] = word;
}
static inline void scry_ring_publish(void)
{
	__atomic_store_n(&scry_agent.control->head, scry_agent.head, __ATOMIC_RELEASE);
}

/* site.c: the code for an object of `klass` made at `place`, defining it in the ring where it is
 * new. 0: no room in the ring. */
uint32_t scry_site_code(const struct scry_agent_place *place, uint64_t klass, uint64_t flags);
void scry_site_forget_iseq(uint64_t iseq);
void scry_site_forget_class(uint64_t klass);
void scry_site_forget_all(void);

/* define.c: what a DEF record says of a piece of code, read with plain loads while its iseq is
 * alive. */
int scry_define(uint32_t slot, const struct scry_agent_place *place, uint64_t klass,
		uint64_t flags);
/* Copies at most `room` bytes of the Ruby String `value`, the end of a longer one; returns how
 * many. */
uint32_t scry_copy_string(uint64_t value, uint8_t *to, uint32_t room);

/* class_name.c: writes the class's name; returns its bytes, 0 when it is not known. */
uint32_t scry_class_name(uint64_t klass, uint8_t *to, uint32_t room);

#endif
