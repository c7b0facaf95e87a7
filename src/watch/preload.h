/*
 * The way into processes that may not be entered (ptrace is denied, by seccomp, Yama or a
 * container): the program is started with an object preloaded that has the same handlers, records
 * into a child buffer of the keeper's pool and says which process it is (wire/preload.h). Nothing
 * is stopped, read or written from outside but /proc/PID/maps and the like.
 *
 * Not for a process that runs already, a program that is static, or one that gains rights.
 */
#ifndef SCRY_WATCH_PRELOAD_H
#define SCRY_WATCH_PRELOAD_H

#include "sys/elf.h"
#include "watch/watch.h"

struct scry_session;

/* Front, before anything is started: can this command be preloaded, and is the object there? 0 or
 * -errno with a sentence: -ENOTSUP static, setuid. */
int scry_preload_check(char *const *command);

/* A program that defines malloc calls its own, whatever is preloaded. */
bool scry_preload_has_malloc(struct scry_elf *elf);

/* In the program that is about to exec: its environment, by the text of SCRY_NEWS_GO. 0 or -1. */
int scry_preload_environ(const char *text);

/* Keeper: makes the pool, and lets the program go. 0 or -errno with a sentence. */
int scry_preload_start(struct scry_session *s, pid_t child);
/* Each turn: takes up the processes that have joined. */
void scry_preload_turn(struct scry_session *s);
/* Is there a process left to record, or to wait for? */
bool scry_preload_remains(const struct scry_session *s);
/* Is it recorded in this way? */
static inline bool scry_preload_has(const struct scry_watch *w)
{
	return w->root && w->root->pool.names_owners;
}

#endif
