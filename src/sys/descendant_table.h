/*
 * The descendants of what is watched: processes that came of it, from when they were first seen
 * until they are taken up (members, which are the caller's) or end. One table for all that follow
 * children; what feeds it gives its own guarantee:
 *
 *   ..._scan  finds new processes by their numbers, which the kernel gives in one row: one is a
 *             descendant when its parent is. Some milliseconds late; what has ended by then is not
 *             seen, nor is a daemon whose parents have ended (but see is_unidentified).
 *   ..._add   gets them from eBPF before a child runs, from ptrace, from an exec, from the agent.
 *
 * A row is a process, not a number: numbers are given out again, and start times show it. What it
 * runs is looked at until it is known, and again when it runs another program.
 *
 * Reads /proc only. One thread. Life: init, (add, scan, turn)*, done.
 */
#ifndef SCRY_SYS_DESCENDANT_TABLE_H
#define SCRY_SYS_DESCENDANT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/proc.h"

#define SCRY_DESCENDANT_TABLE_MAX 4096u	    /* rows */
#define SCRY_DESCENDANT_TABLE_SCANS 8	    /* a number is given out before its process is there */
#define SCRY_DESCENDANT_TABLE_NUMBERS 4096u /* looked at one by one; more: all of /proc */
#define SCRY_DESCENDANT_TABLE_KNOWN UINT64_MAX

struct scry_relative {
	pid_t pid;
	uint64_t start_ticks;
	uint64_t image;	   /* what it runs (scry_proc_stat): another number after an exec */
	uint32_t execs;	   /* that were seen */
	bool was_there;	   /* before the first scan */
	bool is_taken;	   /* set by `look`: it is a member, and leaves the table */
	uint64_t since_ns; /* when this image was first seen */
	uint64_t look_ns;  /* `look` comes again from then on; SCRY_DESCENDANT_TABLE_KNOWN: not for
			      this image */
	uint64_t poll_ns;  /* when it is looked for again */
	void *own;	   /* kind->own_bytes, zeros at first */
};

struct scry_descendant_table_kind {
	/* Does a member live under that number? */
	bool (*is_member)(void *arg, pid_t pid);
	/* One whose parent is not a descendant: is it all the same? Or NULL. */
	bool (*is_unidentified)(void *arg, pid_t pid, const struct scry_proc_stat *st);
	void (*came)(void *arg, struct scry_relative *row,
		     const struct scry_proc_stat *st); /* NULL */
	/* It runs another program. `look` comes next. Or NULL. */
	void (*execed)(void *arg, struct scry_relative *row);
	/* What is it? Sets look_ns, or is_taken. May add rows, and forget them. `now` is never
	 * before since_ns. */
	void (*look)(void *arg, struct scry_relative *row, uint64_t now);
	void (*gone)(void *arg, struct scry_relative *row); /* it has ended, and was not taken */
	size_t own_bytes;
};

struct scry_descendant_table {
	const struct scry_descendant_table_kind *kind;
	void *arg;
	struct scry_relative **rows;
	size_t count, room;
	uint64_t refused; /* there was no room */
	/* numbers that were given out, and whose processes or threads had ended before a look; and
	 * times that there were too many to be looked at */
	uint64_t unseen;
	uint8_t seen[SCRY_DESCENDANT_TABLE_NUMBERS / 8];
	pid_t newest[SCRY_DESCENDANT_TABLE_SCANS];
	bool has_begun;
};

void scry_descendant_table_init(struct scry_descendant_table *k,
				const struct scry_descendant_table_kind *kind, void *arg);
void scry_descendant_table_done(struct scry_descendant_table *k); /* frees; nothing is reported */

/* The row of a living process, known or new; NULL: it lives no more, or there is no room. */
struct scry_relative *scry_descendant_table_add(struct scry_descendant_table *k, pid_t pid);
/* A row with that number, or NULL. */
struct scry_relative *scry_descendant_table_find(const struct scry_descendant_table *k, pid_t pid);
void scry_descendant_table_forget(struct scry_descendant_table *k, pid_t pid);

/* From the numbers that are given out after this on. Before that a scan looks at all processes. */
void scry_descendant_table_begin(struct scry_descendant_table *k);
/* New ones. The first time: all that are there, and theirs. */
void scry_descendant_table_scan(struct scry_descendant_table *k);
/* Does what is due: one that has gone, or runs another program, `look`. */
void scry_descendant_table_turn(struct scry_descendant_table *k, uint64_t now_ns);

/* Does what is due to that row, now, a look among it. It may be gone then. */
void scry_descendant_table_look(struct scry_descendant_table *k, struct scry_relative *row,
				uint64_t now_ns);

/* Calls it for each process of the machine; what /proc lists is not of one moment. */
void scry_descendant_table_each_process(void (*what)(void *arg, pid_t pid), void *arg);

#endif
