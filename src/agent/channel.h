/*
 * The channels (agent/threads.h) inside the agent: which one a handler uses is fixed by its file,
 * so its address is a constant.
 */
#ifndef SCRY_AGENT_CHANNEL_H
#define SCRY_AGENT_CHANNEL_H

#include "agent/agent.h"

static inline struct scry_agent_channel *scry_channel(enum scry_agent_channels which)
{
	return &scry_agent.tracking.channels[which];
}

/* Of a row, whichever channel's: a number from 1 on that no other row has, and back. */
static inline uint64_t scry_thread_buffer_number(const struct scry_agent_thread *t)
{
	uint64_t at = (uint64_t)(t - scry_agent_rows.threads);

	if (likely(at < SCRY_THREADS))
		return at + 1;
	return (uint64_t)(t - scry_channel(SCRY_CHANNEL_CALLS)->rows) + SCRY_THREADS + 1;
}

static inline struct scry_agent_thread *scry_thread_buffer_row(uint64_t number)
{
	if (number > SCRY_THREADS && scry_channel(SCRY_CHANNEL_CALLS)->rows)
		return scry_channel(SCRY_CHANNEL_CALLS)->rows + (number - 1) % SCRY_THREADS;
	return &scry_agent_rows.threads[(number - 1) % SCRY_THREADS];
}

#endif
