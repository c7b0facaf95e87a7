/*
 * Contexts of glibc's <ucontext.h>, and of Boost.Context and what works like it.
 *
 * A ucontext_t lies anywhere: in the heap, in static data, on a stack. It says where its stack is
 * (uc_stack), or its stack pointer does. It keeps what was saved last, also when its fiber runs or
 * its function has returned; which of these it is, the stack says: a thread's stack pointer is on
 * it, or its entry frame has been left.
 *
 * Boost's block is on the stack itself, at the lowest live address. Blocks that were left behind
 * look the same. They lie below it, as dead memory, and above it, in a live frame that did not
 * write all of its room. So each one that fits is looked at: it is behind a call of a function that
 * stores control words, and leads to where make_fcontext has begun the stack. Of several on one
 * stack it is the one that something leads to (fiber_leads).
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "name/fiber_finders.h"
#include "name/fiber_leads.h"

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
		      struct scry_fiber_bounds *ret, bool *ret_has_bounds)
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
		*ret_has_bounds = true;
		return true;
	}
	*ret_has_bounds = false;
	if (!area || !area->guard_bytes)
		return false;
	*ret = (struct scry_fiber_bounds){area->low, area->top};
	return true;
}

/* Was nothing written below where its function is to begin? */
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
	bool has_bounds;  /* the bounds, by uc_stack */
};

static int by_stack(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->bounds.low != b->bounds.low)
		return a->bounds.low < b->bounds.low ? -1 : 1;
	return (a->address > b->address) - (a->address < b->address);
}

/* Those that have a stack which is not a thread's own and not another fiber's yet: their count. */
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
		else if ((area && area->is_taken) || !bounds_of(f, &at, &c->bounds, &c->has_bounds))
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

/* Was it given back to malloc? A part of it may be another block already. */
static bool is_freed(struct scry_fibers *f, uint64_t low, uint64_t last)
{
	const enum scry_fiber_block first = scry_fiber_block_at(f, low);
	const enum scry_fiber_block other = scry_fiber_block_at(f, last);
	const bool is = first == SCRY_FIBER_BLOCK_FREE || other == SCRY_FIBER_BLOCK_FREE;

	f->sums.unchecked += first == SCRY_FIBER_BLOCK_UNKNOWN;
	f->sums.freed += is;
	return is;
}

/* `count` contexts of one stack: the one that fits; where several do, it is not known which. */
static void take_stack(struct scry_fibers *f, const struct candidate *c, size_t count)
{
	struct scry_fiber_add add = {.kind = SCRY_FIBER_UCONTEXT, .bounds = c->bounds}, best;
	struct context at, fits = {0};
	size_t others = 0, chosen = 0;

	if (c->has_bounds && scry_fibers_take_running(f, &add)) {
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
		/* states are in the order of how much they say */
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
	if (best.state == SCRY_FIBER_UNKNOWN && !c->has_bounds) {
		f->sums.stale += count;
		return;
	}
	scry_fibers_claim(f, c->bounds.top - 1);
	if (!is_freed(f, best.bounds.low, best.bounds.top - 1))
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
	uint64_t entry_sp; /* where its context was entered: stacks are told apart by it */
};

/* A chain that comes back to a call of the switch is of another time: the switch calls nothing. */
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
	    !(entry == SCRY_FIBER_ENTRY_DEEP && scry_fiber_has_own_area(area) &&
	      site == SCRY_FIBER_SITE_JUMP))
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

/* --- which of them is it ---------------------------------------------------------------------- */

#define FITS_MAX (1u << 20)

struct fit { /* a block that fits */
	struct block block;
	uint64_t leads; /* words that lead to it */
	bool is_unled;	/* nothing leads to its stack; of the first one of each stack */
};

struct fits {
	struct fit *at;
	size_t count, room;
	uint64_t missed_bytes; /* that were not searched for leads */
	bool knows_leads;
};

static void push_fit(struct scry_fibers *f, struct fits *l, const struct block *b)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 256;
		struct fit *more =
			room > FITS_MAX ? NULL : reallocarray(l->at, room, sizeof(*more));

		if (!more) {
			f->sums.lost++;
			return;
		}
		l->at = more;
		l->room = room;
	}
	l->at[l->count++] = (struct fit){.block = *b};
}

static void gather_fits(struct scry_fibers *f, struct fits *ret)
{
	struct window window = {0};

	for (size_t i = f->marks.blocks.count; i-- > 0;) {
		struct scry_fiber_add add = {0};
		struct block b = {.address = f->marks.blocks.at[i]};
		struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, b.address);
		bool is_control;

		if (!scry_fiber_may_judge(&f->budget))
			continue;
		f->sums.stale++;
		if (!area || area->is_thread || area->is_taken || !read_block(f, &window, &b))
			continue;
		is_control = scry_fiber_is_control(b.words[0]);
		if (is_control && fits_any(f, &b, area, &add)) {
			push_fit(f, ret, &b);
			f->sums.stale--;
		} else if (!is_control && scry_fiber_has_own_area(area)) {
			area->has_changed = true; /* since it was marked */
		}
	}
}

/* From the uppermost stack down, and in each from the uppermost block down. */
static int by_place(const void *left, const void *right)
{
	const struct fit *a = left, *b = right;

	if (a->block.entry_sp != b->block.entry_sp)
		return a->block.entry_sp > b->block.entry_sp ? -1 : 1;
	return (a->block.address < b->block.address) - (a->block.address > b->block.address);
}

static int by_address(const void *left, const void *right)
{
	const struct scry_fiber_lead *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

/* With a shadow stack its pointer lies below the block, and is what is led to. */
#define LEADS_PER_FIT 2u
#define SHADOW_WORD 8u

static void count_leads(struct scry_fibers *f, struct fits *l)
{
	const struct scry_fiber_look look = {
		.maps = &f->maps, .mem = &f->mem, .pages = &f->pages, .budget = &f->budget};
	struct scry_fiber_lead *leads = calloc(l->count + 1, LEADS_PER_FIT * sizeof(*leads));
	size_t count = 0;

	for (size_t i = 0; leads && i < l->count; i++) {
		const uint64_t address = l->at[i].block.address, stack = l->at[i].block.entry_sp;
		struct scry_fiber_bounds bounds = {0};
		uint64_t low = address;

		if (read_record(f, address, stack, &bounds))
			low = bounds.low;
		for (size_t k = i; k < l->count && l->at[k].block.entry_sp == stack; k++)
			low = l->at[k].block.address < low ? l->at[k].block.address : low;
		leads[count++] = (struct scry_fiber_lead){address, low, 0};
		leads[count++] = (struct scry_fiber_lead){address - SHADOW_WORD, low, 0};
	}
	if (count)
		qsort(leads, count, sizeof(*leads), by_address);
	l->knows_leads = leads && scry_fiber_leads_look(&look, leads, count, &l->missed_bytes) == 0;
	for (size_t i = 0; l->knows_leads && i < l->count; i++) {
		struct scry_fiber_lead key = {.address = l->at[i].block.address};
		const struct scry_fiber_lead *lead =
			bsearch(&key, leads, count, sizeof(*leads), by_address);

		l->at[i].leads = lead->count;
		key.address -= SHADOW_WORD;
		lead = bsearch(&key, leads, count, sizeof(*leads), by_address);
		l->at[i].leads += lead->count;
	}
	scry_error_clear();
	free(leads);
}

static void bound(struct scry_fibers *f, const struct block *b, struct scry_fiber_bounds *ret)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, b->address);

	if (read_record(f, b->address, b->entry_sp, ret))
		return;
	*ret = scry_fiber_has_own_area(area) ? (struct scry_fiber_bounds){area->low, area->top}
					     : (struct scry_fiber_bounds){0, b->entry_sp};
}

/* Its state and its frames, if it is still what it was. */
static void take_fit(struct scry_fibers *f, const struct fit *it, struct scry_fiber_add *add)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&f->marks, it->block.address);
	struct block b = {.address = it->block.address, .count = it->block.count};
	const size_t size = b.count * sizeof(b.words[0]);
	uint64_t again[BLOCK_WORDS_MAX];
	bool has_changed;

	add->state = SCRY_FIBER_CHANGED;
	if (scry_mem_read(&f->mem, b.address, b.words, size) ||
	    memcmp(b.words, it->block.words, size) != 0 || !fits_any(f, &b, area, add))
		return;
	has_changed = scry_fiber_has_changed(&f->walker);
	if (has_changed || scry_mem_read(&f->mem, b.address, again, size) ||
	    memcmp(again, b.words, size) != 0)
		add->state = SCRY_FIBER_CHANGED;
}

/* Is one of them not there any more? Then its fiber ran since. */
static bool has_one_changed(const struct scry_fibers *f, const struct fit *of, size_t count)
{
	uint64_t words[BLOCK_WORDS_MAX];

	for (size_t i = 0; i < count && !f->space.core; i++) {
		const size_t size = of[i].block.count * sizeof(words[0]);

		if (scry_mem_read(&f->mem, of[i].block.address, words, size) ||
		    memcmp(words, of[i].block.words, size) != 0)
			return true;
	}
	return false;
}

/* `count` blocks of one stack: the one that is led to. Where several are it is not known which;
 * where none is, the stack was given back, its fiber runs, or a core lacks what leads there. False:
 * it is not in use. */
static bool take_fits(struct scry_fibers *f, const struct fits *l, struct fit *of, size_t count,
		      struct scry_fiber_add *add)
{
	size_t led = 0, chosen = 0;

	for (size_t i = 0; i < count; i++) {
		led += of[i].leads != 0;
		chosen = of[i].leads ? i : chosen;
	}
	bound(f, &of[chosen].block, &add->bounds);
	if (scry_fibers_take_running(f, add))
		return true;
	if (is_freed(f, add->bounds.low ? add->bounds.low : of[chosen].block.address,
		     add->bounds.top - 1))
		return false;
	add->state = SCRY_FIBER_UNKNOWN;
	if (led == 1 || (!l->knows_leads && count == 1))
		take_fit(f, &of[chosen], add);
	else if (has_one_changed(f, of, count))
		add->state = SCRY_FIBER_CHANGED;
	else if (led > 1 || !l->knows_leads)
		f->sums.several++;
	else if (!l->missed_bytes && !f->space.core && !scry_fibers_has_run(f)) {
		f->sums.unled++;
		of->is_unled = true;
		return false;
	}
	if (add->state >= SCRY_FIBER_CHANGED)
		add->frame_count = 0;
	return true;
}

/* --- those that run --------------------------------------------------------------------------- */

static bool is_among(const uint64_t *words, size_t count, uint64_t word)
{
	while (count > 0 && words[count - 1] != word)
		count--;
	return count > 0;
}

/* Threads that wait within a context of Boost's, by where it was entered: a heap's stacks cannot be
 * told apart otherwise. Their stacks, at most one for each place, into `ret`: their count. */
static size_t take_threads(struct scry_fibers *f, uint64_t *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < f->stand_count; i++) {
		const struct scry_fiber_stand *s = &f->stands[i];
		const struct scry_fiber_area *area = scry_fiber_area_with_guard(&f->marks, s->sp);
		struct scry_fiber_add add = {.kind = SCRY_FIBER_BOOST, .bounds.low = s->sp};
		struct block b = {.address = s->sp};

		if (!area || area->is_thread || area->is_taken)
			continue;
		add.bounds.top = area->top;
		if (scry_fiber_walk(&f->walker, s->task->at,
				    s->is_interrupted ? (struct scry_fiber_bounds){0, UINT64_MAX}
						      : add.bounds) != SCRY_FIBER_ENTRY_BOOST ||
		    f->walker.entry_sp < s->sp || f->walker.entry_sp > area->top ||
		    is_among(ret, count, f->walker.entry_sp))
			continue;
		b.entry_sp = f->walker.entry_sp;
		/* it is what it is also where its lower end is not known */
		scry_fibers_take_running(f, &add);
		if (area->low > s->sp)
			b.address = area->low;
		bound(f, &b, &add.bounds);
		scry_fibers_add(f, &add);
		ret[count++] = b.entry_sp;
	}
	return count;
}

/*
 * Stacks to which nothing leads were given back. But a thread that was stopped in its own code may
 * have just left one, and have what leads there in a register still: it is stopped in the middle of
 * a switch more often than one thinks. Where there are no more such stacks than such threads, they
 * count.
 */
static void take_unled(struct scry_fibers *f, const struct fits *l)
{
	size_t midway = 0;

	for (size_t i = 0; i < f->task_count; i++)
		midway += f->tasks[i].is_midway;
	if (f->sums.unled > midway) {
		f->sums.unled_midway = midway;
		return;
	}
	for (size_t i = 0; i < l->count && f->sums.unled; i++) {
		struct scry_fiber_add add = {.kind = SCRY_FIBER_BOOST, .state = SCRY_FIBER_UNKNOWN};

		if (!l->at[i].is_unled)
			continue;
		bound(f, &l->at[i].block, &add.bounds);
		f->sums.unled--;
		f->sums.stale--;
		scry_fibers_add(f, &add);
	}
}

/* Areas are claimed when all blocks are seen, as a heap has many stacks. */
void scry_fibers_find_blocks(struct scry_fibers *f)
{
	struct fits l = {0};
	uint64_t *running = calloc(f->stand_count + 1, sizeof(*running));
	uint64_t low = UINT64_MAX; /* of the stack that was taken last */
	size_t end, running_count = running ? take_threads(f, running) : 0;

	gather_fits(f, &l);
	if (l.count) {
		qsort(l.at, l.count, sizeof(*l.at), by_place);
		count_leads(f, &l);
	}
	for (size_t i = 0; i < l.count; i = end) {
		struct scry_fiber_add add = {.kind = SCRY_FIBER_BOOST};

		for (end = i + 1;
		     end < l.count && l.at[end].block.entry_sp == l.at[i].block.entry_sp; end++)
			;
		f->sums.stale += end - i;
		if (l.at[i].block.address >= low ||
		    is_among(running, running_count, l.at[i].block.entry_sp) ||
		    !take_fits(f, &l, &l.at[i], end - i, &add))
			continue;
		f->sums.stale--;
		low = add.bounds.low ? add.bounds.low : l.at[end - 1].block.address;
		scry_fibers_add(f, &add);
	}
	take_unled(f, &l);
	for (size_t i = 0; i < l.count; i++)
		scry_fibers_claim(f, l.at[i].block.address);
	for (size_t i = 0; i < running_count; i++)
		scry_fibers_claim(f, running[i] - 1);
	free(running);
	free(l.at);
}
