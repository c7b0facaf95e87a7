/*
 * The real program under an allocator: what a replay's prediction is compared with.
 */
#ifndef SCRY_REPLAN_CHECK_H
#define SCRY_REPLAN_CHECK_H

#include "replan/run.h"
#include "replan/serves.h"

struct scry_malloc_real {
	uint64_t cpu_ns;   /* user and system, of the program and the children it waited for */
	uint64_t rss_peak; /* bytes of its own anonymous memory, by replan/rss every 2 ms */
	uint64_t wall_ns;  /* from exec to its end */
	int status;	   /* of its end, as wait gives it */
	bool is_seen;	   /* it ran long enough to be looked at: */
	struct scry_malloc_serves serves; /* what served it last */
	bool is_served;			  /* and that is the allocator */
};

struct scry_malloc_checked {  /* a program; zeros at first */
	char *const *command; /* ends with NULL */
	bool needs_libc;      /* another allocator than glibc's serves it by itself */
};

/*
 * Runs the program once with the allocator preloaded and its variables set, and nothing in the
 * environment that is for another one; its output is thrown away, its input is
 * scry_malloc_check_input(). For glibc nothing is preloaded, but where something else served then:
 * libc.so.6, and it runs again. 0; -ENOENT and the like with a sentence when it cannot be started.
 */
int scry_malloc_check(struct scry_malloc_checked *program,
		      const struct scry_malloc_allocator *allocator,
		      struct scry_malloc_real *ret_real);

/* Is what serves what was asked for? `path` NULL: glibc. */
bool scry_malloc_is_served_by(const struct scry_malloc_serves *serves, const char *path);

struct scry_malloc_why {
	char text[1024];
};

/* Where the allocator was not seen to serve: a sentence for the report. */
void scry_malloc_check_why(const struct scry_malloc_real *real, const char *label,
			   const char *program, struct scry_malloc_why *ret_why);

/* In the child that is to become the program: what each run reads alike. A file that is this
 * process's standard input is read from its beginning; else there is nothing to read. */
void scry_malloc_check_input(void);

#endif
