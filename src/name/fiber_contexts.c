/*
 * Contexts of glibc's <ucontext.h>, and of Boost.Context and what works like it.
 *
 * A ucontext_t lies anywhere: in the heap, in static data, on a stack. It says where its stack is
 * (uc_stack), or its stack pointer does. It keeps what was saved last, also when its fiber runs or
 * its function has returned; which of these it is, the stack says: somebody's stack pointer is on
 * it, or its entry frame has been left.
 *
 * Boost's block is on the stack itself, at the lowest live address. Blocks that were left behind
 * lie below it, as dead memory, and look the same: so the uppermost one that fits is the one. One
 * that fits stands behind a call of a function that stores control words, and leads to where
 * make_fcontext has begun the stack.
 */
#include <stdlib.h>
#include <string.h>

#include "name/fiber_finders.h"

/* --- ucontext --------------------------------------------------------------------------------- */

struct context { /* glibc, sysdeps/unix/sysv/linux/x86/sys/ucontext.h, up to rip */
	uint64_t flags, link;
	uint64_t stack_low, stack_flags, stack_size;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, pc;
};

_Static_assert(sizeof(struct context) == 176, "uc_mcontext.gregs");

#define BELOW_WORDS 8u /* below a stack pointer: of a context that never ran they are zeros */
#define STACK_MAX (1ull << 40)

static bool is_memory(const struct scry_fibers *f, uint64_t address)
{
	const struct scry_map_entry *m = scry_maps_at(&f->maps, address);

	/* a guard that lies within a stack cannot be read */
	return m && (m->w || !m->r) && !m->x;
}

/* Where its stack lies: as it says, else the guarded memory that it is in. */
static bool bounds_of(const struct scry_fibers *f, const struct context *c,
		      struct scry_fiber_bounds *ret, bool *ret_told)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, c->sp);
	const struct scry_map_entry *m = scry_maps_at(&f->maps, c->sp);

	if (c->sp % 8 || !m || !m->w)
		return false;
	if (c->stack_low && c->stack_size && c->stack_size <= STACK_MAX && c->sp > c->stack_low &&
	    c->sp - c->stack_low <= c->stack_size && is_memory(f, c->stack_low) &&
	    is_memory(f, c->stack_low + c->stack_size - 1)) {
		*ret = (struct scry_fiber_bounds){c->stack_low, c->stack_low + c->stack_size};
		/* a guard that lies within is not the stack's */
		if (area && area->guard_bytes && area->low > ret->low && area->low < ret->top)
			ret->low = area->low;
		*ret_told = true;
		return true;
	}
	*ret_told = false;
	if (!area || !area->guard_bytes)
		return false;
	*ret = (struct scry_fiber_bounds){area->low, area->top};
	return true;
}

/* Did nobody write below where its function is to begin? */
static bool is_untouched(const struct scry_fibers *f, uint64_t sp)
{
	uint64_t words[BELOW_WORDS];

	if (scry_mem_read(&f->mem, sp - sizeof(words), words, sizeof(words)))
		return false;
	for (unsigned int i = 0; i < BELOW_WORDS; i++)
		if (words[i])
			return false;
	return true;
}

static enum scry_fiber_state state_of(struct scry_fibers *f, const struct context *c,
				      struct scry_fiber_add *add)
{
	struct scry_unwind_state at = {.pc = c->pc, .sp = c->sp, .bp = c->bp, .bx = c->bx};
	enum scry_fiber_entry entry;

	/* its function has jumped to swapcontext as the last thing it does: it has no frame */
	if (scry_fiber_is_ucontext_entry(&f->walker, c->pc))
		return SCRY_FIBER_SUSPENDED;
	at.is_exact = scry_unwinder_function(f->unwinder, c->pc) == c->pc;
	entry = scry_fiber_walk(&f->walker, at, add->bounds);
	if (entry == SCRY_FIBER_ENTRY_NONE || entry == SCRY_FIBER_ENTRY_BOOST)
		return SCRY_FIBER_UNKNOWN;
	if (entry == SCRY_FIBER_ENTRY_UCONTEXT_LEFT)
		return SCRY_FIBER_ENDED;
	add->is_cut = entry == SCRY_FIBER_ENTRY_DEEP;
	add->frame_count = scry_fibers_take_walk(f);
	if (!at.is_exact)
		return SCRY_FIBER_SUSPENDED;
	if (entry != SCRY_FIBER_ENTRY_UCONTEXT)
		return SCRY_FIBER_UNKNOWN;
	/* as makecontext has left it; others may switch to it in ways that do not show here */
	return is_untouched(f, c->sp) ? SCRY_FIBER_NEW : SCRY_FIBER_UNKNOWN;
}

struct candidate {
	struct scry_fiber_bounds bounds;
	uint64_t address; /* of its ucontext_t */
	bool is_told;	  /* the bounds, by uc_stack */
};

static int by_stack(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->bounds.low != b->bounds.low)
		return a->bounds.low < b->bounds.low ? -1 : 1;
	return (a->address > b->address) - (a->address < b->address);
}

/* Those that have a stack which is no thread's own and nobody's yet: their count. */
static size_t gather(struct scry_fibers *f, struct candidate *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < f->marks.contexts.count; i++) {
		struct candidate *c = &ret[count];
		const struct scry_fiber_area *area;
		struct context at;

		if (!scry_fiber_may_judge(&f->budget))
			continue;
		c->address = f->marks.contexts.at[i];
		if (scry_mem_read(&f->mem, c->address, &at, sizeof(at)) ||
		    !scry_fiber_is_code(&f->walker, at.pc)) {
			f->sums.stale++;
			continue;
		}
		area = scry_fiber_area_at(&f->marks, at.sp);
		if (area && area->is_thread)
			f->sums.thread_contexts++;
		else if ((area && area->is_taken) || !bounds_of(f, &at, &c->bounds, &c->is_told))
			f->sums.stale++;
		else
			count++;
	}
	return count;
}

/* What one of them says of its stack, into `add`: the registers that it was said by. */
static struct context take_one(struct scry_fibers *f, const struct candidate *c,
			       struct scry_fiber_add *add)
{
	struct context at = {0}, again;

	add->state = SCRY_FIBER_UNKNOWN;
	add->frame_count = 0;
	add->is_cut = false;
	if (scry_mem_read(&f->mem, c->address, &at, sizeof(at)))
		return at;
	if (at.sp < add->bounds.low || at.sp > add->bounds.top - 8)
		return at;
	f->walker.walked = 0;
	add->state = state_of(f, &at, add);
	if ((add->state < SCRY_FIBER_CHANGED && scry_fiber_has_changed(&f->walker)) ||
	    scry_mem_read(&f->mem, c->address, &again, sizeof(again)) || again.sp != at.sp ||
	    again.pc != at.pc)
		add->state = SCRY_FIBER_CHANGED;
	if (add->state >= SCRY_FIBER_CHANGED)
		add->frame_count = 0;
	return at;
}

/* `count` contexts of one stack: the one that fits; where several do, nobody knows which. */
static void take_stack(struct scry_fibers *f, const struct candidate *c, size_t count)
{
	struct scry_fiber_add add = {.kind = SCRY_FIBER_UCONTEXT, .bounds = c->bounds}, best;
	struct context at, fits = {0};
	size_t others = 0, chosen = 0;

	if (c->is_told && scry_fibers_take_running(f, &add)) {
		scry_fibers_claim(f, c->bounds.top - 1);
		scry_fibers_add(f, &add);
		return;
	}
	best = add;
	best.state = SCRY_FIBER_STATES;
	for (size_t i = 0; i < count; i++) {
		if (!scry_fiber_may_judge(&f->budget))
			continue;
		at = take_one(f, &c[i], &add);
		/* states are in the order of what they tell */
		if (add.state > best.state ||
		    (add.state == best.state && fits.pc == at.pc && fits.sp == at.sp))
			continue;
		others = add.state == best.state ? others + 1 : 0;
		best = add;
		fits = at;
		chosen = i;
	}
	if (best.state == SCRY_FIBER_STATES) /* no time for any */
		return;
	if (count > 1) /* its frames are those of the last one */
		take_one(f, &c[chosen], &best);
	if (others && best.state == SCRY_FIBER_SUSPENDED) {
		f->sums.several++;
		best.state = SCRY_FIBER_UNKNOWN;
		best.frame_count = 0;
	}
	/* a signal's, or dead: that it is one says nothing but its looks */
	if (best.state == SCRY_FIBER_UNKNOWN && !c->is_told) {
		f->sums.stale += count;
		return;
	}
	scry_fibers_claim(f, c->bounds.top - 1);
	scry_fibers_add(f, &best);
}

void scry_fibers_find_contexts(struct scry_fibers *f)
{
	struct candidate *all = calloc(f->marks.contexts.count + 1, sizeof(*all));
	size_t count = all ? gather(f, all) : 0, end;
	uint64_t above = 0, before;

	if (!all)
		f->sums.lost += f->marks.contexts.count;
	if (count)
		qsort(all, count, sizeof(*all), by_stack);
	for (size_t i = 0; i < count; i = end) {
		for (end = i + 1; end < count && all[end].bounds.low == all[i].bounds.low; end++)
			;
		if (all[i].bounds.low < above) { /* within another one's */
			f->sums.stale += end - i;
			continue;
		}
		before = f->total;
		take_stack(f, &all[i], end - i);
		if (f->total > before)
			above = all[i].bounds.top;
	}
	free(all);
}

/* --- control words ---------------------------------------------------------------------------- */

/* Control words, r12 to r15, rbx, rbp, where it goes on. Newer ones (Boost 1.83 has them) have a
 * word for the stack protector behind the control words. */
#define BLOCK_WORDS 8u
#define BLOCK_WORDS_MAX 9u
#define RECORD_BYTES 1024u
#define WINDOW 4096u
#define RECORD_REACH (1u << 20)

/*
 * Boost, boost/context/fiber_fcontext.hpp: at the top of a stack lies a record that begins with its
 * stack_context, {size, top}.
 */
static bool read_record(const struct scry_fibers *f, uint64_t sp, uint64_t entry_sp,
			struct scry_fiber_bounds *ret)
{
	uint64_t words[RECORD_BYTES / 8];
	ssize_t n = scry_mem_read_some(&f->mem, entry_sp, words, sizeof(words));

	for (size_t i = 0; n >= 16 && i + 1 < (size_t)n / 8; i++) {
		const uint64_t at = entry_sp + 8 * i, size = words[i], top = words[i + 1];
		const struct scry_fiber_area *area;

		if (top <= at || top - at > RECORD_REACH || size > STACK_MAX || size > top ||
		    top - sp > size)
			continue;
		area = scry_fiber_area_at(&f->marks, top - 1);
		if (!area || area->low > sp || top - size + area->guard_bytes < area->low)
			continue;
		/* its size may count the guard */
		ret->low = top - size > area->low ? top - size : area->low;
		ret->top = top;
		return true;
	}
	return false;
}

/* Blocks that lie side by side are read at once: a heap may have many that are dead. */
struct window {
	uint64_t at;
	size_t size;
	char bytes[WINDOW];
};

static bool read_words(const struct scry_fibers *f, struct window *w, uint64_t address,
		       uint64_t *ret, size_t words)
{
	const size_t size = words * sizeof(*ret);
	ssize_t n;

	if (address < w->at || address - w->at + size > w->size) {
		w->at = address + size - WINDOW; /* from the uppermost down */
		n = scry_mem_read_some(&f->mem, w->at, w->bytes, WINDOW);
		w->size = n > 0 ? (size_t)n : 0;
	}
	if (address - w->at + size > w->size)
		return scry_mem_read(&f->mem, address, ret, size) == 0;
	memcpy(ret, w->bytes + (address - w->at), size);
	return true;
}

struct block {
	uint64_t address;
	uint64_t words[BLOCK_WORDS_MAX];
	size_t count;	   /* that are there: a smaller one may end where its stack does */
	uint64_t entry_sp; /* by which stacks are told apart */
};

/* A chain that comes back to a call of the switch is of another time: the switch calls nobody. */
static bool is_of_one_time(struct scry_fibers *f)
{
	for (size_t i = 1; i < f->walker.count; i++) {
		enum scry_fiber_site site = scry_fiber_site(&f->walker, f->walker.frames[i].pc);

		if (site == SCRY_FIBER_SITE_JUMP || site == SCRY_FIBER_SITE_ONTOP)
			return false;
	}
	return true;
}

static bool read_block(const struct scry_fibers *f, struct window *w, struct block *b)
{
	b->count = BLOCK_WORDS_MAX;
	if (!read_words(f, w, b->address, b->words, b->count))
		b->count = BLOCK_WORDS;
	return b->count == BLOCK_WORDS_MAX || read_words(f, w, b->address, b->words, b->count);
}

/* Does it lead to where its context was entered, if it has `words`? Into add->state, its frames and
 * b->entry_sp. */
static bool fits(struct scry_fibers *f, struct block *b, size_t words,
		 const struct scry_fiber_area *area, struct scry_fiber_add *add)
{
	struct scry_unwind_state at = {.pc = b->words[words - 1],
				       .sp = b->address + words * sizeof(b->words[0])};
	enum scry_fiber_site site = scry_fiber_site(&f->walker, at.pc);
	enum scry_fiber_entry entry;

	f->walker.walked = 0;
	at.bx = b->words[words - 3];
	at.bp = b->words[words - 2];
	if (scry_fiber_is_boost_begin(&f->walker, at.pc) && scry_fiber_is_code(&f->walker, at.bx)) {
		add->state = SCRY_FIBER_NEW;
		f->frames[0] = at.bx | SCRY_FIBER_FRAME_EXACT;
		add->frame_count = 1;
		b->entry_sp = at.sp;
		return true;
	}
	if (site == SCRY_FIBER_SITE_NONE || site == SCRY_FIBER_SITE_OTHER)
		return false;
	entry = scry_fiber_walk(&f->walker, at, (struct scry_fiber_bounds){b->address, area->top});
	/* too deep to see its entry: its guard says that it is a stack */
	if (entry != SCRY_FIBER_ENTRY_BOOST &&
	    !(entry == SCRY_FIBER_ENTRY_DEEP && area->guard_bytes && site == SCRY_FIBER_SITE_JUMP))
		return false;
	if (!is_of_one_time(f))
		return false;
	b->entry_sp = entry == SCRY_FIBER_ENTRY_DEEP ? area->top : f->walker.entry_sp;
	add->is_cut = entry == SCRY_FIBER_ENTRY_DEEP;
	add->frame_count = scry_fibers_take_walk(f);
	/* the way out of a stack that is given back; or something is handed over, which is rare */
	add->state = site == SCRY_FIBER_SITE_ONTOP && f->walker.count == 1 ? SCRY_FIBER_UNKNOWN
									   : SCRY_FIBER_SUSPENDED;
	return true;
}

static bool fits_any(struct scry_fibers *f, struct block *b, const struct scry_fiber_area *area,
		     struct scry_fiber_add *add)
{
	return fits(f, b, BLOCK_WORDS, area, add) ||
	       (b->count == BLOCK_WORDS_MAX && fits(f, b, BLOCK_WORDS_MAX, area, add));
}

struct taken { /* the stack that was taken last */
	struct scry_fiber_bounds bounds;
	uint64_t entry_sp;
	struct window window;
};

/* False: it is no suspended context's. */
static bool take_block(struct scry_fibers *f, uint64_t address, struct taken *t)
{
	struct scry_fiber_add add = {.kind = SCRY_FIBER_BOOST};
	struct block b = {.address = address};
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, address);
	uint64_t again[BLOCK_WORDS_MAX];
	bool has_changed;

	if (!area || area->is_thread || area->is_taken ||
	    (address >= t->bounds.low && address < t->bounds.top) ||
	    !read_block(f, &t->window, &b) || !scry_fiber_is_control(b.words[0]) ||
	    !fits_any(f, &b, area, &add) || b.entry_sp == t->entry_sp)
		return false;
	has_changed = scry_fiber_has_changed(&f->walker);
	t->entry_sp = b.entry_sp;
	if (!read_record(f, address, b.entry_sp, &add.bounds)) {
		add.bounds = (struct scry_fiber_bounds){0, b.entry_sp};
		if (area->guard_bytes)
			add.bounds = (struct scry_fiber_bounds){area->low, area->top};
	}
	t->bounds = add.bounds.low ? add.bounds : (struct scry_fiber_bounds){address, b.entry_sp};
	if (!scry_fibers_take_running(f, &add) &&
	    (has_changed || scry_mem_read(&f->mem, address, again, b.count * sizeof(again[0])) ||
	     memcmp(again, b.words, b.count * sizeof(again[0])) != 0))
		add.state = SCRY_FIBER_CHANGED;
	if (add.state >= SCRY_FIBER_CHANGED)
		add.frame_count = 0;
	scry_fibers_add(f, &add);
	return true;
}

/* From the uppermost down. Areas are claimed when all blocks are seen, as a heap has many stacks.
 */
void scry_fibers_find_blocks(struct scry_fibers *f)
{
	struct taken t = {0};

	for (size_t i = f->marks.blocks.count; i-- > 0;)
		if (scry_fiber_may_judge(&f->budget) && !take_block(f, f->marks.blocks.at[i], &t))
			f->sums.stale++;
	for (size_t i = 0; i < f->count; i++)
		if (f->groups[f->all[i].group].kind == SCRY_FIBER_BOOST)
			scry_fibers_claim(f, f->all[i].top - 1);
}
