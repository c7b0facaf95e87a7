/*
 * A signal for a thread when its loader says that its list has changed (r_brk), so that what waits
 * for just that need not stop it at each system call of the loader.
 *
 * An execution breakpoint of perf (perf_event_open(2)) in the thread's debug registers sends it
 * SIGURG. That comes before the instruction is run, stops a thread that is traced, and is ignored
 * by one whose tracer has died, as it has no handler yet; the breakpoint ends with us. So nothing
 * of ours can harm it, and no byte of it is changed.
 */
#ifndef SCRY_SYS_BRK_SIGNAL_H
#define SCRY_SYS_BRK_SIGNAL_H

#include <stdint.h>
#include <sys/types.h>

#define SCRY_BRK_SIGNAL 23 /* SIGURG */

/*
 * For `tid`, which is traced by us and stopped in its start: at most two signals, whose siginfo has
 * the descriptor in si_fd. That, to be closed by scry_brk_signal_close, greater than 0; or -errno
 * without a sentence: not here (no debug registers, not permitted, the signal is blocked).
 */
int scry_brk_signal_open(pid_t tid, uint64_t address);
/* None is sent from then on; one may be on its way. */
void scry_brk_signal_close(int fd);

#endif
