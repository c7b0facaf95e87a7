/*
 * Inside the agent: the data of its core, and what its parts share.
 *
 * The agent runs in the target: no libc, no malloc, no locks, no TLS, no printing, and no syscalls
 * but those of calling.c, loads.c and trap.c. Built with -mgeneral-regs-only, so no vector register
 * is ever touched.
 *
 * The core is always there: it calls no part, and knows of them only what the host has switched on.
 * A part is there when the host has mapped it; parts call the core, and each other where
 * src/agent/meson.build says so. The host fills `scry_agent` before anything of ours can run, and
 * points `state_page` and `control` at the pages of wire/control.h.
 */
#ifndef SCRY_AGENT_H
#define SCRY_AGENT_H

#include "agent/calling.h"
#include "agent/threads.h"
#include "wire/account.h"
#include "wire/breaks.h"
#include "wire/control.h"
#include "wire/child_buffers.h"

#define SCRY_EXPORT __attribute__((visibility("protected"), used))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Where data lies (agent.ld). Plain: before the header's `tail`, an idle agent has it. These two
 * behind it, on pages of their own; WIPED as the state page is, so that a fork child finds them
 * empty and copies nothing.
 */
#define SCRY_INHERITED __attribute__((section(".bss.inherited")))
#define SCRY_WIPED __attribute__((section(".bss.wiped")))
#define SCRY_OWN_PAGES __attribute__((aligned(4096))) /* of their types */
/* On the way of each event, called from another file of its part: goes into its callers, which it
 * would not by itself, as a part is linked without knowing what else may call it. */
#define SCRY_INTO_CALLERS inline __attribute__((always_inline))
/* Of one part, used by others: reached without a detour. */
#define SCRY_SHARED __attribute__((visibility("hidden")))

/* Bits: whose handlers want lines of Ruby, or stacks. Several may run at once. */
enum scry_agent_user { SCRY_USER_MALLOC = 1, SCRY_USER_CALLS = 2 };

/* Callers by what a Ruby ran, see lines.h; host writes. */
struct scry_agent_line_plan {
	uint32_t on; /* enum scry_agent_user; not 0: lines and vm are mapped. The agent clears it */
	uint32_t pad;
	struct scry_agent_frames frames;
	uint64_t depth; /* bytes of stack that a thread must have used: see lines.c */
	uint64_t watch; /* a number that no other watch has */
};

struct scry_agent_unwinding { /* host writes */
	uint64_t map;	      /* struct scry_unwind_map */
	uint64_t words;	      /* of it */
	uint64_t stack_end;   /* of the first thread's stack, which stays for life; 0: not known */
	uint32_t depth;	      /* return addresses, at most */
	uint32_t users;	      /* one of enum scry_agent_user; 0: no stacks. Else walk is mapped */
	uint32_t pid;	      /* in its own namespace: the first thread's tid */
	uint32_t pad;
	uint64_t seen; /* agent: the newest generation; a fork child inherits its parent's */
};

/* What of followed calls (wire/shadow.h) concerns others than the part that follows them. */
struct scry_agent_following {
	uint64_t thunks; /* address of thunk 0; 0: never used. Else calls is mapped */
	uint32_t on;	 /* enum scry_shadow_state */
	uint32_t pad;
};

struct scry_agent_data {
	struct scry_state_page *state_page;
	struct scry_control *control;
	struct scry_agent_following following;
	struct scry_agent_state state;
	struct scry_follow follow;
	struct scry_agent_tracking tracking;
	struct scry_agent_line_plan line_plan;
	struct scry_agent_unwinding unwinding;
	struct scry_agent_trap trap;
	uint32_t forbidden; /* 1: no system calls, see calling.h; fork children inherit it */
	/* `control` leads here in an idle agent, which has no shared pages. */
	struct scry_shared_head aside __attribute__((aligned(64)));
};
extern struct scry_agent_data scry_agent SCRY_SHARED;

/* Of the core too, wiped. */
struct scry_agent_rows {
	struct scry_agent_calling calling;
	struct scry_agent_thread threads[SCRY_THREADS] __attribute__((aligned(4096)));
} SCRY_OWN_PAGES;
extern struct scry_agent_rows scry_agent_rows SCRY_SHARED;

static inline uint64_t word_at(const uint8_t *base, uint32_t offset)
{
	return *(const uint64_t *)(base + offset);
}

/* child_buffer.c: the first event in a fork child, of whichever instrument. 1: it has one and
 * records from now on; 0: children are not followed, no child buffer is free, or another thread is
 * about to have one. `moved`, or NULL, is what the instrument does in the new child buffer, before
 * any other process can know whose that is.
 */
int scry_child_buffer_claim(struct scry_state_page *g, void (*moved)(struct scry_state_page *g));

/* Has this process one? */
static inline int scry_child_buffer_is_owned(const struct scry_state_page *g)
{
	return ((const struct scry_claim *)((const uint8_t *)g + SCRY_CLAIM_OFFSET))->owned != 0;
}

/* core.c: from one state of followed calls to another, unless it is not in the first. */
void scry_following_change(uint32_t from, uint32_t to);
/* No new call is followed until the keeper says so. */
void scry_following_hold(void);

#endif
