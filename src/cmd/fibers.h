/* The two halves of `scry fibers`: one looks from outside, the other one enters. */
#ifndef SCRY_CMD_FIBERS_H
#define SCRY_CMD_FIBERS_H

/* `scry fibers --count`, with all of its words. Returns the exit status. */
int scry_fibers_count(int argc, char **argv);

#endif
