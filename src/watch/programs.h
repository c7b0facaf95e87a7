/*
 * The programs that watched processes start, or become, for instruments that want every one of
 * them: each is noticed at its exec and entered while its loader runs, or counted as missed. What
 * ptrace follows (sys/spawn) is entered without this; nothing is followed by ptrace for long.
 *
 * The kernel gives the news (sys/family). Without the right to them /proc is looked at, and what is
 * too short to be seen there is missed unseen: the report says so.
 */
#ifndef SCRY_WATCH_PROGRAMS_H
#define SCRY_WATCH_PROGRAMS_H

#include <sys/types.h>

#include "watch/session.h"

/* Before the first process runs, or is entered. `leader`: of `-- CMD`; 0. */
void scry_programs_open(struct scry_session *s, pid_t leader);
void scry_programs_close(struct scry_session *s);
/* Each turn: what began is looked at. */
void scry_programs_turn(struct scry_session *s);
/* A process was entered, or found out to be a fork child. */
void scry_programs_watched(const struct scry_watch *w);
/* What `pid` runs since before `ns` (CLOCK_MONOTONIC) is not to be watched, or is counted. */
void scry_programs_settled(const struct scry_session *s, pid_t pid, uint64_t ns);
/* One that /proc showed, and that had ended before it could be looked at. */
void scry_programs_unknown(struct scry_session *s);
/* A watch has ended with its process. Was the last program that it ran not looked at? */
void scry_programs_look_back(struct scry_session *s, struct scry_watch *w);
/* The last look, and what the report says. */
void scry_programs_end(struct scry_session *s);
void scry_programs_note(const struct scry_session *s, struct scry_watch *any);

#endif
