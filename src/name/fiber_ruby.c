/*
 * Fibers of a Ruby: an execution context that names one of the VM's threads, has a stack of control
 * frames in guarded memory that is not a thread's own, and is not the one that its thread is in
 * now.
 *
 * The VM keeps no list of fibers, so contexts are looked for in memory (fiber_marks) and judged by
 * what is learned of this Ruby. One that has frames, but no method's or block's, has ended: of
 * fibers that were entered by Fiber#transfer the VM keeps the stack. Where such a fiber waits
 * natively a word behind its context says: the stack pointer of its coroutine
 * (coroutine/amd64/Context.S), at which lie r15 to r12, rbx, rbp and where it goes on. Which word
 * that is, the walk from there decides. A fiber that has not begun or has ended has no stack in
 * Ruby, and is not found.
 */
#include <stdlib.h>
#include <string.h>

#include "name/fiber_finders.h"
#include "name/mixed_merge.h"
#include "vm/ruby.h"
#include "vm/ruby_walk.h"

#define CONTEXT_BYTES 2048u /* from the execution context on: the fiber's own words */
#define BLOCK_WORDS 7u
#define CFP_SP 8u /* in a control frame: where its values end */

struct finder {
	struct scry_fibers *f;
	struct scry_ruby_thread *threads;
	size_t thread_count;
	struct scry_walk walk;
	struct scry_mixed_merger merger;
	struct scry_map seen; /* low of an area -> 1 */
	uint64_t pool_size;   /* of its stacks: stacks of this size that no fiber has are spare */
	struct scry_named_frame named[SCRY_WALK_FRAMES_MAX];
	struct scry_woven merged[SCRY_UNWINDER_FRAMES_MAX + SCRY_WALK_FRAMES_MAX];
};

/* The thread that a context names; NULL. */
static const struct scry_ruby_thread *thread_of(const struct finder *k, uint64_t ec)
{
	uint64_t th;

	if (scry_mem_u64(&k->f->mem, ec + k->f->ruby->layout.ec_thread, &th))
		return NULL;
	for (size_t i = 0; i < k->thread_count; i++)
		if (k->threads[i].th == th)
			return &k->threads[i];
	return NULL;
}

/* The guarded memory that has the context's control frames; NULL. */
static struct scry_fiber_area *area_of(const struct finder *k, uint64_t ec,
				       struct scry_fiber_bounds *ret_frames)
{
	const struct scry_ruby_layout *l = &k->f->ruby->layout;
	struct scry_fiber_area *area;
	uint64_t stack, words;

	if (scry_mem_u64(&k->f->mem, ec + l->ec_stack, &stack) ||
	    scry_mem_u64(&k->f->mem, ec + l->ec_stack_size, &words))
		return NULL;
	area = scry_fiber_area_at(&k->f->marks, stack);
	if (!area || !area->guard_bytes || area->is_thread || words > (area->top - stack) / 8)
		return NULL;
	*ret_frames = (struct scry_fiber_bounds){stack, stack + 8 * words};
	return area;
}

/* Bytes between the values, which grow up, and the control frames, which grow down (vm_core.h,
 * rb_control_frame_t); of the two, more than the stack has: not known. */
static uint64_t vm_left(const struct finder *k, uint64_t ec, struct scry_fiber_bounds frames)
{
	uint64_t cfp, sp;

	if (scry_mem_u64(&k->f->mem, ec + k->f->ruby->layout.ec_cfp, &cfp) ||
	    scry_mem_u64(&k->f->mem, cfp + CFP_SP, &sp) || sp < frames.low || sp > cfp ||
	    cfp >= frames.top)
		return UINT64_MAX;
	return cfp - sp;
}

/* A stack of Ruby's own ends in SystemStackError, long before the native one of most. */
static void note_vm_stack(struct finder *k, uint64_t ec, const struct scry_fiber_add *add,
			  struct scry_fiber_bounds frames)
{
	struct scry_fibers_nearest *n = &k->f->nearest_vm;
	const uint64_t left = vm_left(k, ec, frames);

	if (add->state != SCRY_FIBER_SUSPENDED || left >= frames.top - frames.low ||
	    (n->has_one && n->left_bytes <= left))
		return;
	*n = (struct scry_fibers_nearest){left, frames.top - frames.low, k->f->count, true};
}

enum native {
	NATIVE_NONE, /* no word leads to them */
	NATIVE_WALKED,
	NATIVE_CHANGED, /* it has run since */
};

/* Its native frames, by the word that leads to them. */
static enum native walk_native(struct finder *k, uint64_t ec, struct scry_fiber_bounds machine)
{
	uint64_t words[CONTEXT_BYTES / 8], block[BLOCK_WORDS], again[BLOCK_WORDS];
	ssize_t n = scry_mem_read_some(&k->f->mem, ec, words, sizeof(words));
	bool has_changed = false;

	for (size_t i = 0; n > 0 && i < (size_t)n / 8; i++) {
		struct scry_unwind_state at = {.sp = words[i] + sizeof(block)};

		if (words[i] % 8 || words[i] < machine.low ||
		    words[i] > machine.top - sizeof(block) ||
		    scry_mem_read(&k->f->mem, words[i], block, sizeof(block)) ||
		    scry_fiber_site(&k->f->walker, block[6]) == SCRY_FIBER_SITE_NONE)
			continue;
		at.bx = block[4];
		at.bp = block[5];
		at.pc = block[6];
		if (scry_fiber_walk(&k->f->walker, at, machine) != SCRY_FIBER_ENTRY_TABLES)
			continue;
		if (!scry_fiber_has_changed(&k->f->walker) &&
		    scry_mem_read(&k->f->mem, words[i], again, sizeof(again)) == 0 &&
		    memcmp(block, again, sizeof(block)) == 0)
			return NATIVE_WALKED;
		has_changed = true;
	}
	k->f->walker.count = 0;
	return has_changed ? NATIVE_CHANGED : NATIVE_NONE;
}

/* Both kinds of frames, merged, into f->frames and add; returns how many are Ruby's. */
static size_t merge(struct finder *k, struct scry_fiber_add *add)
{
	struct scry_fibers *f = k->f;
	const struct scry_native_stack native = {f->walker.frames, f->walker.count,
						 SCRY_NATIVE_WHOLE};
	enum scry_mixed_merge how;
	size_t count, i, kept = 0, rubys = 0;

	scry_symbols_turn(&f->symbols);
	scry_symbols_name(&f->symbols, f->ruby, &k->walk, k->named);
	count = scry_mixed_merge(&k->merger, &k->walk, &native, k->merged, &how);
	for (i = 0; i < count && kept < SCRY_FIBER_FRAMES_MAX; i++) {
		const struct scry_named_frame *r = &k->named[k->merged[i].at];
		const struct scry_native_frame *n = &f->walker.frames[k->merged[i].at];

		if (k->merged[i].is_native)
			f->frames[kept++] = n->pc | (n->is_exact ? SCRY_FIBER_FRAME_EXACT : 0);
		else if (!r->is_hidden) {
			f->frames[kept++] = SCRY_FIBER_FRAME_RUBY |
					    (uint64_t)(r->symbol & 0x3fffffff) << 32 | r->line;
			rubys++;
		}
	}
	add->frame_count = kept;
	add->is_cut |= i < count || k->walk.is_cut;
	return rubys;
}

/* Is the thread on a processor, or gone from it since? Where it is, is not known then. */
static bool may_run(const struct scry_fibers *f, int32_t tid)
{
	for (size_t i = 0; tid && i < f->task_count; i++)
		if (f->tasks[i].tid == tid)
			return !f->tasks[i].sp;
	return false;
}

/* False: it is not a fiber's, but the stack of one of Ruby's threads that wait without a thread of
 * the system's (M:N threads, from 3.3 on): no thread is on it. */
static bool take_current(struct finder *k, const struct scry_ruby_thread *t,
			 struct scry_fiber_add *add)
{
	const bool stands = scry_fibers_take_running(k->f, add);

	if (!stands && !may_run(k->f, t->tid)) {
		k->f->sums.unmanned++;
		return false;
	}
	add->state = SCRY_FIBER_RUNNING;
	add->tid = t->tid;
	return true;
}

static void take_fiber(struct finder *k, uint64_t ec, const struct scry_ruby_thread *t)
{
	struct scry_fiber_add add = {.kind = SCRY_FIBER_RUBY, .tid = t->tid};
	struct scry_ruby_thread of = *t;
	struct scry_fiber_bounds frames;
	struct scry_fiber_area *area = area_of(k, ec, &frames);
	enum scry_walk_verdict verdict;
	enum native native;
	size_t rubys = 0;
	uint64_t *seen = area ? scry_map_ref(&k->seen, area->low) : NULL;

	if (!seen || *seen)
		return;
	of.ec = ec;
	verdict = scry_walk_collect(&k->walk, k->f->ruby, &of, NULL);
	if (verdict > SCRY_WALK_REPAIRED) {
		k->f->sums.stale++;
		return;
	}
	area->is_taken = true;
	add.bounds = (struct scry_fiber_bounds){area->low, area->top};
	add.machine = frames.low - area->low < area->top - frames.top
			      ? (struct scry_fiber_bounds){frames.top, area->top}
			      : (struct scry_fiber_bounds){area->low, frames.low};
	k->f->walker.count = 0;
	if (k->walk.ec_now == ec) {
		if (!take_current(k, t, &add))
			return;
	} else {
		native = walk_native(k, ec, add.machine);
		add.is_cut = native == NATIVE_NONE;
		if (native == NATIVE_CHANGED)
			add.state = SCRY_FIBER_CHANGED;
	}
	*seen = 1; /* what is not a fiber's may have been mapped side by side with one that is */
	k->pool_size = area->top - area->low;
	if (verdict == SCRY_WALK_REPAIRED && add.state != SCRY_FIBER_RUNNING)
		add.state = SCRY_FIBER_CHANGED;
	if (add.state != SCRY_FIBER_CHANGED)
		rubys = merge(k, &add);
	if (add.state == SCRY_FIBER_SUSPENDED && !rubys) {
		add.state = SCRY_FIBER_ENDED;
		add.frame_count = 0;
		add.is_cut = false;
	}
	note_vm_stack(k, ec, &add, frames);
	scry_fibers_add(k->f, &add);
}

/* Stacks of the pool's size that no fiber has: it keeps them for the next one. Or a fiber has one
 * whose thread has ended: no thread can resume it, and the VM's mark of a free stack (cont.c,
 * struct fiber_pool_vacancy) stays in one that is used little. */
static void take_spares(struct finder *k)
{
	struct scry_fibers *f = k->f;

	for (size_t i = 0; i < f->marks.area_count && k->pool_size; i++) {
		struct scry_fiber_area *a = &f->marks.areas[i];

		if (a->is_taken || a->is_thread || !a->guard_bytes ||
		    a->top - a->low != k->pool_size)
			continue;
		a->is_taken = true;
		f->sums.spare_stacks += a->highest != 0;
		f->sums.spare_bytes += a->there_bytes;
	}
}

void scry_fibers_find_ruby(struct scry_fibers *f)
{
	struct finder *k = f->ruby ? calloc(1, sizeof(*k)) : NULL;
	ssize_t n;

	if (!k) {
		f->sums.lost += f->ruby != NULL;
		return;
	}
	k->f = f;
	n = scry_ruby_threads(f->ruby, &k->threads);
	k->thread_count = n > 0 ? (size_t)n : 0;
	scry_map_init(&k->seen, SCRY_FIBERS_MAX);
	scry_mixed_merger_init(&k->merger, f->ruby, f->unwinder);
	if (scry_walk_init(&k->walk) == 0) {
		for (size_t i = 0; i < f->marks.ecs.count; i++) {
			const struct scry_ruby_thread *t =
				scry_fiber_may_judge(&f->budget) ? thread_of(k, f->marks.ecs.at[i])
								 : NULL;

			if (t)
				take_fiber(k, f->marks.ecs.at[i], t);
		}
		take_spares(k);
		scry_walk_done(&k->walk);
	}
	scry_map_done(&k->seen);
	free(k->threads);
	free(k);
}
