/* See strings.h. */
#include "instrument/calls/strings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <x86intrin.h>

#include "base/err.h"
#include "base/map.h"
#include "probe/bpf.h"
#include "proto/plan.h"
#include "sys/container.h"
#include "sys/tracepoints.h"
#include "wire/bpf_strings.h"

#define KEPT_MAX (1u << 16)  /* that wait for their calls */
#define APART_NS 1000000000u /* the two report a call within this */
#define UNSURE_NS 200u	     /* of two clocks, read just now */
#define RENEW_NS 60000000000u
#define THREADS_MAX (1u << 16)

SCRY_BPF_OBJECT(strings);

struct call {				       /* or its return */
	uint64_t tsc, args[SCRY_STRINGS_ARGS]; /* of a return: the result */
	uint32_t number;
	bool is_exit;
};

struct kept { /* a record whose call has not come, or a call whose record has not */
	bool is_call;
	uint32_t next; /* of its thread, + 1; 0: none */
	union {
		struct scry_strings_record record;
		struct call call;
	};
};

struct scry_calls_strings {
	struct scry_bpf *bpf;
	struct scry_stamp first, last; /* the TSC beside CLOCK_MONOTONIC */
	struct kept *kept;
	uint32_t count, room;
	uint32_t free;		 /* the first place that is free again, + 1 */
	struct scry_map threads; /* thread -> its first that is not used, + 1; its last << 32 */
	struct scry_map ended;	 /* threads whose records and calls did not agree */
	uint64_t begin_ns,
		until; /* perf was on from, and until: CLOCK_MONOTONIC, TSC; 0: not yet */
	uint32_t max;
	bool is_on, has_ended, has_thread_ended;
	bool is_wanted[2][SCRY_STRINGS_NUMBERS]; /* by is_exit */
};

static uint64_t tsc_of(const struct scry_calls_strings *s, uint64_t ns)
{
	return scry_stamp_tsc(&s->first, &s->last, ns);
}

/* Does the record belong to the call? Their order decides; this finds out where it was broken. The
 * time is a coarse check: the thread may lose its processor between perf and the program. */
static bool is_of(const struct scry_calls_strings *s, const struct scry_strings_record *r,
		  const struct call *call)
{
	const size_t args = call->is_exit ? sizeof(r->args[0]) : sizeof(r->args);

	return r->number == call->number && r->is_exit == call->is_exit &&
	       !memcmp(r->args, call->args, args) &&
	       tsc_of(s, r->time_ns + APART_NS) >= call->tsc &&
	       tsc_of(s, r->time_ns - APART_NS) <= call->tsc;
}

static struct kept *first_of(const struct scry_calls_strings *s, uint32_t tid)
{
	uint64_t ends = 0;

	scry_map_get(&s->threads, tid, &ends);
	return (uint32_t)ends ? &s->kept[(uint32_t)ends - 1] : NULL;
}

static void drop_first(struct scry_calls_strings *s, uint32_t tid)
{
	uint64_t ends = 0;
	struct kept *first;

	if (!scry_map_get(&s->threads, tid, &ends))
		return;
	first = &s->kept[(uint32_t)ends - 1];
	if (first->next)
		scry_map_put(&s->threads, tid, (ends >> 32 << 32) | first->next);
	else
		scry_map_remove(&s->threads, tid, NULL);
	first->next = s->free;
	s->free = (uint32_t)ends;
}

/* Records and calls of the thread did not agree. */
static void end_thread(struct scry_calls_strings *s, uint32_t tid)
{
	while (first_of(s, tid))
		drop_first(s, tid);
	s->has_thread_ended = true;
	if (scry_map_put(&s->ended, tid, 1) < 0)
		s->has_ended = true;
}

/* A place for one, + 1; 0: there is none. */
static uint32_t place(struct scry_calls_strings *s)
{
	const uint32_t free_one = s->free;

	if (free_one) {
		s->free = s->kept[free_one - 1].next;
		return free_one;
	}
	if (s->count == s->room && s->room < KEPT_MAX) {
		uint32_t room = s->room ? 2 * s->room : 256;
		struct kept *more = reallocarray(s->kept, room, sizeof(*more));

		if (more) {
			s->kept = more;
			s->room = room;
		}
	}
	return s->count < s->room ? ++s->count : 0;
}

static void keep(struct scry_calls_strings *s, uint32_t tid, const struct kept *kept)
{
	const uint32_t at = place(s);
	uint64_t *ends = at ? scry_map_ref(&s->threads, tid) : NULL;

	if (!ends) {
		s->has_ended = true;
		return;
	}
	s->kept[at - 1] = *kept;
	if (*ends)
		s->kept[(*ends >> 32) - 1].next = at;
	*ends = (uint64_t)at << 32 | (*ends ? (uint32_t)*ends : at);
}

/* A record of the ring. */
static int give(void *arg, void *record, size_t size)
{
	struct scry_calls_strings *s = arg;
	const struct scry_strings_record *r = record;
	struct kept kept = {0};
	const struct kept *first;

	if (size < SCRY_STRINGS_EXIT_BYTES || (size < sizeof(*r) && !r->is_exit) || s->has_ended ||
	    scry_map_get(&s->ended, r->tid, &(uint64_t){0}))
		return 0;
	first = first_of(s, r->tid);
	if (!first || !first->is_call) {
		memcpy(&kept.record, r, size < sizeof(*r) ? size : sizeof(*r));
		keep(s, r->tid, &kept);
		return 0;
	}
	s->last = scry_stamp_read(CLOCK_MONOTONIC);
	if (is_of(s, r, &first->call))
		drop_first(s, r->tid);
	else
		end_thread(s, r->tid);
	return 0;
}

/* The first text that the call leaves in memory, if its length is one that the kernel's program
 * knows. */
static void want_back(const struct scry_plan *plan, struct scry_strings_wanted *wanted)
{
	for (uint32_t i = 0; i < plan->head.back && !wanted->back; i++) {
		const struct scry_fetch *op = &plan->ops[plan->head.entry + i];
		const uint32_t saved = op->from - SCRY_AT_SAVED;
		const bool is_counted = op->flags & SCRY_FETCH_RESULT;

		if (saved >= plan->head.saved_count ||
		    plan->head.saved[saved] >= SCRY_STRINGS_ARGS || op->offset ||
		    !(op->flags & SCRY_FETCH_TEXT) || (!is_counted && op->length != SCRY_FETCH_NUL))
			continue;
		wanted->back = (uint8_t)(plan->head.saved[saved] + 1);
		wanted->back_is_counted = is_counted;
	}
}

/* Which arguments are strings: as the prototype's plan follows them. */
static int want(struct scry_calls_strings *s, const struct scry_protos *protos, uint32_t number)
{
	const struct scry_plan_opts opts = {.string_max = s->max};
	struct scry_strings_wanted wanted = {0};
	const struct scry_proto *proto;
	struct scry_plan plan;
	uint32_t count = 0;
	char symbol[64];

	if (!scry_syscall_name(number))
		return 0;
	snprintf(symbol, sizeof(symbol), "SYS_%s", scry_syscall_name(number));
	proto = scry_protos_find(protos, symbol, "kernel");
	if (!proto)
		return 0;
	scry_plan_make(proto, &opts, &plan);
	for (uint32_t i = 0; i < plan.head.entry && count < SCRY_STRINGS_OF_CALL; i++) {
		const struct scry_fetch *op = &plan.ops[i];
		const bool is_counted =
			op->length == SCRY_FETCH_BOTH || op->length == SCRY_FETCH_COUNT;

		if (op->from >= SCRY_STRINGS_ARGS || !(op->flags & SCRY_FETCH_TEXT) ||
		    (is_counted ? op->length_from >= SCRY_STRINGS_ARGS
				: op->length != SCRY_FETCH_NUL))
			continue;
		wanted.arg[count] = (uint8_t)(op->from + 1);
		wanted.length[count++] = is_counted ? (uint8_t)(op->length_from + 1) : 0;
	}
	want_back(&plan, &wanted);
	s->is_wanted[false][number] = count;
	s->is_wanted[true][number] = wanted.back;
	return count || wanted.back ? scry_bpf_set(s->bpf, "wanted", &number, &wanted) : 0;
}

static int load(struct scry_calls_strings *s, const struct scry_calls_strings_opts *opts)
{
	const struct scry_strings_setup setup = {
		.pid_ns = scry_container_pid_ns(), .max = s->max, .follow = opts->with_children};
	const uint32_t pid = (uint32_t)opts->pid;
	const uint8_t one = 1;
	int r = scry_bpf_open(SCRY_BPF(strings), &s->bpf);

	if (r == 0)
		r = scry_bpf_constant(s->bpf, "scry_setup", &setup, sizeof(setup));
	if (r == 0)
		r = scry_bpf_load(s->bpf);
	if (r == 0)
		r = scry_bpf_set(s->bpf, "pids", &pid, &one);
	for (uint32_t i = 0; i < SCRY_STRINGS_NUMBERS && r == 0; i++)
		r = want(s, opts->protos, i);
	if (r == 0)
		r = scry_bpf_ring(s->bpf, "strings", give, s);
	if (r < 0 && !*scry_error())
		scry_fail(r, "eBPF: %s", strerror(-r));
	return r;
}

int scry_calls_strings_open(const struct scry_calls_strings_opts *opts,
			    struct scry_calls_strings **ret)
{
	struct scry_calls_strings *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return scry_no_memory("strings of system calls");
	scry_map_init(&s->threads, THREADS_MAX);
	scry_map_init(&s->ended, THREADS_MAX);
	s->max = opts->string_size < SCRY_STRINGS_MAX ? opts->string_size : SCRY_STRINGS_MAX;
	s->first = scry_stamp_read(CLOCK_MONOTONIC);
	s->last = s->first;
	r = load(s, opts);
	if (r < 0)
		scry_calls_strings_close(s);
	else
		*ret = s;
	return r;
}

void scry_calls_strings_close(struct scry_calls_strings *s)
{
	if (!s)
		return;
	scry_bpf_close(s->bpf);
	scry_map_done(&s->threads);
	scry_map_done(&s->ended);
	free(s->kept);
	free(s);
}

int scry_calls_strings_switch(struct scry_calls_strings *s, bool on)
{
	static const char *const programs[] = {"strings_forked", "strings_ran", "strings_ended",
					       "strings_exit", "strings_enter"};
	int r = 0;

	if (!s || on == s->is_on)
		return 0;
	s->is_on = on;
	if (!on) {
		scry_bpf_detach(s->bpf);
		return 0;
	}
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs) && r == 0; i++)
		r = scry_bpf_attach_own(s->bpf, programs[i]);
	return r;
}

void scry_calls_strings_perf(struct scry_calls_strings *s, bool on)
{
	if (s && on)
		s->begin_ns = scry_stamp_read(CLOCK_MONOTONIC).ns;
	else if (s)
		s->until = __rdtsc();
}

void scry_calls_strings_take(struct scry_calls_strings *s, uint64_t lost)
{
	if (!s)
		return;
	scry_bpf_take(s->bpf);
	s->has_ended |= lost || scry_bpf_sum(s->bpf, "lost", 0);
	if (s->last.ns - s->first.ns > RENEW_NS) /* the one clock is slewed, the other not */
		s->first = s->last;
	s->last = scry_stamp_read(CLOCK_MONOTONIC);
}

bool scry_calls_strings_ended(const struct scry_calls_strings *s)
{
	return s && (s->has_ended || s->has_thread_ended);
}

static size_t put_parts(const struct scry_calls_strings *s, const struct scry_strings_record *r,
			uint64_t *to)
{
	uint64_t *at = to;

	for (uint32_t i = 0; i < SCRY_STRINGS_OF_CALL; i++) {
		const uint32_t have = r->bytes[i], n = have < s->max ? have : s->max;
		struct scry_call_part part = {.bytes = n, .flags = SCRY_PART_TEXT};

		if (!r->arg[i] || r->arg[i] > SCRY_STRINGS_ARGS || have > SCRY_STRINGS_MAX + 1)
			continue;
		part.address = r->args[r->is_exit ? 1 : r->arg[i] - 1];
		part.flags |= have > n ? SCRY_PART_CUT : 0;
		memcpy(at, &part, sizeof(part));
		at[2 + n / 8] = 0;
		memcpy(at + 2, r->text[i], n);
		at += 2 + (n + 7) / 8;
	}
	return (size_t)(at - to);
}

/* The record of the thread's next call; NULL: there is none. The first ones may be of calls that
 * were made before perf was on. */
static struct kept *next_of(struct scry_calls_strings *s, const struct scry_syscall *call)
{
	struct kept *k;

	while ((k = first_of(s, call->tid)) && !k->is_call && k->record.time_ns < s->begin_ns &&
	       tsc_of(s, k->record.time_ns + UNSURE_NS) < call->tsc)
		drop_first(s, call->tid);
	return k;
}

/* A thread does not get on until its record is there, so one may be missing, not two. */
static size_t pair(struct scry_calls_strings *s, const struct scry_syscall *from,
		   uint64_t ret[SCRY_CALL_MORE_MAX])
{
	struct call call = {.tsc = from->tsc, .number = from->number, .is_exit = from->is_exit};
	const struct kept *k = next_of(s, from);
	size_t words = 0;

	memcpy(call.args, from->args, sizeof(call.args));
	if (!k || k->is_call) {
		scry_calls_strings_take(s, 0);
		k = next_of(s, from);
	}
	if (!k) {
		keep(s, from->tid, &(struct kept){.is_call = true, .call = call});
	} else if (!k->is_call && is_of(s, &k->record, &call)) {
		words = put_parts(s, &k->record, ret);
		drop_first(s, from->tid);
	} else {
		end_thread(s, from->tid);
	}
	return words;
}

size_t scry_calls_strings_of(struct scry_calls_strings *s, const struct scry_syscall *call,
			     uint64_t ret[SCRY_CALL_MORE_MAX])
{
	size_t words = 0;

	if (!s || call->number >= SCRY_STRINGS_NUMBERS ||
	    !s->is_wanted[call->is_exit][call->number] || s->has_ended ||
	    (s->until && call->tsc >= s->until) ||
	    scry_map_get(&s->ended, call->tid, &(uint64_t){0}))
		return 0;
	words = pair(s, call, ret);
	return s->has_ended ? 0 : words;
}
