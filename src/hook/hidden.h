/*
 * Code that was interrupted and that no thread's stack shows: signal frames on stacks that no
 * thread is on, as a handler leaves behind that switches stacks (preemptive user-level threads),
 * and contexts that a program keeps elsewhere. Part of inject.h; beside sys/stop_the_world, which
 * looks at the stacks of threads. Of inject.h: `hides`: it has such stacks; `hunts`: stops look for
 * `hunt`; `is_too_large`: not all memory fits into a pause.
 */
#ifndef SCRY_HOOK_HIDDEN_H
#define SCRY_HOOK_HIDDEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct scry_inject;
struct scry_stw;
struct scry_stw_hunt;

/* All frames in memory, while the threads run or not. 0; -E2BIG: those in `bytes` of memory;
 * -ENOMEM. found->saved is the caller's to free. */
int scry_hidden_find(struct scry_inject *inj, struct scry_stw *found, uint64_t bytes);

/*
 * Before the first change of a watch: does the process have such frames? Looks at up to 1 GiB while
 * all run, a third of a nanosecond a byte; only where frames are found a stop shows which of them
 * are seen or dead. Then inj->hides is set: each stop for a change looks everywhere. -EBUSY,
 * -ESRCH, -EPERM of that stop.
 */
int scry_hidden_ask(struct scry_inject *inj);

/* Makes the next stop look for `hunt` (of which what, where and bytes are set), if that fits into a
 * pause by what it would take; else inj->is_too_large. No thread is held for it. */
int scry_hidden_plan(struct scry_inject *inj, const struct scry_stw_hunt *hunt);

/* In a stop: what was planned. Adds to w->saved, sets what scry_stw_doubt says. -EBUSY, with a
 * sentence: another process runs on the same memory, and is not stopped; -EAGAIN: not done in time;
 * -ENOMEM. */
int scry_hidden_look(struct scry_inject *inj, struct scry_stw *w);

#endif
