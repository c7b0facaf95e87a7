/*
 * The family of what is watched: the processes that descend from it, and the programs that they
 * run. The kernel says, by perf (perf_event_open(2)), of each process of the machine when it forks,
 * runs another program and ends; nothing is stopped, and nothing in a process is changed. So a
 * program that ended before it could be looked at is at least counted, and one that begins is
 * noticed while its loader runs.
 *
 * An exec ends a sleep in poll (scry_family_fd); forks and ends are only read beside them.
 *
 * A program is *pending* from its exec until scry_family_settled says that it is known what became
 * of it, and *missed* when its process ends, or runs the next one, before that.
 *
 * Life: open, (add, take, settled)*, close. One thread. It needs the rights of perf for all
 * processes: root, CAP_PERFMON, or kernel.perf_event_paranoid of 0 at most.
 */
#ifndef SCRY_SYS_FAMILY_H
#define SCRY_SYS_FAMILY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_family;

/* `follows`: its children belong to it, and theirs. 0; -EPERM, -EACCES, -ENOTSUP, -EMFILE: it may
 * not be, or cannot, without a sentence; -ENOMEM. */
int scry_family_open(bool follows, struct scry_family **ret);
void scry_family_close(struct scry_family *f); /* NULL is legal, here and below */

/* A process that is watched, or a child that was noticed otherwise. What it ran at CLOCK_MONOTONIC
 * `ns` is not pending, unless the news of its fork come later. */
void scry_family_add(struct scry_family *f, pid_t pid, uint64_t ns);

/* What has happened since the last time, in order: each member that runs another program, and each
 * new one. It may have ended since. */
struct scry_family_take {
	void (*forked)(void *arg, pid_t pid);
	void (*execed)(void *arg, pid_t pid);
	void *arg;
};
void scry_family_take(struct scry_family *f, const struct scry_family_take *how);

/* What `pid` ran at CLOCK_MONOTONIC `ns` is watched; or it is known that it is not to be, or it is
 * counted otherwise. */
void scry_family_settled(struct scry_family *f, pid_t pid, uint64_t ns);

/* Programs that were missed; which process started the first, and whether it started all. */
uint64_t scry_family_missed(const struct scry_family *f, pid_t *ret_parent, bool *ret_is_all);
/* Records that found no room: then more may be missed. */
uint64_t scry_family_lost(const struct scry_family *f);

/* Readable: a process, of the machine, runs another program, or has a new name. -1 of NULL. */
int scry_family_fd(const struct scry_family *f);

#endif
