/*
 * `scry malloc replay`: a recording's calls made again under several allocators.
 */
#ifndef SCRY_CMD_MALLOC_REPLAY_H
#define SCRY_CMD_MALLOC_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "cmd/malloc_servers.h"

struct scry_replay_opts {
	struct scry_opt_strings with;
	uint64_t runs, rss_every_ns, memory, pid;
	int threads, touch, pace;
	bool verify, check, json, force, verbose, help, is_compare;
	const char *output, *keep;
	struct scry_malloc_servers servers; /* compare: all NULL, or what a server needs */
	char **command;			    /* behind --, ends with NULL; NULL: none */
};

/* Replays the recording `fd`, and prints what came of it. *ret_is_bad: an allocator failed, or gave
 * blocks that are wrong. 0 or -errno with a sentence. */
int scry_malloc_replay_file(const struct scry_replay_opts *opts, int fd, bool *ret_is_bad);

#endif
