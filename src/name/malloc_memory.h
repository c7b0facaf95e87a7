/*
 * What the kernel says of a process, again and again: MEMORY events. /proc/PID/status has the kinds
 * of resident memory, /proc/PID/stat faults, threads and CPU time; libc's own counters, what malloc
 * holds of it. About 60 us a time, and 1.5 for each arena.
 */
#ifndef SCRY_NAME_MALLOC_MEMORY_H
#define SCRY_NAME_MALLOC_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "name/glibc_arenas.h"
#include "rec/writer.h"
#include "wire/event.h"

#define SCRY_MALLOC_MEMORY_NS 100000000ull
#define SCRY_MALLOC_MEMORY_SOON_NS 10000000ull /* in the first second: many programs end then */
#define SCRY_MALLOC_YOUNG_NS 1000000000ull

struct scry_malloc_memory {
	pid_t pid;
	int status, stat, pagemap;   /* files that stay open; -1 */
	uint64_t own_start, own_end; /* scry's in there: not counted */
	uint64_t own_peak;	     /* resident bytes there, at most */
	uint64_t first_ns, last_ns;  /* 0: never */
	uint64_t child_faults;	     /* of children that it has waited for, as read last */
	bool has_base, had_children; /* those have grown since the first look */
	bool is_glibc;		     /* the allocator: it counts what it holds */
	struct scry_mem mem;	     /* fd -1: not opened yet, or it may not be read */
	struct scry_glibc_held held;
	uint32_t looks; /* for it, in vain */
};

/* Of the process, without what it has resident between `own_start` and `own_end`. */
void scry_malloc_memory_init(struct scry_malloc_memory *m, pid_t pid, uint64_t own_start,
			     uint64_t own_end, bool is_glibc);
void scry_malloc_memory_done(struct scry_malloc_memory *m);

/* 0; -ESRCH: the process is gone or a zombie, no sentence. */
int scry_malloc_memory_read(struct scry_malloc_memory *m, struct scry_ev_memory *ret);

/* What /proc/PID/stat says alone: also of one that ends, or runs another program by now. 0; -ESRCH.
 */
int scry_malloc_memory_times(struct scry_malloc_memory *m, struct scry_ev_memory *ret);

/* See scry_malloc_memory(). */
int scry_malloc_memory_write(struct scry_malloc_memory *m, struct scry_writer *w, uint64_t now_ns,
			     bool now);

#endif
