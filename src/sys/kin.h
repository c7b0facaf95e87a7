/*
 * The kin of what is watched: processes that came of it, from when somebody has seen them until
 * they are taken up (members, which are the caller's) or end. One table for all that follow
 * children; who feeds it gives his own guarantee:
 *
 *   scry_kin_scan  finds new processes by their numbers, which the kernel gives in one row: one is
 *                  kin when its parent is. Some milliseconds late; what has ended by then is not
 *                  seen, nor is a daemon whose parents have (but see is_stray).
 *   scry_kin_add   is told: by eBPF before a child runs, by ptrace, by an exec, by the agent.
 *
 * A row is a process, not a number: numbers are given out again, and start times tell. What it runs
 * is looked at until it is known, and again when it runs another program.
 *
 * Reads /proc only. One thread. Life: init, (add, scan, turn)*, done.
 */
#ifndef SCRY_SYS_KIN_H
#define SCRY_SYS_KIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sys/proc.h"

#define SCRY_KIN_MAX 4096u /* rows */
#define SCRY_KIN_SCANS 8   /* a number is given out before its process is there */
#define SCRY_KIN_KNOWN UINT64_MAX

struct scry_relative {
	pid_t pid;
	uint64_t start_ticks;
	uint64_t image;	   /* what it runs (scry_proc_stat): another number after an exec */
	uint32_t execs;	   /* that were seen */
	bool was_there;	   /* before the first scan */
	bool is_taken;	   /* set by `look`: it is a member, and leaves the table */
	uint64_t since_ns; /* when this image was first seen */
	uint64_t look_ns;  /* `look` comes again from then on; SCRY_KIN_KNOWN: not for this image */
	uint64_t poll_ns;  /* when it is looked for again */
	void *own;	   /* kind->own_bytes, zeros at first */
};

struct scry_kin_kind {
	/* Does a member live under that number? */
	bool (*is_member)(void *arg, pid_t pid);
	/* One whose parent is no kin: is it all the same? Or NULL. */
	bool (*is_stray)(void *arg, pid_t pid, const struct scry_proc_stat *st);
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

struct scry_kin {
	const struct scry_kin_kind *kind;
	void *arg;
	struct scry_relative **rows;
	size_t count, room;
	uint64_t refused; /* there was no room */
	pid_t newest[SCRY_KIN_SCANS];
	bool has_begun;
};

void scry_kin_init(struct scry_kin *k, const struct scry_kin_kind *kind, void *arg);
void scry_kin_done(struct scry_kin *k); /* frees; nobody is told */

/* The row of a living process, known or new; NULL: it lives no more, or there is no room. */
struct scry_relative *scry_kin_add(struct scry_kin *k, pid_t pid);
/* A row with that number, or NULL. */
struct scry_relative *scry_kin_find(const struct scry_kin *k, pid_t pid);
void scry_kin_forget(struct scry_kin *k, pid_t pid);

/* From the numbers that are given out after this on. Before that a scan looks at all processes. */
void scry_kin_begin(struct scry_kin *k);
/* New ones. The first time: all that are there, and theirs. */
void scry_kin_scan(struct scry_kin *k);
/* Does what is due: who has gone, who runs another program, `look`. */
void scry_kin_turn(struct scry_kin *k, uint64_t now_ns);

/* Does what is due to that row, now, a look among it. It may be gone then. */
void scry_kin_look(struct scry_kin *k, struct scry_relative *row, uint64_t now_ns);

/* Calls it for each process of the machine; what /proc lists is not of one moment. */
void scry_kin_each_process(void (*what)(void *arg, pid_t pid), void *arg);

#endif
