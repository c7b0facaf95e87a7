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
