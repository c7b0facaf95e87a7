/*
 * The agent's memory in a process: finding it, mapping it, taking it out.
 *
 * Layout (wire/control.h), one reservation near the hooked module:
 *
 *   process state page                        rw-, private, wiped on fork
 *   header page | code of the parts           r-x, private
 *   data of the parts | stack for calls | journal    rw-, private
 *   control page | account page | ring        rw-, shared with the keeper
 *
 * elsewhere, slabs of stubs near what they are hooked into (wire/control.h), and the child buffers
 * of fork children (wire/child_buffers.h), rw- and shared. The header page is written right after
 * the one mmap and unmapped with the rest in one call, so that whatever is killed in between leaves
 * something that the next scry finds. Nothing is unmapped that is not known to be ours at that
 * moment: the journal holds the header's nonce, a slab a magic, shared memory its name. Parts that
 * are not wanted are closed. Remote syscalls only (sys/tracee).
 */
#ifndef SCRY_HOOK_AGENT_MAP_H
#define SCRY_HOOK_AGENT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/agent_source.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/tracee.h"
#include "wire/control.h"

/* An agent in some process, complete or not, found by its header page. 0 or -ENOENT (no sentence).
 */
int scry_agent_find(const struct scry_mem *mem, const struct scry_maps *maps,
		    struct scry_agent_header *ret);

/* Addresses that follow from a header. */
uint64_t scry_agent_state_page(const struct scry_agent_header *h);
uint64_t scry_agent_journal(const struct scry_agent_header *h);
/* The end of the stack for calls (struct scry_call). */
#define SCRY_CALL_STACK_BYTES 65536u
uint64_t scry_agent_call_stack(const struct scry_agent_header *h);

/* Is the agent READY and are all its mappings there as the header says? */
bool scry_agent_is_whole(const struct scry_agent_header *h, const struct scry_maps *maps);

/* Is the memory from `tail` on there, and ours? mem_fd: of the target's memory. */
bool scry_agent_has_tail(const struct scry_agent_header *h, const struct scry_maps *maps,
			 int mem_fd);

/* Are its code bytes those that this scry would write? Only such an agent is adopted. */
bool scry_agent_is_ours(const struct scry_agent_header *h, const struct scry_mem *mem,
			const struct scry_agent_source *source);

/* Chooses addresses within 1 GiB of `near`. 0, or -ENOMEM with a sentence. */
int scry_agent_plan(const struct scry_maps *maps, const struct scry_agent_source *source,
		    uint64_t near, struct scry_agent_header *ret);

/* Has the target's control group room for so many whole rings, and as much again? 0, or -ENOTSUP
 * with a sentence; and how many bytes it has left. For one ring: before a thread is held. */
int scry_agent_room(pid_t pid, uint32_t rings, uint64_t *ret_left);

/*
 * Maps what `h` plans, in the stopped thread `t`, of its parts those that are named. 0 or -errno
 * with a sentence; stage MAPPING remains. *ret_fd (caller closes) opens the shared pages for us
 * (hook/shared.h).
 */
int scry_agent_map(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		   const struct scry_call *how, int *ret_fd);

/* Opens the places of more parts, zero, in one that is mapped: hook/parts.h. */
int scry_agent_open(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		    const struct scry_call *how);

/* All that it can use by what its header says, bytes. */
uint64_t scry_agent_bytes(const struct scry_agent_header *h);

/*
 * A slab for `code_size` bytes of stubs within 1 GiB of `near`, with `counters` counters: its
 * addresses. 0, or -ENOMEM with a sentence. Map: the header must name it before; *ret_fd (caller
 * closes) opens the counters for us.
 */
int scry_agent_plan_slab(const struct scry_agent_header *h, const struct scry_maps *maps,
			 uint64_t near, uint64_t code_size, uint64_t counters,
			 struct scry_slab *ret);
int scry_agent_map_slab(const struct scry_agent_header *h, const struct scry_slab *slab,
			struct scry_tracee *t, const struct scry_call *how, int *ret_fd);

/*
 * The pool of child buffers (wire/child_buffers.h) at h->child_buffers, which the header names
 * already; new pages in the place of older ones when `maps` shows such. Same *ret_fd.
 */
int scry_agent_map_child_buffers(const struct scry_agent_header *h, struct scry_tracee *t,
				 const struct scry_call *how, int *ret_fd);
/* Is what `maps` shows at h->child_buffers a pool of ours, and nothing else? */
bool scry_agent_has_child_buffers(const struct scry_agent_header *h, const struct scry_maps *maps);

/* The control page that this process records by: its child buffer's when it is a fork child that
 * has one, else h->shared. */
uint64_t scry_agent_control(const struct scry_agent_header *h, const struct scry_mem *mem);

/* New shared pages at the old address, for whoever adopts it: those that are there are its parent's
 * in a fork child, and in any other the target's word alone says what they are; and more parts.
 * Same *ret_fd. */
int scry_agent_rehome(const struct scry_agent_header *h, uint32_t parts, struct scry_tracee *t,
		      const struct scry_call *how, int *ret_fd);

/* Takes all mappings out, the header's last. Only when nothing of the agent can be running. 0 or
 * -errno. */
int scry_agent_unmap(const struct scry_agent_header *h, struct scry_tracee *t,
		     const struct scry_call *how);

/*
 * Leaves an idle agent: unmaps all that is not needed while no watch is on and no code leads to it.
 * All threads are stopped, and nothing in the agent points to what goes. Or maps that again, zero,
 * without the shared pages; stage IDLE remains. 0 or -errno; -EEXIST with a sentence: the program
 * has mapped something there.
 */
int scry_agent_retire(const struct scry_agent_header *h, struct scry_tracee *t,
		      const struct scry_call *how);
int scry_agent_revive(const struct scry_agent_header *h, struct scry_tracee *t,
		      const struct scry_call *how);

/* Writes the header page (stage included). */
int scry_agent_write_header(const struct scry_agent_header *h, int mem_fd);

#endif
