/* See rows.h. */
#include "sample/rows.h"

#include <stdlib.h>

#define ROWS_MAX (4u << 20)

struct key { /* hashed as bytes */
	uint32_t thread, stack, state, reserved;
};

void scry_samples_rows_init(struct scry_samples *s)
{
	scry_intern_init(&s->keys, ROWS_MAX, ROWS_MAX * (sizeof(struct key) + 1ul));
}

size_t scry_samples_row(struct scry_samples *s, const struct scry_samples_thread *t)
{
	struct key key = {t->number, t->stack, t->state, 0};
	uint32_t id;

	if (scry_intern_put(&s->keys, (const char *)&key, sizeof(key), &id))
		return 0;
	if (id > s->row_room) {
		size_t room = s->row_room ? 2 * s->row_room : 1024;
		struct scry_ev_samples *more = reallocarray(s->rows, room, sizeof(*more));

		if (!more)
			return 0;
		s->rows = more;
		s->row_room = room;
	}
	if (id > s->row_count) {
		s->rows[id - 1] = (struct scry_ev_samples){.pid = (uint32_t)s->ruby->pid,
							   .thread = t->number,
							   .stack = t->stack,
							   .state = t->state};
		s->row_count = id;
	}
	return id;
}

static struct scry_ev_samples *find_row(struct scry_samples *s, uint32_t thread, uint32_t stack,
					enum scry_thread_state state)
{
	const struct scry_samples_thread t = {.number = thread, .stack = stack, .state = state};
	size_t row = scry_samples_row(s, &t);

	return row ? &s->rows[row - 1] : NULL;
}

/* Running or ready, the kernel does not say at a look: but for how long a stack has run is known by
 * now. The rest of the time at which it was seen to do either it was ready. */
static void settle_states(struct scry_samples *s)
{
	for (size_t i = 0, count = s->row_count; i < count; i++) {
		const struct scry_ev_samples row = s->rows[i];
		struct scry_ev_samples *runs, *ready;
		uint64_t seen;

		if ((row.state != SCRY_STATE_CPU && row.state != SCRY_STATE_RUNNABLE) ||
		    !find_row(s, row.thread, row.stack, SCRY_STATE_CPU))
			continue;
		ready = find_row(s, row.thread, row.stack, SCRY_STATE_RUNNABLE); /* may move all */
		runs = find_row(s, row.thread, row.stack, SCRY_STATE_CPU);
		if (!ready || !runs)
			continue;
		seen = runs->wall_ns + ready->wall_ns;
		runs->cpu_ns += ready->cpu_ns;
		ready->cpu_ns = 0;
		if (runs->cpu_ns) {
			runs->count += ready->count;
			runs->repaired += ready->repaired;
			ready->count = ready->repaired = 0;
		}
		runs->wall_ns = runs->cpu_ns < seen ? runs->cpu_ns : seen;
		ready->wall_ns = seen - runs->wall_ns;
	}
}

void scry_samples_place(struct scry_samples *s)
{
	uint32_t frame = 0;

	for (size_t i = 0; i < s->count; i++) {
		struct scry_samples_thread *t = &s->threads[i];

		scry_task_read(&t->task, &t->now);
		scry_samples_cpu_ran(&s->cpu, t->number, &t->now);
	}
	for (size_t i = 0; i < s->row_count; i++)
		s->rows[i].cpu_ns =
			scry_samples_cpu_place(&s->cpu, s->rows[i].thread, s->rows[i].cpu_ns);
	settle_states(s);
	for (uint32_t thread = 1; thread <= s->cpu.count; thread++) {
		uint64_t ns = scry_samples_cpu_unknown(&s->cpu, thread);
		struct scry_ev_samples *row = NULL;

		if (ns && !frame)
			frame = scry_stacks_add(
				&s->stacks, &(struct scry_stack_frame){.label = s->unknown_name});
		if (ns)
			row = find_row(s, thread, frame, SCRY_STATE_UNKNOWN);
		if (row)
			row->cpu_ns = ns;
	}
}
