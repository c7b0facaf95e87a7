/*
 * The way out: stopping all, putting changes back, and the proof that no thread needs the agent any
 * more. Part of inject.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/err.h"
#include "hook/hidden.h"
#include "hook/inject.h"
#include "hook/own.h"
#include "hook/shadow.h"
#include "hook/threads.h"

#define LOOK_TRIES 5
#define UNDO_TRIES 5
#define HIDDEN_BYTES (4ull << 30) /* a few seconds, while all run */
#define PIECE 64		  /* changes put back before the next look at the clock */
#define LEAVE_NS 2000000000ull	  /* threads that wait for a processor within a stub */
#define LATE_NS 5000000000ull	  /* threads in vfork, whose children do something */
#define LEAVE_TRIES 3		  /* at least */
#define RUN_NS 10000000		  /* between two stops, unless the first was shorter */

void scry_inject_count_pause(struct scry_inject *inj, uint64_t ns, uint32_t threads)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	inj->pauses++;
	inj->pause_total_ns += ns * threads;
	inj->pause_wall_ns += ns;
	inj->pause_cpu_ns += ns * (threads < (uint64_t)cpus ? threads : (uint64_t)cpus);
	if (ns > inj->pause_max_ns) {
		inj->pause_max_ns = ns;
		inj->pause_threads = threads;
	}
}

uint64_t scry_inject_lost_ns(const struct scry_inject *inj, uint64_t cpu_ns, uint64_t watched_ns)
{
	uint64_t stood = inj->pause_wall_ns, ran = watched_ns > stood ? watched_ns - stood : 1;
	double lost = (double)cpu_ns * (double)stood / (double)ran;

	return lost < (double)inj->pause_cpu_ns ? (uint64_t)lost : inj->pause_cpu_ns;
}

/* A thread that was released has not run yet on a busy machine: the stops of a series would be one
 * long pause.
 */
static void let_run(const struct scry_inject *inj)
{
	const uint64_t now = scry_now_ns();

	if (now < inj->runs_until_ns)
		nanosleep(&(struct timespec){.tv_nsec = (long)(inj->runs_until_ns - now)}, NULL);
}

static int stop_once(struct scry_inject *inj, struct scry_stw *w)
{
	int r;

	let_run(inj);
	r = scry_own_check(inj);
	if (r == 0)
		r = scry_stw_stop(w, inj->proc->pid, inj->max_pause_ns);
	if (r < 0)
		return r;
	r = scry_proc_is_alive(inj->proc) ? 0 : -ESRCH; /* else its number may be another's */
	if (r == 0)
		r = scry_stw_look(w, &inj->mem, &inj->maps);
	if (r == 0 && inj->hunts)
		r = scry_hidden_look(inj, w);
	if (r < 0)
		scry_inject_go(inj, w);
	return r;
}

int scry_inject_stop(struct scry_inject *inj, struct scry_stw *w)
{
	int r = -EAGAIN;

	for (int i = 0; i < LOOK_TRIES && r == -EAGAIN; i++)
		r = stop_once(inj, w);
	return r == -EAGAIN
		       ? scry_fail(-EBUSY,
				   "the %s of process %d could not be searched within %llu ms, "
				   "%d times; fix: try again, or a longer --max-pause",
				   inj->hunts ? "memory" : "stacks", inj->proc->pid,
				   (unsigned long long)(inj->max_pause_ns / 1000000), LOOK_TRIES)
		       : r;
}

void scry_inject_go(struct scry_inject *inj, struct scry_stw *w)
{
	uint32_t held = (uint32_t)w->count;

	scry_stw_release(w);
	if (w->pause_ns) /* else it was counted */
		scry_inject_count_pause(inj, w->pause_ns, held);
	inj->runs_until_ns = scry_now_ns() + (w->pause_ns < RUN_NS ? w->pause_ns : RUN_NS);
}

/* Is a thread where bytes are changed, in a way that forbids putting them back? Not where the
 * original ones are: a scry died between planning and writing, and all may be anywhere. */
static bool is_inside(const struct scry_inject *inj, const struct scry_stw *w, size_t first,
		      size_t n)
{
	for (size_t i = first; i < first + n; i++) {
		const struct scry_journal_entry *j = &inj->edit.entries[i];
		uint64_t start = j->address + (j->kind != SCRY_EDIT_PAD);
		unsigned char now[SCRY_EDIT_MAX];

		if (j->kind != SCRY_EDIT_SLOT && j->state != SCRY_EDIT_UNDONE &&
		    scry_stw_inside(w, start, j->address + j->size) &&
		    (scry_mem_read(&inj->mem, j->address, now, j->size) < 0 ||
		     memcmp(now, j->old, j->size)))
			return true;
	}
	return false;
}

static int read_maps(struct scry_inject *inj)
{
	scry_maps_done(&inj->maps);
	return scry_maps_read(inj->proc->pid, &inj->maps);
}

static int recall(struct scry_inject *inj, size_t first, size_t n)
{
	int r = read_maps(inj);

	if (r == 0)
		scry_edit_recall(&inj->edit, &inj->maps, first, n);
	return r;
}

/* By the list of mappings as it was read last. */
static int put_back(struct scry_inject *inj, size_t first, size_t n,
		    struct scry_undo_report *report)
{
	struct scry_undo_report now;
	int r = scry_edit_undo_some(&inj->edit, &inj->maps, first, n, &now);

	scry_undo_add(report, &now);
	return r;
}

/* What is left alone now is looked at once more. */
static void forget_left(struct scry_undo_report *report)
{
	report->entries -= report->foreign + report->failed;
	report->foreign = report->failed = 0;
}

/* While no thread can map or unmap. The last of [first, first + *n), as many as there is time for:
 * *n are left. -ESTALE: of some the file was mapped anew since it was asked. One that fails does
 * not keep the others. */
static int undo_stopped(struct scry_inject *inj, const struct scry_stw *w, size_t first, size_t *n,
			struct scry_undo_report *report)
{
	struct scry_undo_report now = {0};
	bool has_failed = false, is_open = false;
	int r = is_inside(inj, w, first, *n) ? -EAGAIN : read_maps(inj);

	if (r < 0)
		return r;
	inj->edit.is_stopped = true;
	do {
		size_t piece = *n < PIECE ? *n : PIECE;

		*n -= piece;
		r = put_back(inj, first + *n, piece, &now);
		is_open |= r == -EAGAIN;
		has_failed |= r < 0;
	} while (*n && !scry_stw_is_late(w));
	inj->edit.is_stopped = false;
	if (is_open)
		forget_left(&now);
	scry_undo_add(report, &now);
	if (is_open)
		return -ESTALE;
	return has_failed && r == 0 ? -EBUSY : r;
}

/* While all run. -EAGAIN: what they load and unload meanwhile leaves it open. */
static int undo_unwritten(struct scry_inject *inj, size_t first, size_t n,
			  struct scry_undo_report *report)
{
	struct scry_undo_report now = {0};
	int r = scry_own_check(inj);

	if (r == 0)
		r = scry_edit_is_unwritten(&inj->edit, first, n) ? read_maps(inj) : -EAGAIN;
	if (r == 0)
		r = put_back(inj, first, n, &now);
	if (r == -EBUSY) {
		forget_left(&now);
		scry_error_clear();
		r = -EAGAIN;
	}
	scry_undo_add(report, &now);
	return r;
}

static int fail_tries(const struct scry_inject *inj, int r)
{
	if (r == -ESTALE)
		return scry_fail(-EBUSY,
				 "changed files of process %d are mapped anew all the time; fix: "
				 "try again",
				 inj->proc->pid);
	return scry_fail(-EBUSY, "a thread of process %d is inside changed code; fix: try again",
			 inj->proc->pid);
}

static int undo_batch(struct scry_inject *inj, size_t first, size_t n,
		      struct scry_undo_report *report)
{
	struct scry_stw w;
	int r = undo_unwritten(inj, first, n, report);

	for (int i = 0; i < UNDO_TRIES && (r == -EAGAIN || r == -ESTALE); i++) {
		size_t left = n;

		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		r = recall(inj, first, n);
		if (r == 0)
			r = scry_inject_stop(inj, &w);
		if (r < 0)
			return r;
		r = undo_stopped(inj, &w, first, &left, report);
		scry_inject_go(inj, &w);
		if (r == 0 && left) {
			n = left;
			i = -1;
			r = -EAGAIN;
		}
	}
	return r == -EAGAIN || r == -ESTALE ? fail_tries(inj, r) : r;
}

int scry_inject_undo(struct scry_inject *inj, size_t first, size_t n, struct scry_undo_report *ret)
{
	int r = 0;

	*ret = (struct scry_undo_report){0};
	while (n) { /* one that fails does not keep the others */
		size_t batch = n < SCRY_INJECT_BATCH ? n : SCRY_INJECT_BATCH;
		int undone;

		n -= batch;
		undone = undo_batch(inj, first + n, batch, ret);
		r = r < 0 ? r : undone;
	}
	return r;
}

bool scry_inject_is_inside(const struct scry_inject *inj, const struct scry_stw *w)
{
	const struct scry_agent_header *h = &inj->header;

	for (uint64_t i = 0; i < h->slab_count; i++)
		if (scry_stw_inside(w, h->slabs[i].code, h->slabs[i].code + h->slabs[i].code_size))
			return true;
	return scry_stw_inside(w, h->text, h->text + h->text_size);
}

bool scry_inject_is_inside_of(const struct scry_inject *inj, const struct scry_stw *w,
			      uint32_t parts)
{
	struct scry_agent_range at[SCRY_AGENT_RANGES_MAX];
	const size_t n = scry_agent_source_ranges(parts, at);
	bool is = false;

	for (uint64_t i = 0; i < inj->header.slab_count && !is; i++)
		is = scry_stw_inside(w, inj->header.slabs[i].code,
				     inj->header.slabs[i].code + inj->header.slabs[i].code_size);
	for (size_t i = 0; i < n && !is; i++)
		is = at[i].access == SCRY_AGENT_CODE &&
		     scry_stw_inside(w, inj->header.image + at[i].at,
				     inj->header.image + at[i].at + at[i].size);
	return is;
}

/* A scry that died may have sent a thread to map something, and it has not come to it yet. */
static bool is_about_to_call(const struct scry_inject *inj, const struct scry_stw *w)
{
	return scry_stw_inside(w, inj->gadgets.syscall_ret, inj->gadgets.syscall_ret + 1);
}

/* A stop alone may take half a second where threads are in vfork. */
static bool goes_on(int tries, uint64_t end_ns)
{
	return tries < LEAVE_TRIES || scry_now_ns() < end_ns;
}

int scry_inject_await_calls(struct scry_inject *inj)
{
	const uint64_t end_ns = scry_now_ns() + LEAVE_NS;
	struct scry_stw w;
	bool is_pending = true;
	int r = 0;

	for (int i = 0; goes_on(i, end_ns) && is_pending && r == 0; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		r = scry_inject_stop(inj, &w);
		if (r < 0)
			return r;
		is_pending = is_about_to_call(inj, &w);
		scry_inject_go(inj, &w);
	}
	return is_pending ? scry_fail(-EBUSY,
				      "a thread of process %d has not come to what an interrupted "
				      "scry sent it to do; fix: try again",
				      inj->proc->pid)
			  : r;
}

/* A call that was not waited for to its end may have left a thread on the stack for calls. */
static bool stands_on_ours(const struct scry_inject *inj, const struct scry_stw *w)
{
	const uint64_t end = scry_agent_call_stack(&inj->header);

	return scry_stw_stands_on(w, end - SCRY_CALL_STACK_BYTES, end);
}

/* With everybody stopped: is no thread in the agent, and will none come except by the VM's lists?
 * Both tests are needed: ip and counters. */
static bool is_quiet(struct scry_inject *inj, const struct scry_stw *w)
{
	struct scry_agent_state state;
	struct scry_state_page state_page;

	return !scry_inject_is_inside(inj, w) && !is_about_to_call(inj, w) &&
	       scry_inject_state(inj, &state) == 0 && !state.forking &&
	       scry_mem_read(&inj->mem, inj->state_page, &state_page, sizeof(state_page)) == 0 &&
	       !state_page.inflight && !state_page.handling && !state_page.births;
}

/* The same of what an idle agent does not have. */
static bool is_tail_unused(struct scry_inject *inj, const struct scry_stw *w)
{
	return !stands_on_ours(inj, w) && !scry_threads_are_inside(inj, w) &&
	       !scry_shadow_is_needed(inj) && !(inj->edit.mem && scry_edit_standing(&inj->edit));
}

/* Does the VM hold no address of the agent? */
static bool has_let_go(const struct scry_inject *inj)
{
	struct scry_agent_state state;

	return scry_inject_state(inj, &state) == 0 && !state.hooked &&
	       state.jobs_registered == state.jobs_run;
}

/* Will the VM stop leading to it by itself: at its next event, or when a job runs? The thread that
 * is asked for it is asked on the agent's own stack. */
static bool lets_go(const struct scry_inject *inj)
{
	struct scry_agent_state state;
	uint32_t wanted = 1;

	return scry_inject_state(inj, &state) == 0 &&
	       (state.jobs_registered != state.jobs_run || (state.hooked && state.handler)) &&
	       scry_mem_read(&inj->mem, inj->state_page + offsetof(struct scry_state_page, wanted),
			     &wanted, sizeof(wanted)) == 0 &&
	       !wanted;
}

struct caller { /* which thread unmaps; NULL: none can */
	struct scry_tracee *thread;
	uint64_t stack; /* for struct scry_call */
};

/*
 * No thread comes back to what is being unmapped, but another scry could adopt it: while all are
 * stopped none can. A scry that has no priority to lend waits for a processor at each call; there
 * only the thread that makes them is stopped, and none adopts while the first one is ours. Not on
 * the unused end of its stack: others could come there.
 */
static int unmap_alone(struct scry_inject *inj, struct scry_stw *w, const struct caller *caller)
{
	struct scry_unmap_how how = {.stack = caller->stack};
	uint32_t threads = (uint32_t)w->count;
	struct scry_own own = {0};
	int r;

	if (caller->stack || (w->hurry.is_on && !scry_stw_is_late(w)))
		return scry_inject_unmap(inj, caller->thread, &how);
	scry_stw_release_others(w, caller->thread);
	scry_inject_count_pause(inj, w->pause_ns, threads);
	w->pause_ns = 0;
	how.rests = true;
	r = scry_own_begin(&own, inj, caller->thread);
	if (r == 0)
		r = scry_own_check(inj);
	if (r == 0)
		r = scry_inject_unmap(inj, caller->thread, &how);
	scry_own_end(&own);
	scry_inject_count_pause(inj, scry_now_ns() - caller->thread->stopped_at_ns, 1);
	return r;
}

static int make_idle(struct scry_inject *inj, const struct caller *caller)
{
	return scry_inject_unmap(inj, caller->thread,
				 &(struct scry_unmap_how){.stack = caller->stack, .to_idle = true});
}

/*
 * What no stop shows: processes that run on the same memory and are none of its threads, and signal
 * frames on stacks that no thread is on, as where a handler switches stacks. Both are looked for
 * while all run, after a stop in which no thread was inside and nothing led there any more: a
 * thread that is made later starts elsewhere, and a frame is found where it is, or was until it was
 * gone on with, as nothing else is written there while its thread is still inside.
 */
enum hidden {
	HIDDEN_UNKNOWN, /* not looked for */
	HIDDEN_TAIL,	/* no thread comes to what an idle agent does not have */
	HIDDEN_NONE,	/* nor to the rest */
};

struct leaving {
	struct scry_undo_report *report;
	uint64_t *ret_left;
	enum hidden known, wanted; /* wanted: that is all that is missing for unmapping it */
	bool is_last, inside;
	bool is_unknowable; /* looking again will not show it */
	struct scry_tracee
		*stood; /* the threads, in the stop that left open whether one is hidden */
	size_t stood_count;
};

/* Has nothing ever led to it? */
static bool was_never_entered(const struct scry_inject *inj)
{
	return !inj->adopted && !inj->vm_is_known && !inj->header.slab_count &&
	       !(inj->edit.mem && inj->edit.count);
}

/* Of the frames those that lead to the agent. */
static void keep_inside(const struct scry_inject *inj, struct scry_stw *found)
{
	size_t kept = 0;

	for (size_t i = 0; i < found->saved_count; i++)
		if (scry_inject_is_inside(
			    inj, &(struct scry_stw){.saved = &found->saved[i], .saved_count = 1}))
			found->saved[kept++] = found->saved[i];
	found->saved_count = kept;
}

/* NULL: no thread comes that is not seen in a stop; else why that is not so, or not known. */
static const char *find_hidden(struct scry_inject *inj, struct leaving *l)
{
	struct scry_stw found = {.pid = inj->proc->pid,
				 .deadline_ns = UINT64_MAX,
				 .threads = l->stood,
				 .count = l->stood_count};
	const char *why = NULL;
	int r;

	if (was_never_entered(inj))
		return NULL;
	if (scry_proc_shares_memory(inj->proc->pid))
		return "another process runs on its memory (clone with CLONE_VM)";
	r = scry_hidden_find(inj, &found, HIDDEN_BYTES);
	/* since that stop no thread has come in: what was dead then was never gone on with */
	if (r == 0) {
		keep_inside(inj, &found);
		scry_stw_forget_dead(&found, &inj->mem, &inj->maps);
	}
	if (r == 0 && found.saved_count)
		why = "a signal frame on a stack that no thread is on may lead to them";
	else if (r < 0 && (r != -E2BIG || scry_proc_has_handlers(inj->proc->pid)))
		why = "its memory could not be searched for stacks that lead to them";
	l->is_unknowable = r < 0;
	free(found.saved);
	scry_error_clear();
	return why;
}

/* Without memory for it no frame is known to be dead. */
static void remember(struct leaving *l, const struct scry_stw *w)
{
	struct scry_tracee *more = reallocarray(l->stood, w->count + 1, sizeof(*more));

	l->stood_count = 0;
	if (!more)
		return;
	l->stood = more;
	memcpy(more, w->threads, w->count * sizeof(*more));
	l->stood_count = w->count;
}

static void unmap_stopped(struct scry_inject *inj, struct scry_stw *w, const struct caller *caller,
			  struct leaving *l)
{
	const bool is_free = has_let_go(inj);
	const enum hidden needed = is_free ? HIDDEN_NONE : HIDDEN_TAIL;

	if (!is_free && !(l->is_last && lets_go(inj)))
		return;
	if (l->known < needed) {
		l->wanted = needed;
		remember(l, w);
		return;
	}
	if ((is_free ? unmap_alone(inj, w, caller) : make_idle(inj, caller)) < 0)
		return;
	if (!is_free) {
		inj->header.stage = SCRY_AGENT_IDLE;
		inj->header.parts &= SCRY_PARTS_IDLE;
		inj->header.slab_count = 0;
	}
	*l->ret_left = is_free ? 0 : scry_agent_bytes(&inj->header);
}

/* -EINPROGRESS: threads did not stop; -EAGAIN: one is where bytes are to be put back. */
static int leave_once(struct scry_inject *inj, struct leaving *l)
{
	struct caller caller;
	struct scry_stw w;
	int r;

	size_t left;

	r = recall(inj, 0, inj->edit.mem ? inj->edit.count : 0);
	if (r == 0)
		r = scry_inject_stop(inj, &w);
	if (r < 0)
		return r == -EBUSY ? -EINPROGRESS : r;
	/* entering may have failed before the journal was opened: nothing is changed */
	left = inj->edit.mem ? inj->edit.count : 0;
	r = left ? undo_stopped(inj, &w, 0, &left, l->report) : 0;
	if (r == -ESTALE) /* its file is asked before the next stop */
		r = -EAGAIN;
	caller.thread = scry_stw_caller(&w, &inj->mem, &inj->maps, &caller.stack);
	l->inside = scry_inject_is_inside(inj, &w) || is_about_to_call(inj, &w) ||
		    scry_threads_are_inside(inj, &w) || !caller.thread || left;
	if (r == 0 && !l->inside && is_quiet(inj, &w) && is_tail_unused(inj, &w))
		unmap_stopped(inj, &w, &caller, l);
	scry_inject_go(inj, &w);
	return r;
}

static int leave_idle_once(struct scry_inject *inj, struct leaving *l)
{
	struct caller caller;
	struct scry_stw w;
	int r = scry_inject_stop(inj, &w);

	if (r < 0)
		return r;
	caller.thread = scry_stw_caller(&w, &inj->mem, &inj->maps, &caller.stack);
	if (caller.thread && is_quiet(inj, &w))
		unmap_stopped(inj, &w, &caller, l);
	scry_inject_go(inj, &w);
	return 0;
}

/* In a stop; and, where that leaves open only whether one is hidden, in another once that is known.
 */
static int leave_looking(struct scry_inject *inj, struct leaving *l,
			 int (*once)(struct scry_inject *inj, struct leaving *l))
{
	int r;

	inj->left_why = NULL;
	do {
		l->known = l->wanted;
		l->wanted = HIDDEN_UNKNOWN;
		r = once(inj, l);
		if (r < 0 || !l->wanted)
			return r;
		inj->left_why = find_hidden(inj, l);
	} while (!inj->left_why);
	l->wanted = HIDDEN_UNKNOWN;
	l->inside = true;
	return 0;
}

int scry_inject_leave_idle(struct scry_inject *inj, bool *ret_gone)
{
	uint64_t left = 1;
	struct leaving l = {.ret_left = &left, .is_last = true};
	int r = leave_looking(inj, &l, leave_idle_once);

	free(l.stood);
	if (r == 0)
		*ret_gone = !left;
	return r;
}

/* A thread that is inside leaves when it runs, one that is in vfork comes out of it, and one in a
 * coroutine may come back to a stack on which it can unmap ours. */
static int leave_all(struct scry_inject *inj, struct scry_undo_report *report, uint64_t *ret_left)
{
	struct leaving l = {.report = report, .ret_left = ret_left};
	const uint64_t began_ns = scry_now_ns();
	bool is_late = false;
	int r = -EAGAIN;

	for (int i = 0; goes_on(i, began_ns + (is_late ? LATE_NS : LEAVE_NS)); i++) {
		l.is_last = i + 1 >= LEAVE_TRIES;
		r = leave_looking(inj, &l, leave_once);
		is_late = r == -EINPROGRESS;
		if (r == 0 ? !*ret_left || l.is_unknowable || (!l.inside && l.is_last)
			   : r != -EAGAIN && !is_late)
			break;
		if (!is_late)
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	free(l.stood);
	return is_late ? -EBUSY : r == -EAGAIN ? 0 : r;
}

int scry_inject_leave(struct scry_inject *inj, struct scry_undo_report *report, uint64_t *ret_left)
{
	const struct scry_agent_header *h = &inj->header;
	int r = inj->edit.mem ? scry_shadow_settle(inj) : 0;

	*report = (struct scry_undo_report){0};
	*ret_left = scry_agent_bytes(h);
	scry_threads_stop(inj); /* a thread that waits for a thread buffer waits no more */
	if (r < 0)		/* what it left stays, and does nothing */
		return r;
	scry_undo_add(report, &inj->settled);
	if (inj->edit.count > SCRY_INJECT_BATCH) { /* the rest with the last stop */
		scry_inject_undo(inj, SCRY_INJECT_BATCH, inj->edit.count - SCRY_INJECT_BATCH,
				 report);
		report->entries = report->restored; /* the others are tried once more */
		report->foreign = report->failed = 0;
	}
	r = leave_all(inj, report, ret_left);
	if (*ret_left && inj->control) {
		inj->control->owner_pid = 0;
		scry_own_give_up(inj);
		madvise((char *)inj->control + SCRY_SHARED_HEAD, h->shared_size - SCRY_SHARED_HEAD,
			MADV_REMOVE);
	}
	return r;
}
