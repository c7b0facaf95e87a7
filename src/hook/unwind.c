/*
 * See unwind.h. A file's table is compiled once and stays where it is; the list of what is mapped
 * where is made anew and published when it differs.
 */
#include "hook/unwind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

#include "agent/agent.h"
#include "agent/walk.h"
#include "base/err.h"
#include "hook/parts.h"
#include "sys/cfi.h"
#include "sys/elf.h"
#include "wire/unwind_step.h"

#define PATIENCE_NS 4000000ull
#define LOOK_NS 1000000000ull
#define WINDOW 2048			  /* words of a stack that are read at once */
#define STACKS_OLD (SCRY_WALK_STACKS / 4) /* of earlier watches */

struct scry_unwind_file {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint64_t base;		  /* link-time address of pc 0 */
	uint64_t offset, address; /* of the mapping met first, address link-time */
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

static void compile(struct scry_unwinding *u, struct scry_elf *elf, struct scry_unwind_file *file)
{
	struct scry_image image = {0};
	struct scry_cfi cfi = {0};

	if (scry_image_open(elf, &image) < 0 || scry_cfi_compile(elf, &image, &cfi) < 0)
		u->no_tables++;
	else if (!put_table(u, &cfi, file))
		u->no_room++;
	scry_error_clear();
	scry_cfi_done(&cfi);
	scry_image_close(&image);
}

static struct scry_unwind_file *find_file(const struct scry_unwinding *u,
					  const struct scry_map_entry *m)
{
	for (size_t i = 0; i < u->file_count; i++) {
		struct scry_unwind_file *file = &u->files[i];

		if (file->inode == m->inode && file->dev_major == m->dev_major &&
		    file->dev_minor == m->dev_minor && file->offset == m->offset)
			return file;
	}
	return NULL;
}

/* Of a mapping that has not been met; NULL: no memory, or the file cannot be read. */
static struct scry_unwind_file *add_file(struct scry_unwinding *u, const struct scry_maps *maps,
					 const struct scry_map_entry *m)
{
	struct scry_unwind_file *file;
	struct scry_elf *elf = NULL;
	uint64_t bias = 0;

	if (u->file_count == u->file_room) {
		size_t room = u->file_room ? 2 * u->file_room : 64;

		file = reallocarray(u->files, room, sizeof(*file));
		if (!file)
			return NULL;
		u->files = file;
		u->file_room = room;
	}
	if (scry_elf_open_mapped(u->pid, m, &elf) < 0 || scry_elf_bias(elf, maps, m, &bias) < 0) {
		scry_elf_close(elf);
		return NULL;
	}
	file = &u->files[u->file_count++];
	*file = (struct scry_unwind_file){.inode = m->inode,
					  .dev_major = m->dev_major,
					  .dev_minor = m->dev_minor,
					  .offset = m->offset,
					  .address = m->start - bias};
	compile(u, elf, file);
	scry_elf_close(elf);
	return file;
}

static void list_mapping(struct scry_unwinding *u, const struct scry_maps *maps,
			 const struct scry_map_entry *m, uint32_t since,
			 struct scry_unwind_index *index)
{
	const struct scry_unwind_index *before = &u->lists[u->generation & 1];
	const struct scry_unwind_file *file = find_file(u, m);
	struct scry_unwind_object *o;

	if (!file)
		file = add_file(u, maps, m);
	scry_error_clear();
	if (!file || !file->at || index->count == SCRY_UNWIND_OBJECTS)
		return;
	o = &index->objects[index->count++];
	*o = (struct scry_unwind_object){.start = m->start,
					 .end = m->end,
					 .base = m->start - file->address + file->base,
					 .at = file->at,
					 .rows = file->rows,
					 .rules = file->rules,
					 .since = since};
	for (uint64_t i = 0; i < before->count; i++)
		if (before->objects[i].start == o->start && before->objects[i].end == o->end &&
		    before->objects[i].base == o->base && before->objects[i].at == o->at)
			o->since = before->objects[i].since;
}

static uint64_t hash_maps(const struct scry_maps *maps)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < maps->count; i++) {
		const struct scry_map_entry *m = &maps->entries[i];

		if (m->x && m->inode)
			hash = (hash ^ m->start ^ m->inode << 32 ^ m->offset) *
			       0x9e3779b97f4a7c15ull;
	}
	return hash;
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

/* Lists what is mapped; published when it is not what was listed last. */
static void look(struct scry_unwinding *u, const struct scry_maps *maps)
{
	uint64_t hash = hash_maps(maps);
	uint64_t next = u->generation ? u->generation + 1 : __rdtsc() | 1;
	struct scry_unwind_index *index = &u->lists[next & 1];

	if (u->generation && hash == u->maps_hash)
		return;
	u->maps_hash = hash;
	index->count = 0;
	for (size_t i = 0; i < maps->count; i++)
		if (maps->entries[i].x && maps->entries[i].inode)
			list_mapping(u, maps, &maps->entries[i], (uint32_t)next, index);
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

static int tell(const struct scry_unwinding *u, const struct scry_maps *maps)
{
	const struct scry_inject *inj = u->inj;
	const struct scry_agent_unwinding config = {
		.map = u->address,
		.words = u->words,
		.stack_end = stack_end(maps),
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

static struct scry_unwind_index *new_lists(void)
{
	return calloc(2, sizeof(struct scry_unwind_index));
}

static int no_memory(void)
{
	return scry_fail(-ENOMEM, "no memory for unwind tables");
}

int scry_unwind_start(struct scry_unwinding *u, struct scry_inject *inj, struct scry_tracee *held,
		      uint32_t depth)
{
	struct scry_unwind_index *lists = new_lists();
	struct scry_maps maps = {0};
	int slab = -1, r = lists ? scry_parts_need(inj, held, SCRY_PART_WALK) : no_memory();

	if (r == 0) {
		slab = scry_inject_slab(inj, held, inj->header.text, sizeof(uint64_t),
					SCRY_UNWIND_BYTES / sizeof(uint64_t));
		r = slab < 0 ? slab : scry_maps_read(inj->proc->pid, &maps);
	}
	if (r < 0) {
		free(lists);
		return r;
	}
	*u = (struct scry_unwinding){.inj = inj,
				     .pid = inj->proc->pid,
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
	look(u, &maps);
	r = tell(u, &maps);
	scry_maps_done(&maps);
	return r;
}

void scry_unwind_turn(struct scry_unwinding *u)
{
	struct scry_maps maps = {0};
	uint64_t now, missed, hash = u->maps_hash;
	bool is_missed;

	if (!u->inj || !u->inj->control)
		return;
	now = now_ns();
	missed = scry_account_of(u->inj->control)->walk.missed;
	is_missed = missed != u->missed && now - u->looked_ns >= u->patience_ns;
	if (!is_missed && now - u->looked_ns < LOOK_NS)
		return;
	u->missed = missed;
	u->looked_ns = now;
	if (scry_maps_read(u->pid, &maps) == 0 && maps.count)
		look(u, &maps);
	scry_error_clear();
	scry_maps_done(&maps);
	/* code without a file (a JIT's) is met again and again */
	if (u->maps_hash != hash)
		u->patience_ns = 0;
	else if (is_missed)
		u->patience_ns = u->patience_ns ? 2 * u->patience_ns : PATIENCE_NS;
}

int scry_unwind_start_outside(struct scry_unwinding *u, pid_t pid, uint32_t depth)
{
	struct scry_unwind_index *lists = new_lists();
	struct scry_maps maps = {0};
	void *map = mmap(NULL, SCRY_UNWIND_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int r;

	if (map == MAP_FAILED || !lists) {
		if (map != MAP_FAILED)
			munmap(map, SCRY_UNWIND_BYTES);
		free(lists);
		return no_memory();
	}
	r = scry_maps_read(pid, &maps);
	*u = (struct scry_unwinding){.pid = pid,
				     .map = map,
				     .lists = lists,
				     .words = SCRY_UNWIND_BYTES / sizeof(uint64_t),
				     .used = sizeof(struct scry_unwind_map) / sizeof(uint64_t),
				     .depth = depth < SCRY_UNWIND_FRAMES ? depth
									 : SCRY_UNWIND_FRAMES};
	if (r == 0)
		look(u, &maps);
	scry_maps_done(&maps);
	return r;
}

/* Of what is mapped now, if it may have changed. */
static bool look_again(struct scry_unwinding *u)
{
	uint64_t now = now_ns(), hash = u->maps_hash;
	struct scry_maps maps = {0};

	if (now - u->looked_ns < u->patience_ns)
		return false;
	u->looked_ns = now;
	if (scry_maps_read(u->pid, &maps) == 0 && maps.count)
		look(u, &maps);
	scry_error_clear();
	scry_maps_done(&maps);
	u->patience_ns = u->maps_hash != hash ? 0
			 : u->patience_ns     ? 2 * u->patience_ns
					      : PATIENCE_NS;
	return u->maps_hash != hash;
}

/* The rule at a run-time pc; 0: none. */
static uint64_t rule_at(const struct scry_unwinding *u, uint64_t pc)
{
	const struct scry_unwind_index *index = &u->lists[u->generation & 1];
	const uint64_t *words = (const uint64_t *)u->map;
	uint64_t low = 0, high = index->count;
	const struct scry_unwind_object *o;
	struct scry_unwind_rows rows;

	while (low < high) { /* the first that ends behind it */
		uint64_t middle = (low + high) / 2;

		if (index->objects[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	o = &index->objects[low];
	if (low >= index->count || pc < o->start || pc - o->base > UINT32_MAX)
		return 0;
	rows = (struct scry_unwind_rows){
		.count = o->rows, .rule_count = o->rules, .rules = words + o->at};
	rows.pcs = (const uint32_t *)(rows.rules + rows.rule_count);
	rows.which = (const uint16_t *)((const uint64_t *)rows.pcs + (rows.count + 1ull) / 2);
	return scry_unwind_find(&rows, (uint32_t)(pc - o->base));
}

struct outside {
	const struct scry_mem *mem;
	uint64_t start;
	size_t size;
	uint64_t words[WINDOW];
};

static int read_outside(void *arg, uint64_t address, uint64_t *ret)
{
	struct outside *r = arg;

	if (address % 8 == 0 && address - r->start + 8 <= r->size) {
		*ret = r->words[(address - r->start) / 8];
		return 1;
	}
	return address % 8 == 0 && scry_mem_u64(r->mem, address, ret) == 0;
}

uint32_t scry_unwind_walk(struct scry_unwinding *u, const struct scry_unwind_outside *from,
			  uint64_t ret_frames[SCRY_UNWIND_FRAMES])
{
	struct outside r = {.mem = from->mem, .start = from->slot};
	struct scry_unwind_state s = {.sp = from->slot + 8, .bp = from->bp, .bx = from->bx};
	ssize_t got = scry_mem_read_some(from->mem, from->slot, r.words, sizeof(r.words));
	enum scry_unwind_end end = SCRY_UNWIND_GOES_ON;
	uint32_t n = 0;

	r.size = got > 0 ? (size_t)got & ~(size_t)7 : 0;
	if (!u->map || !read_outside(&r, from->slot, &s.pc))
		return 0;
	ret_frames[n++] = s.pc;
	while (n < u->depth && end == SCRY_UNWIND_GOES_ON) {
		uint64_t rule = rule_at(u, scry_unwind_at(&s));

		if (!rule && look_again(u))
			rule = rule_at(u, scry_unwind_at(&s));
		end = scry_unwind_step(&s, rule, read_outside, &r);
		if (end == SCRY_UNWIND_IS_TOP || (end == SCRY_UNWIND_GOES_ON && !s.pc))
			break;
		ret_frames[n++] = end != SCRY_UNWIND_GOES_ON ? 0
				  : s.is_exact		     ? s.pc | SCRY_UNWIND_EXACT
							     : s.pc;
	}
	scry_error_clear();
	return n;
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
	if (u->map && !u->inj)
		munmap(u->map, SCRY_UNWIND_BYTES);
	free(u->lists);
	free(u->files);
	*u = (struct scry_unwinding){0};
}
