/* See fibers.h. What finders have in common: bounds, high-water marks, groups, threads. */
#include "name/fibers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "base/vector.h"
#include "name/fiber_finders.h"
#include "sys/proc.h"
#include "sys/task.h"
#include "vm/ruby.h"

#define NAMES_BYTES (64u << 20)
#define STACKS_BYTES (128u << 20)
#define STACK_MAX (1ull << 30) /* of one whose switch is not known */
#define TOP_BYTES 8192u	       /* that have to have a return address */
#define SIGNAL_BYTES 16384u    /* of a stack for signals; with what XSAVE has written */
#define RUNS 64u

/* --- adding
   ----------------------------------------------------------------------------------- */

static struct scry_fiber_group *group_of(struct scry_fibers *f, const struct scry_fiber_add *add,
					 uint32_t stack)
{
	uint32_t word = 0, id = 0, before = f->group_keys.count;

	if (add->word)
		scry_intern_put(&f->names, add->word, strlen(add->word), &word);
	const uint32_t key[] = {add->kind, add->state, stack, word, add->is_cut};

	if (scry_vector_reserve(&f->groups, before, &f->group_room) ||
	    scry_intern_put(&f->group_keys, (const char *)key, sizeof(key), &id))
		return NULL;
	if (f->group_keys.count > before)
		f->groups[id - 1] = (struct scry_fiber_group){.kind = add->kind,
							      .state = add->state,
							      .stack = stack,
							      .word = word,
							      .is_cut = add->is_cut,
							      .size_min = UINT64_MAX,
							      .example = f->count};
	return &f->groups[id - 1];
}

/* The lowest page of [low, top) that has contents, 0: none; and how much of it is in memory. False:
 * the pages are not known. */
static bool lowest_page(const struct scry_fibers *f, struct scry_fiber_bounds of,
			uint64_t *ret_lowest, uint64_t *ret_there)
{
	struct scry_page_run runs[RUNS];
	const uint64_t low = (of.low + SCRY_PAGE - 1) / SCRY_PAGE * SCRY_PAGE;
	const uint64_t top = (of.top + SCRY_PAGE - 1) / SCRY_PAGE * SCRY_PAGE;
	uint64_t lowest = 0, there = 0;

	for (uint64_t at = low; at < top;) {
		ssize_t n = scry_pages_runs(&f->pages, at, top, runs, RUNS, &at);

		if (n < 0)
			return false;
		for (ssize_t i = 0; i < n; i++) {
			if (runs[i].flags & SCRY_PAGE_GUARD)
				continue;
			if (!lowest)
				lowest = runs[i].start;
			if (runs[i].flags & SCRY_PAGE_THERE)
				there += runs[i].end - runs[i].start;
		}
	}
	*ret_lowest = lowest;
	*ret_there = there;
	return true;
}

/* How deep the stack ever was, and what of it is in memory: by the area where that is the stack,
 * else by the pages. What a core lacks below the lowest page that it has may have been used. */
static void measure_use(const struct scry_fibers *f, const struct scry_fiber_add *add,
			const struct scry_fiber_area *area, struct scry_found_fiber *to)
{
	const struct scry_fiber_bounds machine = add->machine.top ? add->machine : add->bounds;
	uint64_t lowest = 0, other;

	if (area && area->low == to->low && area->top - to->top < SCRY_PAGE && !add->machine.top) {
		lowest = area->lowest;
		to->there_bytes = area->there_bytes;
	} else {
		if (!lowest_page(f, machine, &lowest, &to->there_bytes))
			return;
		if (add->machine.top)
			lowest_page(f, add->bounds, &other, &to->there_bytes);
	}
	if (!lowest || lowest > machine.top)
		lowest = machine.top;
	if (lowest < machine.low)
		lowest = machine.low;
	if (scry_pages_lacks(&f->pages, machine.low, lowest))
		return;
	to->has_used = true;
	to->used_bytes = machine.top - lowest;
	to->left_bytes = lowest - machine.low;
}

/* Size, guard, high-water mark. */
static void measure(const struct scry_fibers *f, const struct scry_fiber_add *add,
		    struct scry_found_fiber *to)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, add->bounds.low);

	if (!add->bounds.low || add->bounds.top <= add->bounds.low)
		return;
	to->low = add->bounds.low;
	to->top = add->bounds.top;
	if (area && area->low == to->low && area->guard_bytes) {
		to->has_guard = true;
		to->guard_bytes = area->guard_bytes;
	}
	/* a core does not show guards that are marks within a mapping */
	to->knows_guard = to->has_guard || !f->space.core;
	measure_use(f, add, area, to);
}

static void add_to_group(struct scry_fiber_group *g, const struct scry_found_fiber *fiber)
{
	const uint64_t size = fiber->top - fiber->low;

	g->count++;
	if (!fiber->low)
		return;
	g->sized++;
	g->size_sum += size;
	g->size_min = size < g->size_min ? size : g->size_min;
	g->size_max = size > g->size_max ? size : g->size_max;
	g->there_sum += fiber->there_bytes;
	g->unguarded += !fiber->has_guard && fiber->knows_guard;
	g->guard_unknown += !fiber->knows_guard;
	if (!fiber->has_used)
		return;
	g->used_count++;
	g->used_sum += fiber->used_bytes;
	g->used_max = fiber->used_bytes > g->used_max ? fiber->used_bytes : g->used_max;
}

static void add_to_sums(struct scry_fibers *f, const struct scry_fiber_add *add,
			const struct scry_found_fiber *fiber)
{
	f->total++;
	f->sums.found[add->kind][add->state]++;
	if (!fiber->low)
		return;
	f->mapped_bytes += fiber->top - fiber->low;
	f->used_bytes += fiber->used_bytes;
	f->there_bytes += fiber->there_bytes;
}

static void keep(struct scry_fibers *f, const struct scry_found_fiber *fiber)
{
	if (f->count >= SCRY_FIBERS_MAX || scry_vector_reserve(&f->all, f->count, &f->room)) {
		f->sums.unlisted++;
		return;
	}
	if (fiber->has_used && f->groups[fiber->group].state < SCRY_FIBER_ENDED &&
	    f->groups[fiber->group].kind != SCRY_FIBER_OTHER &&
	    (!f->nearest.has_one || fiber->left_bytes < f->nearest.left_bytes))
		f->nearest = (struct scry_fibers_nearest){
			.left_bytes = fiber->left_bytes, .fiber = f->count, .has_one = true};
	f->all[f->count++] = *fiber;
}

void scry_fibers_add(struct scry_fibers *f, const struct scry_fiber_add *add)
{
	struct scry_found_fiber fiber = {.tid = add->tid};
	struct scry_fiber_group *g;
	uint32_t stack = 0;

	if (add->frame_count)
		scry_intern_put(&f->stacks, (const char *)f->frames,
				add->frame_count * sizeof(*f->frames), &stack);
	if (add->name && add->name[0])
		scry_intern_put(&f->names, add->name, strlen(add->name), &fiber.name);
	measure(f, add, &fiber);
	g = group_of(f, add, stack);
	if (!g || (add->frame_count && !stack))
		f->sums.lost++;
	add_to_sums(f, add, &fiber);
	if (!g)
		return;
	fiber.group = (uint32_t)(g - f->groups);
	add_to_group(g, &fiber);
	keep(f, &fiber);
}

size_t scry_fibers_take_walk(struct scry_fibers *f)
{
	for (size_t i = 0; i < f->walker.count; i++)
		f->frames[i] = f->walker.frames[i].pc |
			       (f->walker.frames[i].is_exact ? SCRY_FIBER_FRAME_EXACT : 0);
	return f->walker.count;
}

size_t scry_fibers_frames(const struct scry_fibers *f, uint32_t stack,
			  uint64_t ret[SCRY_FIBER_FRAMES_MAX])
{
	size_t bytes = 0;
	const char *at = stack ? scry_intern_get(&f->stacks, stack, &bytes) : NULL;

	if (at)
		memcpy(ret, at, bytes);
	return at ? bytes / sizeof(*ret) : 0;
}

void scry_fibers_text(const struct scry_fibers *f, uint64_t address, char ret[64])
{
	ssize_t n = address ? scry_mem_read_some(&f->mem, address, ret, 63) : 0;

	ret[n > 0 ? n : 0] = '\0';
}

bool scry_fibers_claim(struct scry_fibers *f, uint64_t address)
{
	struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, address);
	bool was = area && area->is_taken;

	if (area && scry_fiber_has_own_area(area)) /* an arena has many */
		area->is_taken = true;
	return was;
}

/* --- threads ---------------------------------------------------------------------------------- */

static int by_sp(const void *left, const void *right)
{
	const struct scry_fiber_stand *a = left, *b = right;

	return (a->sp > b->sp) - (a->sp < b->sp);
}

static void read_task(const struct scry_fibers *f, pid_t tid, struct scry_fiber_task *ret)
{
	struct scry_task_now now;
	struct scry_task task;

	scry_task_open(&task, f->space.pid, tid);
	scry_task_read(&task, &now);
	scry_task_close(&task);
	*ret = (struct scry_fiber_task){
		.tid = tid, .switches = now.switches, .is_running = now.is_running && !now.is_gone};
	if (now.is_running || now.is_gone || !now.sp)
		return;
	ret->is_midway = now.nr == -1;
	ret->sp = now.sp;
	ret->at = scry_unwinder_blocked(now.pc, now.sp);
}

/* Where a handler has interrupted the task, which may be on another stack than the handler; 0. */
static uint64_t interrupted_sp(struct scry_fibers *f, const struct scry_fiber_task *t)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, t->sp);

	if (!t->sp || (area && area->is_thread))
		return 0;
	scry_fiber_walk(&f->walker, t->at, (struct scry_fiber_bounds){0, UINT64_MAX});
	for (size_t i = 1; i < f->walker.count; i++)
		if (f->walker.frames[i].is_exact)
			return f->walker.frames[i].sp;
	return 0;
}

static void see_stands(struct scry_fibers *f)
{
	for (size_t i = 0; i < f->task_count; i++) {
		const struct scry_fiber_task *t = &f->tasks[i];
		const uint64_t sp = interrupted_sp(f, t);

		if (t->sp)
			f->stands[f->stand_count++] = (struct scry_fiber_stand){t->sp, t, false};
		if (sp)
			f->stands[f->stand_count++] = (struct scry_fiber_stand){sp, t, true};
	}
	qsort(f->stands, f->stand_count, sizeof(*f->stands), by_sp);
}

static int see_tasks(struct scry_fibers *f)
{
	const struct scry_core *core = f->space.core;
	pid_t *tids = NULL;
	ssize_t n = core ? (ssize_t)core->thread_count : scry_proc_tasks(f->space.pid, &tids);

	if (n < 0)
		return scry_fail((int)n, "cannot list the threads of process %d: %s",
				 (int)f->space.pid, strerror((int)-n));
	f->tasks = calloc((size_t)n + 1, sizeof(*f->tasks));
	f->stands = calloc((size_t)n + 1, 2 * sizeof(*f->stands));
	f->task_count = f->tasks && f->stands ? (size_t)n : 0;
	for (size_t i = 0; i < f->task_count; i++) {
		struct scry_fiber_task *t = &f->tasks[i];

		if (!core) {
			read_task(f, tids[i], t);
			continue;
		}
		t->tid = core->threads[i].tid;
		t->at = scry_unwinder_at(&core->threads[i].regs);
		t->sp = t->at.sp;
	}
	free(tids);
	if (!f->tasks || !f->stands)
		return scry_no_memory("%zd threads", n);
	see_stands(f);
	f->sums.threads = f->task_count;
	return 0;
}

/* Which has run since: where it was then is not where it is. */
static size_t count_running(const struct scry_fibers *f)
{
	size_t count = 0;

	for (size_t i = 0; i < f->task_count; i++) {
		struct scry_fiber_task now = f->tasks[i];

		if (!f->space.core)
			read_task(f, f->tasks[i].tid, &now);
		count += now.is_running || f->tasks[i].is_running ||
			 now.switches != f->tasks[i].switches;
	}
	return count;
}

bool scry_fibers_has_run(struct scry_fibers *f)
{
	if (!f->sums.threads_running)
		f->sums.threads_running = count_running(f);
	return f->sums.threads_running != 0;
}

/* The first stack in [low, top). */
static const struct scry_fiber_stand *stand_on(const struct scry_fibers *f,
					       struct scry_fiber_bounds bounds)
{
	const size_t low = scry_bisect(f->stand_count, i, f->stands[i].sp < bounds.low);

	return bounds.low && low < f->stand_count && f->stands[low].sp < bounds.top
		       ? &f->stands[low]
		       : NULL;
}

bool scry_fibers_take_running(struct scry_fibers *f, struct scry_fiber_add *add)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, add->bounds.low);
	struct scry_fiber_bounds bounds = add->bounds;
	const struct scry_fiber_stand *s;
	enum scry_fiber_entry entry;

	/* a fiber that overflows it is in its guard */
	if (area && area->low == bounds.low && scry_fiber_has_own_area(area))
		bounds.low -= area->guard_bytes;
	s = stand_on(f, bounds);
	if (!s)
		return false;
	if (s->is_interrupted) /* the handler's frames are on a stack of their own */
		bounds = (struct scry_fiber_bounds){0, UINT64_MAX};
	entry = scry_fiber_walk(&f->walker, s->task->at, bounds);
	add->state = SCRY_FIBER_RUNNING;
	add->tid = s->task->tid;
	/* it has gone on since */
	add->frame_count = scry_fiber_has_changed(&f->walker) ? 0 : scry_fibers_take_walk(f);
	add->is_cut = entry == SCRY_FIBER_ENTRY_NONE || entry == SCRY_FIBER_ENTRY_DEEP;
	f->sums.on_fibers++;
	return true;
}

/* --- what no fiber has --------------------------------------------------------------------------
 */

/* Has its top a return address? All that ever ran on it leaves some. */
static bool has_return(struct scry_fibers *f, const struct scry_fiber_area *area)
{
	static _Thread_local uint64_t words[TOP_BYTES / 8];
	uint64_t size = area->top - area->low < TOP_BYTES ? area->top - area->low : TOP_BYTES;

	/* of two pages the lower may never have been touched: it reads as zeros */
	if (scry_mem_read(&f->mem, area->top - size, words, size))
		return false;
	for (size_t i = size / 8; i-- > 0;)
		if (scry_fiber_is_code(&f->walker, words[i]) &&
		    scry_fiber_site(&f->walker, words[i]) != SCRY_FIBER_SITE_NONE)
			return true;
	return false;
}

/* mov $15, %rax; syscall: where the kernel has a handler return to (rt_sigreturn). */
static bool is_restorer(const struct scry_fibers *f, uint64_t address)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	uint8_t there[sizeof(code)];

	return scry_fiber_is_code(&f->walker, address) &&
	       scry_mem_read(&f->mem, address, there, sizeof(there)) == 0 &&
	       memcmp(there, code, sizeof(code)) == 0;
}

/*
 * Is it a stack for signals (sigaltstack(2)), on which a handler runs or has run? Then its top has
 * what the kernel put there (struct rt_sigframe, asm/sigframe.h), with the stack itself in it:
 *
 *     restorer | uc_flags | uc_link: 0 | ss_sp | ss_flags | ss_size | ...
 */
static bool is_for_signals(struct scry_fibers *f, const struct scry_fiber_area *area)
{
	static _Thread_local uint64_t words[SIGNAL_BYTES / 8];
	const uint64_t room = area->top - area->low;
	const size_t size = room < SIGNAL_BYTES ? room : SIGNAL_BYTES;

	if (scry_mem_read(&f->mem, area->top - size, words, size))
		return false;
	for (size_t i = 0; i + 5 < size / 8; i++)
		if (words[i + 2] == 0 && words[i + 3] >= area->low && words[i + 3] < area->top &&
		    words[i + 5] <= area->top - words[i + 3] && is_restorer(f, words[i]))
			return true;
	return false;
}

/* Guarded memory that looks like a stack. */
static bool is_stack(struct scry_fibers *f, const struct scry_fiber_area *area)
{
	return scry_fiber_has_own_area(area) && area->top - area->low <= STACK_MAX &&
	       area->highest == area->top && has_return(f, area);
}

static void find_others(struct scry_fibers *f)
{
	for (size_t i = 0; i < f->marks.area_count; i++) {
		const struct scry_fiber_area *area = &f->marks.areas[i];
		struct scry_fiber_add add = {.kind = SCRY_FIBER_OTHER,
					     .state = area->has_changed ? SCRY_FIBER_CHANGED
									: SCRY_FIBER_UNKNOWN,
					     .bounds = {area->low, area->top}};

		f->sums.thread_stacks += area->is_thread;
		if (area->is_thread || area->is_taken || !scry_fiber_has_own_area(area) ||
		    !scry_fiber_may_judge(&f->budget) || is_for_signals(f, area))
			continue;
		if (scry_fibers_take_running(f, &add) || is_stack(f, area))
			scry_fibers_add(f, &add);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

static void open_ruby(struct scry_fibers *f)
{
	size_t entry;
	int err;

	if (!f->space.core && scry_ruby_find(f->space.pid, &f->maps, &entry))
		return;
	err = f->space.core ? scry_ruby_open_core(f->space.core, &f->ruby)
			    : scry_ruby_open(f->space.pid, SCRY_RUBY_BOOTED, &f->ruby);
	if (!err)
		err = scry_symbols_init(&f->symbols);
	if (err) {
		if (err != -ENOENT)
			snprintf(f->ruby_error, sizeof(f->ruby_error), "%s", scry_error());
		scry_ruby_free(f->ruby);
		f->ruby = NULL;
	}
	scry_error_clear();
}

static int compare_words(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* Addresses of Ruby's threads, by which their fibers are known: *ret is the caller's. */
static size_t ruby_threads(struct scry_fibers *f, uint64_t **ret)
{
	struct scry_ruby_thread *threads = NULL;
	ssize_t n = f->ruby ? scry_ruby_threads(f->ruby, &threads) : 0;

	if (n < 0) {
		snprintf(f->ruby_error, sizeof(f->ruby_error), "%s", scry_error());
		scry_error_clear();
		n = 0;
	}
	*ret = calloc((size_t)n + 1, sizeof(**ret));
	for (ssize_t i = 0; *ret && i < n; i++)
		(*ret)[i] = threads[i].th;
	free(threads);
	if (!*ret)
		return 0;
	qsort(*ret, (size_t)n, sizeof(**ret), compare_words);
	return (size_t)n;
}

/* Words and registers of a 32-bit program are others: all its memory lies below 4 GiB. */
static int check_width(const struct scry_fibers *f)
{
	if (!f->maps.count || f->maps.entries[f->maps.count - 1].end > 1ull << 32)
		return 0;
	return scry_fail(-ENOTSUP,
			 "process %d is a 32-bit program, and scry knows the stacks of x86_64 ones "
			 "only",
			 (int)f->space.pid);
}

static int look(struct scry_fibers *f)
{
	struct scry_fiber_look k = {
		.maps = &f->maps, .mem = &f->mem, .pages = &f->pages, .budget = &f->budget};
	uint64_t *threads = NULL;
	int err = check_width(f);

	if (err)
		return err;
	open_ruby(f);
	k.thread_count = ruby_threads(f, &threads);
	k.threads = threads;
	k.ec_thread = f->ruby ? f->ruby->layout.ec_thread : 0;
	err = scry_fiber_marks_look(&k, &f->marks);
	free(threads);
	if (!err)
		err = see_tasks(f);
	if (err)
		return err;
	scry_fibers_find_registries(f);
	scry_fibers_find_ruby(f);
	scry_fibers_find_contexts(f);
	scry_fibers_find_blocks(f);
	find_others(f);
	f->sums.threads_running = count_running(f);
	return 0;
}

int scry_fibers_open(const struct scry_space *space, uint64_t most_ns, struct scry_fibers **ret)
{
	struct scry_fibers *f = calloc(1, sizeof(*f));
	int err, gone;

	if (!f)
		return scry_no_memory("the fibers of a process");
	f->space = *space;
	f->budget.most_ns = most_ns;
	f->mem.fd = f->pages.fd = -1;
	scry_intern_init(&f->names, SCRY_FIBERS_MAX, NAMES_BYTES);
	scry_intern_init(&f->stacks, SCRY_FIBER_GROUPS_MAX, STACKS_BYTES);
	scry_intern_init(&f->group_keys, SCRY_FIBER_GROUPS_MAX, NAMES_BYTES);
	/* the memory first: what is read later is of the same program if that is there still */
	err = scry_space_mem(space, &f->mem);
	if (!err)
		err = scry_space_maps(space, &f->maps);
	if (!err && !space->core) {
		scry_served_look(space->pid, &f->maps, &f->served);
		f->mem.served = f->served.count ? &f->served : NULL;
	}
	if (!err)
		err = scry_pages_open(&f->pages, space, &f->mem);
	f->native = err ? NULL : scry_modules_of(space);
	if (!err && !f->native)
		err = scry_no_memory("names");
	if (!err)
		err = scry_unwinder_open(f->native, &f->mem, &f->unwinder);
	scry_fiber_walker_init(&f->walker, &f->maps, &f->mem, f->unwinder);
	if (!err)
		err = look(f);
	if (err) {
		gone = scry_mem_check_alive(&f->mem);
		scry_fibers_close(f);
		return gone ? gone : err;
	}
	*ret = f;
	return 0;
}

void scry_fibers_close(struct scry_fibers *f)
{
	if (!f)
		return;
	if (f->ruby)
		scry_symbols_done(&f->symbols);
	scry_ruby_free(f->ruby);
	scry_fiber_walker_done(&f->walker);
	scry_fiber_blocks_done(&f->blocks);
	scry_fiber_marks_done(&f->marks);
	scry_unwinder_close(f->unwinder);
	scry_modules_free(f->native);
	scry_pages_close(&f->pages);
	scry_mem_close(&f->mem);
	scry_served_done(&f->served);
	scry_maps_done(&f->maps);
	scry_intern_done(&f->names);
	scry_intern_done(&f->stacks);
	scry_intern_done(&f->group_keys);
	free(f->groups);
	free(f->tasks);
	free(f->stands);
	free(f->all);
	free(f);
}
