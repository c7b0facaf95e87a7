/* A program of test/targets that is run by a unit test and answers line by line. */
#ifndef TEST_UNIT_CHILD_H
#define TEST_UNIT_CHILD_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	FILE *to, *from;
	char line[4200]; /* the last answer, without its newline */
};

/* Starts SCRY_TARGET_DIR/NAME (or NAME itself when it is a path) with up to one argument, and waits
 * for its first line. False: there is no such program (said aloud), so that the test can be
 * skipped. */
bool child_start(struct child *c, const char *name, const char *arg);
/* Sends a line and takes the answer, which must begin with `expect`; returns what stands behind it.
 */
const char *child_ask(struct child *c, const char *ask, const char *expect);
/* The next line without asking. */
const char *child_next(struct child *c);
/* Closes its stdin; it must end with status 0. */
void child_end(struct child *c);

#endif
