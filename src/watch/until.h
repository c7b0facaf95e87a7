/*
 * `--until EXPR`: when a watch ends by itself: 'rss>2G', 'live>=1000000', 'gcs>50'.
 *
 * One quantity, `>` or `>=`, a number. It takes numbers and reads nothing: the keeper knows them.
 */
#ifndef SCRY_WATCH_UNTIL_H
#define SCRY_WATCH_UNTIL_H

#include <stdbool.h>
#include <stdint.h>

enum scry_until_quantity {
	SCRY_UNTIL_NEVER,     /* nothing was given */
	SCRY_UNTIL_RSS,	      /* resident memory, bytes; the limit is a size: 512M, 2GiB */
	SCRY_UNTIL_LIVE,      /* objects made while watched and not yet freed */
	SCRY_UNTIL_ALLOCATED, /* objects made while watched */
	SCRY_UNTIL_GCS,	      /* garbage collections seen */
};

struct scry_until {
	enum scry_until_quantity quantity;
	bool or_equal; /* >= */
	uint64_t limit;
};

struct scry_until_now { /* as it is */
	uint64_t rss_bytes;
	uint64_t live;
	uint64_t allocated;
	uint64_t gcs;
};

/* Reads the expression; NULL is "never". 0, or -EINVAL with a sentence. */
int scry_until_parse(const char *text, struct scry_until *ret_until);

/* True when the watch is over. */
bool scry_until_holds(const struct scry_until *until, const struct scry_until_now *now);

#endif
