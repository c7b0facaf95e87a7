/*
 * Entry and return of hooked functions: see wire/shadow.h. Called by agent/shadow.S.
 *
 * A slot belongs to whoever runs on its stack, so the entries of one slot have one writer at a
 * time; a bucket is shared by many, so an empty place is claimed by compare-and-swap. A signal
 * handler that interrupts anywhere here works on other slots, lower on the stack or on another one.
 */
#include "agent/calls.h"
#include "agent/lines.h"
#include "agent/thread_buffer.h"
#include "wire/call_ring.h"

struct scry_shadow scry_agent_shadow SCRY_INHERITED;
struct scry_agent_thread scry_agent_call_rows[SCRY_THREADS] SCRY_WIPED SCRY_OWN_PAGES;

#define HOOK_MASK ((1u << SCRY_SHADOW_HOOK_BITS) - 1)
#define NO_THUNK (~0ull)
#define RESTORER_BYTES 9
#define PR_SET_SECCOMP 22
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define SYS_PRCTL 157
#define SYS_SECCOMP 317

void scry_agent_entered(uint64_t *slot, uint64_t cookie, uint64_t bx);
void scry_agent_asked_by(uint64_t *slot, uint64_t cookie);
void scry_agent_returned(uint64_t *slot);
const void *scry_agent_unwound(uint64_t pc, uint64_t *bases,
			       const void *(*original)(uint64_t, uint64_t *));

static uint64_t tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

static void add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static struct scry_shadow_stats *stats_of(const struct scry_shadow *s, uint64_t hook)
{
	return (struct scry_shadow_stats *)s->head.stats + (s->head.records ? 0 : hook);
}

/* mov $15, %rax; syscall: the restorer of a signal frame. Its address on the stack is what makes a
 * signal frame known, to unwinders and to us. */
static int is_restorer(uint64_t address)
{
	static const uint8_t want[RESTORER_BYTES] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	const uint8_t *code = (const uint8_t *)address;

	for (uint32_t i = 0; i < RESTORER_BYTES; i++)
		if (code[i] != want[i])
			return 0;
	return 1;
}

/* May it be read as code, and so be a return address? */
static int is_code(const struct scry_shadow *s, uint64_t address)
{
	const struct scry_shadow_code *code = &s->head.code[s->head.code_in_use & 1];
	uint64_t low = 0, high = code->count;

	while (low < high) { /* the first range that ends behind it */
		uint64_t middle = (low + high) / 2;

		if (code->ranges[middle].end - RESTORER_BYTES < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < code->count && address >= code->ranges[low].start;
}

/* The thunk for a return address, or NO_THUNK. */
static uint64_t thunk_of(struct scry_shadow *s, uint64_t original)
{
	uint64_t first = original * 0x9e3779b97f4a7c15ull >> 50;

	for (uint32_t i = 0; i < SCRY_SHADOW_PROBES && likely(original != 0); i++) {
		uint64_t at = (first + i) % SCRY_SHADOW_THUNKS;
		uint64_t have = __atomic_load_n(&s->originals[at], __ATOMIC_RELAXED);

		if (likely(have == original))
			return at;
		if (have)
			continue;
		if (!is_code(s, original) || is_restorer(original))
			return NO_THUNK;
		if (__atomic_compare_exchange_n(&s->originals[at], &have, original, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
		    have == original)
			return at;
	}
	return NO_THUNK;
}

static int is_thunk(uint64_t word)
{
	return word - scry_agent.following.thunks < SCRY_SHADOW_THUNKS * SCRY_SHADOW_THUNK_BYTES;
}

/* An entry for `key`, or NULL: all are in use. What the table has of the slot, unless it is
 * pending, was left by longjmp or an exception. */
static struct scry_shadow_entry *claim(struct scry_shadow *s, uint64_t key, int is_pending)
{
	struct scry_shadow_entry *ways =
		s->entries[scry_shadow_bucket(key >> SCRY_SHADOW_HOOK_BITS << 3)];
	struct scry_shadow_entry *mine = 0;

	for (uint32_t i = 0; i < SCRY_SHADOW_WAYS && !is_pending; i++) {
		uint64_t have = __atomic_load_n(&ways[i].key, __ATOMIC_RELAXED);

		if (unlikely(have >> SCRY_SHADOW_HOOK_BITS == key >> SCRY_SHADOW_HOOK_BITS)) {
			add(&stats_of(s, have & HOOK_MASK)->left, 1);
			__atomic_store_n(&ways[i].key, mine ? 0 : key, __ATOMIC_RELAXED);
			mine = mine ? mine : &ways[i];
		}
	}
	for (uint32_t i = 0; i < SCRY_SHADOW_WAYS && !mine; i++) {
		uint64_t none = 0;

		if (!__atomic_load_n(&ways[i].key, __ATOMIC_RELAXED) &&
		    __atomic_compare_exchange_n(&ways[i].key, &none, key, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			mine = &ways[i];
	}
	return mine;
}

/* Off, held, or paused, because the keeper has not refreshed its lease: it may have again. */
static __attribute__((noinline)) int may_follow(struct scry_shadow *s, uint64_t hook)
{
	uint32_t on = scry_agent.following.on;

	if (on == SCRY_SHADOW_OFF || !scry_agent.state_page->open)
		return 0;
	if (on == SCRY_SHADOW_HELD || tsc() >= scry_agent.control->lease_tsc) {
		add(&stats_of(s, hook)->missed, 1);
		return 0;
	}
	scry_following_change(SCRY_SHADOW_PAUSED, SCRY_SHADOW_ON);
	return 1;
}

static int forbids(uint64_t option) /* of prctl */
{
	return option == PR_SET_SECCOMP || option == PR_SET_SYSCALL_USER_DISPATCH;
}

/* Does this call forbid system calls? Those of ours could end the program. Does it end code of a
 * Ruby, or all of it? */
static __attribute__((noinline)) void guard(const uint64_t *arguments, uint64_t cookie)
{
	int is_prctl = (cookie & SCRY_CALL_IS_PRCTL) != 0;

	if (likely(cookie & SCRY_CALL_IS_FREE)) {
		if (scry_agent.line_plan.on & SCRY_USER_CALLS)
			scry_call_ruby_freed(arguments[0]);
		return;
	}
	if (cookie & SCRY_CALL_IS_DOWN) {
		scry_lines_over();
		return;
	}
	if (is_prctl ? forbids(arguments[0])
		     : arguments[0] == SYS_SECCOMP ||
			       (arguments[0] == SYS_PRCTL && forbids(arguments[1])))
		scry_calling_forbid();
}

/* Entered by a tail call of a function that is followed, it would find the thunk for its caller:
 * dlsym looks there for the object that RTLD_NEXT means. The other's return is not seen then. */
static void show_caller(uint64_t *slot)
{
	if (unlikely(is_thunk(*slot)))
		*slot = scry_agent_shadow.originals[(*slot - scry_agent.following.thunks) /
						    SCRY_SHADOW_THUNK_BYTES];
}

void scry_agent_asked_by(uint64_t *slot, uint64_t cookie)
{
	show_caller(cookie & SCRY_SHADOW_RED_ZONE ? slot + 16 : slot);
}

static inline __attribute__((always_inline)) void
record_callers(const struct scry_shadow *s, const uint64_t *slot, uint64_t bp, uint64_t bx)
{
	if (s->head.records && unlikely(scry_agent.unwinding.users & SCRY_USER_CALLS))
		scry_call_stack(&(const struct scry_walk_from){.slot = slot, .bp = bp, .bx = bx});
	if (s->head.records && unlikely(scry_agent.line_plan.on & SCRY_USER_CALLS))
		scry_call_ruby(slot);
}

/* Its slot is as found, or the caller's again. 0: it could not be recorded. */
static __attribute__((noinline)) uint64_t entered_alone(uint64_t *slot, const uint64_t *arguments,
							uint64_t cookie)
{
	uint64_t saved[SCRY_PLAN_SAVED_MAX];

	return scry_call_entered(slot, arguments, cookie, 0, saved);
}

void scry_agent_entered(uint64_t *slot, uint64_t cookie, uint64_t bx)
{
	struct scry_shadow *s = &scry_agent_shadow;
	const uint64_t *arguments = slot - SCRY_CALL_REGISTERS;
	uint64_t hook = cookie & HOOK_MASK, word, key, thunk = 0;
	struct scry_shadow_entry *e = 0;
	int is_pending, is_alone;

	if (unlikely(cookie & SCRY_CALL_GUARDS) && s->head.records) {
		guard(arguments, cookie);
		if (cookie & SCRY_CALL_IS_GUARD)
			return;
	}
	if (cookie & SCRY_SHADOW_RED_ZONE)
		slot += 16;
	is_alone = (cookie & SCRY_CALL_IS_ALONE) && s->head.records;
	if (unlikely(is_alone)) /* also when calls are followed no more: some have not returned */
		show_caller(slot);
	if (unlikely(scry_agent.following.on != SCRY_SHADOW_ON) && !may_follow(s, hook))
		return;
	if (unlikely(!scry_agent.state_page->open) &&
	    !(s->head.records && scry_thread_buffer_moves_in()))
		return;
	if (unlikely(is_alone)) {
		record_callers(s, slot, *(const uint64_t *)__builtin_frame_address(0), bx);
		if (entered_alone(slot, arguments, cookie) >= scry_agent.control->lease_tsc)
			scry_following_change(SCRY_SHADOW_ON, SCRY_SHADOW_PAUSED);
		return;
	}
	word = *slot;
	is_pending = is_thunk(word); /* a tail call: both return at once */
	if (!is_pending)
		thunk = thunk_of(s, word);
	key = (uint64_t)slot >> 3 << SCRY_SHADOW_HOOK_BITS | hook;
	if (likely(thunk != NO_THUNK))
		e = claim(s, key, is_pending);
	if (unlikely(!e)) {
		add(&stats_of(s, hook)->missed, 1);
		return;
	}
	record_callers(s, slot, *(const uint64_t *)__builtin_frame_address(0), bx);
	if (!is_pending)
		__atomic_store_n(slot,
				 scry_agent.following.thunks + thunk * SCRY_SHADOW_THUNK_BYTES,
				 __ATOMIC_RELEASE);
	e->tsc = s->head.records ? scry_call_entered(slot, arguments, cookie, is_pending,
						     s->saved[e - &s->entries[0][0]])
				 : tsc();
	if (unlikely(e->tsc >= scry_agent.control->lease_tsc))
		scry_following_change(SCRY_SHADOW_ON, SCRY_SHADOW_PAUSED);
}

static void record(const struct scry_shadow *s, uint64_t hook, uint64_t ticks)
{
	struct scry_shadow_stats *st = stats_of(s, hook);
	uint64_t max = __atomic_load_n(&st->max_tsc, __ATOMIC_RELAXED);

	if ((int64_t)ticks < 0) /* the clocks of two cores */
		ticks = 0;
	add(&st->histogram[scry_shadow_step(ticks)], 1);
	add(&st->total_tsc, ticks);
	while (unlikely(ticks > max) &&
	       !__atomic_compare_exchange_n(&st->max_tsc, &max, ticks, 1, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
}

/* 1: it has parts at its return. What they need is taken out before its entry is free. */
static int keep_back(struct scry_call_back *back, uint64_t hook, const uint64_t *saved)
{
	const struct scry_call_plan *plan = scry_call_plan_back((uint32_t)hook);

	if (likely(!plan))
		return 0;
	back->hook = (uint32_t)hook;
	back->plan = plan;
	for (uint32_t i = 0; i < SCRY_PLAN_SAVED_MAX; i++)
		back->saved[i] = saved[i];
	return 1;
}

/* `slot` holds the thunk's number; it gets the address to go on at. */
void scry_agent_returned(uint64_t *slot)
{
	struct scry_shadow *s = &scry_agent_shadow;
	uint64_t now = s->head.records ? 0 : tsc(), found = 0, emitted = 0;
	struct scry_shadow_entry *ways = s->entries[scry_shadow_bucket((uint64_t)slot)];
	int is_open = scry_agent.state_page->open != 0;
	struct scry_call_back backs[SCRY_SHADOW_WAYS];
	uint32_t back_count = 0;

	*slot = s->originals[*slot];
	for (uint32_t i = 0; i < SCRY_SHADOW_WAYS; i++) {
		uint64_t key = __atomic_load_n(&ways[i].key, __ATOMIC_RELAXED);
		uint64_t then = ways[i].tsc;

		if (key >> SCRY_SHADOW_HOOK_BITS != (uint64_t)slot >> 3)
			continue;
		found = 1;
		if (s->head.records && then && is_open)
			back_count += keep_back(&backs[back_count], key & HOOK_MASK,
						s->saved[&ways[i] - &s->entries[0][0]]);
		__atomic_store_n(&ways[i].key, 0, __ATOMIC_RELEASE);
		if (unlikely(!is_open))
			continue;
		if (s->head.records)
			emitted |= then;
		else
			record(s, key & HOOK_MASK, now - then);
	}
	if (emitted)
		scry_call_returned(slot, backs, back_count);
	if (unlikely(!found))
		add(&s->head.orphans, 1);
}

/*
 * In the place of libgcc's _Unwind_Find_FDE(pc, bases). A thunk met as a return address is replaced
 * in the unwinder's own context, so that the unwinder never sees it: `bases` is a member of struct
 * _Unwind_Context, two words behind its `ra` (unwind-dw2.c, the same since gcc 3.3). pc is ra - 1,
 * or ra in a signal frame.
 */
const void *scry_agent_unwound(uint64_t pc, uint64_t *bases,
			       const void *(*original)(uint64_t, uint64_t *))
{
	const struct scry_shadow *s = &scry_agent_shadow;
	uint64_t ra;

	if (is_thunk(pc + 1) || is_thunk(pc)) {
		ra = bases[-2];
		if (is_thunk(ra) && ra - pc <= 1) {
			uint64_t home = s->originals[(ra - scry_agent.following.thunks) /
						     SCRY_SHADOW_THUNK_BYTES];

			bases[-2] = home;
			pc = home - (ra - pc);
		}
	}
	return original(pc, bases);
}
