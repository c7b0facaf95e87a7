/*
 * Fibers of libscryfiber, by the registry that it exports (fiber/registry.h). It is looked for by
 * its magic, so that a stripped, static program has one, too; and it is a stranger's bytes like all
 * else: each offset, count and pointer is checked before it is used.
 */
#include <stdlib.h>
#include <string.h>

#include "name/fiber_finders.h"

#define REGISTRY_VERSION 3u
#define CAPACITY_MAX 65536u
#define CLASSES_MAX 256u
#define SLOTS_MAX 65536u
#define SLABS_MAX 65536u
#define FIBER_BYTES_MAX 4096u
#define SIZE_MAX_BYTES (1ull << 40)
#define LOOKS_MAX (4u * SCRY_FIBERS_MAX)
#define COLOURS_BYTES 8192u /* by which tops may differ */
#define HEAD_MORE 16384u    /* of a slab's head, for rounding */
#define SCHEDULERS_AT_ONCE 512u
#define OFFSET_MAX (1u << 20)
#define SLICE_BYTES (256u << 10) /* of a slab's fibers, at once */
#define TID_AT 720u		 /* glibc, struct pthread: tid */
#define BLOCK_WORDS 8u		 /* control words, r15 to r12, rbx, rbp, where it goes on */

struct registry { /* as fiber/registry.h has it */
	uint64_t magic;
	uint32_t version, capacity;
	uint64_t scheds;
	int64_t current_tls;
	uint32_t sched_main, sched_tid, sched_pools, classes;
	uint32_t pool_slab_slots, pool_slab_count, pool_slabs, pool_size;
	uint32_t extra, fiber_bytes;
	uint32_t fiber_sp, fiber_state, fiber_name, fiber_entry, fiber_low, fiber_top, fiber_magic;
	uint32_t fiber_sched;
	uint32_t sched_is_lost, unused;
};

_Static_assert(sizeof(struct registry) == 112, "fiber/registry.h");

struct slab {
	uint64_t at, size; /* size: of one stack */
	uint64_t slots;
};

struct reader {
	struct scry_fibers *f;
	struct registry r;
	uint64_t entry; /* of the fiber that is looked at */
	uint64_t sched;
	uint64_t current; /* the fiber that runs on the scheduler's thread; 0: not known */
	int32_t tid;
	bool is_lost;	 /* the scheduler's thread has ended */
	uint64_t looked; /* at places of tables, in all */
	uint64_t name_at;
	char name[64]; /* that is there */
	char *slice;
	uint64_t size;		   /* of the stacks of the pool that is looked at */
	struct scry_map seen;	   /* where stacks of fibers begin */
	struct scry_map registers; /* thread id -> thread register; read when it is asked for */
	bool has_registers;
	struct slab *slabs;
	size_t slab_count, slab_room;
};

static uint64_t word_at(const char *fiber, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, fiber + offset, 8);
	return word;
}

static bool is_sound(const struct registry *r)
{
	const uint32_t fields[] = {r->fiber_sp,	 r->fiber_state, r->fiber_name,	 r->fiber_entry,
				   r->fiber_low, r->fiber_top,	 r->fiber_magic, r->fiber_sched};
	const uint32_t offsets[] = {r->sched_main,	r->sched_tid,  r->sched_pools,
				    r->pool_slab_slots, r->pool_slabs, r->pool_slab_count,
				    r->pool_size,	r->extra,      r->sched_is_lost};

	if (r->version != REGISTRY_VERSION || r->capacity > CAPACITY_MAX ||
	    r->classes > CLASSES_MAX || r->fiber_bytes > FIBER_BYTES_MAX || r->fiber_bytes < 64 ||
	    r->fiber_bytes % 8)
		return false;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (fields[i] % 4 || fields[i] > r->fiber_bytes - 8)
			return false;
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		if (offsets[i] > OFFSET_MAX)
			return false;
	return true;
}

/* The thread registers by what the program calls their threads; of several the first one. */
static void read_registers(struct reader *k)
{
	const struct scry_fiber_list *selves = &k->f->marks.selves;
	uint64_t *at;
	uint32_t tid;

	for (size_t i = 0; i < selves->count; i++) {
		if (!scry_fiber_may_judge(&k->f->budget) ||
		    scry_mem_u32(&k->f->mem, selves->at[i] + TID_AT, &tid))
			continue;
		at = scry_map_ref(&k->registers, tid);
		if (at && !*at)
			*at = selves->at[i];
	}
}

/* 0: not known. */
static uint64_t thread_register(struct reader *k, int32_t tid)
{
	uint64_t at = 0;

	if (!k->has_registers)
		read_registers(k);
	k->has_registers = true;
	return scry_map_get(&k->registers, (uint32_t)tid, &at) ? at : 0;
}

static const char *state_word(uint32_t state)
{
	static const char *const words[] = {[1] = "idle", "ready", "waiting", "resuming", "ended"};

	return words[state];
}

/* Where a fiber that does not run goes on: into add->state and its frames. */
static void walk(struct reader *k, uint64_t sp, struct scry_fiber_add *add)
{
	uint64_t block[BLOCK_WORDS], again[BLOCK_WORDS];
	struct scry_unwind_state at = {.sp = sp + sizeof(block)};
	enum scry_fiber_entry entry;

	add->state = SCRY_FIBER_UNKNOWN;
	if (sp < add->bounds.low || sp > add->bounds.top - sizeof(block) || sp % 8 ||
	    scry_mem_read(&k->f->mem, sp, block, sizeof(block)))
		return;
	at.bx = block[5];
	at.bp = block[6];
	at.pc = block[7];
	entry = scry_fiber_walk(&k->f->walker, at, add->bounds);
	if (scry_fiber_has_changed(&k->f->walker) ||
	    scry_mem_read(&k->f->mem, sp, again, sizeof(again)) ||
	    memcmp(block, again, sizeof(block)) != 0) {
		add->state = SCRY_FIBER_CHANGED;
	} else if (entry == SCRY_FIBER_ENTRY_TABLES || entry == SCRY_FIBER_ENTRY_DEEP) {
		add->frame_count = scry_fibers_take_walk(k->f);
		add->is_cut = entry == SCRY_FIBER_ENTRY_DEEP;
		add->state = SCRY_FIBER_SUSPENDED;
		if (at.sp != add->bounds.top || !scry_fiber_is_code(&k->f->walker, k->entry))
			return;
		/* its stack holds what it begins with, and nothing else */
		add->state = SCRY_FIBER_NEW;
		add->frame_count = 1;
		k->f->frames[0] = k->entry | SCRY_FIBER_FRAME_EXACT;
	}
}

/* Is it a stack of the pool's size that no other fiber has, between guards where these are known?
 */
static bool is_stack(struct reader *k, const struct scry_fiber_bounds *b)
{
	const struct scry_fiber_area *area = scry_fiber_area_at(&k->f->marks, b->low);
	uint64_t *seen;

	if (!area || b->low % SCRY_PAGE || b->top <= b->low || b->top - b->low > k->size ||
	    b->top - b->low + COLOURS_BYTES < k->size || b->top > area->top)
		return false;
	if (!k->f->space.core && (area->low != b->low || !area->guard_bytes))
		return false;
	seen = scry_map_ref(&k->seen, b->low);
	return seen && !(*seen)++;
}

static void take_fiber(struct reader *k, uint64_t address, const char *fiber)
{
	const struct registry *r = &k->r;
	struct scry_fiber_add add = {.kind = SCRY_FIBER_SCRYFIBER, .tid = k->tid};
	uint32_t state;
	uint64_t sp = word_at(fiber, r->fiber_sp), now, name_at;

	memcpy(&state, fiber + r->fiber_state, 4);
	state &= 0xff;
	/* those of another scheduler were lost by a fork, whose child has the pools */
	if (word_at(fiber, r->fiber_magic) != SCRY_FIBER_REGISTRY_MAGIC ||
	    word_at(fiber, r->fiber_sched) != k->sched || state < 1 || state > 5 ||
	    !scry_fiber_may_judge(&k->f->budget))
		return;
	add.bounds.low = word_at(fiber, r->fiber_low);
	add.bounds.top = word_at(fiber, r->fiber_top);
	add.word = k->is_lost && state != 5 ? "thread ended" : state_word(state);
	if (!is_stack(k, &add.bounds)) {
		/* no area is known where memory was not searched */
		if (k->f->budget.is_look_over)
			k->f->budget.unjudged++;
		else
			k->f->sums.bad++;
		return;
	}
	scry_fibers_claim(k->f, add.bounds.low);
	k->entry = word_at(fiber, r->fiber_entry);
	name_at = word_at(fiber, r->fiber_name);
	if (name_at != k->name_at) /* most have the same one */
		scry_fibers_text(k->f, name_at, k->name);
	k->name_at = name_at;
	add.name = name_at ? k->name : NULL;
	if (state == 5) {
		add.state = SCRY_FIBER_ENDED;
	} else if (!scry_fibers_take_running(k->f, &add)) {
		if (address == k->current)
			add.state = SCRY_FIBER_RUNNING;
		else
			walk(k, sp, &add);
		if (scry_mem_u64(&k->f->mem, address + r->fiber_sp, &now) || now != sp)
			add.state = SCRY_FIBER_CHANGED;
	}
	if (add.state == SCRY_FIBER_CHANGED || add.state == SCRY_FIBER_RUNNING)
		add.word = NULL;
	if (add.state == SCRY_FIBER_CHANGED)
		add.frame_count = 0;
	scry_fibers_add(k->f, &add);
}

/* Tables that lead into each other would never end. */
static bool may_look(struct reader *k, uint64_t places)
{
	if (k->looked + places <= LOOKS_MAX) {
		k->looked += places;
		return true;
	}
	k->f->sums.lost += places;
	return false;
}

/* `slots` fibers side by side. Pages that were never touched are not there in a core. */
static void take_slab(struct reader *k, uint64_t slab, uint32_t slots)
{
	const uint32_t bytes = k->r.fiber_bytes, most = SLICE_BYTES / bytes;
	uint64_t head = 0;

	if (!may_look(k, slots) || !scry_fiber_may_judge(&k->f->budget))
		return;
	/* gdb's own cores have zeros behind the first guard of a mapping, and before it, too */
	if (scry_mem_u64(&k->f->mem, slab, &head) || !head) {
		k->f->sums.unreadable += slots;
		return;
	}
	for (uint32_t first = 0; first < slots; first += most) {
		uint32_t count = slots - first < most ? slots - first : most;
		uint64_t at = slab + k->r.extra + (uint64_t)first * bytes;
		ssize_t n = scry_mem_read_some(&k->f->mem, at, k->slice, (size_t)count * bytes);

		k->f->sums.unreadable += n < 0 ? count : 0;
		for (uint32_t i = 0; n > 0 && (i + 1) * bytes <= (size_t)n; i++)
			take_fiber(k, at + (uint64_t)i * bytes, k->slice + (size_t)i * bytes);
	}
}

static void note_slab(struct reader *k, uint64_t slab, uint32_t slots, uint64_t size)
{
	struct slab *more;

	if (k->slab_count == k->slab_room) {
		size_t room = k->slab_room ? 2 * k->slab_room : 64;

		more = reallocarray(k->slabs, room, sizeof(*more));
		if (!more) {
			k->f->sums.lost++;
			return;
		}
		k->slabs = more;
		k->slab_room = room;
	}
	k->slabs[k->slab_count++] = (struct slab){slab, size, slots};
}

static int by_address(const void *left, const void *right)
{
	const struct slab *a = left, *b = right;

	return (a->at > b->at) - (a->at < b->at);
}

/* Is it a stack of the slab that begins before it? */
static bool is_in_slab(const struct slab *s, uint32_t head, const struct scry_fiber_area *area)
{
	return area->low - s->at <
	       (uint64_t)head + HEAD_MORE + s->slots * (s->size + area->guard_bytes);
}

/* Stacks of slabs that no fiber has are the pools'. */
static void take_spares(struct reader *k)
{
	struct scry_fiber_marks *m = &k->f->marks;
	size_t slab = 0;

	if (!k->slab_count)
		return;
	qsort(k->slabs, k->slab_count, sizeof(*k->slabs), by_address);
	for (size_t i = 0; i < m->area_count; i++) {
		struct scry_fiber_area *a = &m->areas[i];

		while (slab + 1 < k->slab_count && k->slabs[slab + 1].at <= a->low)
			slab++;
		if (a->is_taken || a->is_thread || !a->guard_bytes || a->low < k->slabs[slab].at ||
		    !is_in_slab(&k->slabs[slab],
				k->r.extra + k->slabs[slab].slots * k->r.fiber_bytes, a))
			continue;
		a->is_taken = true;
		k->f->sums.spare_stacks += a->highest != 0;
		k->f->sums.spare_bytes += a->there_bytes;
	}
}

static void take_pool(struct reader *k, uint64_t pool)
{
	uint32_t slots, count;
	uint64_t slab, size;

	if (scry_mem_u32(&k->f->mem, pool + k->r.pool_slab_slots, &slots) ||
	    scry_mem_u64(&k->f->mem, pool + k->r.pool_size, &size) ||
	    scry_mem_u32(&k->f->mem, pool + k->r.pool_slab_count, &count))
		return;
	if (slots > SLOTS_MAX || count > SLABS_MAX || size > SIZE_MAX_BYTES) {
		k->f->sums.bad++;
		return;
	}
	k->size = size;
	for (uint32_t i = 0; i < count && may_look(k, 1); i++)
		if (scry_mem_u64(&k->f->mem, pool + k->r.pool_slabs + 8ull * i, &slab) == 0 &&
		    slab) {
			note_slab(k, slab, slots, size);
			take_slab(k, slab, slots);
		}
}

static void take_scheduler(struct reader *k, uint64_t sched)
{
	uint64_t fs, pool, main;
	uint32_t tid = 0;
	uint8_t is_lost = 0;

	if (scry_mem_u32(&k->f->mem, sched + k->r.sched_tid, &tid) ||
	    scry_mem_read(&k->f->mem, sched + k->r.sched_is_lost, &is_lost, 1) ||
	    scry_mem_u64(&k->f->mem, sched + k->r.sched_main, &main)) {
		k->f->sums.bad++;
		return;
	}
	k->f->sums.schedulers++;
	k->tid = (int32_t)tid;
	k->is_lost = is_lost != 0;
	k->sched = sched;
	k->current = 0;
	fs = k->r.current_tls ? thread_register(k, k->tid) : 0;
	if (fs)
		scry_mem_u64(&k->f->mem, fs + (uint64_t)k->r.current_tls, &k->current);
	for (uint32_t i = 0; i < k->r.classes && may_look(k, 1); i++)
		if (scry_mem_u64(&k->f->mem, sched + k->r.sched_pools + 8ull * i, &pool) == 0 &&
		    pool)
			take_pool(k, pool);
}

static void take_schedulers(struct reader *k)
{
	uint64_t slice[SCHEDULERS_AT_ONCE];
	ssize_t n;

	for (uint32_t first = 0; first < k->r.capacity; first += SCHEDULERS_AT_ONCE) {
		const uint32_t left = k->r.capacity - first;
		const size_t most = left < SCHEDULERS_AT_ONCE ? left : SCHEDULERS_AT_ONCE;

		if (!scry_fiber_may_judge(&k->f->budget))
			return;
		n = scry_mem_read_some(&k->f->mem, k->r.scheds + 8ull * first, slice, 8 * most);
		for (ssize_t i = 0; i < n / 8; i++)
			if (slice[i] && scry_fiber_may_judge(&k->f->budget))
				take_scheduler(k, slice[i]);
	}
}

void scry_fibers_find_registries(struct scry_fibers *f)
{
	struct reader k = {.f = f, .slice = malloc(SLICE_BYTES)};

	scry_map_init(&k.seen, SCRY_FIBERS_MAX);
	scry_map_init(&k.registers, SCRY_FIBER_THREADS_MAX);
	for (size_t i = 0; i < f->marks.registries.count && k.slice; i++) {
		if (!scry_fiber_may_judge(&f->budget) ||
		    scry_mem_read(&f->mem, f->marks.registries.at[i], &k.r, sizeof(k.r)))
			continue;
		if (!is_sound(&k.r)) { /* of a copy of the library that was never used, say */
			f->sums.bad += k.r.current_tls != 0;
			continue;
		}
		take_schedulers(&k);
		take_spares(&k);
		k.slab_count = 0;
	}
	scry_map_done(&k.seen);
	scry_map_done(&k.registers);
	free(k.slabs);
	free(k.slice);
}
