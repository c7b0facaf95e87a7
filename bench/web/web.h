/* The parts of the server: see server.c. */
#ifndef SCRY_BENCH_WEB_H
#define SCRY_BENCH_WEB_H

#include <stdbool.h>

/* Waits until a descriptor can be read, or written. false: the connection is over. */
typedef bool web_wait(int fd, bool is_write);

/* Serves a connection until it ends; does not close it. */
void web_serve(int fd, web_wait *wait);

/* Threads on one stack, copied out and in. Does not return. */
void web_by_copying(int listener);

int web_listen(int port);

#endif
