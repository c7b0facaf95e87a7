/*
 * Pools of stacks. Free ones are an array of ids used as a stack, so that what was put last, and is
 * warm, is given out first, and what lies at the bottom is what was not needed for longest. The
 * array has as many places as there are stacks, and lies in pieces in the heads of the slabs: a
 * pool allocates nothing else.
 */
#include "fiber/stack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define SIZE_DEFAULT (256u << 10)
#define SIZE_LEAST (16u << 10)
#define SIZE_MOST (1u << 30)
#define GUARD_DEFAULT (64u << 10)
#define FIRST_BATCH 16
#define SLOTS_LEAST 16 /* of a slab, where addresses are scarce */

static struct scry_stack_pool *_Atomic pools[SCRY_POOLS];
pthread_mutex_t scry_stack_pools_lock = PTHREAD_MUTEX_INITIALIZER;

struct scry_stack_pool *scry_stack_pools(uint32_t index)
{
	return index < SCRY_POOLS ? atomic_load(&pools[index]) : NULL;
}

size_t scry_stack_environment(void)
{
	const char *text = getenv("SCRY_STACK_SIZE");
	char *end;
	unsigned long long size;
	int shift = 0;

	if (text == NULL || *text < '0' || *text > '9')
		return 0;
	size = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'k')
		shift = 10;
	else if (*end == 'M' || *end == 'm')
		shift = 20;
	else if (*end == 'G' || *end == 'g')
		shift = 30;
	if (*end != '\0' && (shift == 0 || end[1] != '\0'))
		return 0; /* no size: the default, not another */
	return size <= SIZE_MOST >> shift ? size << shift : SIZE_MOST;
}

static size_t power_of_two(size_t size)
{
	size_t power = SIZE_LEAST;

	while (power < size)
		power <<= 1;
	return power;
}

/* A pool that was freed, or a new one. They are never unmapped: a handler may be looking at one. */
static int take_pool(struct scry_stack_pool **ret_pool)
{
	struct scry_stack_pool *pool = NULL;
	int error = -EAGAIN;

	pthread_mutex_lock(&scry_stack_pools_lock);
	for (uint32_t i = 0; i < SCRY_POOLS; i++) {
		pool = atomic_load(&pools[i]);
		if (pool != NULL && atomic_load(&pool->is_live))
			continue;
		if (pool == NULL) {
			pool = mmap(NULL, sizeof(*pool), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (pool == MAP_FAILED) {
				error = -ENOMEM;
				break;
			}
		}
		memset(pool, 0, sizeof(*pool));
		atomic_store(&pool->is_live, 1);
		atomic_store(&pools[i], pool);
		*ret_pool = pool;
		error = 0;
		break;
	}
	pthread_mutex_unlock(&scry_stack_pools_lock);
	return error;
}

static void before_fork(void)
{
	scry_overflow_before_fork();
	pthread_mutex_lock(&scry_stack_pools_lock);
	for (uint32_t i = 0; i < SCRY_POOLS; i++) {
		struct scry_stack_pool *pool = atomic_load(&pools[i]);

		if (pool == NULL || !atomic_load(&pool->is_live) || !pool->attr.is_shared)
			continue;
		pthread_mutex_lock(&pool->lock);
		pool->is_forking = true;
	}
}

static void after_fork(bool is_child)
{
	for (uint32_t i = 0; i < SCRY_POOLS; i++) {
		struct scry_stack_pool *pool = atomic_load(&pools[i]);

		if (pool == NULL || !pool->is_forking)
			continue;
		pool->is_forking = false;
		if (is_child)
			pthread_mutex_init(&pool->lock, NULL);
		else
			pthread_mutex_unlock(&pool->lock);
	}
	if (is_child)
		pthread_mutex_init(&scry_stack_pools_lock, NULL);
	else
		pthread_mutex_unlock(&scry_stack_pools_lock);
	scry_overflow_after_fork(is_child);
}

static void after_fork_in_parent(void)
{
	after_fork(false);
}

static void after_fork_in_child(void)
{
	after_fork(true);
}

static void handle_fork(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void scry_stack_handle_fork(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, handle_fork);
}

int scry_stack_pool_make(const struct scry_stack_attr *attr, size_t extra,
			 struct scry_stack_pool **ret_pool)
{
	static const struct scry_stack_attr none;
	size_t environment = scry_stack_environment(), size, guard;
	struct scry_stack_pool *pool;
	int error;

	scry_stack_handle_fork();
	if (attr == NULL)
		attr = &none;
	size = attr->size_bytes != 0 ? attr->size_bytes
	       : environment != 0    ? environment
				     : SIZE_DEFAULT;
	guard = attr->guard_bytes != 0 ? attr->guard_bytes : GUARD_DEFAULT;
	if (size > SIZE_MOST || guard > SIZE_MOST)
		return -EINVAL;
	error = take_pool(&pool);
	if (error != 0)
		return error;
	pool->size = power_of_two(size > environment ? size : environment);
	pool->guard = (guard + PAGE - 1) & ~(size_t)(PAGE - 1);
	/* an odd number of pages apart: else all stacks share few sets of the TLB and of the caches
	 */
	if (((pool->guard + pool->size) / PAGE) % 2 == 0)
		pool->guard += PAGE;
	pool->stride = pool->guard + pool->size;
	pool->extra = extra;
	pool->head = (SCRY_SLAB_EXTRA + SCRY_SLAB_SLOTS * extra + PAGE - 1) & ~(size_t)(PAGE - 1);
	pool->slab_slots = SCRY_SLAB_SLOTS;
	pool->batch = FIRST_BATCH;
	pool->attr = *attr;
	if (pool->attr.report_fd == 0)
		pool->attr.report_fd = STDERR_FILENO;
	pthread_mutex_init(&pool->lock, NULL);
	strcpy(pool->note, "guards by madvise: no ceiling but memory");
	*ret_pool = pool;
	return 0;
}

int scry_stack_pool_new(const struct scry_stack_attr *attr, struct scry_stack_pool **ret_pool)
{
	return scry_stack_pool_make(attr, 0, ret_pool);
}

void scry_stack_pool_free(struct scry_stack_pool *pool)
{
	if (pool == NULL)
		return;
	for (uint32_t i = 0; i < pool->slab_count; i++)
		scry_guard_unmap_slab(pool, i);
	pthread_mutex_destroy(&pool->lock);
	atomic_store(&pool->is_live, 0);
}

/* One more slab. The first may have fewer slots where addresses are scarce (ulimit -v); all have as
 * many. */
static int add_slab(struct scry_stack_pool *pool)
{
	struct scry_stack_slab *slab;

	if (pool->slab_count == SCRY_POOL_SLABS) {
		snprintf(pool->note, sizeof(pool->note),
			 "no more stacks: a pool has %d slabs at most", SCRY_POOL_SLABS);
		return -EAGAIN;
	}
	slab = scry_guard_map_slab(pool, pool->slab_count);
	while (slab == NULL && pool->slab_count == 0 && pool->slab_slots > SLOTS_LEAST) {
		pool->slab_slots /= 2;
		slab = scry_guard_map_slab(pool, 0);
	}
	if (slab == NULL) {
		int error = -errno;

		snprintf(pool->note, sizeof(pool->note),
			 "no more stacks, as %zu MiB of addresses could not be mapped (%s): see "
			 "ulimit -v, vm.overcommit_memory, vm.max_map_count",
			 (pool->slab_slots * pool->stride) >> 20, strerror(-error));
		return error;
	}
	atomic_store(&pool->slabs[pool->slab_count], slab);
	pool->slab_count++; /* after it: looking a stack up takes no lock */
	return 0;
}

/* A stack that no fiber had yet. */
static int fresh(struct scry_stack_pool *pool, uint32_t *ret_id)
{
	uint32_t last = pool->slab_count - 1, room;
	struct scry_stack_slab *slab =
		pool->slab_count == 0 ? NULL : atomic_load(&pool->slabs[last]);

	if (slab == NULL || slab->slots_fresh == pool->slab_slots) {
		int error = add_slab(pool);

		if (error != 0)
			return error;
		last = pool->slab_count - 1;
		slab = atomic_load(&pool->slabs[last]);
	}
	if (slab->slots_fresh == slab->slots_open) {
		room = pool->slab_slots - slab->slots_open;
		room = scry_guard_open(pool, last, slab->slots_open,
				       room < pool->batch ? room : pool->batch);
		if (room == 0)
			return -EAGAIN;
		slab->slots_open += room;
		if (pool->batch < SCRY_SLAB_SLOTS)
			pool->batch *= 2;
	}
	*ret_id = last * pool->slab_slots + slab->slots_fresh++;
	return 0;
}

static void place(const struct scry_stack_pool *pool, uint32_t id, struct scry_stack *ret_stack)
{
	struct scry_stack_slab *slab =
		atomic_load_explicit(&pool->slabs[id / pool->slab_slots], memory_order_relaxed);
	char *low = scry_slot_guard(pool, slab, id % pool->slab_slots) + pool->guard;

	ret_stack->low = low;
	ret_stack->top = low + pool->size - id % SCRY_COLOURS * SCRY_COLOUR_BYTES;
	ret_stack->id = id;
}

int scry_stack_get(struct scry_stack_pool *pool, struct scry_stack *ret_stack)
{
	const bool is_shared = pool->attr.is_shared;
	uint32_t id;
	int error = 0;

	if (is_shared)
		pthread_mutex_lock(&pool->lock);
	if (pool->free_count > 0) {
		id = *scry_free_id(pool, --pool->free_count);
		if (pool->free_count < pool->free_least)
			pool->free_least = pool->free_count;
		if (pool->free_count < pool->free_released)
			pool->free_released = pool->free_count;
	} else {
		error = fresh(pool, &id);
	}
	if (error == 0) {
		pool->used++;
		place(pool, id, ret_stack);
		scry_slot_of(pool, id)->is_used = 1;
	}
	if (is_shared)
		pthread_mutex_unlock(&pool->lock);
	return error;
}

void scry_stack_put(struct scry_stack_pool *pool, const struct scry_stack *stack)
{
	const bool is_shared = pool->attr.is_shared;
	const uint32_t id = stack->id; /* it may itself lie on the stack, which may be gone below */
	struct scry_stack_slot *slot;

	if (is_shared)
		pthread_mutex_lock(&pool->lock);
	slot = scry_slot_of(pool, id);
	/* put twice it would be given out twice */
	assert(slot->is_used);
	if (pool->attr.is_measured)
		scry_use_note(pool, stack);
	else
		slot->dirty_pages = SCRY_DIRTY_UNKNOWN;
	slot->is_used = 0;
	slot->name = NULL;
	slot->entry = NULL;
	*scry_free_id(pool, pool->free_count++) = id;
	pool->used--;
	if (is_shared)
		pthread_mutex_unlock(&pool->lock);
}

int scry_stack_find(struct scry_stack_pool *pool, const void *address, struct scry_stack *ret_stack)
{
	uint32_t count = atomic_load_explicit(&pool->slab_count, memory_order_acquire);
	size_t bytes = pool->slab_slots * pool->stride;

	for (uint32_t i = 0; i < count; i++) {
		uintptr_t first = (uintptr_t)atomic_load(&pool->slabs[i]) + pool->head;
		size_t at = (uintptr_t)address - first;

		if ((uintptr_t)address < first || at >= bytes || at % pool->stride < pool->guard)
			continue;
		place(pool, i * pool->slab_slots + at / pool->stride, ret_stack);
		return 0;
	}
	return -ENOENT;
}

void scry_stack_name(struct scry_stack_pool *pool, const struct scry_stack *stack, const char *name,
		     const void *entry)
{
	struct scry_stack_slot *slot = scry_slot_of(pool, stack->id);

	slot->name = name;
	slot->entry = entry;
}

size_t scry_stack_pool_tick(struct scry_stack_pool *pool)
{
	uint32_t from, end;

	if (pool->attr.is_shared)
		pthread_mutex_lock(&pool->lock);
	from = pool->free_released;
	end = pool->free_least;
	if (end > from) {
		scry_guard_release(pool, from, end);
		pool->free_released = end;
	} else {
		end = from;
	}
	pool->free_least = pool->free_count;
	if (pool->attr.is_shared)
		pthread_mutex_unlock(&pool->lock);
	return end - from;
}

const char *scry_stack_pool_note(struct scry_stack_pool *pool)
{
	return pool->note;
}

size_t scry_stack_pool_size(const struct scry_stack_pool *pool)
{
	return pool->size;
}

size_t scry_stack_pool_used(const struct scry_stack_pool *pool)
{
	return pool->used;
}
