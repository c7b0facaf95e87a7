/*
 * See thread_buffers.h. Of each segment `stamping` is read first, then the state, then the head: a
 * record that is seen neither being written nor published has a stamp later than the beginning of
 * this look. Stores may linger in a core's buffer and rdtsc may run ahead of them, hence a margin.
 */
#include "hook/thread_buffers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/err.h"
#include "base/map.h"
#include "sys/proc.h"

#define MARGIN_TSC 200000ull /* 40 us or more; a store buffer drains in some 100 ns */
#define SPINS 100	     /* a record is written in some 10 ns */
#define ROOM (SCRY_THREAD_BUFFER_WORDS - SCRY_THREAD_BUFFER_HEAD)
#define THREADS_MAX 65536u /* that a target may claim to have: their ends are looked for */
#define LOOK_NS 200000000ull
#define TURN_ALL_NS 100000000ull
#define STEP_NS 100000000ull	  /* from look to look; more, and we were held up */
#define LOOK_HURRY_NS 20000000ull /* when half of the pool is in use */

static uint64_t last_id; /* of all thread buffers: two may feed one stream, one after the other */

struct thread {
	uint64_t id; /* 0: a free row */
	uint64_t pointer, birth;
	uint32_t tid, next_serial;
	uint32_t held; /* its segments that are not free */
	bool is_leaving, is_gone;
	bool has_gap;	 /* a serial was missing in the last look */
	bool is_missing; /* it was not among the tasks in the last look */
};

struct place {		/* what we know of a segment */
	uint64_t state; /* for which the rest holds; 0: nothing */
	uint32_t at;	/* words given */
	uint32_t head;	/* as seen */
	uint32_t row;	/* of its thread + 1; 0: not known yet */
	uint32_t serial;
	bool is_stamping, is_overdue, is_bad;
	bool is_awaited;     /* it held the watermark back in the last look at all */
	uint64_t floor;	     /* no record that is being written has an earlier stamp */
	uint64_t held_since; /* ns */
};

struct piece { /* words to be given */
	uint32_t row, serial;
	uint32_t segment, head;
};

struct scry_thread_buffers {
	struct scry_control *control;
	uint64_t *words;
	pid_t pid;
	bool has_ended, has_leaving, is_sparing;
	bool is_held; /* the watermark, by a record that was being written in the last look */
	struct place places[SCRY_THREAD_BUFFERS];
	struct thread *threads;
	size_t thread_count, thread_room; /* rows */
	struct scry_map by_who;		  /* hash of pointer and birth -> row */
	uint64_t last_tsc, watermark;
	uint64_t whole_tsc; /* the last look in which all was taken */
	uint64_t life_ns;   /* when the threads that wait last saw that we are there */
	uint64_t looked_ns;
	uint64_t turn_ns;      /* when the turn was taken away */
	uint64_t taken_ns;     /* the last look */
	uint64_t watched_ns;   /* time in all, but that in which we were held up */
	uint32_t used, closed; /* in the last look */
	uint32_t freed;
	uint32_t (*tid_of)(void *arg, uint64_t pointer);
	void *tid_arg;
	struct scry_thread_buffers_stats stats;
	struct piece pieces[SCRY_THREAD_BUFFERS]; /* of this look */
	uint64_t copy[ROOM];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct scry_thread_buffer *buffer_of(const struct scry_thread_buffers *t, uint32_t i)
{
	return (struct scry_thread_buffer *)(t->words + (size_t)i * SCRY_THREAD_BUFFER_WORDS);
}

static enum scry_thread_buffer_state state_of(uint64_t word)
{
	return (enum scry_thread_buffer_state)(word & 3);
}

/* The agent may take it again. Only we change what is closed. */
static void give_back(struct scry_thread_buffers *t, uint32_t i)
{
	struct scry_thread_buffer *buffer = buffer_of(t, i);
	struct place *p = &t->places[i];
	uint64_t state = p->state;

	if (p->row)
		t->threads[p->row - 1].held--;
	*p = (struct place){0};
	__atomic_store_n(&buffer->head, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&buffer->stamping, 0, __ATOMIC_RELAXED);
	if (__atomic_compare_exchange_n(&buffer->state, &state,
					(state & ~3ull) | SCRY_THREAD_BUFFER_FREE, false,
					__ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
		t->freed++;
		t->stats.given_back++;
	}
}

static void wake(struct scry_thread_buffers *t)
{
	struct scry_control *c = t->control;

	if (!t->freed)
		return;
	__atomic_add_fetch(&c->buffer_freed, t->freed, __ATOMIC_SEQ_CST);
	t->freed = 0;
	if (__atomic_exchange_n(&c->buffer_waiting, 0, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &c->buffer_freed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Those that an earlier keeper left closed are freed; open ones go on behind their head. */
static void pass_over(struct scry_thread_buffers *t)
{
	for (uint32_t i = 0; i < SCRY_THREAD_BUFFERS; i++) {
		struct scry_thread_buffer *buffer = buffer_of(t, i);
		struct place *p = &t->places[i];

		p->state = __atomic_load_n(&buffer->state, __ATOMIC_ACQUIRE);
		if (state_of(p->state) == SCRY_THREAD_BUFFER_FREE) {
			*p = (struct place){0};
		} else if (state_of(p->state) == SCRY_THREAD_BUFFER_OPEN) {
			p->at = __atomic_load_n(&buffer->head, __ATOMIC_ACQUIRE);
			p->is_bad = p->at > ROOM;
		} else {
			give_back(t, i);
		}
	}
	wake(t);
}

int scry_thread_buffers_new(struct scry_control *control, uint64_t *words, pid_t pid, bool from_now,
			    struct scry_thread_buffers **ret)
{
	struct scry_thread_buffers *t = calloc(1, sizeof(*t));

	if (!t)
		return scry_no_memory("the thread buffers of process %d", (int)pid);
	t->control = control;
	t->words = words;
	t->pid = pid;
	t->last_tsc = __rdtsc();
	t->looked_ns = now_ns();
	scry_map_init(&t->by_who, THREADS_MAX);
	if (from_now)
		pass_over(t);
	*ret = t;
	return 0;
}

void scry_thread_buffers_free(struct scry_thread_buffers *t)
{
	if (!t)
		return;
	scry_map_done(&t->by_who);
	free(t->threads);
	free(t);
}

void scry_thread_buffers_identify(struct scry_thread_buffers *t, pid_t pid)
{
	t->pid = pid;
}

void scry_thread_buffers_ask(struct scry_thread_buffers *t,
			     uint32_t (*tid_of)(void *arg, uint64_t pointer), void *arg)
{
	t->tid_of = tid_of;
	t->tid_arg = arg;
}

void scry_thread_buffers_end(struct scry_thread_buffers *t)
{
	t->has_ended = true;
}

void scry_thread_buffers_spare(struct scry_thread_buffers *t, bool is_sparing)
{
	t->is_sparing = is_sparing;
}

/* threads */

static uint64_t who(uint64_t pointer, uint64_t birth)
{
	return pointer ^ birth * UINT64_C(0x9e3779b97f4a7c15);
}

/* An older one with this thread pointer or tid is no more: both are given out again. */
static void end_namesakes(struct scry_thread_buffers *t, const struct thread *young)
{
	for (size_t i = 0; i < t->thread_count; i++) {
		struct thread *old = &t->threads[i];

		if (old->id && old != young && old->birth < young->birth &&
		    (old->pointer == young->pointer || (old->tid && old->tid == young->tid)))
			old->is_leaving = t->has_leaving = true;
	}
}

/* What they wrote last may have been published behind our back: they are gone in the next look. */
static void let_go(struct scry_thread_buffers *t)
{
	for (size_t i = 0; t->has_leaving && i < t->thread_count; i++)
		t->threads[i].is_gone |= t->threads[i].is_leaving;
	t->has_leaving = false;
}

static uint32_t new_row(struct scry_thread_buffers *t)
{
	size_t room = t->thread_room ? t->thread_room * 2 : 64;
	struct thread *more;

	if (t->by_who.count < t->thread_count)
		for (size_t i = 0; i < t->thread_count; i++)
			if (!t->threads[i].id)
				return (uint32_t)i + 1;
	if (t->thread_count == t->thread_room) {
		more = room > THREADS_MAX ? NULL : realloc(t->threads, room * sizeof(*t->threads));
		if (!more)
			return 0;
		t->threads = more;
		t->thread_room = room;
	}
	t->threads[t->thread_count] = (struct thread){0};
	return (uint32_t)++t->thread_count;
}

/*
 * What a thread says of itself is what its libc keeps. That may be the number of the thread that
 * made it: in a process that was not made by the libc's fork.
 */
static bool is_anothers(const struct scry_thread_buffers *t, uint32_t tid)
{
	return t->pid && scry_proc_tid_inside(t->pid, t->pid) == t->pid &&
	       !scry_proc_task_state(t->pid, (pid_t)tid) &&
	       scry_proc_task_state((pid_t)tid, (pid_t)tid);
}

static uint32_t tid_of(const struct scry_thread_buffers *t, const struct scry_thread_buffer *head)
{
	uint32_t tid = head->tid;

	if (tid && is_anothers(t, tid))
		tid = 0;
	if (!tid && t->tid_of)
		tid = t->tid_of(t->tid_arg, head->thread);
	return tid ? tid : (uint32_t)t->control->child_pid;
}

/* The row of a thread, + 1; 0: there are too many. */
static uint32_t thread_row(struct scry_thread_buffers *t, const struct scry_thread_buffer *head)
{
	uint64_t key = who(head->thread, head->birth), row;

	if (scry_map_get(&t->by_who, key, &row))
		return (uint32_t)row;
	row = new_row(t);
	if (!row || scry_map_put(&t->by_who, key, row) < 0)
		return 0;
	t->threads[row - 1] = (struct thread){.id = ++last_id,
					      .pointer = head->thread,
					      .birth = head->birth,
					      .tid = tid_of(t, head)};
	t->stats.threads++;
	end_namesakes(t, &t->threads[row - 1]);
	return (uint32_t)row;
}

static bool has_tid(const pid_t *tids, ssize_t count, uint32_t tid)
{
	ssize_t low = 0;

	for (ssize_t high = count; low < high;) {
		ssize_t mid = low + (high - low) / 2;

		if ((uint32_t)tids[mid] < tid)
			low = mid + 1;
		else
			high = mid;
	}
	return low < count && (uint32_t)tids[low] == tid;
}

static int compare_tids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* In a pid namespace of its own the target knows its threads by other numbers. */
static void see_inside(pid_t pid, pid_t *tids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		tids[i] = scry_proc_tid_inside(pid, tids[i]);
	qsort(tids, count, sizeof(*tids), compare_tids);
}

/*
 * The tasks are not listed at one moment: while one ends, another, which lives, may be left out. So
 * a thread that is missing is asked for by its number; where that is another one here, it is
 * missing twice.
 */
static bool is_proven_gone(const struct scry_thread_buffers *t, struct thread *h, bool is_inside)
{
	bool was_missing = h->is_missing;

	h->is_missing = true;
	return is_inside ? was_missing : !scry_proc_task_state(t->pid, (pid_t)h->tid);
}

/*
 * Which threads have ended: before the segments are looked at, so that what they wrote last is seen
 * in the same look. The first thread of a process stays, as a zombie, until the last has ended.
 */
static void look_for_ended(struct scry_thread_buffers *t)
{
	uint64_t now = now_ns();
	bool hurries = t->used > SCRY_THREAD_BUFFERS / 2, is_inside;
	pid_t *tids = NULL;
	uint32_t first_tid;
	ssize_t count;
	char first;

	if (!t->pid || !t->by_who.count || now - t->looked_ns < (hurries ? LOOK_HURRY_NS : LOOK_NS))
		return;
	t->looked_ns = now;
	count = scry_proc_tasks(t->pid, &tids);
	if (count <= 0) /* the whole process is gone, which its keeper finds out by itself */
		return;
	first_tid = (uint32_t)scry_proc_tid_inside(t->pid, t->pid);
	is_inside = first_tid != (uint32_t)t->pid;
	if (is_inside)
		see_inside(t->pid, tids, (size_t)count);
	first = scry_proc_task_state(t->pid, t->pid);
	for (size_t i = 0; i < t->thread_count; i++) {
		struct thread *h = &t->threads[i];

		if (!h->id || !h->tid)
			continue;
		if (has_tid(tids, count, h->tid))
			h->is_missing = false;
		else
			h->is_gone |= is_proven_gone(t, h, is_inside);
		if (h->tid == first_tid && (first == 'Z' || first == 'X'))
			h->is_gone = true;
	}
	free(tids);
}

/* segments */

/* Reads `stamping` and then the head; waits a little for a record to be written to its end. */
static bool is_stamping(const struct scry_thread_buffer *buffer)
{
	for (int i = 0; i < SPINS; i++) {
		if (!__atomic_load_n(&buffer->stamping, __ATOMIC_ACQUIRE))
			return false;
		_mm_pause();
	}
	return true;
}

/* Lowers *low to the stamp that a record being written may have. */
static void hold(struct scry_thread_buffers *t, struct place *p, bool stamping, uint32_t head,
		 uint64_t *low)
{
	if (stamping && (!p->is_stamping || head != p->head)) {
		p->floor = t->last_tsc - MARGIN_TSC;
		p->held_since = t->watched_ns;
		p->is_overdue = false;
	}
	p->is_stamping = stamping;
	p->head = head;
	if (!stamping || p->is_overdue)
		return;
	if (t->watched_ns - p->held_since > SCRY_THREAD_BUFFERS_HOLD_NS) {
		p->is_overdue = true;
		t->stats.overdue++;
		return;
	}
	*low = p->floor < *low ? p->floor : *low;
}

/* A segment of which something was published: whose is it? */
static void infer(struct scry_thread_buffers *t, uint32_t i)
{
	struct place *p = &t->places[i];
	struct scry_thread_buffer head;

	memcpy(&head, buffer_of(t, i), sizeof(head));
	p->serial = head.serial;
	p->row = thread_row(t, &head);
	if (!p->row) {
		p->is_bad = true;
		t->stats.bad++;
		return;
	}
	t->threads[p->row - 1].held++;
	if (p->at) /* passed over: what follows is this thread's next */
		t->threads[p->row - 1].next_serial = head.serial;
}

static bool is_sparing(const struct scry_thread_buffers *t)
{
	return t->is_sparing && t->is_held && !t->has_ended;
}

/* Looks at one segment; true: it has words, or an end, for `ret`. */
static bool look(struct scry_thread_buffers *t, uint32_t i, uint64_t *low, struct piece *ret)
{
	struct scry_thread_buffer *buffer = buffer_of(t, i);
	bool stamping = is_stamping(buffer);
	uint64_t state = __atomic_load_n(&buffer->state, __ATOMIC_ACQUIRE);
	uint32_t head = __atomic_load_n(&buffer->head, __ATOMIC_ACQUIRE);
	struct place *p = &t->places[i];

	if (state_of(state) == SCRY_THREAD_BUFFER_FREE) {
		if (p->row)
			t->threads[p->row - 1].held--;
		*p = (struct place){0};
		return false;
	}
	if ((p->state ^ state) & ~3ull) { /* another generation */
		if (p->row)
			t->threads[p->row - 1].held--;
		*p = (struct place){0};
	}
	p->state = state;
	t->used++;
	t->closed += state_of(state) == SCRY_THREAD_BUFFER_CLOSED;
	if (state_of(state) == SCRY_THREAD_BUFFER_OPEN && !t->has_ended)
		hold(t, p, stamping, head, low);
	else if (t->has_ended)
		t->stats.unfinished += stamping;
	if (!p->is_bad && (head > ROOM || head < p->at)) {
		p->is_bad = true;
		t->stats.bad++;
	}
	if (head && !p->row && !p->is_bad)
		infer(t, i);
	if (!is_sparing(t))
		p->is_awaited = p->is_stamping && !p->is_overdue;
	if (p->is_bad || !head) {
		if (state_of(state) != SCRY_THREAD_BUFFER_OPEN)
			give_back(t, i);
		return false;
	}
	*ret = (struct piece){.row = p->row, .serial = p->serial, .segment = i, .head = head};
	return !is_sparing(t) || p->is_awaited;
}

static int compare_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	return (x->serial > y->serial) - (x->serial < y->serial);
}

/* No thread writes to it any more: its thread is gone. */
static void bury(struct scry_thread_buffers *t, uint32_t i)
{
	struct scry_thread_buffer *buffer = buffer_of(t, i);
	uint64_t state = t->places[i].state;

	if (state_of(state) != SCRY_THREAD_BUFFER_OPEN)
		return;
	t->stats.unfinished += !t->has_ended && t->places[i].is_stamping;
	if (__atomic_compare_exchange_n(&buffer->state, &state,
					(state & ~3ull) | SCRY_THREAD_BUFFER_DEAD, false,
					__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		t->places[i].state = (state & ~3ull) | SCRY_THREAD_BUFFER_DEAD;
}

struct taker {
	int (*give)(void *arg, const struct scry_stream_words *words);
	void *arg;
};

/* Gives what is new of a segment; frees it when nothing can follow. */
static int take_piece(struct scry_thread_buffers *t, const struct piece *piece,
		      const struct taker *taker)
{
	struct place *p = &t->places[piece->segment];
	struct scry_thread_buffer *buffer = buffer_of(t, piece->segment);
	struct thread *h = &t->threads[piece->row - 1];
	struct scry_stream_words run = {.thread = h->id,
					.tid = h->tid,
					.begin_tick = p->at ? 0 : buffer->begin_tsc,
					.words = t->copy,
					.count = piece->head - p->at};
	int r = 0;

	memcpy(t->copy, (uint64_t *)buffer + SCRY_THREAD_BUFFER_HEAD + p->at, 8 * run.count);
	p->at = piece->head;
	t->stats.words += run.count;
	if (run.count)
		r = taker->give(taker->arg, &run);
	if (h->is_gone || t->has_ended)
		bury(t, piece->segment);
	if (state_of(p->state) != SCRY_THREAD_BUFFER_OPEN) {
		h->next_serial = piece->serial + 1;
		give_back(t, piece->segment);
	}
	return r;
}

/*
 * Pieces of a thread in the order of their serials. One may be missing because it was opened behind
 * our back while we looked: it is there the next time, and those that follow wait for it.
 */
static int take_pieces(struct scry_thread_buffers *t, const struct piece *pieces, size_t count,
		       const struct taker *taker)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		const struct piece *p = &pieces[i];
		struct thread *h = &t->threads[p->row - 1];
		bool is_open = state_of(t->places[p->segment].state) == SCRY_THREAD_BUFFER_OPEN;
		size_t rest = i + 1;

		if (p->serial != h->next_serial && !h->has_gap && !t->has_ended) {
			h->has_gap = true;
		} else {
			t->stats.bad += p->serial != h->next_serial;
			h->has_gap = false;
			h->next_serial = p->serial;
			r = take_piece(t, p, taker);
			if (!is_open || h->is_gone || t->has_ended)
				continue;
		}
		while (rest < count && pieces[rest].row == p->row)
			rest++;
		i = rest - 1;
	}
	return r;
}

/* Marks threads that have ended, and whose words are all given, as ended. */
static int report_ended(struct scry_thread_buffers *t, const struct taker *taker)
{
	int r = 0;

	for (size_t i = 0; i < t->thread_count && r == 0; i++) {
		struct thread *h = &t->threads[i];
		struct scry_stream_words run = {.thread = h->id, .tid = h->tid, .has_ended = true};

		if (!h->id || h->held || !h->is_gone)
			continue;
		scry_map_remove(&t->by_who, who(h->pointer, h->birth), NULL);
		*h = (struct thread){0};
		r = taker->give(taker->arg, &run);
	}
	return r;
}

/* Times of repeated stamps are older than this look no more. */
static void take_turn(struct scry_thread_buffers *t)
{
	uint64_t *turn = &t->control->turn, now = now_ns();

	if (__atomic_load_n(turn, __ATOMIC_RELAXED) == SCRY_TURN_ALL &&
	    now - t->turn_ns < TURN_ALL_NS)
		return;
	t->turn_ns = now;
	__atomic_store_n(turn, 0, __ATOMIC_SEQ_CST);
	/* A thread that looked at it just before may still have its `stamping` in its store buffer.
	 */
	for (int i = 0; i < SPINS; i++)
		_mm_pause();
}

/* The time in which we look: while we are held up no thread is seen to go on. */
static void watch(struct scry_thread_buffers *t)
{
	uint64_t now = now_ns(), gap = now - t->taken_ns;

	t->watched_ns += gap < STEP_NS ? gap : STEP_NS;
	t->taken_ns = now;
}

uint64_t scry_thread_buffers_stamp(struct scry_thread_buffers *t)
{
	t->turn_ns = now_ns();
	__atomic_store_n(&t->control->turn, SCRY_TURN_ALL, __ATOMIC_SEQ_CST);
	_mm_mfence();
	_mm_lfence();
	return __rdtsc();
}

/* Threads that wait give up when nothing moves for a second. */
static void show_life(struct scry_thread_buffers *t)
{
	uint64_t now = now_ns();

	if (now - t->life_ns < STEP_NS)
		return;
	t->life_ns = now;
	t->freed++;
}

int scry_thread_buffers_take(struct scry_thread_buffers *t,
			     int (*give)(void *arg, const struct scry_stream_words *words),
			     void *arg, struct scry_thread_buffers_taken *ret)
{
	const struct taker taker = {give, arg};
	uint64_t now, low, reach;
	size_t count = 0, free_;
	int r;

	let_go(t);
	watch(t);
	_mm_lfence();
	now = __rdtsc(); /* before the turn: a thread that takes it behind this repeats no older
			    stamp */
	_mm_lfence();
	take_turn(t);
	if (!t->has_ended)
		look_for_ended(t);
	t->used = t->closed = 0;
	_mm_mfence();
	if (!is_sparing(t))
		t->whole_tsc = now;
	else
		show_life(t);
	low = t->whole_tsc - MARGIN_TSC;
	reach = __atomic_load_n(&t->control->head, __ATOMIC_ACQUIRE) / SCRY_THREAD_BUFFER_WORDS;
	for (uint32_t i = 0; i < SCRY_THREAD_BUFFERS && i < reach; i++)
		count += look(t, i, &low, &t->pieces[count]);
	t->is_held = low < t->whole_tsc - MARGIN_TSC;
	qsort(t->pieces, count, sizeof(t->pieces[0]), compare_pieces);
	r = take_pieces(t, t->pieces, count, &taker);
	if (r == 0)
		r = report_ended(t, &taker);
	wake(t);
	t->last_tsc = now;
	t->watermark = low > t->watermark ? low : t->watermark;
	free_ = SCRY_THREAD_BUFFERS - t->used;
	ret->watermark = t->has_ended ? UINT64_MAX : t->watermark;
	_mm_lfence();
	ret->now_tsc = __rdtsc(); /* what was copied may be younger than `now` */
	ret->fill = t->closed ? (int)(1000 * t->closed / (t->closed + free_)) : 0;
	t->stats.waits = t->control->buffer_waits;
	return r;
}

void scry_thread_buffers_stats(const struct scry_thread_buffers *t,
			       struct scry_thread_buffers_stats *ret)
{
	*ret = t->stats;
}
