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

#define KEPT_MAX (1u << 16) /* that wait for their calls */
#define APART_NS 100000u    /* the two tell of a call within this */
#define THREADS_MAX (1u << 16)

SCRY_BPF_OBJECT(strings);

struct kept {
	struct scry_strings_record record;
	uint32_t next; /* of its thread, + 1; 0: none */
};

struct scry_calls_strings {
	struct scry_bpf *bpf;
	struct scry_stamp first, last; /* the TSC beside CLOCK_MONOTONIC */
	struct kept *kept;
	uint32_t count, room, used;
	struct scry_map threads; /* thread -> its first that is not used, + 1; its last << 32 */
	uint32_t max;
	bool is_on, has_ended;
	bool is_wanted[SCRY_STRINGS_NUMBERS];
};

static struct scry_stamp stamp(void)
{
	struct scry_stamp s;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	s.tsc = __rdtsc();
	s.ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	return s;
}

/* A record of the ring. */
static int give(void *arg, void *record, size_t size)
{
	struct scry_calls_strings *s = arg;
	const struct scry_strings_record *r = record;
	uint64_t *ends;

	if (size < sizeof(*r) || s->has_ended)
		return 0;
	if (s->count == s->room && s->room < KEPT_MAX) {
		uint32_t room = s->room ? 2 * s->room : 256;
		struct kept *more = reallocarray(s->kept, room, sizeof(*more));

		if (more) {
			s->kept = more;
			s->room = room;
		}
	}
	ends = s->count < s->room ? scry_map_ref(&s->threads, r->tid) : NULL;
	if (!ends) {
		s->has_ended = true;
		return 0;
	}
	s->kept[s->count++] = (struct kept){.record = *r};
	if ((uint32_t)*ends)
		s->kept[(*ends >> 32) - 1].next = s->count;
	*ends = (uint64_t)s->count << 32 | ((uint32_t)*ends ? (uint32_t)*ends : s->count);
	return 0;
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
	s->is_wanted[number] = count;
	return count ? scry_bpf_set(s->bpf, "wanted", &number, &wanted) : 0;
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
	return r == 0 ? scry_bpf_ring(s->bpf, "strings", give, s) : r;
}

int scry_calls_strings_open(const struct scry_calls_strings_opts *opts,
			    struct scry_calls_strings **ret)
{
	struct scry_calls_strings *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	scry_map_init(&s->threads, THREADS_MAX);
	s->max = opts->string_size < SCRY_STRINGS_MAX ? opts->string_size : SCRY_STRINGS_MAX;
	s->first = stamp();
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
	free(s->kept);
	free(s);
}

int scry_calls_strings_switch(struct scry_calls_strings *s, bool on)
{
	int r = 0;

	if (!s || on == s->is_on)
		return 0;
	s->is_on = on;
	if (!on) {
		scry_bpf_detach(s->bpf);
		return 0;
	}
	r = scry_bpf_attach_own(s->bpf, "strings_forked");
	return r == 0 ? scry_bpf_attach_own(s->bpf, "strings_enter") : r;
}

void scry_calls_strings_take(struct scry_calls_strings *s, uint64_t lost)
{
	if (!s)
		return;
	if (s->used == s->count) {
		s->used = s->count = 0;
		scry_map_done(&s->threads);
		scry_map_init(&s->threads, THREADS_MAX);
	}
	scry_bpf_take(s->bpf);
	s->has_ended |= lost || scry_bpf_sum(s->bpf, "lost", 0);
	s->last = stamp();
}

bool scry_calls_strings_ended(const struct scry_calls_strings *s)
{
	return s && s->has_ended;
}

/* Is it the call that the record was made of? */
static bool is_of(const struct scry_calls_strings *s, const struct scry_strings_record *r,
		  const struct scry_syscall *call)
{
	const uint64_t tsc = scry_stamp_tsc(&s->first, &s->last, r->time_ns);
	const uint64_t apart = tsc > call->tsc ? tsc - call->tsc : call->tsc - tsc;
	const uint64_t ns = s->last.ns - s->first.ns, ticks = s->last.tsc - s->first.tsc;

	return r->number == call->number && ns && apart / (ticks / ns + 1) < APART_NS &&
	       !memcmp(r->args, call->args, sizeof(r->args));
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
		part.address = r->args[r->arg[i] - 1];
		part.flags |= have > n ? SCRY_PART_CUT : 0;
		memcpy(at, &part, sizeof(part));
		at[2 + n / 8] = 0;
		memcpy(at + 2, r->text[i], n);
		at += 2 + (n + 7) / 8;
	}
	return (size_t)(at - to);
}

/* Older ones are of calls that nobody reported. False: there is none of it. */
static bool find(struct scry_calls_strings *s, const struct scry_syscall *call, uint64_t *ret,
		 size_t *ret_words)
{
	uint64_t ends = 0;
	bool is_found = false;

	if (!scry_map_get(&s->threads, call->tid, &ends))
		return false;
	while ((uint32_t)ends && !is_found) {
		const struct kept *k = &s->kept[(uint32_t)ends - 1];
		const bool is_newer =
			scry_stamp_tsc(&s->first, &s->last, k->record.time_ns) > call->tsc;

		is_found = is_of(s, &k->record, call);
		if (!is_found && is_newer)
			break;
		if (is_found)
			*ret_words = put_parts(s, &k->record, ret);
		ends = k->next ? (ends >> 32 << 32) | k->next : 0;
		s->used++;
	}
	scry_map_put(&s->threads, call->tid, ends);
	return is_found;
}

size_t scry_calls_strings_of(struct scry_calls_strings *s, const struct scry_syscall *call,
			     uint64_t ret[SCRY_CALL_MORE_MAX])
{
	size_t words = 0;

	if (!s || call->number >= SCRY_STRINGS_NUMBERS || !s->is_wanted[call->number])
		return 0;
	if (!find(s, call, ret, &words)) { /* it may have come since */
		scry_calls_strings_take(s, 0);
		find(s, call, ret, &words);
	}
	return s->has_ended ? 0 : words;
}
