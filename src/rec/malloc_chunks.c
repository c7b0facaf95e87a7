/*
 * Malloc chunks of many processes. See malloc_chunks.h.
 */
#include "rec/malloc_chunks.h"

#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void scry_malloc_chunks_done(struct scry_malloc_chunks *m)
{
	size_t i;

	for (i = 0; i < m->count; i++)
		scry_malloc_unpack_free(m->states[i].unpack);
	free(m->states);
	*m = (struct scry_malloc_chunks){0};
}

/* The newest first: a process that forks and its children are near each other. */
static struct scry_malloc_state *chunks_find(struct scry_malloc_chunks *m,
					     const struct scry_producer *producer)
{
	size_t i;

	for (i = m->count; i-- > 0;) {
		const struct scry_producer *p = &m->states[i].producer;

		if (p->pid == producer->pid && p->start_ticks == producer->start_ticks &&
		    p->ring == producer->ring)
			return &m->states[i];
	}
	return NULL;
}

static void chunks_weigh(struct scry_malloc_chunks *m, struct scry_malloc_state *state)
{
	size_t bytes = state->unpack ? scry_malloc_unpack_bytes(state->unpack) : 0;

	m->bytes += bytes - state->bytes;
	state->bytes = bytes;
}

/* What comes of this process cannot be read any more. */
static int chunks_drop(struct scry_malloc_chunks *m, struct scry_malloc_state *state)
{
	scry_malloc_unpack_free(state->unpack);
	state->unpack = NULL;
	chunks_weigh(m, state);
	return -EINVAL;
}

/* A row for a new process; its unpacker is not made yet. */
static int chunks_add(struct scry_malloc_chunks *m, const struct scry_producer *producer,
		      struct scry_malloc_state **ret_state)
{
	if (m->count == SCRY_MALLOC_PROCESSES)
		return -E2BIG;
	if (m->count == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 16;
		void *states = realloc(m->states, cap * sizeof(*m->states));

		if (!states)
			return scry_no_memory("the recording's processes");
		m->states = states;
		m->cap = cap;
	}
	m->states[m->count] = (struct scry_malloc_state){.producer = *producer};
	*ret_state = &m->states[m->count++];
	return 0;
}

static int chunks_new(struct scry_malloc_chunks *m, struct scry_malloc_state *state,
		      const struct scry_chunk *chunk, const void *payload)
{
	const struct scry_malloc_state *from;
	struct scry_producer parent;
	uint64_t total;

	if (!scry_malloc_unpack_parent(chunk, payload, &parent, &total))
		return scry_malloc_unpack_new(&state->unpack);
	from = chunks_find(m, &parent);
	if (!from && !total) /* one that made no call before it forked, and is not reported */
		return scry_malloc_unpack_new(&state->unpack);
	if (!from || !from->unpack || scry_malloc_unpack_total(from->unpack) != total)
		return -EINVAL;
	if (m->bytes + from->bytes > SCRY_MALLOC_BYTES) {
		state->is_beyond = true;
		return -E2BIG;
	}
	return scry_malloc_unpack_fork(from->unpack, &state->unpack);
}

int scry_malloc_chunks_open(struct scry_malloc_chunks *m, const struct scry_chunk *chunk,
			    const void *payload)
{
	const struct scry_producer producer = {chunk->producer_pid, chunk->producer_ring,
					       chunk->producer_start};
	struct scry_malloc_state *state = chunks_find(m, &producer);
	int err = 0;

	m->now = NULL;
	if (!state) {
		err = chunks_add(m, &producer, &state);
		if (!err)
			err = chunks_new(m, state, chunk, payload);
	}
	if (err)
		return err;
	if (!state->unpack)
		return state->is_beyond ? -E2BIG : -EINVAL;
	if (scry_malloc_unpack_chunk(state->unpack, chunk, payload))
		return chunks_drop(m, state);
	chunks_weigh(m, state);
	if (m->bytes > SCRY_MALLOC_BYTES) {
		state->is_beyond = true;
		chunks_drop(m, state);
		return -E2BIG;
	}
	m->now = state;
	return 0;
}

void scry_malloc_chunks_end(struct scry_malloc_chunks *m, uint32_t pid, uint32_t ring)
{
	size_t i;

	for (i = m->count; i-- > 0;) {
		struct scry_malloc_state *state = &m->states[i];

		if (state->producer.pid != pid || state->producer.ring != ring)
			continue;
		chunks_drop(m, state);
		m->now = NULL;
		m->count--;
		memmove(state, state + 1, (m->count - i) * sizeof(*state));
	}
}

int scry_malloc_chunks_next(struct scry_malloc_chunks *m, uint64_t *ret_time_ns,
			    struct scry_ev_malloc *ret_call)
{
	int got;

	if (!m->now)
		return 0;
	got = scry_malloc_unpack_next(m->now->unpack, ret_time_ns, ret_call);
	if (got > 0) {
		ret_call->pid = m->now->producer.pid;
		return got;
	}
	if (got < 0)
		chunks_drop(m, m->now);
	else
		chunks_weigh(m, m->now);
	m->now = NULL;
	return got;
}
