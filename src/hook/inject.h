/*
 * The one way in and the one way out.
 *
 * In: take the owner's lock, find the agent that an earlier scry left or map one by remote syscalls
 * in a stopped thread (nothing is dlopen'ed), write its image while the target runs, header last.
 * Out: undo every change; unmap only when, with all threads stopped, none is inside and nothing
 * of ours is pending; else leave it for the next attach or undo.
 */
#ifndef SCRY_HOOK_INJECT_H
#define SCRY_HOOK_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/agent_map.h"
#include "hook/agent_source.h"
#include "sys/edit.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"
#include "sys/tracee.h"
#include "sys/stop_the_world.h"
#include "wire/control.h"

struct scry_inject {
	const struct scry_proc *proc;
	uint64_t max_pause_ns;
	int lock;	     /* abstract socket that names the target's owner; -1 */
	uint64_t nonce;	     /* of our claim to it (hook/own.h); 0: none */
	struct scry_mem mem; /* writable, opened once, never reopened */
	struct scry_maps maps;
	struct scry_gadgets gadgets;
	struct scry_agent_source source;
	struct scry_agent_header header; /* of the agent in the target */
	const char *purpose;		 /* set by the caller: what other users read */
	bool only_adopt, is_entered;	 /* set by the caller: map no new agent; all is put in */
	uint32_t parts;			 /* likewise: enum scry_agent_part beside the core */
	bool adopted, removed_part;	 /* it was there before; an incomplete one was taken out */
	bool is_borrowed;		/* the shared mapping is a child buffer of another's pool */
	bool is_shared;			/* set by the caller: several instruments use it */
	bool has_channels, vm_is_known; /* by this watch: hook/threads.h, all of scry_agent_vm */
	bool has_call_stack;		/* the agent's: see hook/hold.h */
	uint64_t spare_stack;		/* until then; of a patch (hook/lasting.h), or 0 */
	uint64_t lent_stack;		/* of a thread's own, see scry_stack_spare; or 0 */
	bool lasts, hides, hunts, is_too_large; /* what is changed stays; see hook/hidden.h */
	struct scry_stw_hunt hunt;		/* 0 bytes: for processes on the same memory only */
	struct scry_control *control;		/* the shared mapping, in our own address space */
	uint64_t *ring;
	uint64_t *counters[SCRY_SLABS_MAX]; /* of the slabs that we mapped, the same */
	uint64_t counted[SCRY_SLABS_MAX];   /* counters in use */
	uint64_t state_page, data; /* addresses in the target; data: struct scry_agent_data */
	struct scry_edit edit;
	struct scry_undo_report older;	 /* what a scry that died had left, put back on entering */
	struct scry_undo_report settled; /* what scry_shadow_settle has put back */
	uint64_t pause_max_ns, pause_total_ns, pause_wall_ns;
	uint64_t pause_cpu_ns; /* at most: as many threads run at a time as there are processors */
	uint32_t pause_threads, pauses;
	const char *left_why; /* after leave, if bytes stay: a clause; NULL: a thread, or the VM */
	uint64_t runs_until_ns; /* before that its threads are not all stopped again */
};

/* Is another scry at work? -EBUSY with its name. The claim (hook/own.h) is made when entering, and
 * given up by unlock, when nothing of ours is there any more. */
int scry_inject_lock(struct scry_inject *inj, const struct scry_proc *proc);
void scry_inject_unlock(struct scry_inject *inj);

/*
 * Enters: after scry_inject_lock. `near` is an address the agent should lie within 1 GiB of (0:
 * anywhere). `held` is a thread that is stopped already (a program being started), or NULL: one is
 * chosen and held briefly. -EINPROGRESS with only_adopt: it is idle.
 */
int scry_inject_enter(struct scry_inject *inj, uint64_t near, struct scry_tracee *held);

/*
 * A new slab for `code_size` bytes of stubs within 1 GiB of `near`, mapped in `held` or in a thread
 * held for it. Returns its number in the header, or -errno with a sentence; -EAGAIN: `held` is on a
 * small stack. Its first 256 bytes of code are the magic and literals, its counters are at
 * inj->counters[number]. Unmapped with the agent.
 */
int scry_inject_slab(struct scry_inject *inj, struct scry_tracee *held, uint64_t near,
		     uint64_t code_size, uint64_t counters);

/* Stops all threads and finds their signal frames: for changing code. 0 or -errno; ends with
 * scry_inject_go. */
int scry_inject_stop(struct scry_inject *inj, struct scry_stw *w);
/* Is a thread inside the agent or a stub, or goes on there after a signal? Only while stopped. */
bool scry_inject_is_inside(const struct scry_inject *inj, const struct scry_stw *w);
/* The same of a stub or these parts of the agent only. */
bool scry_inject_is_inside_of(const struct scry_inject *inj, const struct scry_stw *w,
			      uint32_t parts);
#define SCRY_INJECT_BATCH 512 /* changes that are made in one stop: a millisecond or two */
/* Puts back entries [first, first + n) of the journal, in as many stops as it takes. 0 or -errno
 * with a sentence. */
int scry_inject_undo(struct scry_inject *inj, size_t first, size_t n, struct scry_undo_report *ret);
/* Lets them go, and counts the pause. */
void scry_inject_go(struct scry_inject *inj, struct scry_stw *w);

/* System calls, by scry_hold_calls, in `held` or in a thread that is held for it. 0 or -errno. */
typedef int scry_inject_work(struct scry_tracee *t, const struct scry_call *how, void *arg);
int scry_inject_call(struct scry_inject *inj, struct scry_tracee *held, scry_inject_work *work,
		     void *arg);

/*
 * SIGTRAP is handled by the agent from now on (agent/trap.c), for when we die: in `held` or in a
 * thread held for it. Taken back by whoever unmaps the agent. 0; -EBUSY: the program handles or
 * ignores it itself, nothing was changed; -EAGAIN as above; -errno with a sentence.
 */
int scry_inject_trap(struct scry_inject *inj, struct scry_tracee *held);

/* Opens places of parts: for scry_parts_need (hook/parts.h). */
int scry_inject_open(struct scry_inject *inj, struct scry_tracee *held, uint32_t parts);

/* Maps a fresh pool of child buffers (wire/child_buffers.h) into an entered process, in `held` or
 * in a thread held for it. *ret_fd (caller closes) opens it. 0 or -errno with a sentence. */
int scry_inject_child_buffers(struct scry_inject *inj, struct scry_tracee *held, int *ret_fd);

/* The other way in: a fork child of `root` that has taken a child buffer, whose control page lies
 * at `*buffer` in our address space. After scry_inject_lock; no thread is stopped. 0 or -errno. */
int scry_inject_follow(struct scry_inject *inj, const struct scry_inject *root, uint64_t *buffer);
/* Runs an exported void(void) function of the agent in `tid`. -EAGAIN: it cannot be used; -EPERM:
 * the agent is another scry's by now; -ENOENT: it is not there any more. */
int scry_inject_run(struct scry_inject *inj, pid_t tid, const char *symbol);
/* Run-time address of an exported symbol of the agent. */
uint64_t scry_inject_symbol(const struct scry_inject *inj, const char *name);
/* Says to the agent which watch is on from its next event on, 0: none. 0; -errno: not ours. */
int scry_inject_want(struct scry_inject *inj, uint32_t watch);
/* The agent's accounts. 0, or -ESRCH / -EFAULT: the target is gone or has exec'ed. */
int scry_inject_state(const struct scry_inject *inj, struct scry_agent_state *ret);

/* Gives up ownership and undoes all changes; unmaps the agent if it is proven unused. `*ret_left`
 * bytes stay. 0 or -errno; -EBUSY: changes are left, one was overwritten, no stop came for 5 s.
 */
int scry_inject_leave(struct scry_inject *inj, struct scry_undo_report *report, uint64_t *ret_left);
/* Until no thread is at a system call that a scry sent it to make and died. 0; -EBUSY. */
int scry_inject_await_calls(struct scry_inject *inj);
struct scry_unmap_how {
	uint64_t stack; /* not ours, which goes: 0, the thread's; or its own's end (sys/stack) */
	bool to_idle, rests; /* only what a shut handler does not need; it may run between calls */
};
int scry_inject_unmap(struct scry_inject *inj, struct scry_tracee *t,
		      const struct scry_unmap_how *how); /* all, in the stopped thread `t` */
/* An idle agent: unmapped if the VM has no use for it, else made idle to the end. 0 or -errno. */
int scry_inject_leave_idle(struct scry_inject *inj, bool *ret_gone);
void scry_inject_done(struct scry_inject *inj); /* host resources only */
/* Adds a hold of `threads` threads to the measured pauses. */
void scry_inject_count_pause(struct scry_inject *inj, uint64_t ns, uint32_t threads);
/* What its threads would have run while they stood, as they do else; at most on all processors. */
uint64_t scry_inject_lost_ns(const struct scry_inject *inj, uint64_t cpu_ns, uint64_t watched_ns);

#endif
