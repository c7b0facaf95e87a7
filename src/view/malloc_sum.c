/*
 * What the calls of malloc functions come to. See malloc_sum.h.
 *
 * The reader checks that blocks begin and end in order; a fork child ends blocks that its parent
 * began, which are not known here.
 */
#include "view/malloc_sum.h"

#include "base/err.h"
#include "rec/malloc_effect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 512u /* blocks */
#define HEAD 8	  /* bytes before a block, which no allocator says; glibc's */
#define HARDLY 8  /* a release: less than an eighth of what is freed is begun */
#define LAST 4	  /* one in the last quarter of the time is that of the program's end */

struct scry_malloc_block_sum {
	uint64_t size, taken;
	uint64_t born_ns;    /* 0: before the recording */
	uint64_t born_calls; /* calls up to it, and one; 0: no block that is known lives here */
	uint32_t caller, thread;
	uint32_t maker; /* the thread that made or resized it last; 0: not known */
};

static int no_memory(void)
{
	return scry_no_memory("summing up the calls of malloc");
}

struct room {
	size_t had, wanted, size; /* of one */
};

/* What is new is zeros. NULL with a sentence; then all is as before. */
static void *grow(struct scry_malloc_sum *s, void *from, struct room r)
{
	size_t more = (r.wanted - r.had) * r.size;
	char *grown;

	if (more > SCRY_MALLOC_SUM_BYTES - s->bytes) {
		scry_fail(-ENOMEM, "the sums of these calls of malloc take more than %llu GiB%s",
			  SCRY_MALLOC_SUM_BYTES >> 30,
			  s->pid ? "" : "; fix: --pid PID, where they are of several processes");
		return NULL;
	}
	grown = realloc(from, r.wanted * r.size);
	if (!grown) {
		no_memory();
		return NULL;
	}
	memset(grown + r.had * r.size, 0, more);
	s->bytes += more;
	return grown;
}

static void free_blocks(struct scry_malloc_sum *s, struct scry_malloc_process *p)
{
	for (uint32_t page = 0; page < p->page_cap; page++) {
		s->bytes -= p->pages[page] ? PAGE * sizeof(**p->pages) : 0;
		free(p->pages[page]);
	}
	s->bytes -= p->page_cap * sizeof(*p->pages);
	free(p->pages);
	s->bytes -= p->newest_cap * sizeof(*p->newest);
	free(p->newest);
	p->newest = NULL;
	p->pages = NULL;
	p->page_cap = p->newest_cap = 0;
}

static void free_callers(struct scry_malloc_sum *s, struct scry_malloc_process *p)
{
	s->bytes -= p->caller_cap * sizeof(*p->callers);
	free(p->callers);
	scry_map_done(&p->caller_places);
	p->callers = NULL;
	p->caller_count = p->caller_cap = 0;
}

void scry_malloc_sum_done(struct scry_malloc_sum *s)
{
	uint32_t i;

	for (i = 0; i < s->count; i++) {
		free_blocks(s, s->processes[i]);
		free_callers(s, s->processes[i]);
		free(s->processes[i]);
	}
	free(s->processes);
	scry_native_frames_done(&s->stacks);
	*s = (struct scry_malloc_sum){0};
}

/* The one that came last is asked for again and again: it is kept in front. NULL: none lives. */
static struct scry_malloc_process *process_find(struct scry_malloc_sum *s, uint32_t pid)
{
	uint32_t i;

	for (i = 0; i < s->living; i++) {
		struct scry_malloc_process *p = s->processes[i];

		if (p->pid != pid)
			continue;
		s->processes[i] = s->processes[0];
		return s->processes[0] = p;
	}
	return NULL;
}

static int process_of(struct scry_malloc_sum *s, uint32_t pid, struct scry_malloc_process **ret)
{
	struct scry_malloc_process *p;
	void *grown;

	*ret = NULL;
	if (s->pid && pid != s->pid)
		return 0;
	*ret = process_find(s, pid);
	if (*ret)
		return 0;
	if (s->count == SCRY_MALLOC_SUM_PROCESSES)
		return 0;
	p = calloc(1, sizeof(*p));
	grown = realloc(s->processes, (s->count + 1) * sizeof(*s->processes));
	if (grown)
		s->processes = grown;
	if (!p || !grown) {
		free(p);
		return no_memory();
	}
	p->pid = pid;
	p->point_every = 16;
	p->moment_every = 1000000;
	scry_map_init(&p->caller_places, SCRY_MALLOC_SUM_CALLERS);
	s->processes[s->count++] = s->processes[s->living];
	*ret = s->processes[s->living++] = p;
	return 0;
}

static int add_caller(struct scry_malloc_sum *s, struct scry_malloc_process *p, uint32_t id)
{
	uint32_t cap = p->caller_cap ? p->caller_cap * 2 : 8;
	void *grown;

	if (p->caller_count == p->caller_cap) {
		grown = grow(s, p->callers, (struct room){p->caller_cap, cap, sizeof(*p->callers)});
		if (!grown)
			return -ENOMEM;
		p->callers = grown;
		p->caller_cap = cap;
	}
	if (id && scry_map_put(&p->caller_places, id, p->caller_count) < 0)
		return no_memory();
	p->callers[p->caller_count++].name.caller = id;
	return 0;
}

static int caller_of(struct scry_malloc_sum *s, struct scry_malloc_process *p, uint32_t id,
		     struct scry_malloc_caller_sum **ret_caller)
{
	uint64_t place = 0;
	int err = p->caller_count ? 0 : add_caller(s, p, 0);

	if (!err && id && !scry_map_get(&p->caller_places, id, &place) &&
	    p->caller_count < SCRY_MALLOC_SUM_CALLERS) {
		place = p->caller_count;
		err = add_caller(s, p, id);
	}
	*ret_caller = err ? NULL : &p->callers[place];
	return err;
}

/* Before a caller's live figures change: what it held at the last peak, and before the last
 * release, is as it is now. */
static void caller_settle(const struct scry_malloc_process *p, struct scry_malloc_caller_sum *c)
{
	if (c->release_number != p->release.number) {
		c->last = c->live;
		c->release_number = p->release.number;
	}
	if (c->peak_number == p->peak_number)
		return;
	c->peak = c->live;
	c->peak_number = p->peak_number;
}

/* A block has begun: is what was freed before it more than a change of blocks? */
static void release_goes_on(struct scry_malloc_process *p, uint64_t size)
{
	struct scry_malloc_release *r = &p->release;

	r->begun += size;
	if (r->begun < r->freed / HARDLY)
		return;
	*r = (struct scry_malloc_release){
		.number = r->number + 1, .began_ns = p->last_ns, .was = p->live};
}

static unsigned int size_row(uint64_t size)
{
	unsigned int row = size > 1 ? 64 - (unsigned int)__builtin_clzll(size - 1) : 0;

	return row < SCRY_MALLOC_SIZE_ROWS ? row : SCRY_MALLOC_SIZE_ROWS - 1;
}

static struct scry_malloc_block_sum *block_at(const struct scry_malloc_process *p, uint32_t block)
{
	struct scry_malloc_block_sum *page =
		block / PAGE < p->page_cap ? p->pages[block / PAGE] : NULL;

	return page ? &page[block % PAGE] : NULL;
}

/* Numbers of a fork child's blocks go on where the parent's are: pages between stay out. */
static int block_room(struct scry_malloc_sum *s, struct scry_malloc_process *p, uint32_t block)
{
	uint32_t at = block / PAGE, cap = p->page_cap ? p->page_cap : 8;
	void *grown;

	while (cap <= at)
		cap *= 2;
	if (at >= p->page_cap) {
		grown = grow(s, p->pages, (struct room){p->page_cap, cap, sizeof(*p->pages)});
		if (!grown)
			return -ENOMEM;
		p->pages = grown;
		p->page_cap = cap;
	}
	if (!p->pages[at])
		p->pages[at] = grow(s, NULL, (struct room){0, PAGE, sizeof(**p->pages)});
	return p->pages[at] ? 0 : -ENOMEM;
}

static void live_add(struct scry_malloc_held *h, uint64_t size)
{
	h->blocks++;
	h->bytes += size;
}

static void live_take(struct scry_malloc_held *h, uint64_t size)
{
	h->blocks--;
	h->bytes -= size;
}

/* What a thread made last; NULL: there are too many threads, or `thread` is none. */
static uint32_t *newest_of(struct scry_malloc_sum *s, struct scry_malloc_process *p,
			   uint32_t thread)
{
	uint32_t cap = p->newest_cap ? p->newest_cap : 16;
	void *grown;

	if (thread < p->newest_cap)
		return thread ? &p->newest[thread] : NULL;
	p->has_more_threads |= thread >= SCRY_MALLOC_SUM_THREADS;
	if (thread >= SCRY_MALLOC_SUM_THREADS)
		return NULL;
	while (cap <= thread)
		cap *= 2;
	grown = grow(s, p->newest, (struct room){p->newest_cap, cap, sizeof(*p->newest)});
	if (!grown)
		return NULL;
	p->newest = grown;
	p->newest_cap = cap;
	return thread ? &p->newest[thread] : NULL;
}

static int block_begins(struct scry_malloc_sum *s, struct scry_malloc_process *p,
			const struct scry_ev_malloc *call, struct scry_malloc_block_sum born)
{
	struct scry_malloc_caller_sum *c;
	int err = caller_of(s, p, call->caller, &c);

	if (!err)
		err = block_room(s, p, call->block);
	if (err)
		return err;
	born.size = call->size;
	born.taken = (call->usable ? call->usable : call->size) + HEAD;
	born.caller = (uint32_t)(c - p->callers);
	caller_settle(p, c);
	c->allocated++;
	c->bytes += call->size;
	c->size_blocks[size_row(call->size)]++;
	if (call->function != SCRY_MALLOC_OLDER) {
		uint32_t *newest = newest_of(s, p, call->thread);

		if (!newest && call->thread && call->thread < SCRY_MALLOC_SUM_THREADS)
			return -ENOMEM;
		if (newest)
			*newest = call->block + 1;
		born.maker = newest ? call->thread : 0;
		p->allocated++;
		p->bytes += call->size;
	} else {
		p->older += call->size;
		c->older += call->size;
	}
	*block_at(p, call->block) = born;
	live_add(&c->live, call->size);
	live_add(&p->live, call->size);
	p->taken += born.taken;
	p->taken_all += born.taken;
	p->taken_peak = p->taken > p->taken_peak ? p->taken : p->taken_peak;
	live_add(&p->sizes[size_row(call->size)], call->size);
	live_add(&p->size_live[size_row(call->size)], call->size);
	release_goes_on(p, call->size);
	if (p->live.bytes > p->peak.bytes) {
		p->peak = p->live;
		p->peak_number++;
		p->peak_ns = p->last_ns;
		p->peak_calls = p->calls;
	}
	return 0;
}

/* True when the block was known; it is not any more. */
static bool block_ends(struct scry_malloc_process *p, const struct scry_ev_malloc *call,
		       struct scry_malloc_block_sum *ret_block)
{
	struct scry_malloc_caller_sum *c;
	struct scry_malloc_block_sum *b = block_at(p, call->block);

	if (!b || !b->born_calls) {
		p->unknown_ends++;
		return false;
	}
	*ret_block = *b;
	b->born_calls = 0;
	c = &p->callers[b->caller];
	caller_settle(p, c);
	if (b->maker && p->newest[b->maker] == call->block + 1) {
		p->newest[b->maker] = 0;
		c->temporary += b->maker == call->thread;
		p->temporary += b->maker == call->thread;
	}
	c->ended++;
	live_take(&c->live, b->size);
	live_take(&p->live, b->size);
	p->taken -= b->taken;
	p->release.freed += b->size;
	live_take(&p->size_live[size_row(b->size)], b->size);
	return true;
}

static void life_ends(struct scry_malloc_process *p, const struct scry_malloc_block_sum *b,
		      const struct scry_ev_malloc *call)
{
	uint64_t calls = p->calls + 1 - b->born_calls, us = (p->last_ns - b->born_ns) / 1000, bound;
	unsigned int row;

	p->ended++;
	if (!b->born_ns)
		return; /* how old it became, and whose it was, is not known */
	p->lived++;
	p->foreign_ends += call->thread != b->thread;
	if (calls <= SCRY_MALLOC_SHORT_CALLS) {
		p->short_lived++;
		p->callers[b->caller].short_lived++;
	}
	for (row = 0, bound = 1; bound < calls && row < SCRY_MALLOC_LIFE_ROWS - 1; row++)
		bound *= 4;
	p->lives[row]++;
	for (row = 0, bound = 1; bound < us && row < SCRY_MALLOC_TIME_ROWS - 1; row++)
		bound *= 10;
	p->times[row]++;
}

/* A point of the curve. When the room is full each second one goes and points come half as often.
 */
static void process_point(struct scry_malloc_process *p)
{
	if (p->point_count == SCRY_MALLOC_SLICES) {
		for (uint32_t i = 0; i < SCRY_MALLOC_SLICES / 2; i++)
			p->points[i] = p->points[2 * i + 1];
		p->point_count /= 2;
		p->point_every *= 2;
		if (p->calls % p->point_every)
			return;
	}
	p->points[p->point_count++] =
		(struct scry_malloc_moment){p->last_ns, p->calls, p->live, p->rss};
}

/* The same by time: what lives was there at the moments up to `ns`. */
static void process_moments(struct scry_malloc_process *p, uint64_t ns)
{
	uint32_t i, c;

	if (ns > p->seen_ns)
		p->seen_ns = ns;
	while (p->first_ns && ns > p->first_ns &&
	       (ns - p->first_ns) / p->moment_every > p->moment_count) {
		if (p->moment_count < SCRY_MALLOC_MOMENTS) {
			p->moments[p->moment_count] = p->live.bytes;
			for (c = 0; c < p->caller_count; c++)
				if (p->callers[c].allocated)
					p->callers[c].moments[p->moment_count] =
						p->callers[c].live.bytes;
			p->moment_count++;
			continue;
		}
		p->moment_count /= 2;
		p->moment_every *= 2;
		for (i = 0; i < p->moment_count; i++) {
			p->moments[i] = p->moments[2 * i + 1];
			for (c = 0; c < p->caller_count; c++)
				if (p->callers[c].allocated)
					p->callers[c].moments[i] = p->callers[c].moments[2 * i + 1];
		}
	}
}

static void process_at(struct scry_malloc_process *p)
{
	uint32_t c;

	p->has_at = true;
	p->at = p->live;
	for (c = 0; c < p->caller_count; c++)
		p->callers[c].at = p->callers[c].live;
}

static int on_blocks(struct scry_malloc_sum *s, struct scry_malloc_process *p,
		     const struct scry_ev_malloc *call)
{
	struct scry_malloc_block_sum b = {
		.born_ns = p->last_ns, .born_calls = p->calls + 1, .thread = call->thread};

	if (call->function == SCRY_MALLOC_OLDER)
		b.born_ns = 0;
	switch (scry_malloc_effect_of(call->function, call->flags)) {
	case SCRY_MALLOC_EFFECT_BEGIN:
		return block_begins(s, p, call, b);
	case SCRY_MALLOC_EFFECT_AGAIN:
		block_ends(p, call, &b); /* its life goes on */
		return block_begins(s, p, call, b);
	case SCRY_MALLOC_EFFECT_END:
		if (block_ends(p, call, &b))
			life_ends(p, &b, call);
		return 0;
	default:
		return 0;
	}
}

/* The first look that waits: what lives now lived then. */
static void process_look(struct scry_malloc_process *p)
{
	process_moments(p, p->looks[0].time_ns);
	p->rss = p->looks[0].rss;
	p->rss_live = p->live.bytes;
	p->rss_ns = p->looks[0].time_ns;
	if (p->rss_live > p->rss_live_peak)
		p->rss_live_peak = p->rss_live;
	if (p->rss > p->rss_peak)
		p->rss_peak = p->rss;
	if (!p->calls && !p->rss_first) {
		p->rss_first = p->rss;
		p->rss_first_live = p->rss_live;
	}
	memmove(p->looks, p->looks + 1, --p->look_count * sizeof(*p->looks));
}

/* Not of the program: blocks that were found, pages that were touched, ends of threads. */
static bool is_of_scry(const struct scry_ev_malloc *call)
{
	return call->function == SCRY_MALLOC_OLDER || call->function == SCRY_MALLOC_TOUCHED ||
	       call->function == SCRY_MALLOC_THREAD_END;
}

static int on_call(struct scry_malloc_sum *s, uint64_t time_ns, const struct scry_ev_malloc *call)
{
	struct scry_malloc_process *p;
	int err = process_of(s, call->pid, &p);

	if (err || !p) {
		s->left_out += !err && (!s->pid || call->pid == s->pid);
		return err;
	}
	if (s->has_at && !p->has_at && time_ns > s->began_ns + s->at_ns)
		process_at(p);
	while (p->look_count && p->looks[0].time_ns <= time_ns)
		process_look(p);
	process_moments(p, time_ns);
	if (!p->first_ns)
		p->first_ns = time_ns;
	if (time_ns > p->last_ns)
		p->last_ns = time_ns;
	if (call->function < SCRY_MALLOC_FUNCTIONS)
		p->functions[call->function]++;
	p->calls += !is_of_scry(call);
	p->failed += call->flags & SCRY_MALLOC_FAILED && call->function <= SCRY_MALLOC_REALLOCARRAY;
	p->moved += (call->flags & SCRY_MALLOC_MOVED) != 0;
	p->null_frees += call->function >= SCRY_MALLOC_FREE &&
			 call->function <= SCRY_MALLOC_DELETE_ARRAY &&
			 call->flags & SCRY_MALLOC_NULL;
	p->unknown_ends += call->function >= SCRY_MALLOC_REALLOC &&
			   call->function <= SCRY_MALLOC_DELETE_ARRAY &&
			   (call->flags & SCRY_MALLOC_UNKNOWN) != 0;
	err = on_blocks(s, p, call);
	if (!err && !is_of_scry(call) && p->calls % p->point_every == 0)
		process_point(p);
	return err;
}

static int on_caller(struct scry_malloc_sum *s, const struct scry_ev_caller *caller)
{
	struct scry_malloc_caller_sum *c;
	struct scry_malloc_process *p;
	int err = process_of(s, caller->pid, &p);

	if (err || !p)
		return err;
	err = caller_of(s, p, caller->caller, &c);
	if (!err && c != p->callers)
		c->name = *caller;
	return err;
}

static int on_memory(struct scry_malloc_sum *s, uint64_t time_ns,
		     const struct scry_ev_memory *memory)
{
	struct scry_malloc_process *p;
	int err = process_of(s, memory->pid, &p);

	if (err || !p || !memory->rss_anon)
		return err; /* a process that ends has none */
	if (memory->held > p->held_peak) {
		p->held_peak = memory->held;
		p->arenas_held = memory->arenas_held;
	}
	if (memory->arenas > p->arenas)
		p->arenas = memory->arenas;
	if (p->look_count == SCRY_MALLOC_LOOKS)
		process_look(p);
	p->looks[p->look_count++] = (struct scry_malloc_look){time_ns, memory->rss_anon};
	return 0;
}

static void on_allocator(const struct scry_malloc_sum *s, struct scry_malloc_process *p,
			 const struct scry_ev_allocator *allocator)
{
	const char *name =
		s->reader ? scry_reader_string(s->reader, allocator->name_str, NULL) : NULL;

	p->allocator = *allocator;
	p->is_glibc = name && !strncmp(name, "glibc", 5);
}

static void process_close(struct scry_malloc_process *p)
{
	uint32_t c;

	while (p->look_count)
		process_look(p);
	if (!p->has_at)
		process_at(p);
	p->is_released = p->has_ended && p->release.freed &&
			 p->seen_ns - p->release.began_ns < (p->seen_ns - p->first_ns) / LAST;
	p->last = p->is_released ? p->release.was : p->live;
	p->last_at_ns = p->is_released ? p->release.began_ns : p->seen_ns;
	for (c = 0; c < p->caller_count; c++) {
		caller_settle(p, &p->callers[c]);
		if (!p->is_released)
			p->callers[c].last = p->callers[c].live;
	}
}

/* It is in front, and goes behind those that live. What only calls to come need is freed, and what
 * only the process with most calls shows. */
static void process_ends(struct scry_malloc_sum *s, struct scry_malloc_process *p)
{
	const struct scry_malloc_process *most = scry_malloc_sum_main(s);

	s->processes[0] = s->processes[--s->living];
	s->processes[s->living] = p;
	process_close(p);
	free_blocks(s, p);
	if (most->calls != p->calls || most->pid != p->pid)
		free_callers(s, p);
}

static bool is_ended(const struct scry_malloc_sum *s, const struct scry_ev_detach *detach)
{
	const char *why =
		s->reader ? scry_reader_string(s->reader, detach->reason_str, NULL) : NULL;

	return why && !strcmp(why, SCRY_REASON_ENDED);
}

int scry_malloc_sum_event(struct scry_malloc_sum *s, const struct scry_event *event)
{
	const struct scry_ev_allocator *allocator = (const void *)(event + 1);
	const struct scry_ev_thread *thread = (const void *)(event + 1);
	const struct scry_ev_process *process = (const void *)(event + 1);
	const struct scry_ev_detach *detach = (const void *)(event + 1);
	struct scry_malloc_process *p;
	int err;

	switch (event->type) {
	case SCRY_EVENT_MALLOC:
		return on_call(s, event->time_ns, (const void *)(event + 1));
	case SCRY_EVENT_CALLER:
		return on_caller(s, (const void *)(event + 1));
	case SCRY_EVENT_STACK:
		return scry_native_frames_event(&s->stacks, (const void *)(event + 1));
	case SCRY_EVENT_MEMORY:
		return on_memory(s, event->time_ns, (const void *)(event + 1));
	case SCRY_EVENT_ATTACH:
		if (!s->has_began)
			s->began_ns = event->time_ns;
		s->has_began = true;
		return 0;
	case SCRY_EVENT_THREAD:
		err = process_of(s, thread->pid, &p);
		if (!err && p)
			p->threads++;
		return err;
	case SCRY_EVENT_ALLOCATOR:
		err = process_of(s, allocator->pid, &p);
		if (!err && p)
			on_allocator(s, p, allocator);
		return err;
	case SCRY_EVENT_PROCESS:
		err = process_of(s, process->pid, &p);
		if (!err && p) {
			p->exe_str = process->exe_str;
			p->has_vm |= process->runtime_str != 0;
		}
		return err;
	case SCRY_EVENT_DETACH:
		p = process_find(s, detach->pid);
		if (p) {
			p->has_ended = is_ended(s, detach);
			process_ends(s, p);
		}
		return 0;
	default:
		return 0;
	}
}

void scry_malloc_sum_close(struct scry_malloc_sum *s)
{
	while (s->living)
		process_close(s->processes[--s->living]);
}

struct scry_malloc_process *scry_malloc_sum_main(const struct scry_malloc_sum *s)
{
	struct scry_malloc_process *most = NULL;
	uint32_t i;

	for (i = 0; i < s->count; i++)
		if (!most || s->processes[i]->calls > most->calls ||
		    (s->processes[i]->calls == most->calls && s->processes[i]->pid < most->pid))
			most = s->processes[i];
	return most;
}
