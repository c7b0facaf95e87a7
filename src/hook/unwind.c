/*
 * See unwind.h. A file's table is compiled once and stays where it is; the list of what is mapped
 * where is made anew and published when it differs.
 */
#include "hook/unwind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "agent/agent.h"
#include "agent/walk.h"
#include "base/err.h"
#include "hook/parts.h"

#define LOOK_NS 1000000000ull
#define STACKS_OLD (SCRY_WALK_STACKS / 4) /* of earlier watches */

struct scry_unwind_file {
	const struct scry_module *module;
	uint64_t base;		  /* link-time address of pc 0 */
	uint32_t at, rows, rules; /* at 0: it has no table */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Copies a table behind the others. */
static bool put_table(struct scry_unwinding *u, const struct scry_cfi *cfi,
		      struct scry_unwind_file *file)
{
	const struct scry_unwind_rows *r = &cfi->rows;
	uint64_t pcs = (r->count + 1ull) / 2, which = (r->count + 3ull) / 4;
	uint64_t *to = (uint64_t *)u->map + u->used;

	if (u->words - u->used < r->rule_count + pcs + which)
		return false;
	memcpy(to, r->rules, r->rule_count * sizeof(*r->rules));
	memcpy(to + r->rule_count, r->pcs, r->count * sizeof(*r->pcs));
	memcpy(to + r->rule_count + pcs, r->which, r->count * sizeof(*r->which));
	file->base = cfi->base;
	file->at = (uint32_t)u->used;
	file->rows = r->count;
	file->rules = r->rule_count;
	u->used += r->rule_count + pcs + which;
	return true;
}

/* NULL: no memory. */
static struct scry_unwind_file *file_of(struct scry_unwinding *u, struct scry_module *module)
{
	struct scry_unwind_file *file;
	const struct scry_cfi *cfi;

	for (size_t i = 0; i < u->file_count; i++)
		if (u->files[i].module == module)
			return &u->files[i];
	if (u->file_count == u->file_room) {
		size_t room = u->file_room ? 2 * u->file_room : 64;

		file = reallocarray(u->files, room, sizeof(*file));
		if (!file)
			return NULL;
		u->files = file;
		u->file_room = room;
	}
	file = &u->files[u->file_count++];
	*file = (struct scry_unwind_file){.module = module};
	cfi = scry_module_cfi(module);
	if (!cfi->rows.count)
		u->no_tables++;
	else if (!put_table(u, cfi, file))
		u->no_room++;
	return file;
}

static void list_mapping(struct scry_unwinding *u, const struct scry_map_entry *m, uint32_t since,
			 struct scry_unwind_index *index)
{
	const struct scry_unwind_index *before = &u->lists[u->generation & 1];
	const struct scry_unwind_file *file;
	struct scry_unwind_object *o;
	struct scry_module *module;
	uint64_t bias;

	module = scry_modules_at(u->modules, m->start, &bias);
	file = module ? file_of(u, module) : NULL;
	if (!file || !file->at || index->count == SCRY_UNWIND_OBJECTS)
		return;
	o = &index->objects[index->count++];
	*o = (struct scry_unwind_object){.start = m->start,
					 .end = m->end,
					 .base = bias + file->base,
					 .at = file->at,
					 .rows = file->rows,
					 .rules = file->rules,
					 .since = since};
	for (uint64_t i = 0; i < before->count; i++)
		if (before->objects[i].start == o->start && before->objects[i].end == o->end &&
		    before->objects[i].base == o->base && before->objects[i].at == o->at)
			o->since = before->objects[i].since;
}

/* The process can write there: what it makes of it is its own affair, and never read here. */
static void publish(const struct scry_unwinding *u)
{
	const struct scry_unwind_index *index = &u->lists[u->generation & 1];

	memcpy(&u->map->index[u->generation & 1], index,
	       offsetof(struct scry_unwind_index, objects) +
		       index->count * sizeof(*index->objects));
	__atomic_store_n(&u->map->generation, u->generation, __ATOMIC_RELEASE);
}

void scry_unwind_list(struct scry_unwinding *u)
{
	const struct scry_maps *maps = scry_modules_maps(u->modules);
	uint64_t hash = scry_modules_hash(u->modules);
	uint64_t next = u->generation ? u->generation + 1 : __rdtsc() | 1;
	struct scry_unwind_index *index = &u->lists[next & 1];

	if (u->generation && hash == u->maps_hash)
		return;
	u->maps_hash = hash;
	index->count = 0;
	for (size_t i = 0; i < maps->count; i++)
		if (maps->entries[i].x && maps->entries[i].inode)
			list_mapping(u, &maps->entries[i], (uint32_t)next, index);
	u->generation = next;
	publish(u);
}

static uint64_t stack_end(const struct scry_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->entries[i].path, "[stack]"))
			return maps->entries[i].end;
	return 0;
}

/* Numbers of earlier watches are in the way when there are many. */
static int clear_old(const struct scry_inject *inj)
{
	const uint64_t at = scry_inject_symbol(inj, "scry_agent_walks");
	uint32_t count = 0;
	void *zeros;
	int r = 0;

	if (!inj->adopted ||
	    scry_mem_read(&inj->mem, at + offsetof(struct scry_agent_walks, count), &count,
			  sizeof(count)) < 0 ||
	    count < STACKS_OLD)
		return 0;
	zeros = calloc(SCRY_WALK_STACKS, sizeof(uint64_t));
	count = 0;
	if (zeros)
		r = scry_edit_poke(inj->mem.fd, at + offsetof(struct scry_agent_walks, stacks),
				   zeros, SCRY_WALK_STACKS * sizeof(uint64_t));
	if (zeros && r == 0)
		r = scry_edit_poke(inj->mem.fd, at + offsetof(struct scry_agent_walks, count),
				   &count, sizeof(count));
	free(zeros);
	return r;
}

static int give_tables(const struct scry_unwinding *u)
{
	const struct scry_inject *inj = u->inj;
	const struct scry_agent_unwinding config = {
		.map = u->address,
		.words = u->words,
		.stack_end = stack_end(scry_modules_maps(u->modules)),
		.depth = u->depth,
		.users = u->user,
		.pid = (uint32_t)scry_proc_tid_inside(inj->proc->pid, inj->proc->pid),
	};
	int r = clear_old(inj);

	if (r == 0)
		r = scry_edit_poke(inj->mem.fd,
				   inj->data + offsetof(struct scry_agent_data, unwinding), &config,
				   sizeof(config));
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

int scry_unwind_start(struct scry_unwinding *u, struct scry_inject *inj, struct scry_tracee *held,
		      uint32_t depth)
{
	struct scry_unwind_index *lists = calloc(2, sizeof(*lists));
	int slab, r = lists ? scry_parts_need(inj, held, SCRY_PART_WALK)
			    : scry_no_memory("unwind tables");

	slab = r < 0 ? r
		     : scry_inject_slab(inj, held, inj->header.text, sizeof(uint64_t),
					SCRY_UNWIND_BYTES / sizeof(uint64_t));
	if (slab < 0) {
		free(lists);
		return slab;
	}
	*u = (struct scry_unwinding){.inj = inj,
				     .modules = scry_modules_share(u->modules),
				     .user = u->user,
				     .map = (struct scry_unwind_map *)inj->counters[slab],
				     .address = inj->header.slabs[slab].counters,
				     .lists = lists,
				     .words = SCRY_UNWIND_BYTES / sizeof(uint64_t),
				     .used = sizeof(struct scry_unwind_map) / sizeof(uint64_t),
				     .depth = depth < SCRY_WALK_DEPTH_MAX ? depth
									  : SCRY_WALK_DEPTH_MAX};
	u->map->watch = __rdtsc();
	scry_account_of(inj->control)->walk = (struct scry_walk_account){0};
	scry_modules_see_on(u->modules);
	scry_unwind_list(u);
	return give_tables(u);
}

void scry_unwind_turn(struct scry_unwinding *u)
{
	uint64_t now, missed;

	if (!u->inj || !u->inj->control)
		return;
	now = now_ns();
	missed = scry_account_of(u->inj->control)->walk.missed;
	if (missed != u->missed && scry_modules_missed(u->modules))
		u->missed = missed;
	else if (now - u->looked_ns >= LOOK_NS)
		scry_modules_see_on(u->modules);
	else
		return;
	u->looked_ns = now;
	scry_unwind_list(u);
}

bool scry_unwind_lacks(const struct scry_unwinding *u, char *ret_text, size_t size)
{
	const struct scry_walk_account *c;

	if (!u->inj || !u->inj->control)
		return false;
	c = &scry_account_of(u->inj->control)->walk;
	if (!(u->no_tables || u->no_room || c->full || c->none))
		return false;
	snprintf(ret_text, size,
		 "stacks: %zu files have no unwind tables and %zu had no room for theirs: the "
		 "callers of their code are not known; %llu calls have no stack because there were "
		 "more than %u "
		 "different ones, %llu because more than %u threads called",
		 u->no_tables, u->no_room, (unsigned long long)c->full, SCRY_WALK_STACKS,
		 (unsigned long long)c->none, SCRY_WALKERS);
	return true;
}

void scry_unwind_done(struct scry_unwinding *u)
{
	if (u->lists)
		scry_modules_free(u->modules);
	free(u->lists);
	free(u->files);
	*u = (struct scry_unwinding){0};
}
