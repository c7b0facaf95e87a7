/*
 * The front of every watching command: it talks with the keeper, passes signals on, and owns the
 * program of `-- CMD`. What becomes of the recording is the caller's.
 *
 * Life: filled in -> start -> (turn ...) -> wait. First ^C: the keeper is asked to stop; everything
 * is put back and written. Second: the front leaves at once; the keeper sees its socket close and
 * undoes. An attached target is never killed.
 */
#ifndef SCRY_WATCH_FRONT_H
#define SCRY_WATCH_FRONT_H

#include "watch/watch.h"

struct scry_front {
	const struct scry_watch_opts *opts; /* filled in by the caller, as are those up to `arg` */
	const struct scry_instrument *instrument;
	int rec_fd;		       /* an empty file: the recording */
	void (*on_entered)(void *arg); /* the first process is entered; may be NULL */
	void *arg;
	/* What is known by now; reading only. */
	bool entered, is_done, is_short;
	bool is_target_gone; /* all that was watched had ended by itself */
	bool is_gone;	     /* the keeper */
	int lacks;	     /* -errno of the first of several -p that is not watched, or 0 */
	int failed;	     /* -errno that the keeper reported */
	char sentence[1024]; /* with `-- CMD`: its sentence; else it was printed */
	/* Its own. */
	int fd; /* the keeper's socket */
	pid_t keeper, child;
	int go_fd;	  /* what lets the program exec */
	int fault_fd;	  /* errno of a failed exec comes here */
	bool is_stopping; /* the keeper: to stop */
};

/* Forks the keeper and, for `-- CMD`, the program. 0, or -errno with a sentence: nothing runs. */
int scry_front_start(struct scry_front *f);

/* Waits up to `timeout_ms` for news of the keeper and takes one. False: it has ended. ^C is passed
 * on as an order; a program that was started gets its own from the tty. */
bool scry_front_turn(struct scry_front *f, int timeout_ms);

/* Asks the keeper to end the watch. */
void scry_front_stop(struct scry_front *f);

/* Until keeper and program have ended. The program's exit status (128 + N by a signal;
 * SCRY_EXIT_NOT_FOUND or SCRY_EXIT_CANNOT_RUN, said); 0 where none was started. */
int scry_front_wait(struct scry_front *f);

#endif
