/* See walk.h. */
#include "agent/walk.h"

#include "agent/alignment.h"
#include "agent/returns.h"
#include "agent/thread_buffer.h"
#include "wire/unwind_step.h"

struct scry_agent_walks scry_agent_walks SCRY_WIPED;

#define PAGE 4096ull
#define PAGES_AT_ONCE 16u
#define OWN_MAX (64ull << 20) /* a thread's stack; a longer one is copied */
#define PROBES 32u
#define REPLACE 16u /* walks anew: then the first of a place is another one */
#define RETRY 4096u /* stacks that a thread goes without, when there is no walker for it */
#define AGAIN 3	    /* walks that a new list of what is mapped begins anew */

#define USES_BP 1u
#define USES_BX 2u
#define EMITTED 1ull

/* In tests under a sanitizer: words between variables are read as any others. */
#define READS_STACK __attribute__((no_sanitize("address")))

typedef struct scry_agent_thread thread;

/* own stacks */

static int64_t read_from(const struct scry_agent_piece *pieces, uint64_t count, void *to,
			 uint64_t size)
{
	const struct scry_agent_piece at = {(uint64_t)to, size};

	return scry_calling_read((struct scry_agent_pieces){&at, 1},
				 (struct scry_agent_pieces){pieces, count});
}

/* Can a byte of each page of [start, end) be read? */
static int is_readable(uint64_t start, uint64_t end)
{
	for (uint64_t at = start; at < end;) {
		struct scry_agent_piece pieces[PAGES_AT_ONCE];
		uint8_t bytes[PAGES_AT_ONCE];
		uint64_t n = 0;

		for (; n < PAGES_AT_ONCE && at < end; n++, at += PAGE)
			pieces[n] = (struct scry_agent_piece){at, 1};
		if (read_from(pieces, n, bytes, n) != (int64_t)n)
			return 0;
	}
	return 1;
}

/*
 * Where the stack of a thread ends that has none known yet. A libc's threads have their control
 * block, to which fs points, at the end of their stack. It stays while the thread lives; so does
 * the first thread's stack.
 */
static uint64_t end_of_own(const thread *t, uint64_t sp)
{
	const struct scry_agent_unwinding *u = &scry_agent.unwinding;

	if (t->tid != u->pid && sp < t->fs && t->fs - sp <= OWN_MAX)
		return t->fs;
	return sp < u->stack_end && u->stack_end - sp <= OWN_MAX ? u->stack_end : 0;
}

/* Lower than before: the pages between are looked at, once. */
static __attribute__((noinline, cold)) int extend(thread *t, uint64_t sp)
{
	uint64_t page = sp & ~(PAGE - 1), high = t->stack_high ? t->stack_high : end_of_own(t, sp);
	uint64_t low = t->stack_low ? t->stack_low : high;

	if (page == t->stack_foreign)
		return 0;
	if (sp >= low || low - sp > OWN_MAX || !is_readable(page, low)) {
		t->stack_foreign = page;
		return 0;
	}
	t->stack_low = page;
	t->stack_high = high;
	return 1;
}

static inline int is_own(thread *t, uint64_t at)
{
	return likely(at - t->stack_low < t->stack_high - t->stack_low) || extend(t, at);
}

/* rules */

static uint64_t mix(uint64_t rule)
{
	return rule * 0x9e3779b97f4a7c15ull;
}

static int is_child(void)
{
	return scry_agent.unwinding.pid && scry_agent_rows.calling.pid != scry_agent.unwinding.pid;
}

/* Of a pc, by the object that it lies in; 0: it lies in none. Fork children can write the tables:
 * what bounds anything is copied once, then checked. */
static uint64_t look_up(const struct scry_unwind_index *index, uint64_t pc)
{
	const struct scry_agent_unwinding *u = &scry_agent.unwinding;
	const uint64_t count = *(const volatile uint64_t *)&index->count;
	uint64_t low = 0, high = count, need;
	struct scry_unwind_object o = {0};
	struct scry_unwind_rows rows;

	if (count > SCRY_UNWIND_OBJECTS)
		return 0;
	while (low < high) { /* the first that ends behind it */
		uint64_t middle = (low + high) / 2;

		if (index->objects[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < count)
		o = index->objects[low];
	__asm__ volatile("" ::: "memory");
	if (low >= count || pc < o.start) {
		scry_account_of(scry_agent.control)->walk.missed = pc;
		return 0;
	}
	if (is_child() && (int32_t)(o.since - (uint32_t)u->seen) > 0)
		return 0; /* there it may be another object */
	rows = (struct scry_unwind_rows){.count = o.rows, .rule_count = o.rules};
	need = o.at + (uint64_t)rows.rule_count + (rows.count + 1ull) / 2 + (rows.count + 3ull) / 4;
	if (need > u->words || pc - o.base > UINT32_MAX)
		return 0;
	rows.rules = (const uint64_t *)u->map + o.at;
	rows.pcs = (const uint32_t *)(rows.rules + rows.rule_count);
	rows.which = (const uint16_t *)((const uint64_t *)rows.pcs + (rows.count + 1ull) / 2);
	return scry_unwind_find(&rows, (uint32_t)(pc - o.base));
}

static __attribute__((noinline, cold)) uint64_t find_rule(struct scry_walk_rule *to, uint64_t pc,
							  uint64_t generation)
{
	const struct scry_unwind_map *map = (const void *)scry_agent.unwinding.map;
	uint64_t rule;

	if (scry_agent.unwinding.seen != generation && !is_child())
		scry_agent.unwinding.seen = generation;
	rule = look_up(&map->index[generation & 1], pc);

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&map->generation, __ATOMIC_RELAXED) != generation)
		return 0; /* it may have been written meanwhile */
	__atomic_store_n(&to->rule, rule, __ATOMIC_RELAXED);
	__atomic_store_n(&to->check, (pc ^ generation << 40) ^ mix(rule), __ATOMIC_RELAXED);
	return rule;
}

static inline uint64_t rule_of(uint64_t pc, uint64_t generation)
{
	uint64_t hash = pc * 0x9e3779b97f4a7c15ull >> 52;
	struct scry_walk_rule *r = &scry_agent_walks.rules[hash % SCRY_WALK_RULES];
	uint64_t rule = __atomic_load_n(&r->rule, __ATOMIC_RELAXED);
	uint64_t check = __atomic_load_n(&r->check, __ATOMIC_RELAXED);

	if (likely((check ^ mix(rule)) == (pc ^ generation << 40)))
		return rule;
	return find_rule(r, pc, generation);
}
_Static_assert(SCRY_WALK_RULES == 1u << 12, "the shift above");

/* walking */

struct reading {
	thread *t;
	struct scry_frame_walk *walk;
	const uint64_t *copy; /* of the words from walk->sp on, where that stack is not ours */
	uint64_t copied;      /* bytes */
	int is_kept;	      /* all that was read is among the walk's words */
};

static READS_STACK int read_word(void *arg, uint64_t address, uint64_t *ret)
{
	struct reading *r = arg;
	struct scry_frame_walk *walk = r->walk;
	uint64_t offset = address - walk->sp;

	if (address % 8)
		return 0;
	if (offset < r->copied) {
		*ret = r->copy[offset / 8];
		return 1;
	}
	if (!is_own(r->t, address))
		return 0;
	*ret = *(const volatile uint64_t *)address;
	if (offset > UINT32_MAX - 8 || walk->words == SCRY_WALK_WORDS) {
		r->is_kept = 0;
		return 1;
	}
	walk->offsets[walk->words] = (uint32_t)offset;
	walk->values[walk->words++] = *ret;
	if (offset + 8 > walk->reach)
		walk->reach = (uint32_t)offset + 8;
	return 1;
}

static uint32_t walk_frames(struct reading *r, const struct scry_walk_from *from, uint64_t *frames)
{
	const uint32_t depth = scry_agent.unwinding.depth;
	struct scry_unwind_state s = {
		.sp = (uint64_t)from->slot + 8, .bp = from->bp, .bx = from->bx};
	uint64_t generation = r->walk->generation;
	uint32_t n = 0;

	if (!read_word(r, (uint64_t)from->slot, &s.pc))
		return 0;
	s.pc = scry_return_home(s.pc);
	frames[n++] = s.pc;
	while (n < depth && n < SCRY_WALK_DEPTH_MAX) {
		uint64_t rule = rule_of(scry_unwind_at(&s), generation);
		enum scry_unwind_base base = scry_unwind_base(rule);
		enum scry_unwind_end end;

		if ((base == SCRY_UNWIND_BP || base == SCRY_UNWIND_BP_DEREF) && !s.bp_at)
			r->walk->uses |= USES_BP;
		if (base == SCRY_UNWIND_BX && !s.bx_at)
			r->walk->uses |= USES_BX;
		end = scry_unwind_step(&s, rule, read_word, r);
		if (end == SCRY_UNWIND_IS_TOP)
			break;
		s.pc = scry_return_home(s.pc);
		if (end == SCRY_UNWIND_GOES_ON && !s.pc) /* how fibers are begun */
			break;
		if (s.is_exact)
			s.pc &= ~SCRY_UNWIND_EXACT;
		frames[n++] = end != SCRY_UNWIND_GOES_ON ? 0
			      : s.is_exact		 ? s.pc | SCRY_UNWIND_EXACT
							 : s.pc;
		if (end != SCRY_UNWIND_GOES_ON)
			break;
	}
	return n;
}

/* stacks */

static uint64_t hash_of(const uint64_t *frames, uint32_t count)
{
	const struct scry_unwind_map *map = (const void *)scry_agent.unwinding.map;
	uint64_t hash = map->watch;

	for (uint32_t i = 0; i < count; i++) {
		hash = (hash ^ frames[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	hash *= 0xff51afd7ed558ccdull;
	return (hash ^ hash >> 32) & ~EMITTED ? (hash ^ hash >> 32) & ~EMITTED : 2;
}

/* Its number. A thread that finds one that is not emitted emits it, so it is emitted before its
 * first use. */
static __attribute__((noinline, cold)) uint32_t stack_number(thread *t, const uint64_t *frames,
							     uint32_t count, scry_walk_report *emit)
{
	uint64_t hash = hash_of(frames, count), first = hash >> 46;

	for (uint32_t i = 0; i < PROBES; i++) {
		uint32_t at = (uint32_t)(first + i) % SCRY_WALK_STACKS;
		uint64_t *slot = &scry_agent_walks.stacks[at];
		uint64_t have = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

		if (have == (hash | EMITTED))
			return at + 1;
		if (!have)
			__atomic_compare_exchange_n(slot, &have, hash, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_ACQUIRE);
		if (have && have != hash)
			continue;
		if (!emit(t, at + 1, frames, count))
			return 0;
		have = hash;
		if (__atomic_compare_exchange_n(slot, &have, hash | EMITTED, 0, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED))
			__atomic_fetch_add(&scry_agent_walks.count, 1, __ATOMIC_RELAXED);
		return at + 1;
	}
	__atomic_fetch_add(&scry_account_of(scry_agent.control)->walk.full, 1, __ATOMIC_RELAXED);
	return 0;
}
_Static_assert(SCRY_WALK_STACKS == 1u << 18, "the shift above");

/* walkers */

static __attribute__((noinline, cold)) struct scry_walker *claim_walker(thread *t, uint64_t row)
{
	if (t->walker_wait) {
		t->walker_wait--;
		__atomic_fetch_add(&scry_account_of(scry_agent.control)->walk.none, 1,
				   __ATOMIC_RELAXED);
		return 0;
	}
	for (uint32_t i = 0; i < SCRY_WALKERS; i++) {
		uint32_t at = (uint32_t)(row + i) % SCRY_WALKERS;
		struct scry_walker *w = &scry_agent_walks.walkers[at];
		uint64_t have = __atomic_load_n(&w->owner, __ATOMIC_ACQUIRE);

		if (have != row && have &&
		    !scry_thread_buffer_is_abandoned(scry_thread_buffer_row(have)))
			continue;
		if (have == row ||
		    __atomic_compare_exchange_n(&w->owner, &have, row, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED)) {
			t->walker = at + 1;
			return w;
		}
	}
	t->walker_wait = RETRY;
	return 0;
}

static inline struct scry_walker *walker_of(thread *t)
{
	uint64_t row = scry_thread_buffer_number(t);

	if (likely(t->walker && scry_agent_walks.walkers[t->walker - 1].owner == row))
		return &scry_agent_walks.walkers[t->walker - 1];
	return claim_walker(t, row);
}

/* May its words be looked at, and is it of this place? */
static inline int is_of(const struct scry_frame_walk *walk, const struct scry_walk_from *from,
			uint64_t generation, uint64_t high)
{
	uint64_t sp = (uint64_t)from->slot;

	return walk->sp == sp && walk->generation == generation && walk->stack &&
	       walk->reach <= high - sp && walk->words <= SCRY_WALK_WORDS;
}

static inline READS_STACK int holds(const struct scry_frame_walk *walk,
				    const struct scry_walk_from *from)
{
	const uint8_t *sp = (const uint8_t *)from->slot;
	uint64_t differs = 0;

	if ((walk->uses & USES_BP && walk->bp != from->bp) ||
	    (walk->uses & USES_BX && walk->bx != from->bx))
		return 0;
	for (uint32_t i = 0; i < walk->words; i++)
		differs |= *(const volatile uint64_t *)(sp + walk->offsets[i]) ^ walk->values[i];
	return !differs;
}

/* Where a walk is kept that is of the same place as `walk`, and another one. */
static inline READS_STACK struct scry_frame_walk *
second(struct scry_walker *w, const struct scry_frame_walk *walk, const struct scry_walk_from *from)
{
	const uint8_t *sp = (const uint8_t *)from->slot;
	uint64_t hash = (uint64_t)sp, factor = 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < walk->words; i++, factor += 0x9e3779b97f4a7c16ull)
		hash += *(const volatile uint64_t *)(sp + walk->offsets[i]) * factor;
	if (walk->uses & USES_BP)
		hash += from->bp * factor;
	return &w->walks[SCRY_WALKS / 2 + (hash * 0x9e3779b97f4a7c15ull >> 58)];
}

/* The newest walk is kept in the place of an older one. */
static void keep(struct scry_frame_walk *to, const struct scry_frame_walk *walk)
{
	to->stack = 0;
	to->sp = walk->sp;
	to->bp = walk->bp;
	to->bx = walk->bx;
	to->generation = walk->generation;
	to->reach = walk->reach;
	to->words = walk->words;
	to->uses = walk->uses;
	for (uint32_t i = 0; i < walk->words; i++) {
		to->offsets[i] = walk->offsets[i];
		to->values[i] = walk->values[i];
	}
	to->stack = walk->stack;
}

static __attribute__((noinline)) uint32_t walk_anew(thread *t, struct scry_walker *w,
						    const struct scry_walk_from *from,
						    struct scry_frame_walk *to)
{
	struct scry_frame_walk *now = &w->now;
	struct reading r = {.t = t, .walk = now, .is_kept = 1};
	const uint64_t flags = scry_alignment_off(); /* rules are packed, stacks may be odd */
	uint32_t count;

	now->sp = (uint64_t)from->slot;
	now->bp = from->bp;
	now->bx = from->bx;
	now->reach = now->words = now->uses = 0;
	if (!to) {
		uint64_t end = (now->sp & ~(PAGE - 1)) + PAGE;
		const struct scry_agent_piece pieces[2] = {
			{now->sp, end - now->sp}, {end, sizeof(w->copy) - (end - now->sp)}};
		int64_t n = read_from(pieces, 2, w->copy, sizeof(w->copy));

		if (n <= 0) /* nothing of the next page */
			n = read_from(pieces, 1, w->copy, end - now->sp);
		r.copy = w->copy;
		r.copied = n > 0 ? (uint64_t)n & ~7ull : 0;
		r.is_kept = 0;
	}
	count = walk_frames(&r, from, w->frames);
	scry_alignment_back(flags);
	return count | (uint32_t)r.is_kept << 31;
}

uint32_t scry_walk_stack(thread *t, const struct scry_walk_from *from, scry_walk_report *emit)
{
	const struct scry_unwind_map *map = (const void *)scry_agent.unwinding.map;
	struct scry_walker *w = walker_of(t);
	uint64_t sp = (uint64_t)from->slot, generation;
	struct scry_frame_walk *kept = 0;
	uint32_t count;

	if (unlikely(!w))
		return 0;
	generation = __atomic_load_n(&map->generation, __ATOMIC_ACQUIRE);
	if (likely(is_own(t, sp))) {
		kept = &w->walks[(sp ^ *from->slot << 20) * 0x9e3779b97f4a7c15ull >> 58];
		if (is_of(kept, from, generation, t->stack_high)) {
			struct scry_frame_walk *other;

			if (likely(holds(kept, from)))
				return kept->stack;
			other = second(w, kept, from);
			if (is_of(other, from, generation, t->stack_high) && holds(other, from))
				return other->stack;
			kept = w->misses++ % REPLACE ? other : kept;
		}
	}
	w->now.generation = generation;
	count = walk_anew(t, w, from, kept);
	/* What is mapped was listed anew meanwhile, and the walk may have ended for that. */
	for (int i = 0; i < AGAIN; i++) {
		generation = __atomic_load_n(&map->generation, __ATOMIC_ACQUIRE);
		if (likely(generation == w->now.generation))
			break;
		w->now.generation = generation;
		count = walk_anew(t, w, from, kept);
	}
	w->now.stack = count << 1 >> 1 ? stack_number(t, w->frames, count << 1 >> 1, emit) : 0;
	if (kept && count >> 31 && w->now.stack)
		keep(kept, &w->now);
	return w->now.stack;
}
_Static_assert(SCRY_WALKS == 1u << 7, "the shifts above");
