/*
 * Where threads stood while they waited for the lock: at each look in which somebody waits, the
 * stack of each that does. One who waits stands still, so it is read once for a wait.
 *
 * How long a thread waited is counted exactly by the agent; that is shared out among its looks.
 * What more than a few that have just begun to wait would cost is left out: these looks have no
 * stack. Threads are known by their structs, as before the first event they have no row.
 */
#include <stdlib.h>

#include "instrument/gvl/gvl.h"
#include "watch/ask.h"
#include "wire/payload.h"

#define WALKS_MAX 8u /* of one look */
#define ROWS_MAX 100000u

struct waiter {
	uint64_t th, wait_began; /* of the wait that `stack` is of */
	uint32_t stack;
};

struct row {
	uint32_t waiter, stack; /* waiter: its place; stack: a frame's number, 0: not read */
	uint64_t samples, weight_ns;
};

struct scry_gvl_waiters {
	struct scry_map by_th; /* -> place + 1 */
	struct scry_map keys;  /* waiter << 32 | stack -> row + 1 */
	struct waiter *waiters;
	struct row *rows;
	size_t count, room, row_count, row_room;
	uint32_t walks; /* of this look */
};

struct scry_gvl_waiters *scry_gvl_waiters_new(void)
{
	struct scry_gvl_waiters *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	scry_map_init(&s->by_th, ROWS_MAX);
	scry_map_init(&s->keys, ROWS_MAX);
	return s;
}

void scry_gvl_waiters_free(struct scry_gvl_waiters *s)
{
	if (!s)
		return;
	scry_map_done(&s->by_th);
	scry_map_done(&s->keys);
	free(s->waiters);
	free(s->rows);
	free(s);
}

/* Room for one more of `table`; false: no memory. */
static bool grow(void **table, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : 64;
	void *grown;

	if (count < *room)
		return true;
	grown = reallocarray(*table, more, size);
	if (!grown)
		return false;
	*table = grown;
	*room = more;
	return true;
}

static struct waiter *waiter_of(struct scry_gvl_waiters *s, uint64_t th)
{
	uint64_t *at = scry_map_ref(&s->by_th, th);

	if (!at || (!*at && !grow((void **)&s->waiters, s->count, &s->room, sizeof(*s->waiters))))
		return NULL;
	if (!*at) {
		s->waiters[s->count++] = (struct waiter){.th = th};
		*at = s->count;
	}
	return &s->waiters[*at - 1];
}

static void add(struct scry_gvl_waiters *s, const struct waiter *w, uint32_t stack, uint64_t gap_ns)
{
	const uint32_t place = (uint32_t)(w - s->waiters);
	uint64_t *at = scry_map_ref(&s->keys, (uint64_t)place << 32 | stack);

	if (!at || (!*at && !grow((void **)&s->rows, s->row_count, &s->row_room, sizeof(*s->rows))))
		return; /* its share goes to the others of this thread */
	if (!*at) {
		s->rows[s->row_count++] = (struct row){.waiter = place, .stack = stack};
		*at = s->row_count;
	}
	s->rows[*at - 1].samples++;
	s->rows[*at - 1].weight_ns += gap_ns;
}

static bool is_waiting(const volatile struct scry_gvl_row *r)
{
	return r->state == SCRY_GVL_WANTS || r->state == SCRY_GVL_GRANTED;
}

/* The wait that is on in its row; NULL: there was no event yet. */
static void look_at(struct scry_gvl *g, uint64_t th, const volatile struct scry_gvl_row *r,
		    uint64_t gap_ns)
{
	const uint64_t wait_began = r ? r->wait_began : 1;
	struct scry_gvl_waiters *s = g->waiters;
	struct waiter *w = waiter_of(s, th);

	if (!w)
		return;
	if (w->wait_began != wait_began || !w->stack) {
		w->wait_began = wait_began;
		w->stack = s->walks++ < WALKS_MAX ? scry_gvl_blame_walk(g, th) : 0;
		if (r && (!is_waiting(r) || r->wait_began != wait_began)) /* it may be of later */
			w->stack = 0;
	}
	add(s, w, w->stack, gap_ns);
}

void scry_gvl_waiters_look(struct scry_gvl *g, uint64_t gap_ns)
{
	const volatile struct scry_gvl_table *t = g->table;
	const struct scry_gvl_snapshot *first = &g->first_look;
	const uint32_t wanting = t->wanting;

	g->waiters->walks = 0;
	for (size_t i = 0; !t->sequence && g->has_first_look && i < first->count; i++)
		look_at(g, first->queue[i], NULL, gap_ns);
	for (uint32_t i = 0; i < wanting && i < SCRY_GVL_THREADS; i++) {
		const uint32_t row = t->waiting[i] % SCRY_GVL_THREADS;
		const volatile struct scry_gvl_row *r = &t->row[row];

		if (row && r->th && is_waiting(r))
			look_at(g, r->th, r, gap_ns);
	}
}

static uint64_t weight_of(const struct scry_gvl_waiters *s, uint64_t th)
{
	uint64_t all = 0;

	for (size_t i = 0; i < s->row_count; i++)
		all += s->waiters[s->rows[i].waiter].th == th ? s->rows[i].weight_ns : 0;
	return all;
}

void scry_gvl_waiters_report(struct scry_gvl *g, const struct scry_gvl_waited *waited)
{
	struct scry_gvl_waiters *s = g->waiters;
	const uint64_t all = weight_of(s, waited->th);
	struct scry_ev_gvl_wait_line ev = {.pid = (uint32_t)g->watch->proc.pid,
					   .waiter = waited->number,
					   .lost_ns = waited->ns};

	for (size_t i = 0; all && i < s->row_count; i++) {
		const struct row *row = &s->rows[i];

		if (s->waiters[row->waiter].th != waited->th || !row->weight_ns)
			continue;
		ev.stack = scry_gvl_blame_write(g, row->stack);
		ev.samples = (uint32_t)row->samples;
		ev.lost_ns = (uint64_t)((double)waited->ns * (double)row->weight_ns / (double)all);
		scry_watch_event(g->watch, SCRY_EVENT_GVL_WAIT_LINE, &ev, sizeof(ev));
	}
	if (!all && waited->ns) /* it waited between two looks only */
		scry_watch_event(g->watch, SCRY_EVENT_GVL_WAIT_LINE, &ev, sizeof(ev));
}
