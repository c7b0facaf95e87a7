/* See syscall_sums.h. */
#include "sample/syscall_sums.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/map.h"
#include "sys/syscalls.h"

#define SITES_MAX (1u << 20)
#define ROWS_MAX (1u << 20)
#define THREADS_MAX (1u << 16)
#define PATHS_MAX (1u << 16)
#define BATCH 1024u /* slots of the kernel's at once */
#define NAMES_BYTES (64u << 20)

struct site {
	struct scry_syscalls_key key; /* tid 0 */
	uint32_t pid, number;
	struct scry_syscalls_file file; /* that its instruction was in at first */
	bool is_several;		/* it was in another one later */
	uint32_t *steps;		/* SCRY_SYSCALLS_STEPS of them; NULL: none was timed */
};

struct row {
	uint32_t site, thread; /* both places + 1; thread 0: of rows beyond the limit */
	struct scry_syscalls_sum sum;
	uint64_t timed, total_ns, max_ns;
};

struct scry_syscall_sums {
	struct scry_writer *writer;
	struct scry_syscall_programs *programs;
	struct scry_intern by_key, by_thread, by_row, texts;
	struct site *sites;
	struct scry_syscall_thread *threads;
	struct row *rows;
	size_t site_room, thread_room, row_room;
	uint64_t line_samples, calls, lost;
	struct scry_map ended_tids; /* instance << 32 | tid */
	struct scry_map stacks;	    /* site << 32 | stack -> count */
	struct scry_map lines;	    /* the same; stack 0: of a Ruby, and without one */
	struct scry_map paths;	    /* site << 32 | text -> count */
};

struct scry_syscall_sums *scry_syscall_sums_new(struct scry_writer *writer,
						struct scry_syscall_programs *programs)
{
	struct scry_syscall_sums *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->writer = writer;
	s->programs = programs;
	scry_intern_init(&s->by_key, SITES_MAX, SITES_MAX * sizeof(struct scry_syscalls_key));
	scry_intern_init(&s->by_thread, THREADS_MAX, THREADS_MAX * 16u);
	scry_intern_init(&s->by_row, ROWS_MAX, ROWS_MAX * 16u);
	scry_intern_init(&s->texts, PATHS_MAX, NAMES_BYTES);
	scry_map_init(&s->ended_tids, ROWS_MAX);
	scry_map_init(&s->stacks, ROWS_MAX);
	scry_map_init(&s->lines, ROWS_MAX);
	scry_map_init(&s->paths, PATHS_MAX);
	return s;
}

void scry_syscall_sums_free(struct scry_syscall_sums *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->by_key.count && s->sites; i++)
		free(s->sites[i].steps);
	free(s->sites);
	free(s->threads);
	free(s->rows);
	scry_intern_done(&s->by_key);
	scry_intern_done(&s->by_thread);
	scry_intern_done(&s->by_row);
	scry_intern_done(&s->texts);
	scry_map_done(&s->ended_tids);
	scry_map_done(&s->stacks);
	scry_map_done(&s->lines);
	scry_map_done(&s->paths);
	free(s);
}

/* The place + 1 of `key`, new or known, with room for it in `*table`; 0: none is left. */
static uint32_t place_of(struct scry_intern *in, const void *key, size_t key_size, void *table,
			 size_t *room, size_t size)
{
	const uint32_t count = in->count;
	uint32_t id = 0;
	void **at = table, *more;

	if (count == *room && !scry_intern_find(in, key, key_size)) {
		more = reallocarray(*at, *room ? 2 * *room : 256, size);
		if (!more)
			return 0;
		*at = more;
		*room = *room ? 2 * *room : 256;
	}
	if (scry_intern_put(in, key, key_size, &id) < 0)
		return 0;
	if (in->count != count)
		memset((char *)*at + (size_t)count * size, 0, size);
	return id;
}

static uint32_t thread_of(struct scry_syscall_sums *s, uint32_t tid, uint32_t instance,
			  uint32_t pid)
{
	const uint32_t key[2] = {tid, instance};
	uint32_t id = place_of(&s->by_thread, key, sizeof(key), &s->threads, &s->thread_room,
			       sizeof(*s->threads));

	if (id && !s->threads[id - 1].tid)
		s->threads[id - 1] =
			(struct scry_syscall_thread){.tid = tid, .instance = instance, .pid = pid};
	return id;
}

/* --- sites ----------------------------------------------------------------------------------- */

static uint32_t string(struct scry_syscall_sums *s, const char *text)
{
	uint32_t id = 0;

	if (text && text[0])
		scry_writer_string(s->writer, text, strlen(text), &id);
	return id;
}

/* "write"; of another ABI "32-bit call 4"; unknown ones by their number. */
static uint32_t call_name(struct scry_syscall_sums *s, const struct scry_syscalls_key *key)
{
	const char *known = key->abi == SCRY_ABI_64 ? scry_syscall_name(key->number) : NULL;
	char text[40];

	if (key->number == SCRY_SYSCALLS_RETURNED)
		known = "rt_sigreturn";
	if (key->number == SCRY_SYSCALLS_UNKNOWN)
		known = key->abi == SCRY_ABI_64 ? "[not known]" : "[32-bit call]";
	if (key->number == SCRY_SYSCALLS_NONE)
		known = key->abi == SCRY_ABI_64 ? "[no such call]" : "[no such 32-bit call]";
	if (known)
		return string(s, known);
	snprintf(text, sizeof(text), key->abi == SCRY_ABI_64 ? "call %u" : "32-bit call %u",
		 key->number);
	return string(s, text);
}

/* Something else was mapped there since: whose calls they were is not known. */
static bool is_other(const struct scry_syscalls_file *a, const struct scry_syscalls_file *b)
{
	return a->is_known && b->is_known &&
	       (a->inode != b->inode || a->device != b->device || a->offset != b->offset);
}

static void write_site(struct scry_syscall_sums *s, const struct site *site,
		       const struct scry_syscall_place *place)
{
	const struct scry_ev_syscall_site ev = {
		.site = site->number,
		.pid = site->pid,
		.image = site->key.instance,
		.number = site->key.number,
		.abi = site->key.abi,
		.name_str = call_name(s, &site->key),
		.module_str = string(s, place->module),
		.symbol_str = string(s, place->symbol),
		.offset = place->offset,
		.address = site->key.ip ? site->key.ip - 2 : 0,
	};

	scry_writer_payload(s->writer, &(struct scry_event){.type = SCRY_EVENT_SYSCALL_SITE}, &ev,
			    sizeof(ev));
}

uint32_t scry_syscall_sums_place(struct scry_syscall_sums *s, const struct scry_syscalls_place *r)
{
	struct scry_syscall_place place = {.module = NULL};
	struct scry_syscalls_key key = r->head.key;
	struct site *site;
	uint32_t id;

	if (key.tid && r->head.pid)
		thread_of(s, key.tid, key.instance, r->head.pid);
	key.tid = 0;
	id = place_of(&s->by_key, &key, sizeof(key), &s->sites, &s->site_room, sizeof(*s->sites));
	if (!id)
		return 0;
	site = &s->sites[id - 1];
	if (!site->number) {
		*site = (struct site){
			.key = key, .pid = r->head.pid, .number = id, .file = r->file};
		if (key.ip)
			scry_syscall_programs_name(s->programs, r, &place);
		write_site(s, site, &place);
	}
	return id;
}

void scry_syscall_sums_file(struct scry_syscall_sums *s, uint32_t number,
			    const struct scry_syscalls_file *file)
{
	struct site *site = &s->sites[number - 1];
	const struct scry_syscall_place several = {.module = SCRY_SYSCALLS_SEVERAL,
						   .offset = site->key.ip - 2};

	if (site->is_several || !is_other(&site->file, file))
		return;
	site->is_several = true;
	write_site(s, site, &several); /* the last one holds */
}

uint32_t scry_syscall_sums_site(struct scry_syscall_sums *s, const struct scry_syscalls_key *key,
				uint32_t pid)
{
	const struct scry_syscalls_place r = {
		.head = {.pid = pid, .instance = key->instance, .key = *key}};

	return scry_syscall_sums_place(s, &r);
}

static void add_sample(struct scry_map *to, uint32_t site, uint32_t stack, uint64_t weight)
{
	uint64_t *sum = scry_map_ref(to, (uint64_t)site << 32 | stack);

	if (sum)
		*sum += weight;
}

void scry_syscall_sums_stack(struct scry_syscall_sums *s, uint32_t site, uint32_t stack,
			     uint64_t weight)
{
	add_sample(&s->stacks, site, stack, weight);
}

void scry_syscall_sums_ruby(struct scry_syscall_sums *s, uint32_t site, uint64_t weight)
{
	s->line_samples++;
	add_sample(&s->lines, site, 0, weight);
}

/* Till its line comes it counts as one without. */
void scry_syscall_sums_line(struct scry_syscall_sums *s, uint32_t site, uint32_t stack,
			    uint64_t weight)
{
	uint64_t *none = stack ? scry_map_ref(&s->lines, (uint64_t)site << 32) : NULL;

	if (!none || *none < weight)
		return;
	*none -= weight;
	add_sample(&s->lines, site, stack, weight);
}

uint64_t scry_syscall_sums_calls(const struct scry_syscall_sums *s)
{
	return s->calls;
}

uint64_t scry_syscall_sums_lost(const struct scry_syscall_sums *s)
{
	return s->lost;
}

uint64_t scry_syscall_sums_line_samples(const struct scry_syscall_sums *s)
{
	return s->line_samples;
}

void scry_syscall_sums_path(struct scry_syscall_sums *s, uint32_t site, const char *path,
			    uint64_t weight)
{
	const size_t length = strnlen(path, SCRY_SYSCALLS_PATH);
	uint64_t *count = NULL;
	uint32_t id = 0;

	if (scry_intern_put(&s->texts, path, length, &id) == 0)
		count = scry_map_ref(&s->paths, (uint64_t)site << 32 | id);
	if (count)
		*count += weight;
}

/* --- threads --------------------------------------------------------------------------------- */

void scry_syscall_sums_ended(struct scry_syscall_sums *s, const struct scry_syscalls_record *r)
{
	uint32_t id = thread_of(s, r->tid, r->instance, r->pid);

	if (id) {
		s->threads[id - 1].has_ended = true;
		memcpy(s->threads[id - 1].name, r->name, sizeof(r->name));
		s->threads[id - 1].name[sizeof(r->name) - 1] = 0;
	}
	scry_map_put(&s->ended_tids, (uint64_t)r->instance << 32 | r->tid, 1);
}

void scry_syscall_sums_replaced(struct scry_syscall_sums *s, uint32_t instance)
{
	if (instance)
		scry_map_put(&s->ended_tids, (uint64_t)instance << 32, 1);
}

size_t scry_syscall_sums_waiting(const struct scry_syscall_sums *s)
{
	return s->ended_tids.count;
}

void scry_syscall_sums_names(struct scry_syscall_sums *s, scry_syscall_sums_name *name, void *arg)
{
	for (uint32_t i = 0; i < s->by_thread.count; i++)
		if (!s->threads[i].has_ended && s->threads[i].pid)
			name(arg, &s->threads[i]);
}

/* --- taking ---------------------------------------------------------------------------------- */

static void add_times(struct site *site, struct row *row, const struct scry_syscalls_times *t)
{
	if (!site->steps)
		site->steps = calloc(SCRY_SYSCALLS_STEPS, sizeof(*site->steps));
	for (uint32_t i = 0; i < SCRY_SYSCALLS_STEPS; i++) {
		row->timed += t->steps[i];
		if (site->steps)
			site->steps[i] += t->steps[i];
	}
	row->total_ns += t->total_ns;
	row->max_ns = t->max_ns > row->max_ns ? t->max_ns : row->max_ns;
}

static void add_kind(struct scry_syscalls_sum *to, const struct scry_syscalls_kind_sum *by)
{
	for (int i = 0; i < 2 && by->what; i++) {
		struct scry_syscalls_kind_sum *k = &to->kinds[i];

		if (k->what && k->what != by->what)
			continue;
		k->what = by->what;
		k->asked += by->asked;
		k->vain += by->vain;
		k->ticks += by->ticks;
		return;
	}
}

static void add_sum(struct scry_syscalls_sum *to, const struct scry_syscalls_sum *by)
{
	to->calls += by->calls;
	to->errors += by->errors;
	to->again += by->again;
	to->absent += by->absent;
	to->ticks += by->ticks;
	to->again_ticks += by->again_ticks;
	to->absent_ticks += by->absent_ticks;
	to->error = by->error ? by->error : to->error;
	for (int i = 0; i < 2; i++)
		add_kind(to, &by->kinds[i]);
}

static bool take_one(struct scry_syscall_sums *s, const struct scry_syscalls_sum *sum,
		     const struct scry_syscalls_times *times)
{
	const struct scry_syscalls_key *key = &sum->key;
	uint32_t thread = thread_of(s, key->tid, key->instance, 0);
	uint32_t ids[2] = {scry_syscall_sums_site(s, key, thread ? s->threads[thread - 1].pid : 0),
			   thread};
	uint32_t at = ids[0] ? place_of(&s->by_row, ids, sizeof(ids), &s->rows, &s->row_room,
					sizeof(*s->rows))
			     : 0;
	struct row *row;

	if (!at && ids[0]) { /* too many rows: of no thread */
		ids[1] = 0;
		at = place_of(&s->by_row, ids, sizeof(ids), &s->rows, &s->row_room,
			      sizeof(*s->rows));
	}
	s->calls += sum->calls;
	if (!at) {
		s->lost += sum->calls;
		return false;
	}
	row = &s->rows[at - 1];
	row->site = ids[0];
	row->thread = ids[1];
	add_sum(&row->sum, sum);
	if (times)
		add_times(&s->sites[ids[0] - 1], row, times);
	return true;
}

bool scry_syscall_sums_tick(struct scry_syscall_sums *s, const struct scry_syscalls_key *key)
{
	return take_one(s, &(struct scry_syscalls_sum){.key = *key, .ticks = 1}, NULL);
}

static bool has_ended(const struct scry_syscall_sums *s, const struct scry_syscalls_key *key)
{
	uint64_t one;

	return scry_map_get(&s->ended_tids, (uint64_t)key->instance << 32 | key->tid, &one) ||
	       scry_map_get(&s->ended_tids, (uint64_t)key->instance << 32, &one);
}

struct batch { /* of what the kernel has summed */
	struct scry_syscalls_slot *slots, *gone;
	char *values;
	size_t value_size;
	uint32_t count, gone_count;
};

static void take_batch(struct scry_syscall_sums *s, struct batch *b, bool is_timed, bool all)
{
	b->gone_count = 0;
	for (uint32_t i = 0; i < b->count; i++) {
		const void *value = b->values + i * b->value_size;
		const struct scry_syscalls_sum *sum = value;
		const struct scry_syscalls_timed *timed = value;

		if (!all && !has_ended(s, &sum->key))
			continue;
		take_one(s, sum, is_timed ? &timed->times : NULL);
		b->gone[b->gone_count++] = b->slots[i];
	}
}

size_t scry_syscall_sums_take(struct scry_syscall_sums *s, int map, bool is_timed, bool all)
{
	struct batch b = {.value_size = is_timed ? sizeof(struct scry_syscalls_timed)
						 : sizeof(struct scry_syscalls_sum)};
	uint32_t cursor = 0;
	bool is_first = true;
	size_t seen = 0;
	int err = -ENOMEM;

	b.slots = calloc(BATCH, sizeof(*b.slots));
	b.gone = calloc(BATCH, sizeof(*b.gone));
	b.values = calloc(BATCH, b.value_size);
	if (b.slots && b.gone && b.values)
		err = 0;
	while (!err) {
		b.count = BATCH;
		if (bpf_map_lookup_batch(map, is_first ? NULL : &cursor, &cursor, b.slots, b.values,
					 &b.count, NULL))
			err = -errno;
		if (err && err != -ENOENT) /* that is the end, with what was left */
			break;
		is_first = false;
		seen += b.count;
		take_batch(s, &b, is_timed, all);
		if (b.gone_count)
			bpf_map_delete_batch(map, b.gone, &b.gone_count, NULL);
	}
	free(b.slots);
	free(b.gone);
	free(b.values);
	if (err != -ENOENT) /* what has ended is still to be taken */
		return seen;
	scry_map_done(&s->ended_tids);
	scry_map_init(&s->ended_tids, ROWS_MAX);
	return seen;
}

/* --- the end --------------------------------------------------------------------------------- */

static int put(struct scry_syscall_sums *s, uint16_t type, const void *payload, size_t size)
{
	return scry_writer_payload(s->writer, &(struct scry_event){.type = type}, payload, size);
}

static int write_row(struct scry_syscall_sums *s, const struct row *row)
{
	const struct scry_syscall_thread *t = row->thread ? &s->threads[row->thread - 1] : NULL;
	const struct scry_ev_syscall ev = {
		.site = row->site,
		.pid = s->sites[row->site - 1].pid,
		.tid = t ? t->tid : 0,
		.thread_str = t ? string(s, t->name) : 0,
		.calls = row->sum.calls,
		.errors = row->sum.errors,
		.again = row->sum.again,
		.absent = row->sum.absent,
		.ticks = row->sum.ticks,
		.asked = row->sum.kinds[0].asked,
		.vain = row->sum.kinds[0].vain,
		.what = row->sum.kinds[0].what,
		.error = (uint32_t)-row->sum.error,
		.timed = row->timed,
		.total_ns = row->total_ns,
		.max_ns = row->max_ns,
		.vain_ticks = row->sum.kinds[0].ticks,
		.again_ticks = row->sum.again_ticks,
		.absent_ticks = row->sum.absent_ticks,
	};

	const struct scry_ev_syscall second = {
		.site = ev.site,
		.pid = ev.pid,
		.tid = ev.tid,
		.thread_str = ev.thread_str,
		.asked = row->sum.kinds[1].asked,
		.vain = row->sum.kinds[1].vain,
		.what = row->sum.kinds[1].what,
		.vain_ticks = row->sum.kinds[1].ticks,
	};
	int err = put(s, SCRY_EVENT_SYSCALL, &ev, sizeof(ev));

	return err || !second.what ? err : put(s, SCRY_EVENT_SYSCALL, &second, sizeof(second));
}

static int write_steps(struct scry_syscall_sums *s, const struct site *site)
{
	int err = 0;

	for (uint32_t i = 0; site->steps && i < SCRY_SYSCALLS_STEPS && !err; i++) {
		const struct scry_ev_syscall_time ev = {
			.site = site->number,
			.from_ns = scry_syscalls_step_ns(i),
			.to_ns = i + 1 < SCRY_SYSCALLS_STEPS ? scry_syscalls_step_ns(i + 1)
							     : UINT64_MAX,
			.calls = site->steps[i],
		};

		if (site->steps[i])
			err = put(s, SCRY_EVENT_SYSCALL_TIME, &ev, sizeof(ev));
	}
	return err;
}

static int write_stacks(struct scry_syscall_sums *s, const struct scry_map *of, uint16_t type)
{
	struct scry_map_slot slot;
	size_t cursor = 0;
	int err = 0;

	while (!err && scry_map_next(of, &cursor, &slot)) {
		const struct scry_ev_syscall_stack ev = {.site = (uint32_t)(slot.key >> 32),
							 .stack = (uint32_t)slot.key,
							 .count = slot.value};

		if (slot.value)
			err = put(s, type, &ev, sizeof(ev));
	}
	return err;
}

static int write_paths(struct scry_syscall_sums *s)
{
	struct scry_map_slot slot;
	size_t cursor = 0;
	int err = 0;

	while (!err && scry_map_next(&s->paths, &cursor, &slot)) {
		const char *text = scry_intern_get(&s->texts, (uint32_t)slot.key, NULL);
		const struct scry_ev_syscall_path ev = {.site = (uint32_t)(slot.key >> 32),
							.path_str = string(s, text),
							.count = slot.value};

		err = put(s, SCRY_EVENT_SYSCALL_PATH, &ev, sizeof(ev));
	}
	return err;
}

int scry_syscall_sums_write(struct scry_syscall_sums *s)
{
	int err = 0;

	for (uint32_t i = 0; i < s->by_row.count && !err; i++)
		err = write_row(s, &s->rows[i]);
	for (uint32_t i = 0; i < s->by_key.count && !err; i++)
		err = write_steps(s, &s->sites[i]);
	if (!err)
		err = write_stacks(s, &s->stacks, SCRY_EVENT_SYSCALL_STACK);
	if (!err)
		err = write_stacks(s, &s->lines, SCRY_EVENT_SYSCALL_LINE);
	return err ? err : write_paths(s);
}
