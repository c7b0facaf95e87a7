/*
 * `scry malloc compare --start CMD ...`: a server that never ends by itself, under each allocator.
 */
#ifndef SCRY_CMD_MALLOC_SERVERS_H
#define SCRY_CMD_MALLOC_SERVERS_H

#include <stdbool.h>
#include <stdint.h>

struct scry_replay_opts;

struct scry_malloc_servers { /* as asked for */
	const char *start, *ready, *load, *stop;
	uint64_t ready_ns, work; /* 0: not given */
};

#define SCRY_MALLOC_SERVERS_ROW_COUNT 6
/* Rows of these options. `s`: struct scry_malloc_servers *. */
#define SCRY_MALLOC_SERVERS_ROWS(s)                                                                \
	{0,	      "start", SCRY_OPT_STRING,                                                    \
	 &(s)->start, "CMD",   "compare a server: the shell command that starts it",               \
	 NULL},                                                                                    \
		{0,                                                                                \
		 "ready",                                                                          \
		 SCRY_OPT_STRING,                                                                  \
		 &(s)->ready,                                                                      \
		 "CMD",                                                                            \
		 "tried again and again until it succeeds: the server is ready",                   \
		 NULL},                                                                            \
		{0,                                                                                \
		 "ready-within",                                                                   \
		 SCRY_OPT_DURATION,                                                                \
		 &(s)->ready_ns,                                                                   \
		 "TIME",                                                                           \
		 "give up when it is not (default 30s)",                                           \
		 NULL},                                                                            \
		{0,                                                                                \
		 "load",                                                                           \
		 SCRY_OPT_STRING,                                                                  \
		 &(s)->load,                                                                       \
		 "CMD",                                                                            \
		 "the work that is measured, the same each time; it must end with status 0",       \
		 NULL},                                                                            \
		{0,	     "work", SCRY_OPT_U64,                                                 \
		 &(s)->work, "N",    "that is N units, and CPU time is shown for one (default 1)", \
		 NULL},                                                                            \
	{                                                                                          \
		0, "stop", SCRY_OPT_STRING, &(s)->stop, "CMD",                                     \
			"how it is stopped (default: SIGTERM)", NULL                               \
	}

/* Is a server asked for? */
bool scry_malloc_servers_are(const struct scry_malloc_servers *s);
/* 0, or -EINVAL with a sentence: something is missing, or does not go with it. */
int scry_malloc_servers_check(const struct scry_malloc_servers *s, bool has_command);

/* Runs and prints. Exit status, with a sentence. */
int scry_malloc_servers(const struct scry_replay_opts *opts);

#endif
