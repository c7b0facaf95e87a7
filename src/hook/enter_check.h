/*
 * May a process be entered? Asked before anything is touched.
 */
#ifndef SCRY_HOOK_ENTER_CHECK_H
#define SCRY_HOOK_ENTER_CHECK_H

#include "sys/proc.h"

/*
 * May this process be entered? Reasons for no, each with a sentence and the command that mends it:
 * stopped, traced, seccomp, setuid or not dumpable, 32-bit, a zombie, not permitted. Reads only.
 */
int scry_inject_check(const struct scry_proc *proc);
/* May what scry changed in it be taken out? Also where its first thread has ended: 0 or -errno. */
int scry_inject_check_undo(const struct scry_proc *proc);
/* Of a live one: not if another process runs on its memory. A vfork is waited for. */
int scry_inject_check_alone(const struct scry_proc *p);

#endif
