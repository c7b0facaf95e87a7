/*
 * See break.h. What is entered waits, by its slot on the stack, for the breakpoint at its return
 * address; there rsp is 8 above the slot. A breakpoint that is hit for nothing again and again is
 * lifted until a call needs it.
 *
 * An entry whose slot and return address are those of a call that has not returned was reached by a
 * tail call, or the other was left (longjmp, exception) and its place called from again: which, the
 * stack does not say. The instruction before the return address does, where it names its callee;
 * else another function is a tail call, and the same one a new call.
 */
#include "instrument/calls/break.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
#include <xxhash.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "hook/renew.h"
#include "instrument/calls/requests.h"
#include "proto/fetch.h"
#include "sys/unwinder.h"
#include "trace/breaks.h"
#include "trace/ptrace_stops.h"
#include "watch/ask.h"

#define TURN_NS 5000000ull
#define FULL_NS 1000000000ull
#define IDLE_MAX 16 /* meetings for nothing */
#define TRAP_LOOK_NS 100000000ull
#define STACK_FRAMES 64u
#define WALKS_MAX 3 /* of one stack: the thread is stopped meanwhile */
#define WORDS_MAX (3 + SCRY_CALL_ARGS_MAX + SCRY_CALL_MORE_MAX)

struct waiting {	     /* a slot whose calls have not returned */
	uint32_t to;	     /* breakpoint at its return address; or next free */
	uint32_t first, top; /* rows: the one that was called, the last that it went on to */
	uint64_t saved[SCRY_PLAN_SAVED_MAX]; /* of that, for its plan */
};

struct scry_calls_break {
	struct scry_calls_break_opts opts;
	struct scry_breaks breaks;
	struct scry_ptrace_stops *stops;
	struct scry_map waiting; /* slot -> index */
	struct waiting *slots;
	uint32_t slot_count, slot_room, free_slot; /* free: from 1, 0: none */
	struct scry_plan *plans;		   /* by number of the function */
	uint32_t plan_room;
	struct scry_map addresses; /* of functions that have a row, as found -> row */
	struct scry_map loops;	   /* address -> 1 or 2: a loop of its own leads to its start */
	struct scry_unwinder *unwinder;
	struct scry_map numbers; /* hash of a stack -> its number */
	ssize_t brk;		 /* breakpoint of the loader; -1: none */
	uint64_t full_ns;	 /* since when none are taken */
	bool is_dropping;
	bool is_handled, is_unset; /* SIGTRAP, by the agent; not any more */
	uint64_t trap_look_ns;
	uint64_t missed, lost, unclean;
	uint64_t renewed, failed;
	char why[256];
};

int scry_calls_break_new(const struct scry_calls_break_opts *opts, struct scry_calls_break **ret)
{
	struct scry_calls_break *b = calloc(1, sizeof(*b));

	if (!b)
		return scry_no_memory("breakpoints");
	b->opts = *opts;
	b->brk = -1;
	scry_map_init(&b->waiting, SCRY_CALLS_OPEN_MAX);
	scry_map_init(&b->addresses, SCRY_FUNCTIONS_MAX);
	scry_map_init(&b->loops, SCRY_FUNCTIONS_MAX);
	scry_map_init(&b->numbers, SCRY_NATIVE_STACKS_MAX);
	*ret = b;
	return 0;
}

void scry_calls_break_free(struct scry_calls_break *b)
{
	if (!b)
		return;
	scry_ptrace_stops_free(b->stops);
	scry_breaks_done(&b->breaks);
	scry_map_done(&b->waiting);
	scry_map_done(&b->addresses);
	scry_map_done(&b->loops);
	scry_map_done(&b->numbers);
	scry_unwinder_close(b->unwinder);
	free(b->slots);
	free(b->plans);
	free(b);
}

int scry_calls_break_plans(struct scry_calls_break *b, uint32_t number,
			   const struct scry_plan *plan)
{
	if (number >= b->plan_room) {
		uint32_t room = b->plan_room ? 2 * b->plan_room : 64;
		struct scry_plan *more = reallocarray(b->plans, room, sizeof(*more));

		if (!more)
			return scry_no_memory("%u functions", room);
		b->plans = more;
		b->plan_room = room;
	}
	b->plans[number] = *plan;
	return 0;
}

/* What an IFUNC chose, once it is bound. 0: not known. */
static uint64_t implementation(struct scry_hooks *h, const struct scry_functions *functions,
			       struct scry_slots *slots, uint64_t resolver)
{
	ssize_t i = scry_functions_at(functions, resolver);

	if (!slots->implementations && scry_slots_find(&h->objects, &h->mem, functions, slots) < 0)
		scry_error_clear();
	return i >= 0 && (size_t)i < slots->function_count ? slots->implementations[i] : 0;
}

static const char *why_not(const struct scry_calls_break *b, const struct scry_hook *row)
{
	uint64_t other;

	if (!row->target)
		return "it is chosen by an IFUNC resolver, and no slot holds what it chose yet";
	if (scry_map_get(&b->addresses, row->target, &other) &&
	    &b->opts.hooks->rows[other] != row && b->opts.hooks->rows[other].way)
		return "it begins where another function does that is traced";
	if (strstr(row->symbol, ".cold")) /* gcc's name of it */
		return "it is a part of another function";
	return scry_breaks_why(&b->breaks, row->target);
}

/* Rows from `first` on, which came from `functions`: where each is hit, or why not. */
static int choose(struct scry_calls_break *b, const struct scry_functions *functions, size_t first)
{
	struct scry_hooks *h = b->opts.hooks;
	struct scry_hooks fresh = *h;
	struct scry_slots slots = {0};

	for (size_t i = first; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];

		row->target = row->is_ifunc ? implementation(h, functions, &slots, row->address)
					    : row->address;
		row->why = why_not(b, row);
		row->way = row->why ? 0 : SCRY_WAY_ENTRY;
		h->refused += !row->way;
		if (scry_map_put(&b->addresses, row->address, i) < 0 ||
		    (row->way && scry_map_put(&b->addresses, row->target, i) < 0)) {
			scry_slots_done(&slots);
			return scry_fail(-ENOSPC, "too many functions");
		}
	}
	scry_slots_done(&slots);
	fresh.rows = h->rows + first;
	fresh.count = h->count - first;
	return b->opts.number(&fresh, b->stops != NULL, b->opts.arg);
}

int scry_calls_break_plan(struct scry_calls_break *b)
{
	struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
				  .leaves_out = scry_calls_requests_is_startup};
	struct scry_hooks *h = b->opts.hooks;
	int r = scry_hooks_open(h, &b->opts.watch->proc);

	h->waits = true;
	for (size_t i = 0; i < b->opts.request_count && r == 0; i++) {
		to.is_exported = b->opts.requests[i].is_exported;
		r = scry_hooks_want(h, b->opts.requests[i].text, &to);
	}
	if (r < 0)
		return r;
	scry_breaks_init(&b->breaks, &h->mem, &h->objects);
	r = choose(b, &h->functions, 0);
	if (r == 0 && h->count && h->refused == h->count)
		return scry_fail(-ENOTSUP,
				 "none of %zu functions can have a breakpoint; the first, "
				 "'%s': %s",
				 h->count, scry_demangle_shown(h->rows[0].symbol).text,
				 h->rows[0].why);
	return r;
}

void scry_calls_break_describe(const struct scry_calls_break *b, FILE *out)
{
	const struct scry_hooks *h = b->opts.hooks;

	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];
		const struct scry_shown symbol = scry_demangle_shown(row->symbol),
					module = scry_text_shown(row->module);

		if (row->way)
			fprintf(out, "  change      1 byte at %#llx, the entry of %s in %s\n",
				(unsigned long long)row->target, symbol.text, module.text);
		else
			fprintf(out, "  leave       %s in %s: %s\n", symbol.text, module.text,
				row->why);
	}
	fprintf(out, "  change      1 byte where each of these calls returns to\n"
		     "  trace       all threads by ptrace, for as long as the watch is on\n");
}

/* Breakpoints of the rows from `first` on. `held`: see scry_breaks_add. */
static int add_entries(struct scry_calls_break *b, size_t first, struct scry_tracee *held)
{
	struct scry_hooks *h = b->opts.hooks;
	size_t before = b->breaks.count;

	for (size_t i = first; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];
		ssize_t k;

		if (!row->way || row->is_gone)
			continue;
		k = scry_breaks_add(&b->breaks, row->target, held, h->count - i);
		if (k < 0)
			return (int)k;
		b->breaks.rows[k].function = (uint32_t)i + 1;
		if (!b->breaks.rows[k].copy) {
			row->why = b->breaks.rows[k].why;
			row->way = 0;
			h->refused++;
		} else if (b->stops && (size_t)k < before) { /* was one to return to */
			scry_breaks_set(&b->breaks, &b->breaks.rows[k]);
		}
	}
	return b->stops ? scry_breaks_on(&b->breaks, before) : 0;
}

/* What is no longer listed; how many are new. */
static int exchange_lists(struct scry_calls_break *b, struct scry_linkmap *now, size_t *ret_new)
{
	struct scry_hooks *h = b->opts.hooks;
	ssize_t *was = calloc(now->count + 1, sizeof(*was));
	int r = was ? 0 : -ENOMEM;

	for (size_t i = 0; i < h->objects.count && r == 0; i++) {
		const struct scry_object *o = &h->objects.objects[i];

		if (!o->mapping || scry_linkmap_is_repeated(&h->objects, i) ||
		    scry_linkmap_find(now, o))
			continue;
		r = scry_breaks_forget(&b->breaks, o->start, o->end);
		for (size_t k = 0; k < h->count; k++) {
			if (h->rows[k].object_start != o->start || h->rows[k].is_gone)
				continue;
			h->rows[k].is_gone = true;
			scry_map_remove(&b->addresses, h->rows[k].address, NULL);
			scry_map_remove(&b->addresses, h->rows[k].target, NULL);
			scry_map_remove(&b->loops, h->rows[k].target, NULL);
		}
	}
	if (r == 0)
		scry_linkmap_inherit(now, &h->objects, was);
	for (size_t i = 0; i < now->count && r == 0; i++)
		*ret_new += was[i] < 0;
	if (r == 0) {
		scry_linkmap_done(&h->objects);
		h->objects = *now;
		*now = (struct scry_linkmap){0};
		free(h->texts); /* none was read */
		h->texts = NULL;
	}
	free(was);
	return r;
}

/* Functions that have no row yet. */
static int add_rows(struct scry_calls_break *b, struct scry_functions *found)
{
	struct scry_hooks *h = b->opts.hooks;
	uint64_t there;
	int r = 0;

	for (size_t q = 0, k = 0; q < h->request_count && r == 0; q++) {
		r = h->request_to[q].is_exported
			    ? scry_symbols_find_exported(&h->objects, h->requests[q], found)
			    : scry_symbols_find(&h->objects, h->requests[q], found);
		if (r == -ENOENT)
			r = 0;
		for (; k < found->count && r == 0; k++)
			if (!scry_map_get(&b->addresses, found->rows[k].address, &there))
				r = scry_hooks_add(h, &found->rows[k], (uint32_t)q);
	}
	return r;
}

/* The list of objects has changed, or may have: what is new is hit from now on. */
static void renew(struct scry_calls_break *b, struct scry_tracee *held)
{
	struct scry_hooks *h = b->opts.hooks;
	struct scry_functions found = {0};
	struct scry_linkmap now = {0};
	size_t first = h->count, fresh = 0;
	int r = scry_linkmap_read(b->opts.watch->proc.pid, &h->mem, &now);

	if (r == 0 && (now.is_changing || now.is_cut)) {
		scry_linkmap_done(&now);
		return;
	}
	if (r == 0)
		r = exchange_lists(b, &now, &fresh);
	if (r == 0 && fresh) {
		b->renewed++;
		r = add_rows(b, &found);
		if (r == 0)
			r = choose(b, &found, first);
		if (r == 0)
			r = add_entries(b, first, held);
	}
	if (r < 0) {
		b->failed++;
		snprintf(b->why, sizeof(b->why), "%s", scry_error());
	}
	scry_error_clear();
	scry_functions_done(&found);
	scry_linkmap_done(&now);
}

static void record(struct scry_calls_break *b, pid_t tid, const uint64_t *words, size_t count)
{
	if (b->is_dropping)
		b->lost++;
	else if (scry_calls_words(b->opts.calls, (uint32_t)tid, words, count) < 0)
		b->lost++;
}

/* A place for a slot that waits; NULL: there are too many. */
static struct waiting *new_waiting(struct scry_calls_break *b, uint64_t slot)
{
	uint32_t i = b->free_slot;

	if (!i && b->slot_count == b->slot_room) {
		uint32_t room = b->slot_room ? 2 * b->slot_room : 256;
		struct waiting *more = reallocarray(b->slots, room, sizeof(*more));

		if (!more)
			return NULL;
		b->slots = more;
		b->slot_room = room;
	}
	if (!i)
		i = ++b->slot_count;
	else
		b->free_slot = b->slots[i - 1].to;
	if (scry_map_put(&b->waiting, slot, i) < 0) {
		b->slots[i - 1].to = b->free_slot;
		b->free_slot = i;
		return NULL;
	}
	return &b->slots[i - 1];
}

static struct waiting *waiting_at(const struct scry_calls_break *b, uint64_t slot)
{
	uint64_t i;

	return scry_map_get(&b->waiting, slot, &i) ? &b->slots[i - 1] : NULL;
}

static void wait_no_more(struct scry_calls_break *b, uint64_t slot, struct waiting *w)
{
	if (b->breaks.rows[w->to].waiting)
		b->breaks.rows[w->to].waiting--;
	scry_map_remove(&b->waiting, slot, NULL);
	w->to = b->free_slot;
	b->free_slot = (uint32_t)(w - b->slots) + 1;
}

/* Does a loop lead back to the function's first byte? Then its entry is hit each time. Asked where
 * it matters, as all code of its object has to be read. */
static bool loops(struct scry_calls_break *b, uint64_t address)
{
	struct scry_hooks *h = b->opts.hooks;
	ssize_t i = scry_linkmap_at(&h->objects, address);
	struct scry_text *text = NULL;
	uint64_t known = 1;

	if (scry_map_get(&b->loops, address, &known))
		return known == 2;
	if (i >= 0 && scry_linkmap_open(&h->objects, (size_t)i) == 0 &&
	    scry_text_read(h->objects.objects[i].elf, &text) == 0 &&
	    scry_text_loops(text, address - h->objects.objects[i].bias, 1))
		known = 2;
	scry_text_free(text);
	scry_error_clear();
	scry_map_put(&b->loops, address, known);
	return known == 2;
}

enum entered { ENTERED_NEW, ENTERED_TAIL, ENTERED_AGAIN };

/* Row `row` was entered, on the slot and with the return address of `w`: see above. */
static enum entered entered_how(struct scry_calls_break *b, uint32_t row, const struct waiting *w,
				uint64_t back)
{
	const struct scry_hook *rows = b->opts.hooks->rows;
	uint64_t callee = scry_breaks_callee(&b->breaks, back), there;
	bool is_known = callee && scry_map_get(&b->addresses, callee, &there);

	if (is_known && callee != rows[row].target && callee != rows[row].address)
		return row == w->top && loops(b, rows[row].target) ? ENTERED_AGAIN : ENTERED_TAIL;
	if (row == w->top)
		return loops(b, rows[row].target) ? ENTERED_AGAIN : ENTERED_NEW;
	return is_known && row != w->first ? ENTERED_NEW : ENTERED_TAIL;
}

/* The breakpoint where a call returns to, on; -1: it cannot be hit. */
static ssize_t return_to(struct scry_calls_break *b, uint64_t back, struct scry_tracee *t)
{
	ssize_t k = scry_breaks_at(&b->breaks, back);

	if (k < 0)
		k = scry_breaks_add(&b->breaks, back, t, 0);
	if (k < 0 || !b->breaks.rows[k].copy ||
	    scry_breaks_set(&b->breaks, &b->breaks.rows[k]) < 0) {
		scry_error_clear();
		return -1;
	}
	return k;
}

/* Its return will be hit, if it can. *ret: where what it needs then is kept; NULL: it cannot. */
static enum entered wait_for_return(struct scry_calls_break *b, struct scry_tracee *t, uint32_t row,
				    struct waiting **ret)
{
	uint64_t slot = t->regs.rsp, back = 0;
	struct waiting *w = waiting_at(b, slot);
	enum entered how = ENTERED_NEW;
	ssize_t to = scry_ptrace_stops_word(t, slot, &back) == 0 ? return_to(b, back, t) : -1;

	if (w && to >= 0 && w->to == (uint32_t)to)
		how = entered_how(b, row, w, back);
	if (w && how == ENTERED_NEW) {
		wait_no_more(b, slot, w);
		w = NULL;
	}
	if (!w && to >= 0)
		w = new_waiting(b, slot);
	if (w && how == ENTERED_NEW) {
		*w = (struct waiting){.to = (uint32_t)to, .first = row};
		b->breaks.rows[to].waiting++;
	}
	b->missed += !w;
	if (w && how != ENTERED_AGAIN)
		w->top = row;
	*ret = w;
	return how;
}

static ssize_t read_memory(void *arg, uint64_t address, void *to, size_t size)
{
	return scry_mem_read_some(arg, address, to, size);
}

static struct scry_fetch_from fetch_from(struct scry_calls_break *b, const struct scry_tracee *t)
{
	const struct user_regs_struct *r = &t->regs;
	const int64_t at = *b->opts.errno_at;

	return (struct scry_fetch_from){.registers = {r->rdi, r->rsi, r->rdx, r->rcx, r->r8, r->r9},
					.stack = r->rsp + 8,
					.rax = r->rax,
					.rdx = r->rdx,
					.errno_address = at ? r->fs_base + (uint64_t)at : 0,
					.string_max = b->opts.string_size,
					.read = read_memory,
					.arg = &b->opts.watch->inj->mem};
}

/* The parts of a plan, their number of words first; 0: there are none. */
static size_t fetch_parts(const struct scry_tracee *t, struct scry_fetch_from *from,
			  const struct scry_plan *plan, uint64_t *words)
{
	if (plan->head.vectors || plan->head.named_vectors || plan->head.back_vectors)
		scry_ptrace_stops_vectors(t, from->vectors);
	words[0] = scry_plan_fetch(from, &plan->head, plan->ops, words + 1);
	return words[0] ? words[0] + 1 : 0;
}

/* Its stack's number, emitted once; 0: it has none. */
static uint64_t number_of(struct scry_calls_break *b, const uint64_t *frames, uint32_t count)
{
	uint64_t hash = XXH3_64bits(frames, count * sizeof(*frames)), *number;

	number = count ? scry_map_ref(&b->numbers, hash) : NULL;
	if (!number)
		return 0;
	if (!*number) {
		*number = b->numbers.count;
		scry_native_stacks_define(b->opts.stacks, *number, frames, count);
	}
	return *number;
}

static int open_unwinder(struct scry_calls_break *b)
{
	int r = scry_unwinder_open(b->opts.modules, &b->opts.watch->inj->mem, &b->unwinder);

	if (b->opts.depth > STACK_FRAMES)
		b->opts.depth = STACK_FRAMES;
	if (r == 0)
		scry_unwinder_limit(b->unwinder, b->opts.depth);
	return r;
}

/* The caller, of a thread at a function's entry: return addresses, as agent/walk.h has them; how
 * many, 0: not known. */
static uint32_t walk(struct scry_calls_break *b, const struct scry_tracee *t,
		     uint64_t ret_frames[STACK_FRAMES])
{
	struct scry_native_frame frames[STACK_FRAMES];
	struct scry_unwind_state at = {.sp = t->regs.rsp + 8, .bp = t->regs.rbp, .bx = t->regs.rbx};
	enum scry_native_end end;
	uint32_t count, walks = 0;

	if (scry_mem_u64(&b->opts.watch->inj->mem, t->regs.rsp, &at.pc))
		return 0;
	do
		count = (uint32_t)scry_unwinder_walk(b->unwinder, at, frames, &end);
	while (end == SCRY_NATIVE_NO_RULE && ++walks < WALKS_MAX &&
	       scry_modules_missed(b->opts.modules));
	for (uint32_t i = 0; i < count; i++)
		ret_frames[i] = frames[i].pc | (frames[i].is_exact ? SCRY_UNWIND_EXACT : 0);
	if (end != SCRY_NATIVE_WHOLE && count < b->opts.depth)
		ret_frames[count++] = 0;
	return count;
}

static void record_stack(struct scry_calls_break *b, const struct scry_tracee *t)
{
	uint64_t frames[STACK_FRAMES], words[SCRY_CALL_CALLED_WORDS];
	uint32_t count = walk(b, t, frames);

	words[0] = SCRY_CALL_CALLED;
	words[1] = __rdtsc();
	words[2] = number_of(b, frames, count);
	words[3] = t->regs.rsp;
	if (words[2])
		record(b, t->tid, words, SCRY_CALL_CALLED_WORDS);
}

static void entered(struct scry_calls_break *b, struct scry_tracee *t, uint32_t row)
{
	uint32_t cookie = b->opts.hooks->rows[row].to.cookie, args = scry_call_cookie_args(cookie),
		 number = scry_call_hook(cookie);
	struct scry_fetch_from from = fetch_from(b, t);
	const struct scry_plan *plan = &b->plans[number];
	uint64_t words[WORDS_MAX];
	struct waiting *w;
	enum entered how;
	size_t more = 0;

	if (b->is_dropping) {
		b->lost++;
		return;
	}
	how = wait_for_return(b, t, row, &w);
	if (how == ENTERED_AGAIN)
		return;
	if (b->opts.stacks)
		record_stack(b, t);
	from.is_entry = true;
	memcpy(words + 2, from.registers, args * sizeof(*words));
	if (plan->is_needed)
		more = fetch_parts(t, &from, plan, words + 2 + args);
	if (plan->is_needed && w)
		scry_plan_save(&from, &plan->head, w->saved);
	words[0] = scry_call_head(t->regs.rsp, args, number) | (more ? SCRY_CALL_MORE : 0) |
		   (how == ENTERED_TAIL ? SCRY_CALL_TAIL : 0);
	words[1] = __rdtsc(); /* last, so that our work is not its time */
	record(b, t->tid, words, 2 + args + more);
}

/* What the call of `w` that returns now has left behind pointers. */
static void record_back(struct scry_calls_break *b, struct scry_tracee *t, const struct waiting *w,
			uint64_t tsc)
{
	uint32_t number = scry_call_hook(b->opts.hooks->rows[w->top].to.cookie);
	const struct scry_plan *plan = &b->plans[number];
	struct scry_fetch_from from = fetch_from(b, t);
	uint64_t words[WORDS_MAX];
	size_t more;

	if (!plan->is_needed)
		return;
	memcpy(from.saved, w->saved, sizeof(from.saved));
	more = fetch_parts(t, &from, plan, words + 2);
	words[0] = scry_call_head(t->regs.rsp - 8, SCRY_CALL_RETURN, number) | SCRY_CALL_MORE;
	words[1] = tsc;
	if (more)
		record(b, t->tid, words, 2 + more);
}

/* Was a call waited for that returns to breakpoint `k`? Then it has. */
static bool returned(struct scry_calls_break *b, struct scry_tracee *t, size_t k, uint64_t tsc)
{
	uint64_t slot = t->regs.rsp - 8;
	const uint64_t words[3] = {scry_call_head(slot, SCRY_CALL_RETURN, 0), tsc, t->regs.rax};
	struct waiting *w = b->breaks.rows[k].waiting ? waiting_at(b, slot) : NULL;

	if (!w || w->to != k)
		return false;
	record_back(b, t, w, tsc);
	wait_no_more(b, slot, w);
	b->breaks.rows[k].idle = 0;
	record(b, t->tid, words, 3);
	return true;
}

static uint64_t next(void *arg, uint64_t address)
{
	const struct scry_calls_break *b = arg;
	ssize_t k = scry_breaks_at(&b->breaks, address);

	return k >= 0 && b->breaks.rows[k].at == address && b->breaks.rows[k].is_changed
		       ? scry_break_next(&b->breaks.rows[k])
		       : 0;
}

/* A thread that blocked SIGTRAP has hit a breakpoint: the kernel gives such a signal, which cannot
 * wait, its default, and so takes the agent's handler from all threads. */
static void handle_again(struct scry_calls_break *b, struct scry_tracee *t)
{
	int r = scry_inject_trap(b->opts.watch->inj, t);

	b->is_unset = false;
	b->is_handled = r != -EBUSY;
	if (r < 0)
		scry_error_clear();
}

static void met(void *arg, struct scry_tracee *t, uint64_t address)
{
	struct scry_calls_break *b = arg;
	uint64_t tsc = __rdtsc();
	ssize_t k = scry_breaks_at(&b->breaks, address);
	struct scry_break *row = &b->breaks.rows[k];

	if (b->is_unset)
		handle_again(b, t);
	if (k == b->brk) {
		renew(b, t);
	} else if (returned(b, t, (size_t)k, tsc)) {
		;
	} else if (row->function) {
		entered(b, t, row->function - 1);
	} else if (++row->idle >= IDLE_MAX && !row->waiting) {
		row->idle = 0;
		scry_breaks_lift(&b->breaks, row);
	}
}

static void forked(void *arg, pid_t child)
{
	struct scry_calls_break *b = arg;
	struct scry_mem mem;

	if (scry_mem_open(&mem, child, 1) < 0) {
		b->unclean++;
		scry_error_clear();
		return;
	}
	b->unclean += scry_breaks_clean(&b->breaks, &mem) != 0;
	scry_mem_close(&mem);
}

static void execed(void *arg)
{
	struct scry_calls_break *b = arg;

	b->opts.watch->may_have_execed = true;
}

static const struct scry_ptrace_stops_handlers handlers = {
	.next = next, .met = met, .forked = forked, .execed = execed};

/* What this engine may do to the program, before it does. */
static void note_dangers(struct scry_watch *w, bool is_handled)
{

	scry_watch_say(
		w,
		"breakpoints in process %d: some 25 us a call, traced by process %d (scry-keeper). "
		"If that one is killed by SIGKILL, %s; scry undo -p %d then puts the code back",
		w->proc.pid, getpid(),
		is_handled ? "the program goes on, slowly, but threads that block SIGTRAP and "
			     "meet a breakpoint end it"
			   : "the program, which handles SIGTRAP itself, gets it at the next call, "
			     "and ends or goes wrong",
		w->proc.pid);
}

int scry_calls_break_enter(struct scry_calls_break *b)
{
	struct scry_watch *w = b->opts.watch;
	struct scry_hooks *h = b->opts.hooks;
	int r, trap;

	b->breaks.inj = w->inj;
	trap = scry_inject_trap(w->inj, w->held);
	b->is_handled = trap == 0;
	r = trap == -EBUSY ? 0 : trap;
	if (r == 0)
		note_dangers(w, trap == 0);
	if (r == 0)
		r = add_entries(b, 0, w->held);
	if (r == 0 && h->objects.brk)
		b->brk = scry_breaks_add(&b->breaks, h->objects.brk, w->held, 0);
	if (r == 0 && b->opts.stacks)
		r = open_unwinder(b);
	if (r == 0)
		r = scry_ptrace_stops_new(w->proc.pid, &handlers, b, w->held, &b->stops);
	if (r == 0)
		r = scry_breaks_on(&b->breaks, 0);
	if (r < 0)
		return r;
	if (b->brk >= 0 && !b->breaks.rows[b->brk].is_on)
		b->brk = -1;
	if (h->objects.brk && b->brk < 0)
		scry_watch_note(w, "libraries loaded later are not traced: %s",
				"the loader's own function cannot have a breakpoint");
	if (!w->held)
		renew(b, NULL);
	scry_ptrace_stops_go(b->stops);
	return 0;
}

void scry_calls_break_turn(struct scry_calls_break *b, bool is_full)
{
	uint64_t now = scry_now_ns();

	if (b->is_handled && now >= b->trap_look_ns) {
		b->trap_look_ns = now + TRAP_LOOK_NS;
		b->is_unset = !scry_proc_catches(b->opts.watch->proc.pid, SIGTRAP);
	}
	b->full_ns = !is_full ? 0 : b->full_ns ? b->full_ns : now;
	b->is_dropping = is_full && now > b->full_ns + FULL_NS;
	if (is_full && !b->is_dropping)
		nanosleep(&(struct timespec){.tv_nsec = TURN_NS}, NULL);
	else
		scry_ptrace_stops_turn(TURN_NS);
}

void scry_calls_break_leave(struct scry_calls_break *b)
{
	if (!b->stops)
		return;
	scry_breaks_lift_all(&b->breaks);
	scry_ptrace_stops_leave(b->stops);
}

void scry_calls_break_report(const struct scry_calls_break *b)
{
	struct scry_watch *w = b->opts.watch;
	struct scry_ptrace_stops_stats stats;

	scry_watch_lost(w, b->lost, "entries and returns that no keeper took");
	scry_watch_lost(w, b->missed, "calls whose return could not be traced");
	if (b->failed)
		scry_watch_note(w, "%llu times what was loaded could not be traced: %s",
				(unsigned long long)b->failed, b->why);
	if (b->unclean)
		scry_watch_note(w, "breakpoints may be left in %llu fork children",
				(unsigned long long)b->unclean);
	if (!b->stops)
		return;
	scry_ptrace_stops_stats(b->stops, &stats);
	scry_watch_detail(
		w, "process %d: %llu stops, %llu threads and %llu children made, %zu breakpoints",
		w->proc.pid, (unsigned long long)stats.stops, (unsigned long long)stats.threads,
		(unsigned long long)stats.children, b->breaks.count);
}
