/* Seize all first (none stops yet); stop those that sleep; then interrupt all that run, and wait:
 * so their pause is one wait long. */
#include "sys/stop_the_world.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/edit.h"
#include "sys/gadgets.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/page_scan.h"
#include "sys/pages.h"
#include "sys/proc.h"
#include "sys/stack.h"
#include "sys/written.h"

#define TRIES 5
#define LATE_NS 300000000ull
#define ROUNDS 64    /* of looking for new threads within a try */
#define WINDOW 8     /* threads that are waited for at a time */
#define NAP_NS 50000 /* shorter ones keep them from the processor that we wake on */
#define WORK_SHARE 4 /* of a pause, for what all are stopped for */

static int add_thread(struct scry_stw *w, pid_t tid)
{
	struct scry_tracee *more;
	int r;

	if (w->count == w->capacity) {
		size_t capacity = w->capacity ? 2 * w->capacity : 32;

		more = realloc(w->threads, capacity * sizeof(*more));
		if (!more)
			return -ENOMEM;
		w->threads = more;
		w->capacity = capacity;
	}
	r = scry_tracee_seize(&w->threads[w->count], w->pid, tid);
	if (r < 0)
		return r;
	w->threads[w->count++].wants_processor = scry_proc_task_state(w->pid, tid) == 'R';
	return 0;
}

static int is_known(const struct scry_stw *w, pid_t tid)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].tid == tid)
			return 1;
	return 0;
}

/* Seizes threads not seen yet; returns how many, or -errno. Zombies and the dying are passed over.
 * Where the list lacks one, as it may while others end, it is not the last. */
static int seize_new(struct scry_stw *w)
{
	pid_t *tids;
	ssize_t n = scry_proc_tasks(w->pid, &tids);
	int fresh = 0, r = 0;

	if (n < 0)
		return (int)n;
	for (ssize_t i = 0; i < n && r >= 0; i++) {
		if (is_known(w, tids[i]))
			continue;
		r = add_thread(w, tids[i]);
		if (r == 0)
			fresh++;
		else if (r == -ESRCH || scry_proc_task_state(w->pid, tids[i]) == 'Z' ||
			 !scry_proc_task_state(w->pid, tids[i]))
			r = 0;
	}
	free(tids);
	if (r >= 0 && !fresh && scry_proc_task_count(w->pid) > (size_t)n)
		fresh = 1;
	return r < 0 ? r : fresh;
}

enum who { WHO_SLEEPS, WHO_RUNS, WHO_ALL };

static bool is_one(const struct scry_tracee *t, enum who who)
{
	return who == WHO_ALL || t->wants_processor == (who == WHO_RUNS);
}

static bool is_awaited(const struct scry_tracee *t, enum who who)
{
	return t->seized && !t->stopped && is_one(t, who);
}

/* One look at the first threads that have not stopped yet, which get a processor for that; those
 * behind them get along meanwhile. How many of them have not. */
static size_t look_for_stops(struct scry_stw *w, enum who who, pid_t *ret_late)
{
	size_t late = 0;
	pid_t stopped = 0; /* the last of them, whose loan may go on to the next that is late */

	for (size_t i = 0; i < w->count && late < WINDOW; i++) {
		struct scry_tracee *t = &w->threads[i];

		if (!is_awaited(t, who))
			continue;
		if (scry_tracee_wait_stop(t, 0) == -ETIMEDOUT) {
			if (!scry_hurry_lend(t->tid, 0))
				scry_hurry_pass(stopped, t->tid);
			*ret_late = t->tid;
			late++;
		} else {
			scry_hurry_recall(stopped);
			stopped = t->tid;
		}
	}
	scry_hurry_recall(stopped);
	return late;
}

static int stop_known(struct scry_stw *w, enum who who, uint64_t deadline_ns, pid_t *ret_late)
{
	for (size_t i = 0; i < w->count; i++)
		if (is_awaited(&w->threads[i], who))
			scry_tracee_interrupt(&w->threads[i]);
	while (look_for_stops(w, who, ret_late)) {
		if (scry_now_ns() > deadline_ns)
			return -EBUSY;
		/* With a real-time priority we would keep them from the processor. */
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	*ret_late = 0;
	return 0;
}

/* A thread that sleeps needs a processor to stop on, and loses little by waiting for others. */
static int stop_once(struct scry_stw *w, uint64_t max_pause_ns, pid_t *ret_late)
{
	int fresh = seize_new(w), r;
	uint64_t deadline;

	w->first_ns = scry_now_ns();
	w->deadline_ns = w->first_ns + max_pause_ns;
	deadline = w->deadline_ns - max_pause_ns / WORK_SHARE;
	r = fresh < 0 ? fresh : stop_known(w, WHO_SLEEPS, deadline, ret_late);
	for (int round = 0; r == 0 && fresh > 0 && round < ROUNDS; round++) {
		r = stop_known(w, WHO_ALL, deadline, ret_late);
		if (r == 0)
			r = fresh = seize_new(w);
		r = r > 0 ? 0 : r;
	}
	if (r == 0 && fresh > 0)
		return -EBUSY;
	return r < 0 ? r : w->count ? 0 : -ESRCH;
}

int scry_stw_stop(struct scry_stw *w, pid_t pid, uint64_t max_pause_ns)
{
	uint64_t longest = 0;
	pid_t late;
	int r = 0;

	for (int i = 0; i < TRIES; i++) {
		*w = (struct scry_stw){.pid = pid};
		late = 0;
		scry_hurry_begin(&w->hurry, pid, scry_proc_task_count(pid), 4 * max_pause_ns);
		r = stop_once(w, max_pause_ns, &late);
		w->pause_ns = longest;
		if (r == 0)
			return 0;
		scry_stw_release(w);
		longest = w->pause_ns;
		if (r != -EBUSY)
			return r == -ESRCH ? scry_fail(r, "process %d is gone", pid) : r;
		/* Whom we wait for (vfork) is held when it comes: the others run until then. */
		if (!late)
			nanosleep(&(struct timespec){.tv_nsec = 20000000L * (i + 1)}, NULL);
		else if (i + 1 < TRIES)
			scry_tracee_await(late, scry_now_ns() + LATE_NS);
	}
	return scry_fail(-EBUSY,
			 "thread %d of process %d would not stop within %llu ms, %d times (vfork "
			 "in flight, or "
			 "waiting in the kernel); fix: try again, or a longer --max-pause",
			 late, pid, (unsigned long long)(max_pause_ns / 1000000), TRIES);
}

bool scry_stw_is_late(const struct scry_stw *w)
{
	return scry_now_ns() > w->deadline_ns;
}

static void release_stopped(struct scry_stw *w, enum who who, const struct scry_tracee *keep)
{
	for (size_t i = 0; i < w->count; i++) {
		if (!w->threads[i].stopped || !is_one(&w->threads[i], who) ||
		    &w->threads[i] == keep)
			continue;
		scry_tracee_mend(&w->threads[i]);
		scry_tracee_release(&w->threads[i]);
	}
}

/* Those that were to stop and have not: each goes on as soon as it has, whatever others do. */
static void release_late(struct scry_stw *w, const struct scry_tracee *keep)
{
	uint64_t deadline = scry_now_ns() + SCRY_TRACEE_RELEASE_NS;
	size_t left;

	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].seized && !w->threads[i].stopped)
			scry_tracee_interrupt(&w->threads[i]);
	do {
		bool is_over = scry_now_ns() > deadline;

		left = 0;
		for (size_t i = 0; i < w->count; i++) {
			struct scry_tracee *t = &w->threads[i];

			if (t->seized && !t->stopped && !is_over &&
			    scry_tracee_wait_stop(t, 0) == -ETIMEDOUT) {
				left++;
				continue;
			}
			if (t == keep)
				continue;
			if (t->stopped)
				scry_tracee_mend(t);
			scry_tracee_release_until(t, 0);
		}
		if (left)
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	} while (left);
}

void scry_stw_release_others(struct scry_stw *w, const struct scry_tracee *keep)
{
	uint64_t ended;

	scry_hurry_settle();
	release_stopped(w, WHO_RUNS, keep);
	release_stopped(w, WHO_ALL, keep);
	ended = scry_now_ns();
	release_late(w, keep);
	if (w->first_ns && ended - w->first_ns > w->pause_ns)
		w->pause_ns = ended - w->first_ns;
	w->first_ns = 0;
}

void scry_stw_release(struct scry_stw *w)
{
	scry_stw_release_others(w, NULL);
	scry_hurry_end(&w->hurry);
	free(w->threads);
	free(w->saved);
	w->threads = NULL;
	w->saved = NULL;
	w->count = w->capacity = w->saved_count = w->saved_capacity = 0;
}

#define CHUNK_BYTES (64u << 10)
#define RUNS_MAX 64 /* of pages, in one look at which are written */
#define UNKNOWN_BYTES (256u << 10)
#define LOOK_BYTES (8u << 20) /* above a stack pointer; see look_bytes */
#define STACK_BYTES (64u << 20)
#define LOOK_STACKS 8 /* of one thread: alternate signal stacks that interrupted one another */
#define FRAME_SP 168  /* asm/sigframe.h: return address, uc head, 16 registers */
#define FRAME_IP 176
#define FRAME_SEGMENTS 192
#define FRAME_STATE 232 /* where the floating-point state lies; 0: none */
#define FRAME_REST 240	/* what a handler's return does not go by, to the end of that state */
#define STATE_MAGIC_AT 464
#define STATE_MAGIC 0x46505853u	 /* asm/sigcontext.h: FP_XSTATE_MAGIC1 */
#define STATE_MAGIC2 0x46505845u /* the last four bytes of its size, which is behind it */
#define STATE_BYTES_MAX (64u << 10)
#define SEGMENTS 0x002b000000000033ull /* cs, gs, fs, ss as 64-bit code has them */
#define RESTORERS_MAX 8
#define RED_ZONE 128	  /* below a stack pointer, which a function may use */
#define LOOK_BYTES_A_NS 3 /* on an idle machine */
#define LOOK_HOLES_A_NS \
	2048 /* of memory that is not there, where it has to be asked page by page */
#define LOOK_MAPPING_NS 1000u /* to read the list again */

/* Frames are known by the word that holds the segments, then by the code that their first word
 * leads to (each object may have a restorer of its own, as the loader and libc do), or by the state
 * that they lead to, where a program brings a restorer that looks like none. */
struct look {
	const struct scry_mem *mem;
	const struct scry_maps *maps;
	unsigned char *stack;
	struct scry_written written;
	uint64_t restorers[RESTORERS_MAX]; /* seen */
	size_t restorer_count;
	const struct scry_stw_hunt *hunt; /* NULL: frames only */
	uint64_t left;			  /* bytes that may be looked at yet */
};

/* Where a thread's stack is looked at: what a handler on an alternate stack has interrupted lies on
 * another one. */
struct stacks {
	uint64_t start[LOOK_STACKS], end[LOOK_STACKS];
	size_t count;
	uint64_t fs; /* the thread's */
};

static uint64_t word_at(const unsigned char *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

static bool is_restorer(struct look *l, uint64_t at)
{
	unsigned char code[SCRY_RESTORER_BYTES];

	for (size_t i = 0; i < l->restorer_count; i++)
		if (at == l->restorers[i])
			return true;
	if (!at || scry_mem_read(l->mem, at, code, sizeof(code)) < 0 ||
	    !scry_gadgets_is_restorer(code, sizeof(code)))
		return false;
	if (l->restorer_count < RESTORERS_MAX)
		l->restorers[l->restorer_count++] = at;
	return true;
}

static bool is_frame(struct look *l, const unsigned char *frame)
{
	const uint64_t first = word_at(frame), state = word_at(frame + FRAME_STATE);
	const struct scry_map_entry *m;
	uint32_t magic = 0;

	if (word_at(frame + FRAME_SEGMENTS) != SEGMENTS)
		return false;
	if (is_restorer(l, first))
		return true;
	m = scry_maps_at(l->maps, first);
	return m && m->x && state &&
	       scry_mem_read(l->mem, state + STATE_MAGIC_AT, &magic, sizeof(magic)) == 0 &&
	       magic == STATE_MAGIC;
}

/* Where a frame ends that is whole from its head to the last word of its state; 0: it is not. */
static uint64_t frame_end(struct look *l, const unsigned char *frame, uint64_t at)
{
	const uint64_t state = word_at(frame + FRAME_STATE);
	uint32_t magic[2], last = 0; /* magic[1]: the size */

	if (state < at + FRAME_REST || state - at > STATE_BYTES_MAX ||
	    scry_mem_read(l->mem, state + STATE_MAGIC_AT, magic, sizeof(magic)) < 0 ||
	    magic[0] != STATE_MAGIC || magic[1] < STATE_MAGIC_AT || magic[1] > STATE_BYTES_MAX ||
	    scry_mem_read(l->mem, state + magic[1] - sizeof(last), &last, sizeof(last)) < 0)
		return 0;
	return last == STATE_MAGIC2 ? state + magic[1] : 0;
}

/* To the end of a mapping that looks like one thread's stack, or of a thread's stack that its
 * descriptor ends. A large one may be a heap with many stacks in it: there, only so much. */
static uint64_t look_bytes(const struct scry_map_entry *m, uint64_t start, uint64_t fs)
{
	bool is_threads = m && fs > start && fs < m->end;
	uint64_t most =
		(m && m->end - m->start <= STACK_BYTES) || is_threads ? LOOK_BYTES : UNKNOWN_BYTES;
	uint64_t size = m ? m->end - start : most;

	return size < most ? size : most;
}

/* From one word below the stack pointer: a handler that has returned has taken the frame's first
 * word off, and its restorer has still to make the system call. */
static void add_stack(struct stacks *s, const struct look *l, uint64_t sp)
{
	const uint64_t start = (sp & ~7ull) - 8;

	for (size_t i = 0; i < s->count; i++)
		if (start >= s->start[i] && start < s->end[i])
			return;
	if (s->count == LOOK_STACKS)
		return;
	s->start[s->count] = start;
	s->end[s->count++] = start + look_bytes(scry_maps_at(l->maps, start), start, s->fs);
}

static int add_saved(struct scry_stw *w, const struct scry_saved_ip *saved)
{
	if (w->saved_count == w->saved_capacity) {
		size_t capacity = w->saved_capacity ? 2 * w->saved_capacity : 16;
		struct scry_saved_ip *more = realloc(w->saved, capacity * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->saved = more;
		w->saved_capacity = capacity;
	}
	w->saved[w->saved_count++] = *saved;
	return 0;
}

static void note_found(struct scry_stw *w, uint64_t at)
{
	if (w->found_count < SCRY_STW_FOUND_MAX)
		w->found_at[w->found_count] = at;
	w->found_count++;
}

/* The last words of a chunk, which may be of a frame that goes on, are the first of the next one.
 */
static int look_through(struct scry_stw *w, struct look *l, size_t size, uint64_t address,
			struct stacks *stacks)
{
	const struct scry_stw_hunt none = {0}, *h = l->hunt ? l->hunt : &none;
	const uint64_t low = h->low, span = h->high - h->low;
	int r = 0;

	for (size_t at = 0; at + 8 <= size && r == 0; at += 8) {
		const unsigned char *frame = l->stack + at;
		const uint64_t word = word_at(frame);
		struct scry_saved_ip saved;

		if (word - low < span && h->is_one(h->arg, word))
			note_found(w, address + at);
		if (at + FRAME_STATE + 8 > size || !is_frame(l, frame))
			continue;
		saved = (struct scry_saved_ip){.at = address + at + FRAME_IP,
					       .ip = word_at(frame + FRAME_IP),
					       .sp = word_at(frame + FRAME_SP),
					       .end = h->is_one ? frame_end(l, frame, address + at)
								: 0};
		r = add_saved(w, &saved);
		add_stack(stacks, l, saved.sp);
	}
	return r;
}

/* To where pages are not there: those of private memory were never written to, and the server that
 * is to give them may be stopped. */
static uint64_t chunk_bytes(const struct look *l, uint64_t at, uint64_t end)
{
	const struct scry_map_entry *m = scry_maps_at(l->maps, at);
	uint64_t most = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES, start, there;

	if (l->hunt || !m || m->shared || /* all of a run is there */
	    !scry_written_run(&l->written, at, at + most, &start, &there) || there <= at)
		return most;
	return there - at < most ? there - at : most;
}

/* Chunk by chunk; a frame's head may lie across two. */
static int look_at_stack(struct scry_stw *w, struct look *l, struct stacks *stacks, size_t i)
{
	uint64_t at = stacks->start[i], next, size;
	int r = 0;
	ssize_t n;

	while (at < stacks->end[i] && r == 0) {
		next = l->hunt ? at : scry_written_next(&l->written, at, stacks->end[i]);
		if (next > at) { /* a frame's first word is not 0: none begins before */
			at = next;
			continue;
		}
		if (scry_stw_is_late(w))
			return -EAGAIN;
		size = chunk_bytes(l, at, stacks->end[i]);
		n = scry_mem_read_some(l->mem, at, l->stack, size);
		if (n <= 0 && l->hunt) { /* a guard */
			at = (at / SCRY_PAGE + 1) * SCRY_PAGE;
			continue;
		}
		if (n <= 0)
			break;
		r = look_through(w, l, (size_t)n, at, stacks);
		if (l->hunt && (size_t)n < size) {
			at += (uint64_t)n;
			continue;
		}
		if (at + size >= stacks->end[i] || (size_t)n < size)
			break;
		/* the next place not looked at */
		at += size < CHUNK_BYTES ? size : CHUNK_BYTES - FRAME_STATE;
	}
	return r;
}

static int look_at_thread(struct scry_stw *w, struct look *l, const struct scry_tracee *t)
{
	struct stacks stacks = {.fs = t->regs.fs_base};
	int r = 0;

	add_stack(&stacks, l, t->regs.rsp);
	for (size_t i = 0; i < stacks.count && r == 0; i++)
		r = look_at_stack(w, l, &stacks, i);
	return r;
}

int scry_stw_look(struct scry_stw *w, const struct scry_mem *mem, const struct scry_maps *maps)
{
	struct look look = {.mem = mem, .maps = maps, .stack = malloc(CHUNK_BYTES)};
	int r = look.stack ? 0 : -ENOMEM;

	scry_written_open(&look.written, w->pid, maps);
	w->saved_count = 0;
	for (size_t i = 0; i < w->count && r == 0; i++) {
		if (w->threads[i].stopped)
			r = look_at_thread(w, &look, &w->threads[i]);
		if (r == 0 && scry_stw_is_late(w))
			r = -EAGAIN;
	}
	free(look.stack);
	scry_written_close(&look.written);
	if (r == -ENOMEM)
		return scry_no_memory("stacks that are looked at");
	return r;
}

/* One run of written pages, as if it were a stack. */
static int look_at_run(struct scry_stw *w, struct look *l, uint64_t start, uint64_t end)
{
	struct stacks run = {.start = {start}, .end = {end}, .count = LOOK_STACKS};

	if (end - start > l->left)
		return -E2BIG;
	l->left -= end - start;
	return look_at_stack(w, l, &run, 0);
}

static int look_at_mapping(struct scry_stw *w, struct look *l, const struct scry_map_entry *m)
{
	struct scry_scan_region runs[RUNS_MAX];
	uint64_t next;
	int r = 0, n;

	for (uint64_t at = m->start; at < m->end && r == 0; at = next) {
		if (scry_stw_is_late(w))
			return -EAGAIN;
		n = scry_written_runs(&l->written, at, m->end, runs, RUNS_MAX, &next);
		if (n < 0)
			return -E2BIG;
		for (int i = 0; i < n && r == 0; i++)
			r = look_at_run(w, l, runs[i].start, runs[i].end);
	}
	return r;
}

/* Of a frame: moved with it; or behind its registers, where the kernel leaves holes, in which words
 * of earlier frames stay, and goes nowhere by what it has written. */
static bool is_frames(const struct scry_stw *w, uint64_t at)
{
	for (size_t i = 0; i < w->saved_count; i++) {
		const struct scry_saved_ip *s = &w->saved[i];

		if (s->at == at || (at >= s->at - FRAME_IP + FRAME_REST && at < s->end))
			return true;
	}
	return false;
}

/* Left behind below where its stack ends: a frame that was returned from. */
static bool is_dead(const struct scry_mem *mem, const struct scry_maps *maps,
		    const struct scry_stw *w, uint64_t at)
{
	const struct scry_map_entry *m = scry_maps_at(maps, at);

	/* The room below a stack pointer is of its mapping: memory is read only of the threads that
	 * are stopped in this one. */
	for (size_t i = 0; m && i < w->count; i++) {
		const struct scry_tracee *t = &w->threads[i];
		const uint64_t sp = t->regs.rsp;

		if (t->stopped && sp < m->end && sp > at && sp - at > RED_ZONE &&
		    sp - at <= scry_stack_room(t, mem, maps))
			return true;
	}
	return false;
}

/* Of too many to be kept all stay. */
static void settle_found(struct scry_stw *w, const struct look *l)
{
	size_t kept = 0;

	if (w->found_count > SCRY_STW_FOUND_MAX)
		return;
	for (size_t i = 0; i < w->found_count; i++)
		if (!is_frames(w, w->found_at[i]) && !is_dead(l->mem, l->maps, w, w->found_at[i]))
			w->found_at[kept++] = w->found_at[i];
	w->found_count = kept;
}

int scry_stw_look_everywhere(struct scry_stw *w, const struct scry_mem *mem,
			     const struct scry_maps *maps, const struct scry_stw_hunt *hunt)
{
	struct look look = {.mem = mem,
			    .maps = maps,
			    .stack = malloc(CHUNK_BYTES),
			    .hunt = hunt,
			    .left = hunt->bytes};
	int r = look.stack ? 0 : -ENOMEM;

	w->found_count = 0;
	scry_written_open(&look.written, w->pid, maps);
	for (size_t i = 0; i < maps->count && r == 0; i++)
		if (!maps->entries[i].shared && scry_written_is_memory(&maps->entries[i]))
			r = look_at_mapping(w, &look, &maps->entries[i]);
	for (size_t i = 0; i < maps->count && r == 0; i++)
		if (scry_maps_is_shared_memory(&maps->entries[i]))
			r = look_at_mapping(w, &look, &maps->entries[i]);
	settle_found(w, &look);
	free(look.stack);
	scry_written_close(&look.written);
	return r == -ENOMEM ? scry_no_memory("stacks that are looked at") : r;
}

/* Left behind on the stack of a thread that has ended: its descriptor is no thread's. */
static bool is_of_ended(const struct scry_mem *mem, const struct scry_maps *maps,
			const struct scry_stw *w, uint64_t at)
{
	const uint64_t owner = scry_stack_owner(at, mem, maps);

	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].regs.fs_base == owner)
			return false;
	return owner && w->count;
}

/* Left behind on an alternate stack: what was interrupted is on its own stack again, on which no
 * other could have gone on below that place, or above it without ending it. */
static bool is_passed(const struct scry_mem *mem, const struct scry_maps *maps,
		      const struct scry_stw *w, const struct scry_saved_ip *frame)
{
	const struct scry_map_entry *m = scry_maps_at(maps, frame->sp);
	const bool is_first = m && !strcmp(m->path, "[stack]");
	uint64_t low = 0, top = 0;

	for (size_t i = 0; m && i < w->count; i++) {
		const struct scry_tracee *t = &w->threads[i];

		if (!t->stopped || t->regs.rsp < m->start || t->regs.rsp >= m->end ||
		    (is_first && t->tid != t->pid))
			continue;
		if (is_first) {
			low = m->start;
			top = m->end;
		} else if (!scry_stack_of(mem, maps, t->regs.fs_base, &low, &top)) {
			continue;
		}
		if (t->regs.rsp >= low && t->regs.rsp < top && frame->sp >= low &&
		    frame->sp < top && (frame->at < low || frame->at >= top))
			return true;
	}
	return false;
}

static bool is_left(const struct scry_mem *mem, const struct scry_maps *maps,
		    const struct scry_stw *w, const struct scry_saved_ip *frame)
{
	return is_dead(mem, maps, w, frame->at) || is_of_ended(mem, maps, w, frame->at) ||
	       is_of_ended(mem, maps, w, frame->sp) || is_passed(mem, maps, w, frame);
}

void scry_stw_forget_dead(struct scry_stw *w, const struct scry_mem *mem,
			  const struct scry_maps *maps)
{
	size_t kept = 0;

	for (size_t i = 0; i < w->saved_count; i++)
		if (!is_left(mem, maps, w, &w->saved[i]))
			w->saved[kept++] = w->saved[i];
	w->saved_count = kept;
}

uint64_t scry_stw_doubt(const struct scry_stw *w)
{
	return w->found_count ? w->found_at[0] : 0;
}

uint64_t scry_stw_look_ns(pid_t pid, const struct scry_maps *maps)
{
	struct scry_written written;
	uint64_t own = 0, ns;

	for (size_t i = 0; i < maps->count; i++)
		if (!maps->entries[i].shared)
			own += maps->entries[i].end - maps->entries[i].start;
	ns = maps->count * LOOK_MAPPING_NS + scry_proc_anonymous_bytes(pid) / LOOK_BYTES_A_NS;
	scry_written_open(&written, pid, maps);
	if (!written.has_scan) /* 8 bytes are read for each page that is not there, too */
		ns += own / LOOK_HOLES_A_NS;
	scry_written_close(&written);
	return ns;
}

bool scry_stw_inside(const struct scry_stw *w, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct scry_tracee *t = &w->threads[i];

		if (t->stopped && t->regs.rip >= start && t->regs.rip < end)
			return true;
	}
	for (size_t i = 0; i < w->saved_count; i++)
		if (w->saved[i].ip >= start && w->saved[i].ip < end)
			return true;
	return false;
}

int scry_stw_move(struct scry_stw *w, int mem_fd, uint64_t (*to)(const void *arg, uint64_t ip),
		  const void *arg)
{
	int moved = 0;

	for (size_t i = 0; i < w->count; i++) {
		struct scry_tracee *t = &w->threads[i];
		uint64_t ip = t->stopped ? to(arg, t->regs.rip) : t->regs.rip;
		int r = ip == t->regs.rip ? 0 : scry_tracee_move(t, ip);

		if (r < 0)
			return r;
		moved += r;
	}
	for (size_t i = 0; i < w->saved_count; i++) {
		uint64_t ip = to(arg, w->saved[i].ip);
		int r = ip == w->saved[i].ip
				? 0
				: scry_edit_poke(mem_fd, w->saved[i].at, &ip, sizeof(ip));

		if (r < 0)
			return scry_fail(r, "cannot write a signal frame of process %d", w->pid);
		moved += ip != w->saved[i].ip;
		w->saved[i].ip = ip;
	}
	return moved;
}

bool scry_stw_stands_on(const struct scry_stw *w, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->threads[i].stopped && w->threads[i].regs.rsp >= start &&
		    w->threads[i].regs.rsp < end)
			return true;
	for (size_t i = 0; i < w->saved_count; i++)
		if (w->saved[i].sp >= start && w->saved[i].sp < end)
			return true;
	return false;
}

static struct scry_tracee *find_caller(const struct scry_stw *w, const struct scry_mem *mem,
				       const struct scry_maps *maps, bool has_restart)
{
	for (size_t i = 0; i < w->count; i++) {
		struct scry_tracee *t = &w->threads[i];

		if (t->stopped && scry_tracee_has_restart(t) == has_restart &&
		    scry_tracee_can_call(t) && scry_stack_room(t, mem, maps) >= SCRY_CALL_ROOM)
			return t;
	}
	return NULL;
}

/* Whether a call can be made in it takes a look into /proc, and all are stopped: not each is asked.
 */
static struct scry_tracee *find_spare(const struct scry_stw *w, const struct scry_mem *mem,
				      const struct scry_maps *maps, uint64_t *ret_stack)
{
	for (size_t i = 0; i < w->count; i++) {
		struct scry_tracee *t = &w->threads[i];
		const uint64_t end =
			t->stopped && scry_tracee_can_call(t) ? scry_stack_spare(t, mem, maps) : 0;

		if (end && !scry_stw_stands_on(w, end - SCRY_STACK_SPARE, end + SCRY_STACK_SPARE)) {
			*ret_stack = end;
			return t;
		}
	}
	return NULL;
}

struct scry_tracee *scry_stw_caller(const struct scry_stw *w, const struct scry_mem *mem,
				    const struct scry_maps *maps, uint64_t *ret_stack)
{
	struct scry_tracee *t = find_caller(w, mem, maps, false);

	*ret_stack = 0;
	if (!t)
		t = find_caller(w, mem, maps, true);
	return t ? t : find_spare(w, mem, maps, ret_stack);
}
