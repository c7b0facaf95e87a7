/*
 * A descriptor that can be read when a child has ended, or a traced thread has stopped: for
 * poll. A signal's handler that only ended a poll would be too early where the signal comes just
 * before it. Children that do not exec keep the handler, and may make it readable for nothing.
 */
#ifndef SCRY_SYS_CHILD_NEWS_H
#define SCRY_SYS_CHILD_NEWS_H

/* Takes SIGCHLD; once in a process. The descriptor, or -1: a poll is ended all the same. */
int scry_child_news_open(void);
/* It is not readable any more: before the children are looked at. */
void scry_child_news_take(int fd);

#endif
