/*
 * What an instrument may ask and report to the session that its watch is in: the front, other
 * watches of the run, the recording. All through its own watch; a session is the runtime's alone. A
 * watch without a session (a dry run, a rehearsal) reports to nothing, and is alone.
 *
 * In the keeper's thread, from prepare on.
 */
#ifndef SCRY_WATCH_ASK_H
#define SCRY_WATCH_ASK_H

#include "watch/watch.h"

/* Talk for stderr; the second is shown with -v only. At most 2,047 bytes. */
void scry_watch_say(const struct scry_watch *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void scry_watch_detail(const struct scry_watch *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Into the recording, as of now: an event without a tid; a string's id. What fails is counted by
 * the writer. */
void scry_watch_event(struct scry_watch *w, uint16_t type, const void *payload, size_t size);
uint32_t scry_watch_string(struct scry_watch *w, const char *text);
/* Bytes of the recording so far, on its disk or in memory. */
uint64_t scry_watch_recorded(const struct scry_watch *w);

/* The number of the part of the recording that begins now with that pid, from 0: each program that
 * it runs is one, and what a fork child did before. The second: what the first would say. */
uint32_t scry_watch_part(struct scry_watch *w, uint32_t pid);
uint32_t scry_watch_next_part(const struct scry_watch *w, uint32_t pid);

/* Threads of the target wait for the keeper from now on, or a ring fills up: it runs before others,
 * if it may. */
void scry_watch_hurry(void);
/* It was entered when it ran already, though that was not asked for: it is counted as late. The
 * second: so it is, of one that is entered; a child that is older than this scry, and runs what it
 * ran then, was there before, as what was asked for. */
void scry_watch_came_late(struct scry_watch *w);
bool scry_watch_is_late(const struct scry_watch *w);
/* Was its process named by -p? Else it is a child that was found, or was started. */
bool scry_watch_is_asked_for(const struct scry_watch *w);
/* So long the keeper was not there to take what the target had, at most, ns. */
uint64_t scry_watch_gap_ns(const struct scry_watch *w);

/* The pool of its process and of that one's fork children; NULL: they are not followed. */
const struct scry_pool *scry_watch_pool(const struct scry_watch *w);

/* Watch number `i` of the run by the same instrument, itself among them; NULL: there are no more.
 */
struct scry_watch *scry_watch_beside(const struct scry_watch *w, size_t i);
/* Ends another one that is not over: its process is gone, or another program. */
void scry_watch_end_other(struct scry_watch *other, const char *why);
/*
 * While one watch waits for what others are to report, nothing else goes on: so long it may do so,
 * ns. All of the run together have a second, and a tenth of the time that passes; only waits in
 * vain count, which any process can cause that forges a child buffer.
 */
uint64_t scry_watch_patience_ns(const struct scry_watch *w);
void scry_watch_waited_in_vain(const struct scry_watch *w, uint64_t ns);
/* Takes up what fork children have taken child buffers since the last turn. */
void scry_watch_take_up_child_buffers(const struct scry_watch *w);
/* Programs that are being started, and processes that make others, go on to where they are needed:
 * for a watch that is held while it waits for what they do. */
void scry_watch_let_others_on(const struct scry_watch *w);
/* Where its process is followed to see what it starts: not until trace_again, its threads may be
 * held. */
void scry_watch_untrace(struct scry_watch *w);
void scry_watch_trace_again(struct scry_watch *w);
/* The target lives: hooks off, undone, unmapped if unused. For a rehearsal, which enters by itself.
 */
void scry_watch_leave(struct scry_watch *w, struct scry_undo_report *undo, uint64_t *ret_left);

#endif
