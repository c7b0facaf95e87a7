/*
 * What scry was started with of signals: those that it is to ignore (nohup, `trap '' PIPE`, a
 * shell's background job) and its mask. exec leaves both as they are, and scry changes them for
 * itself; the program of `-- CMD` is to have them as if scry were not there.
 */
#ifndef SCRY_SYS_INHERITED_H
#define SCRY_SYS_INHERITED_H

#include <stdbool.h>

/* Once, first of all: before a handler or a mask is set. */
void scry_inherited_keep(void);

/* In a child, before it execs another user's program. Handlers of scry's own are off afterwards.
 */
void scry_inherited_give_back(void);

bool scry_inherited_is_ignored(int signal);

#endif
