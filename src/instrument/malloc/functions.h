/*
 * What serves a process's malloc, and the hooks on its functions.
 *
 * Each of the functions is hooked where the loader binds its name: in the first object of the
 * program's scope that exports it (a preloaded allocator, the program itself, libc). Operators new
 * and delete are hooked only where malloc's own object defines them; elsewhere they call malloc.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_FUNCTIONS_H
#define SCRY_INSTRUMENT_MALLOC_FUNCTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "hook/hooks.h"
#include "instrument/malloc/builtin.h"
#include "wire/state_page.h"

struct scry_malloc_functions {
	char module[512]; /* path of the object whose malloc is called */
	char name[64];	  /* "glibc 2.36", "jemalloc"...; "" unknown */
	uint64_t start, end;
	bool is_glibc;
	uint64_t usable;  /* malloc_usable_size of that object; 0: has none */
	uint64_t free_at; /* free of that object */
	char prefix[16];  /* of its functions, where they are not those of malloc; else "" */
	struct scry_malloc_builtin builtin; /* another allocator, which is not recorded */
	bool has_operators; /* of its own, new and delete: scry_malloc_functions_at only */
	size_t spaces;	    /* namespaces of the loader */
};

struct scry_malloc_functions_opts {
	const char *prefix; /* where a program has PREFIXmalloc, those functions; NULL: malloc */
	bool with_fork;	    /* children are recorded: its hook, too */
};

/* After scry_hooks_open: finds out, and wants the hooks. 0; -ENOTSUP with a sentence. */
int scry_malloc_functions_want(struct scry_malloc_functions *f, struct scry_hooks *h,
			       const struct scry_malloc_functions_opts *opts);
/* What it is whose malloc lies at this address of process `pid`, by its file only. 0 or -errno. */
int scry_malloc_functions_at(struct scry_malloc_functions *f, pid_t pid, uint64_t malloc_at);
/* After scry_hooks_plan: a sentence when a function that is needed cannot be hooked: -ENOTSUP. */
int scry_malloc_functions_check(const struct scry_malloc_functions *f, const struct scry_hooks *h);
/* Before the hooks are on (0), and after (1), when their copies lie somewhere: informs the agent.
 */
int scry_malloc_functions_report(const struct scry_malloc_functions *f, const struct scry_hooks *h,
				 struct scry_inject *inj, bool is_on);

#endif
