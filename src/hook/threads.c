/*
 * The table is half a megabyte, in which a process has as many rows as threads: it is read as a
 * whole. A row whose thread has ended says nothing: its thread pointer is not a living thread's.
 */
#include "hook/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/line_tables.h"
#include "agent/malloc.h"
#include "base/err.h"
#include "hook/hold.h"

#define TID_AT_MAX 2048u
#define TID_AT_GLIBC 720u /* where more than one place would do: most likely this one */
#define START_TRIES 25
#define AWAIT_TRIES 20
#define NAP_NS 5000000

struct who { /* a thread, as its registers say */
	uint64_t fs;
	uint32_t tid; /* in the target's own pid namespace */
};

#define TABLE_BYTES (SCRY_THREADS * sizeof(struct scry_agent_thread))

struct scry_channel scry_channel_own(const struct scry_inject *inj, enum scry_agent_channels number)
{
	return (struct scry_channel){number, inj->header.shared, inj->control, inj->ring};
}

/* In the target. Where calls are not followed their channel's is not mapped. */
static uint64_t table_at(const struct scry_inject *inj, enum scry_agent_channels number)
{
	return number == SCRY_CHANNEL_CORE ? scry_inject_symbol(inj, "scry_agent_rows") +
						     offsetof(struct scry_agent_rows, threads)
	       : inj->header.parts & SCRY_PART_CALLS
		       ? scry_inject_symbol(inj, "scry_agent_call_rows")
		       : 0;
}

static uint64_t channel_at(const struct scry_inject *inj, enum scry_agent_channels number,
			   size_t field)
{
	return inj->data + offsetof(struct scry_agent_data, tracking.channels) +
	       number * sizeof(struct scry_agent_channel) + field;
}

static struct scry_agent_thread *read_table(const struct scry_inject *inj,
					    enum scry_agent_channels number)
{
	struct scry_agent_thread *rows = malloc(TABLE_BYTES);

	if (rows && scry_mem_read(&inj->mem, table_at(inj, number), rows, TABLE_BYTES) < 0) {
		free(rows);
		rows = NULL;
	}
	return rows;
}

static bool are_inside(const struct scry_inject *inj, const struct scry_stw *w,
		       enum scry_agent_channels number)
{
	const uint64_t claims =
		channel_at(inj, number, offsetof(struct scry_agent_channel, claims));
	struct scry_agent_thread *rows;
	uint32_t ever = 1;
	bool answer;

	if (!table_at(inj, number) ||
	    (scry_mem_read(&inj->mem, claims, &ever, sizeof(ever)) == 0 && !ever))
		return false;
	rows = read_table(inj, number);
	answer = !rows;

	for (size_t i = 0; rows && i < SCRY_THREADS && !answer; i++)
		for (size_t k = 0; rows[i].inside && k < w->count && !answer; k++)
			answer = w->threads[k].regs.fs_base == (rows[i].fs & ~1ull);
	free(rows);
	return answer;
}

bool scry_threads_are_inside(const struct scry_inject *inj, const struct scry_stw *w)
{
	bool answer = false;

	for (uint32_t i = 0; i < SCRY_CHANNELS && !answer; i++)
		answer = are_inside(inj, w, i);
	return answer;
}

void scry_threads_await(const struct scry_inject *inj, const struct scry_channel *to)
{
	bool is_inside = true;

	for (int i = 0; i < AWAIT_TRIES && is_inside; i++) {
		struct scry_agent_thread *rows = read_table(inj, to->number);

		if (i)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		is_inside = false;
		for (size_t k = 0; rows && k < SCRY_THREADS; k++)
			is_inside |= rows[k].inside != 0;
		free(rows);
	}
}

/* Clears the offsets, of 4 bytes each, at which this thread has something other than its tid. */
static void compare(const struct scry_inject *inj, const struct who *who, bool *is_tid)
{
	uint32_t words[TID_AT_MAX / 4] = {0};
	ssize_t n = scry_mem_read_some(&inj->mem, who->fs, words, sizeof(words));

	for (size_t i = 0; i < TID_AT_MAX / 4; i++)
		is_tid[i] &= (ssize_t)(i * 4 + 4) <= n && words[i] == who->tid;
}

/* Of a thread's control block, if it has one; else 0. */
static uint64_t guard_of(const struct scry_inject *inj, const struct who *who)
{
	uint64_t guard = 0;

	return who->fs && scry_mem_u64(&inj->mem, who->fs + SCRY_GUARD_AT, &guard) == 0 ? guard : 0;
}

/* The one that more than half of the threads have, or, if none is, one of theirs: a thread whose
 * pointer is not libc's has another one, or none. 0: not set yet. */
static uint64_t find_guard(const struct scry_inject *inj, const struct who *whos, size_t count)
{
	uint64_t guard = 0;
	size_t votes = 0;

	for (size_t i = 0; i < count; i++) {
		const uint64_t own = guard_of(inj, &whos[i]);

		if (!own)
			continue;
		if (!votes)
			guard = own;
		votes += own == guard ? 1 : -(size_t)1;
	}
	return guard;
}

static uint32_t find_tid(const struct scry_inject *inj, const struct who *whos, size_t count,
			 uint64_t guard)
{
	bool is_tid[TID_AT_MAX / 4], is_any = false;

	memset(is_tid, true, sizeof(is_tid));
	for (size_t i = 0; i < count; i++) {
		if (!whos[i].fs || guard_of(inj, &whos[i]) != guard)
			continue; /* it is no control block of libc's */
		compare(inj, &whos[i], is_tid);
		is_any = true;
	}
	if (!is_any)	  /* a static program has not set up its first thread yet */
		return 0; /* the agent finds it */
	if (is_tid[TID_AT_GLIBC / 4])
		return TID_AT_GLIBC;
	for (uint32_t i = 1; i < TID_AT_MAX / 4; i++)
		if (is_tid[i])
			return i * 4;
	return 0;
}

static int clear_at(const struct scry_inject *inj, uint64_t at, size_t size)
{
	void *zeros = calloc(1, size);
	int r = zeros ? scry_edit_poke(inj->mem.fd, at, zeros, size) : -ENOMEM;

	free(zeros);
	return r;
}

/* In the target: of callers, lines and stacks nothing is known. */
static int clear_shared(struct scry_inject *inj)
{
	const uint64_t callers = scry_inject_symbol(inj, "scry_agent_callers");
	const uint64_t lines = scry_inject_symbol(inj, "scry_agent_lines");
	int r = 0;

	if (inj->has_channels)
		return 0;
	if (inj->header.parts & SCRY_PART_MALLOC)
		r = clear_at(inj, callers, sizeof(struct scry_agent_callers));
	if (r == 0 && inj->header.parts & SCRY_PART_LINES)
		r = clear_at(inj, lines, sizeof(struct scry_agent_lines));
	if (r == 0) /* an older watch's lines and stacks are off */
		r = clear_at(inj, inj->data + offsetof(struct scry_agent_data, line_plan.on),
			     sizeof(uint32_t));
	if (r == 0)
		r = clear_at(inj, inj->data + offsetof(struct scry_agent_data, unwinding),
			     sizeof(struct scry_agent_unwinding));
	scry_account_of(inj->control)->lines.full = 0;
	return r;
}

/* Nor of threads; and all thread buffers are free. */
static int clear(struct scry_inject *inj, const struct scry_channel *to)
{
	int r = inj->adopted ? clear_shared(inj) : 0;

	if (!inj->adopted)
		return 0;
	if (r == 0)
		r = clear_at(inj, table_at(inj, to->number), TABLE_BYTES);
	for (uint32_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		memset(to->ring + (size_t)i * SCRY_THREAD_BUFFER_WORDS, 0,
		       sizeof(struct scry_thread_buffer));
	to->control->head = 0;
	to->control->lost = to->control->lost_lease = to->control->busy = 0;
	to->control->foreign = 0;
	to->control->buffer_waits = 0;
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

/* What a start says to the agent; `to` may be NULL: the tids alone. */
struct start {
	const struct scry_channel *to;
	uint32_t time_op;
};

static int give_channel(struct scry_inject *inj, const struct start *start)
{
	const struct scry_channel *to = start->to;
	const struct scry_agent_channel channel = {
		.control = (struct scry_control *)to->address,
		.pool = (struct scry_thread_buffer *)(to->address + SCRY_SHARED_HEAD),
		.rows = (struct scry_agent_thread *)table_at(inj, to->number),
		.time_op = start->time_op};
	int r = scry_edit_poke(inj->mem.fd, channel_at(inj, to->number, 0), &channel,
			       sizeof(channel));

	inj->has_channels = r == 0;
	return r;
}

static int give(struct scry_inject *inj, const struct start *start, const struct who *whos,
		size_t count)
{
	const bool is_first = count == 1 && !whos[0].fs;
	const uint64_t guard = find_guard(inj, whos, count);
	const uint32_t tids[2] = {find_tid(inj, whos, count, guard), is_first ? whos[0].tid : 0};
	const uint64_t at = inj->data + offsetof(struct scry_agent_data, tracking);
	const struct scry_thread_buffer none = {.state = SCRY_THREAD_BUFFER_CLOSED};
	int r = start->to ? clear(inj, start->to) : 0;

	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, at, tids, sizeof(tids));
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, at + offsetof(struct scry_agent_tracking, none),
				   &none, sizeof(none));
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, at + offsetof(struct scry_agent_tracking, guard),
				   &guard, sizeof(guard));
	return r == 0 && start->to ? give_channel(inj, start) : r;
}
_Static_assert(offsetof(struct scry_agent_tracking, first_tid) == 4, "written at once");

static int start_stopped(struct scry_inject *inj, const struct start *start,
			 const struct scry_stw *w)
{
	struct who *whos = calloc(w->count + 1, sizeof(*whos));
	int r = -ENOMEM;

	for (size_t i = 0; whos && i < w->count; i++)
		whos[i] = (struct who){
			w->threads[i].regs.fs_base,
			(uint32_t)scry_proc_tid_inside(inj->proc->pid, w->threads[i].tid)};
	if (whos)
		r = give(inj, start, whos, w->count);
	free(whos);
	return r;
}

/* With everybody stopped; where an older watch's handlers were, once no thread is inside any more.
 * `start` may be NULL. */
static int when_clear(struct scry_inject *inj, const struct start *start)
{
	struct scry_stw w;
	int r = -EAGAIN;

	for (int i = 0; i < START_TRIES && r == -EAGAIN; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 4 * NAP_NS}, NULL);
		r = start ? scry_hold_all(inj, &w) : scry_inject_stop(inj, &w);
		if (r < 0)
			return r;
		r = inj->adopted && !inj->has_channels && scry_threads_are_inside(inj, &w) ? -EAGAIN
		    : start ? start_stopped(inj, start, &w)
			    : 0;
		scry_inject_go(inj, &w);
	}
	if (r == -EAGAIN)
		r = scry_fail(-EBUSY,
			      "a thread of process %d is still inside what an older watch hooked; "
			      "fix: try again",
			      inj->proc->pid);
	return r;
}

static int begin(struct scry_inject *inj, const struct start *start, const struct scry_tracee *held)
{
	if (held) {
		const struct who who = {held->regs.fs_base,
					(uint32_t)scry_proc_tid_inside(inj->proc->pid, held->tid)};

		return give(inj, start, &who, 1);
	}
	if (inj->adopted && !inj->has_channels)
		scry_threads_stop(
			inj); /* a thread that waits for a buffer of the older one comes out */
	return when_clear(inj, start);
}

int scry_threads_start(struct scry_inject *inj, const struct scry_channel *to,
		       const struct scry_tracee *held, uint32_t time_op)
{
	return begin(inj, &(const struct start){to, time_op}, held);
}

int scry_threads_start_table(struct scry_inject *inj, const struct scry_channel *to,
			     const struct scry_tracee *held)
{
	const uint64_t table = to->address + SCRY_SHARED_HEAD;
	int r = begin(inj, &(const struct start){0}, held);

	return r < 0 ? r
		     : scry_edit_poke(inj->mem.fd,
				      inj->state_page + offsetof(struct scry_state_page, table),
				      &table, sizeof(table));
}

int scry_threads_clear_out(struct scry_inject *inj)
{
	if (!inj->adopted || inj->has_channels)
		return 0;
	scry_threads_stop(inj);
	return when_clear(inj, NULL);
}

/* A word of its control block that is the number of one of the process's tasks. */
static uint32_t find_in_block(const uint32_t *words, size_t count, const pid_t *tids, ssize_t n)
{
	for (size_t i = 0; i < count; i++) {
		size_t at = i ? i : TID_AT_GLIBC / 4;

		for (ssize_t k = 0; k < n && at < count; k++)
			if (words[at] == (uint32_t)tids[k])
				return (uint32_t)at;
	}
	return 0;
}

uint32_t scry_threads_tid(void *arg, uint64_t pointer)
{
	struct scry_inject *inj = arg;
	const uint64_t field = offsetof(struct scry_agent_data, tracking.tid_offset);
	uint32_t words[TID_AT_MAX / 4] = {0}, known = 0, at, tid = 0, offset;
	pid_t *tids = NULL;
	ssize_t n = inj->proc ? scry_proc_tasks(inj->proc->pid, &tids) : 0, got;

	for (ssize_t i = 0; i < n; i++)
		tids[i] = scry_proc_tid_inside(inj->proc->pid, tids[i]);
	got = inj->mem.fd < 0 ? 0 : scry_mem_read_some(&inj->mem, pointer, words, sizeof(words));
	at = find_in_block(words, got > 0 ? (size_t)got / 4 : 0, tids, n);
	if (at)
		tid = words[at];
	else if (n == 1)
		tid = (uint32_t)tids[0];
	offset = 4 * at;
	if (at && scry_mem_read(&inj->mem, inj->data + field, &known, sizeof(known)) == 0 && !known)
		scry_edit_poke(inj->mem.fd, inj->data + field, &offset, sizeof(offset));
	free(tids);
	return tid;
}

int scry_threads_record(struct scry_inject *inj, const struct scry_channel *to, bool is_on)
{
	const uint32_t word = is_on;

	return scry_edit_poke(
		inj->mem.fd,
		channel_at(inj, to->number, offsetof(struct scry_agent_channel, is_on)), &word,
		sizeof(word));
}

void scry_threads_stop(struct scry_inject *inj)
{
	for (uint32_t i = 0; i < SCRY_CHANNELS; i++)
		scry_threads_record(inj, &(const struct scry_channel){.number = i}, false);
}
