/* Threads of samples. See stack_threads.h. */
#include "view/stack_threads.h"

#include <errno.h>
#include <stdlib.h>

#include "base/vector.h"
#include "view/frames.h"

#define THREADS_MAX (1u << 20)
#define IDLE_PERCENT 99u

void scry_stack_threads_init(struct scry_stack_threads *k)
{
	*k = (struct scry_stack_threads){.count = 0};
	scry_map_init(&k->ids, THREADS_MAX);
}

void scry_stack_threads_done(struct scry_stack_threads *k)
{
	scry_map_done(&k->ids);
	free(k->rows);
}

static struct scry_stack_thread *find(struct scry_stack_threads *k, uint32_t pid, uint32_t number)
{
	uint64_t *id = scry_map_ref(&k->ids, (uint64_t)pid << 32 | number);

	if (!id)
		return NULL;
	if (*id)
		return &k->rows[*id - 1];
	if (scry_vector_reserve(&k->rows, k->count, &k->room))
		return NULL;
	k->rows[k->count] = (struct scry_stack_thread){.pid = pid};
	*id = ++k->count;
	return &k->rows[*id - 1];
}

int scry_stack_threads_event(struct scry_stack_threads *k, struct scry_intern *names,
			     const struct scry_reader *reader, const struct scry_ev_thread *e)
{
	struct scry_stack_thread *t = find(k, e->pid, e->thread);

	if (!t)
		return -ENOMEM;
	t->tid = e->tid;
	t->name = scry_name_id(names, reader, e->name_str);
	return 0;
}

int scry_stack_threads_sample(struct scry_stack_threads *k, const struct scry_ev_samples *e,
			      uint32_t frame, uint32_t *ret)
{
	struct scry_stack_thread *t = find(k, e->pid, e->thread);

	if (!t)
		return -ENOMEM;
	t->wall_ns += e->wall_ns;
	if ((e->state == SCRY_STATE_BLOCKED || e->state == SCRY_STATE_SLEEPING) &&
	    e->wall_ns > t->waits_ns) {
		t->waits_ns = e->wall_ns;
		t->waits_at = frame;
	}
	*ret = (uint32_t)(t - k->rows);
	return 0;
}

void scry_stack_threads_settle(struct scry_stack_threads *k)
{
	for (size_t i = 0; i < k->count; i++) {
		struct scry_stack_thread *t = &k->rows[i];

		t->is_idle = t->wall_ns &&
			     t->waits_ns >= t->wall_ns - t->wall_ns / 100 * (100 - IDLE_PERCENT);
		k->idle += t->is_idle;
		k->idle_ns += t->is_idle ? t->wall_ns : 0;
	}
	if (k->idle < k->count)
		return;
	k->idle = 0;
	k->idle_ns = 0;
	for (size_t i = 0; i < k->count; i++)
		k->rows[i].is_idle = false;
}

static void keep_shown(struct scry_stack_threads *k, struct scry_stack_thread *t)
{
	if (!t->is_idle)
		return;
	t->is_idle = false;
	k->idle--;
	k->idle_ns -= t->wall_ns;
}

/* Of a name, in all sides. */
enum { IDLE_IN_BOTH = 3, IS_BUSY = 4 };

int scry_stack_threads_agree(const struct scry_stack_threads_side sides[2])
{
	const size_t most = sides[0].threads->count + sides[1].threads->count;
	uint32_t *ids = calloc(most + 1, sizeof(*ids)), *next = ids;
	uint8_t *found = calloc(most + 1, sizeof(*found)); /* by id: which thread has it */
	struct scry_intern all;
	int err = ids && found ? 0 : -ENOMEM;

	scry_intern_init(&all, 2 * THREADS_MAX, SIZE_MAX);
	for (int side = 0; side < 2; side++) {
		const struct scry_stack_threads *k = sides[side].threads;

		for (size_t i = 0; i < k->count && !err; i++, next++) {
			const struct scry_cell name =
				scry_name_text(sides[side].names, k->rows[i].name);

			err = scry_intern_put(&all, name.bytes ? name.bytes : "",
					      name.bytes ? name.length : 0, next);
			if (!err)
				found[*next] |= k->rows[i].is_idle ? (uint8_t)(1 << side) : IS_BUSY;
		}
	}
	next = ids;
	for (int side = 0; side < 2 && !err; side++)
		for (size_t i = 0; i < sides[side].threads->count; i++, next++)
			if (found[*next] != IDLE_IN_BOTH)
				keep_shown(sides[side].threads, &sides[side].threads->rows[i]);
	scry_intern_done(&all);
	free(found);
	free(ids);
	return err ? -ENOMEM : 0;
}

void scry_stack_threads_put(const struct scry_stack_threads *k, const struct scry_intern *names,
			    uint32_t thread, struct scry_buf *buf)
{
	const struct scry_stack_thread *t = &k->rows[thread];
	size_t length = 0;
	const char *name = t->name ? scry_intern_get(names, t->name, &length) : NULL;

	scry_buf_append(buf, length ? name : "thread", length ? length : 6);
	if (t->tid)
		scry_buf_printf(buf, " (%u", t->tid);
	else
		scry_buf_printf(buf, " (not begun");
	if (k->rows[0].pid != k->rows[k->count - 1].pid && t->pid != t->tid)
		scry_buf_printf(buf, " of %u", t->pid);
	scry_buf_printf(buf, ")");
}
