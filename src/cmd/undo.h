/*
 * What `scry undo --wait` and a watch with --wait share: waiting until an agent that had to stay in
 * a process can be taken out, and taking it out.
 */
#ifndef SCRY_CMD_UNDO_H
#define SCRY_CMD_UNDO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Returns when nothing of scry is in process `pid` any more, or when it has ended. While the VM
 * still leads to the agent, the process is looked at from outside, not stopped. 0; -EINTR: a signal
 * came that scry_front_catch_signals counts; -errno with a sentence, as when another scry watches
 * it now.
 */
int scry_undo_await(pid_t pid, uint64_t max_pause_ns);

/* Process `pid`, then its descendants, whatever they run, into `list`. Returns how many. */
size_t scry_undo_descendants(pid_t pid, pid_t *list, size_t max);

#endif
