/*
 * The trick: the return values of the remote syscalls are seen by ptrace, but nothing depends on
 * our being alive to see them: see sys/tracee.
 */
#include "hook/inject.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/err.h"
#include "hook/calling.h"
#include "hook/hold.h"
#include "hook/own.h"
#include "hook/parts.h"
#include "hook/shadow.h"
#include "sys/stack.h"
#include "wire/child_buffers.h"

#define MAP_TRIES 5
#define OTHERS_TRIES 100	/* while another scry is entering */
#define HURRY_NS 12000000000ull /* finding that thread, and both */
#define CALL_NS 3000000000ull	/* the calls in one thread, which waits for a processor too */

enum work {
	WORK_MAP,
	WORK_REHOME,
	WORK_CHILD_BUFFERS,
	WORK_SLAB,
	WORK_CALL,
	WORK_REVIVE,
	WORK_OPEN,
	WORK_RETIRE,
	WORK_UNMAP
};

#define TRAP_FIELD(field)                                     \
	(inj->data + offsetof(struct scry_agent_data, trap) + \
	 offsetof(struct scry_agent_trap, field))

/* rt_sigaction(SIGTRAP, action, older), addresses in the target. */
static int set_sigtrap(struct scry_tracee *t, const struct scry_call *how, uint64_t action,
		       uint64_t older)
{
	const uint64_t call[7] = {SYS_rt_sigaction, SIGTRAP, action, older, sizeof(uint64_t)};
	int64_t result;
	int r = scry_tracee_syscall(t, how, call, &result);

	return r < 0 ? r : (int)result;
}

/* Ours is set where the default is, or, with `ours` false, the default where ours is. */
static int exchange_sigtrap(struct scry_inject *inj, struct scry_tracee *t,
			    const struct scry_call *how, bool ours)
{
	const struct scry_sigaction action = {
		.handler = ours ? scry_inject_symbol(inj, "scry_agent_trap") : 0,
		.flags = ours ? SA_SIGINFO | SA_ONSTACK | 0x04000000 /* SA_RESTORER */ : 0,
		.restorer = ours ? scry_inject_symbol(inj, "scry_agent_restorer") : 0,
		.mask = ours ? ~0ull : 0}; /* a handler that came meanwhile had SIGTRAP blocked */
	uint64_t handler = 0, expected = ours ? 0 : scry_inject_symbol(inj, "scry_agent_trap");
	const uint64_t is_set = ours;
	int r = set_sigtrap(t, how, 0, TRAP_FIELD(older)), fd = inj->mem.fd;

	if (r == 0)
		r = scry_mem_u64(&inj->mem, TRAP_FIELD(older), &handler);
	if (r == 0 && handler == action.handler)
		return 0;
	if (r == 0 && handler != expected)
		return -EBUSY;
	if (r == 0)
		r = scry_edit_poke(fd, TRAP_FIELD(action), &action, sizeof(action));
	if (r == 0 && ours)
		r = scry_edit_poke(fd, TRAP_FIELD(is_set), &is_set, sizeof(is_set));
	if (r == 0)
		r = set_sigtrap(t, how, TRAP_FIELD(action), 0);
	if (r == 0 && !ours)
		r = scry_edit_poke(fd, TRAP_FIELD(is_set), &is_set, sizeof(is_set));
	return r;
}

/* No thread comes here by SIGTRAP any more. What another program has set since then is theirs. */
static int take_trap_back(struct scry_inject *inj, struct scry_tracee *t,
			  const struct scry_call *how)
{
	uint64_t is_set = 0;
	int r = 0;

	if (inj->header.stage == SCRY_AGENT_READY && inj->data &&
	    scry_mem_u64(&inj->mem, TRAP_FIELD(is_set), &is_set) == 0 && is_set)
		r = exchange_sigtrap(inj, t, how, false);
	return r == -EBUSY ? 0 : r;
}

struct place { /* where work is done */
	struct scry_tracee *thread;
	scry_inject_work *work; /* CALL */
	void *arg;
	uint64_t stack;	     /* see struct scry_call */
	bool rests;	     /* likewise */
	struct scry_own own; /* while it is */
};

/* -EALREADY: another scry came first, or is about to. No other scry maps while the first thread is
 * ours.
 */
static int map_first(struct scry_inject *inj, struct place *at, const struct scry_call *how,
		     int *ret_fd)
{
	struct scry_agent_header other;
	struct scry_maps maps = {0};
	int r = scry_own_begin(&at->own, inj, at->thread);

	if (r == 0)
		r = scry_maps_read(inj->proc->pid, &maps);
	if (r == 0 && scry_agent_find(&inj->mem, &maps, &other) == 0)
		r = -EALREADY;
	if (r == 0)
		r = scry_agent_map(&inj->header, inj->parts, at->thread, how, ret_fd);
	if (r == 0)
		r = scry_own_claim(inj);
	scry_maps_done(&maps);
	return r == -EAGAIN ? -EALREADY : r;
}

/* What a watch has set up in the agent for child buffers is over: children are not followed, and
 * this process records by `control`, its own page. */
static int forget_child_buffers(struct scry_inject *inj, uint64_t control)
{
	const struct scry_claim none = {0};
	const uint64_t no_child_buffers = 0;
	int fd = inj->mem.fd;
	int r = scry_edit_poke(fd,
			       inj->data + offsetof(struct scry_agent_data, follow) +
				       offsetof(struct scry_follow, child_buffers),
			       &no_child_buffers, sizeof(no_child_buffers));

	if (r == 0)
		r = scry_edit_poke(fd, inj->data + offsetof(struct scry_agent_data, control),
				   &control, sizeof(control));
	if (r == 0)
		r = scry_edit_poke(fd, inj->state_page + SCRY_CLAIM_OFFSET, &none, sizeof(none));
	return r;
}

/* By these words others than the parts themselves know that they are mapped. */
static int switch_off_parts(const struct scry_inject *inj)
{
	const struct scry_agent_following following = {0};
	const struct scry_agent_line_plan lines = {0};
	const struct scry_agent_unwinding unwinding = {0};
	const struct {
		size_t at, size;
		const void *none;
	} words[] = {
		{offsetof(struct scry_agent_data, following), sizeof(following), &following},
		{offsetof(struct scry_agent_data, line_plan), sizeof(lines), &lines},
		{offsetof(struct scry_agent_data, unwinding), sizeof(unwinding), &unwinding},
	};
	int r = 0;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && r == 0; i++)
		r = scry_edit_poke(inj->mem.fd, inj->data + words[i].at, words[i].none,
				   words[i].size);
	return r;
}

/* Whatever the agent's handler touches with its state page closed lies before the tail from now on.
 */
static int retire(struct scry_inject *inj, struct scry_tracee *t, const struct scry_call *how)
{
	const struct scry_shared_head aside = {0};
	int r = scry_edit_poke(inj->mem.fd, inj->header.aside, &aside, sizeof(aside));

	if (r == 0)
		r = switch_off_parts(inj);
	if (r == 0)
		r = forget_child_buffers(inj, inj->header.aside);
	return r < 0 ? r : scry_agent_retire(&inj->header, t, how);
}

static int do_work(struct scry_inject *inj, struct place *at, enum work work, int *ret_fd)
{
	struct scry_tracee *t = at->thread;
	struct scry_call how = {.gadgets = &inj->gadgets,
				.mem_fd = inj->mem.fd,
				.stack = at->stack,
				.rests = at->rests ? inj : NULL,
				.deadline_ns = scry_now_ns() + CALL_NS};
	int r, finished;

	if (work == WORK_MAP)
		return map_first(inj, at, &how, ret_fd);
	if (work == WORK_REHOME)
		return scry_agent_rehome(&inj->header, scry_parts_missing(inj, inj->parts), t, &how,
					 ret_fd);
	if (work == WORK_OPEN)
		return scry_agent_open(&inj->header, scry_parts_missing(inj, inj->parts), t, &how);
	if (work == WORK_CHILD_BUFFERS)
		return scry_agent_map_child_buffers(&inj->header, t, &how, ret_fd);
	if (work == WORK_SLAB)
		return scry_agent_map_slab(&inj->header,
					   &inj->header.slabs[inj->header.slab_count - 1], t, &how,
					   ret_fd);
	if (work == WORK_CALL) {
		r = at->work(t, &how, at->arg);
		finished = scry_tracee_finish(t, &how);
		return r < 0 ? r : finished;
	}
	if (work == WORK_REVIVE)
		return scry_agent_revive(&inj->header, t, &how);
	r = take_trap_back(inj, t, &how);
	if (r < 0)
		return r;
	return work == WORK_RETIRE ? retire(inj, t, &how) : scry_agent_unmap(&inj->header, t, &how);
}

int scry_inject_unmap(struct scry_inject *inj, struct scry_tracee *t,
		      const struct scry_unmap_how *how)
{
	struct place at = {.thread = t, .stack = how->stack, .rests = how->rests};
	int unused, r;

	scry_hurry_lend(t->tid, SCRY_HURRY_NAPS);
	r = do_work(inj, &at, how->to_idle ? WORK_RETIRE : WORK_UNMAP, &unused);
	if (how->stack && !t->lent)
		scry_stack_mark(&inj->mem, how->stack);
	scry_hurry_recall(t->tid);
	return r;
}

/* Does it in `held`, or in a thread that is held for it. */
static int in_place(struct scry_inject *inj, struct scry_tracee *held, struct place *at,
		    enum work work, int *ret_fd)
{
	struct scry_tracee own = {0};
	struct scry_hurry hurry = {0};
	int r;

	at->thread = held ? held : &own;
	at->rests = !held;
	if (!held)
		scry_hurry_begin(&hurry, inj->proc->pid, 2, HURRY_NS + 4 * inj->max_pause_ns);
	r = held ? scry_hold_check(inj, held, &at->stack) : scry_hold_one(inj, &own, &at->stack);
	if (r < 0) {
		scry_hurry_end(&hurry);
		return r;
	}
	if (at->stack && at->stack == inj->lent_stack) /* else it may be used meanwhile */
		at->rests = false;
	r = do_work(inj, at, work, ret_fd);
	if (at->stack && at->stack == inj->lent_stack && !at->thread->lent)
		scry_stack_mark(&inj->mem, at->stack);
	if (!held) {
		scry_hurry_recall(own.tid);
		scry_hurry_settle();
		scry_tracee_release(&own);
		scry_inject_count_pause(inj, own.held_ns, 1);
	}
	scry_own_end(&at->own);
	scry_hurry_end(&hurry);
	return r;
}

static int in_thread(struct scry_inject *inj, struct scry_tracee *held, enum work work, int *ret_fd)
{
	struct place at = {0};

	return in_place(inj, held, &at, work, ret_fd);
}

int scry_inject_call(struct scry_inject *inj, struct scry_tracee *held, scry_inject_work *work,
		     void *arg)
{
	struct place at = {.work = work, .arg = arg};
	int unused;

	return in_place(inj, held, &at, WORK_CALL, &unused);
}

/* Our own view of the shared pages; takes `fd`. */
static int view_shared(struct scry_inject *inj, int fd)
{
	void *p = mmap(NULL, inj->header.shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	if (p == MAP_FAILED)
		return scry_fail(-errno, "cannot map the ring of process %d: %s", inj->proc->pid,
				 strerror(errno));
	inj->control = p;
	inj->ring = (uint64_t *)((char *)p + SCRY_SHARED_HEAD);
	return 0;
}

static void fill_owner(struct scry_inject *inj)
{
	struct scry_control *c = inj->control;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	c->owner_uid = getuid();
	c->owner_start = scry_proc_start_ticks(getpid());
	c->owner_since_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	c->target_pid = (uint64_t)inj->proc->pid;
	c->target_start = inj->proc->start_ticks;
	snprintf(c->owner_does, sizeof(c->owner_does), "%s", inj->purpose ? inj->purpose : "");
	c->owner_pid = (uint32_t)getpid();
}

/* Those of its parts that are missing; then the header says so, and READY. */
static int write_agent(struct scry_inject *inj)
{
	struct scry_agent_header *h = &inj->header;
	const uint64_t fields[2] = {scry_agent_state_page(h), h->shared};
	int r = scry_parts_write(inj, inj->parts);

	if (r == 0)
		r = inj->adopted ? forget_child_buffers(inj, h->shared)
				 : scry_edit_poke(inj->mem.fd, inj->data, fields, sizeof(fields));
	h->stage = SCRY_AGENT_READY;
	return r < 0 ? r : scry_agent_write_header(h, inj->mem.fd);
}

static void set_addresses(struct scry_inject *inj)
{
	inj->state_page = scry_agent_state_page(&inj->header);
	inj->data = inj->header.image + scry_agent_source_symbol("scry_agent");
}

static int is_another_build(const struct scry_inject *inj)
{
	return scry_fail(
		-EBUSY,
		"process %d holds the agent of another build of scry; fix: scry undo -p %d "
		"with that build, or restart the process",
		inj->proc->pid, inj->proc->pid);
}

/*
 * One that was left because the VM held its address. If the VM no longer leads to it, it is taken
 * out (0). Else what was given up is mapped again (1), if it is to be adopted. -EINPROGRESS: it
 * stays.
 */
static int look_at_idle(struct scry_inject *inj, struct scry_tracee *held)
{
	int unused, r = scry_own_take(inj, held);
	bool is_gone = false;

	if (r < 0)
		return r;
	set_addresses(inj);
	r = held ? 0 : scry_inject_leave_idle(inj, &is_gone);
	scry_maps_done(&inj->maps);
	if (r == 0)
		r = scry_maps_read(inj->proc->pid, &inj->maps);
	inj->removed_part = is_gone;
	if (r < 0 || is_gone)
		return r;
	if (inj->only_adopt)
		return -EINPROGRESS;
	r = in_thread(inj, held, WORK_REVIVE, &unused);
	return r < 0 ? r : 1;
}

/* What is there: an agent to adopt (1), none (0); an incomplete one is taken out first. */
static int look_for_agent(struct scry_inject *inj, struct scry_tracee *held)
{
	int unused, r;

	if (scry_agent_find(&inj->mem, &inj->maps, &inj->header) < 0)
		return 0;
	if (scry_agent_is_whole(&inj->header, &inj->maps)) {
		if (scry_agent_is_ours(&inj->header, &inj->mem, &inj->source)) {
			r = scry_own_take(inj, held);
			return r < 0 ? r : 1;
		}
		return is_another_build(inj);
	}
	if (inj->header.stage == SCRY_AGENT_IDLE)
		return scry_agent_is_ours(&inj->header, &inj->mem, &inj->source)
			       ? look_at_idle(inj, held)
			       : is_another_build(inj);
	r = scry_own_take(inj, held); /* of one that is being mapped at this moment, too */
	if (r < 0)
		return r;
	inj->removed_part = true;
	/* A call that it made some thread begin must not come after ours. */
	r = held ? 0 : scry_inject_await_calls(inj);
	if (r == 0)
		r = in_thread(inj, held, WORK_UNMAP, &unused);
	scry_maps_done(&inj->maps);
	return r < 0 ? scry_fail(r, "cannot unmap what an interrupted scry left in process %d",
				 inj->proc->pid)
		     : scry_maps_read(inj->proc->pid, &inj->maps);
}

/* The control page of a new, or newly housed, agent goes on where the agent's own process state
 * page is.
 */
static int fill_control(struct scry_inject *inj)
{
	struct scry_control *c = inj->control;
	struct scry_state_page state_page;
	int r = scry_mem_read(&inj->mem, inj->state_page, &state_page, sizeof(state_page));

	if (r < 0)
		return r;
	c->abi = SCRY_AGENT_ABI;
	c->head = c->tail = state_page.head;
	c->armed = state_page.taken;
	c->taken[0] = 1;
	c->magic = SCRY_CONTROL_MAGIC;
	state_page.ring = inj->header.shared + SCRY_SHARED_HEAD;
	state_page.at = state_page.segment = 0;
	state_page.end = SCRY_SEGMENT_WORDS;
	state_page.until_lease_check = 1;
	state_page.open = 1;
	r = scry_edit_poke(inj->mem.fd, inj->state_page + offsetof(struct scry_state_page, segment),
			   &state_page.segment, sizeof(state_page.segment));
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd,
				   inj->state_page + offsetof(struct scry_state_page, ring),
				   &state_page.ring,
				   offsetof(struct scry_state_page, frames) -
					   offsetof(struct scry_state_page, ring));
	return r;
}

/* An agent whose scry died a moment ago may still record: it is stopped, and may finish its
 * event. */
static int quiet(struct scry_inject *inj)
{
	struct scry_state_page state_page = {.handling = 1};
	int r = scry_inject_want(inj, 0);

	for (int i = 0; i < 1000 && r == 0 && state_page.handling; i++) {
		r = scry_mem_read(&inj->mem, inj->state_page, &state_page, sizeof(state_page));
		if (r == 0 && state_page.handling)
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	if (r == 0 && state_page.handling)
		return scry_fail(-EBUSY,
				 "an event of the last watch is still being handled in process %d; "
				 "fix: try again",
				 inj->proc->pid);
	return r;
}

static int settle(struct scry_inject *inj)
{
	int r = write_agent(inj);

	if (r == 0)
		r = fill_control(inj);
	if (r == 0)
		r = scry_edit_open(&inj->edit, &inj->mem, scry_agent_journal(&inj->header));
	if (r == 0)
		fill_owner(inj);
	if (r == 0)
		r = scry_calling_start(inj);
	if (r == 0 && inj->adopted)
		r = scry_shadow_settle(inj);
	if (r == 0 && scry_edit_standing(&inj->edit)) /* of a scry that died */
		r = scry_inject_undo(inj, 0, inj->edit.count, &inj->older);
	scry_undo_add(&inj->older, &inj->settled);
	inj->settled = (struct scry_undo_report){0};
	return r;
}

/* -EEXIST: the target has mapped something there in the meantime. */
static int map_agent(struct scry_inject *inj, uint64_t near, struct scry_tracee *held, int *ret_fd)
{
	int r = -EEXIST;

	for (int i = 0; i < MAP_TRIES && r == -EEXIST; i++) {
		scry_maps_done(&inj->maps);
		r = scry_maps_read(inj->proc->pid, &inj->maps);
		if (r == 0)
			r = scry_agent_plan(&inj->maps, &inj->source, near, &inj->header);
		if (r == 0)
			r = in_thread(inj, held, WORK_MAP, ret_fd);
	}
	return r;
}

/*
 * Maps a new agent, or new shared pages for an old one: what lies there is its parent's in a fork
 * child, or what the program says it is. A thread that is still in the agent writes nowhere then.
 */
static int get_pages(struct scry_inject *inj, uint64_t near, struct scry_tracee *held)
{
	int fd = -1, r;

	if (inj->adopted) {
		set_addresses(inj);
		r = quiet(inj);
		if (r == 0)
			r = in_thread(inj, held, WORK_REHOME, &fd);
		if (r == 0 && inj->header.stage == SCRY_AGENT_IDLE) { /* it is whole again */
			inj->header.stage = SCRY_AGENT_READY;
			r = scry_agent_write_header(&inj->header, inj->mem.fd);
		}
	} else {
		r = map_agent(inj, near ? near : inj->gadgets.restorer, held, &fd);
		set_addresses(inj);
	}
	return r < 0 ? r : view_shared(inj, fd);
}

int scry_inject_enter(struct scry_inject *inj, uint64_t near, struct scry_tracee *held)
{
	uint64_t left;
	int r = scry_mem_open(&inj->mem, inj->proc->pid, 1);

	inj->parts |= SCRY_PART_CORE;
	if (r == 0)
		r = scry_maps_read(inj->proc->pid, &inj->maps);
	if (r == 0)
		r = scry_gadgets_find(&inj->mem, &inj->maps, &inj->gadgets);
	if (r == 0)
		r = scry_agent_source_read(&inj->source);
	if (r == 0 && !inj->only_adopt) /* to take out is always permitted */
		r = scry_agent_room(inj->proc->pid, 1, &left);
	for (int i = 0; r == 0; i++) {
		r = look_for_agent(inj, held);
		if (r < 0)
			return r;
		inj->adopted = inj->has_call_stack = r;
		if (!inj->adopted && inj->only_adopt)
			return -ENOENT;
		r = get_pages(inj, near, held);
		if (r == 0)
			break;
		if (r != -EALREADY || i == OTHERS_TRIES)
			return r;
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		scry_maps_done(&inj->maps);
		r = scry_maps_read(inj->proc->pid, &inj->maps);
	}
	if (r < 0)
		return r;
	inj->has_call_stack = true;
	return settle(inj);
}

static int view_counters(struct scry_inject *inj, uint64_t number, int fd)
{
	uint64_t size = inj->header.slabs[number].counters_size;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	if (p == MAP_FAILED)
		return scry_fail(-errno, "cannot map the counters of process %d: %s",
				 inj->proc->pid, strerror(errno));
	inj->counters[number] = p;
	return 0;
}

/* -EEXIST: the target has mapped something there in the meantime. */
static int map_slab(struct scry_inject *inj, struct scry_tracee *held, uint64_t near,
		    uint64_t code_size, uint64_t counters, int *ret_fd)
{
	struct scry_agent_header *h = &inj->header;
	int r;

	scry_maps_done(&inj->maps);
	r = scry_maps_read(inj->proc->pid, &inj->maps);
	if (r == 0)
		r = scry_agent_plan_slab(h, &inj->maps, near, code_size, counters,
					 &h->slabs[h->slab_count - 1]);
	if (r == 0)
		r = scry_agent_write_header(h, inj->mem.fd);
	return r < 0 ? r : in_thread(inj, held, WORK_SLAB, ret_fd);
}

int scry_inject_slab(struct scry_inject *inj, struct scry_tracee *held, uint64_t near,
		     uint64_t code_size, uint64_t counters)
{
	struct scry_agent_header *h = &inj->header;
	uint64_t number = h->slab_count;
	int fd = -1, r;

	if (number == SCRY_SLABS_MAX)
		return scry_fail(-ENOSPC,
				 "no room for more stubs in process %d; fix: scry undo -p %d",
				 inj->proc->pid, inj->proc->pid);
	h->slab_count++;
	r = -EEXIST;
	for (int i = 0; i < MAP_TRIES && r == -EEXIST; i++)
		r = map_slab(inj, held, near, code_size, counters, &fd);
	if (r == -EEXIST || r == -EAGAIN)
		h->slab_count--;
	if (r == 0)
		r = view_counters(inj, number, fd);
	return r < 0 ? r : (int)number;
}

static int set_trap(struct scry_tracee *t, const struct scry_call *how, void *arg)
{
	return exchange_sigtrap(arg, t, how, true);
}

int scry_inject_trap(struct scry_inject *inj, struct scry_tracee *held)
{
	int r = scry_inject_call(inj, held, set_trap, inj);

	return r < 0 && r != -EBUSY && r != -EAGAIN
		       ? scry_fail(r, "cannot handle SIGTRAP in process %d: %s", inj->proc->pid,
				   strerror(-r))
		       : r;
}

int scry_inject_open(struct scry_inject *inj, struct scry_tracee *held, uint32_t parts)
{
	int unused;

	inj->parts |= parts;
	return in_thread(inj, held, WORK_OPEN, &unused);
}

int scry_inject_child_buffers(struct scry_inject *inj, struct scry_tracee *held, int *ret_fd)
{
	struct scry_agent_header *h = &inj->header;
	int r;

	scry_maps_done(&inj->maps);
	r = scry_maps_read(inj->proc->pid, &inj->maps);
	if (r == 0 && !scry_agent_has_child_buffers(h, &inj->maps)) {
		h->child_buffers_size = SCRY_CHILD_BUFFERS_BYTES;
		h->child_buffers =
			scry_maps_gap(&inj->maps, h->text, h->child_buffers_size, 1ull << 46);
		if (!h->child_buffers)
			return scry_fail(-ENOMEM,
					 "no free address space for the child buffers of forks");
		r = scry_agent_write_header(h, inj->mem.fd);
	}
	return r < 0 ? r : in_thread(inj, held, WORK_CHILD_BUFFERS, ret_fd);
}

int scry_inject_follow(struct scry_inject *inj, const struct scry_inject *root,
		       uint64_t *child_buffer)
{
	const struct scry_proc *proc = inj->proc;
	struct scry_control *c = (struct scry_control *)child_buffer;
	int r = scry_mem_open(&inj->mem, proc->pid, 1);

	if (r < 0)
		return r;
	inj->gadgets = root->gadgets;
	inj->source = root->source;
	inj->header = root->header;
	inj->max_pause_ns = root->max_pause_ns;
	inj->purpose = root->purpose;
	inj->state_page = root->state_page;
	inj->data = root->data;
	inj->adopted = inj->is_borrowed = inj->has_call_stack = true;
	inj->control = c;
	inj->ring = child_buffer + SCRY_SHARED_HEAD / 8;
	r = scry_own_claim(inj);
	if (r == 0)
		r = scry_edit_open(&inj->edit, &inj->mem, scry_agent_journal(&inj->header));
	if (r == 0)
		fill_owner(inj);
	return r;
}

int scry_inject_want(struct scry_inject *inj, uint32_t watch)
{
	const int r = scry_own_check(inj);

	return r < 0 ? r
		     : scry_edit_poke(inj->mem.fd,
				      inj->state_page + offsetof(struct scry_state_page, wanted),
				      &watch, sizeof(watch));
}

uint64_t scry_inject_symbol(const struct scry_inject *inj, const char *name)
{
	uint64_t offset = scry_agent_source_symbol(name);

	return offset ? inj->header.image + offset : 0;
}

int scry_inject_state(const struct scry_inject *inj, struct scry_agent_state *ret)
{
	return scry_mem_read(&inj->mem, inj->data + offsetof(struct scry_agent_data, state), ret,
			     sizeof(*ret));
}

int scry_inject_run(struct scry_inject *inj, pid_t tid, const char *symbol)
{
	struct scry_gadgets own = inj->gadgets;
	struct scry_call how = {.gadgets = &own, .mem_fd = inj->mem.fd};
	struct scry_hurry hurry = {0};
	struct scry_tracee t;
	int r = scry_own_check_agent(inj);

	if (r < 0) /* no thread is stopped for nothing; while one is, it is checked again */
		return r;
	/* A fork child's VM names its parent's threads until it has tidied up: in those there may
	 * be no agent any more. */
	if (!scry_proc_task_state(inj->proc->pid, tid))
		return -EAGAIN;
	own.restorer = scry_inject_symbol(inj, "scry_agent_restorer");
	scry_hurry_begin(&hurry, inj->proc->pid, 2, HURRY_NS + 4 * inj->max_pause_ns);
	r = scry_hold_thread(inj, tid, &t, &how.stack);
	if (r < 0) {
		scry_hurry_end(&hurry);
		return r;
	}
	how.deadline_ns = scry_now_ns() + CALL_NS;
	r = scry_own_check_agent(inj);
	if (r == 0)
		r = scry_tracee_function(&t, &how, scry_inject_symbol(inj, symbol));
	scry_hurry_recall(t.tid);
	scry_hurry_settle();
	scry_tracee_release(&t);
	scry_hurry_end(&hurry);
	scry_inject_count_pause(inj, t.held_ns, 1);
	return r == -ETIMEDOUT || r == -ESRCH ? -EAGAIN : r;
}

void scry_inject_done(struct scry_inject *inj)
{
	scry_own_give_up(inj);
	if (inj->control && !inj->is_borrowed)
		munmap(inj->control, inj->header.shared_size);
	for (uint64_t i = 0; i < SCRY_SLABS_MAX; i++)
		if (inj->counters[i])
			munmap(inj->counters[i], inj->header.slabs[i].counters_size);
	scry_edit_close(&inj->edit);
	scry_mem_close(&inj->mem);
	scry_maps_done(&inj->maps);
	if (inj->lock >= 0)
		close(inj->lock);
	*inj = (struct scry_inject){.lock = -1, .mem.fd = -1};
}
