/*
 * What the keeper and the front report to each other, over a socket.
 */
#ifndef SCRY_WATCH_NEWS_H
#define SCRY_WATCH_NEWS_H

#include <stdint.h>

#include "watch/watch.h"

/* Messages of the keeper to the front: a head, then `size` bytes of text. */
enum scry_news {
	SCRY_NEWS_SAY = 1, /* talk for stderr */
	SCRY_NEWS_DETAIL,  /* shown with -v */
	SCRY_NEWS_ENTERED, /* hooks are on */
	SCRY_NEWS_FAILED,  /* the sentence; `value` is -errno */
	SCRY_NEWS_GO,	   /* -- CMD: it may exec now; the text: what it preloads */
	SCRY_NEWS_SHORT,   /* before DONE: the recording lacks its end */
	SCRY_NEWS_GONE,	   /* before DONE: nothing that was watched was there any more */
	SCRY_NEWS_LACKS,   /* of several -p one is not watched, and was said; `value` is -errno */
	SCRY_NEWS_DONE,	   /* the recording is complete and the target restored */
};
struct scry_news_head {
	uint32_t kind;
	int32_t value;
	uint32_t size, reserved;
};
/* Messages of the front to the keeper: single bytes. End of file: the front is gone, undo. */
#define SCRY_ORDER_STOP 's'
/* The keeper's life. `fd`: the front's socket, `rec_fd`: an empty file. */
void scry_keeper_run(const struct scry_watch_opts *opts, const struct scry_instrument *instrument,
		     int fd, int rec_fd) __attribute__((noreturn));

#endif
