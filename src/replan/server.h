/*
 * A server under an allocator: started, loaded with work, stopped.
 *
 * A keeper of its own starts it and is the parent of whatever it leaves behind (a subreaper), so
 * that daemons and workers are found and ended, too: at the end, when something fails, and when the
 * caller is interrupted or killed. Its parent is a guardian in a session of its own, the next
 * subreaper: it kills what is left when the keeper itself is killed (SIGKILL). Only if both are,
 * what has made itself a daemon stays.
 */
#ifndef SCRY_REPLAN_SERVER_H
#define SCRY_REPLAN_SERVER_H

#include "replan/run.h"
#include "replan/serves.h"

struct scry_malloc_server {
	const char *start, *ready, *load, *stop; /* for sh -c; stop NULL: SIGTERM */
	uint64_t ready_ns;			 /* tries `ready` for so long */
	bool is_loud;				 /* what they print goes to stderr */
	bool needs_libc; /* another allocator than glibc's serves by itself */
};

struct scry_malloc_server_run {
	uint64_t cpu_ns;   /* of all its processes while the load ran */
	uint64_t load_ns;  /* how long that took */
	uint64_t rss_peak; /* bytes of anonymous memory of all of them, since the start */
	bool is_seen, is_served;
	bool has_stop_failed; /* `stop` ended with another status than 0, or not in time */
	bool was_killed;      /* it did not end when it was stopped */
	struct scry_malloc_serves serves;
};

/* One run. 0; -EINTR: a signal said stop; -EINVAL and others with a sentence: nothing was measured.
 * Nothing of the server is left then, but with -EBUSY (some of it cannot be killed), and perhaps
 * with -ECHILD (keeper or guardian were killed; the sentence says what became of it). */
int scry_malloc_server_run(struct scry_malloc_server *server,
			   const struct scry_malloc_allocator *allocator,
			   struct scry_malloc_server_run *ret_run);

#endif
