/*
 * What commands share that watch a process until it ends or you stop it: their signals, and
 * their exit status by the command-line contract (cmd.h).
 */
#ifndef SCRY_WATCH_SIGNALS_H
#define SCRY_WATCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#define SCRY_EXIT_FAILURE 1
#define SCRY_EXIT_USAGE 2
/* `-- CMD`: its own status is passed on, or one of these. */
#define SCRY_EXIT_OWN 125	 /* scry failed */
#define SCRY_EXIT_CANNOT_RUN 126 /* it is there and cannot be run */
#define SCRY_EXIT_NOT_FOUND 127

/* After a watch of -p that went well: -ESRCH with a sentence, if all that was watched had ended
 * before -d. Without -d a watch lasts till then. Its report was shown all the same. */
int scry_front_is_gone(bool is_gone);

/* For what went wrong, a -errno; 0: nothing. */
int scry_front_status(int err);

/* How often SIGINT, SIGTERM or SIGHUP has come; at the second time scry ends at once. */
extern volatile sig_atomic_t scry_front_interrupts;

/* The program of `-- CMD`, while it runs: a signal that another process sends to us is passed on to
 * it, and not counted. One from the terminal has reached it already. 0: none. */
extern volatile pid_t scry_front_program;

/* From now on. A closed pipe or a file that is too long are errors of writing, no signals. Under
 * nohup SIGHUP stays ignored. */
void scry_front_catch_signals(void);

/* While threads of another process are held: a scry that is stopped meanwhile (^Z) holds them until
 * it is continued. With `all` not interrupted either. *ret_was is for sigprocmask, afterwards. */
void scry_signals_hold(bool all, sigset_t *ret_was);

#endif
