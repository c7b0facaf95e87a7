/*
 * One sentence about the first thing that failed.
 *
 * Functions return 0 or -errno. The place that knows adds the sentence with scry_fail(); all others
 * pass the number up; main prints the sentence once. Lower case, no full stop, names quoted, and
 * how a person can mend it: "no symbol 'x' in 'y'; fix: ...". The sentence is per thread.
 */
#ifndef SCRY_BASE_ERR_H
#define SCRY_BASE_ERR_H

#include <stdio.h>

/* Stores the sentence (cut at 1 KiB) and returns `err`, a negative errno. Replaces an older one. */
int scry_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The sentence where memory is short, "not enough memory for WHAT"; `fmt` says what it was for.
 * Returns -ENOMEM. */
int scry_no_memory(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Flushes what was printed: 0, or -errno and "cannot write WHAT: ...", also where a write before it
 * failed. -EPIPE without a sentence where the reader of a pipe has gone, as `head` does.
 */
int scry_flush(FILE *out, const char *what);

/* The stored sentence, "" when there is none. Valid until this thread's next scry_fail. */
const char *scry_error(void);

/* Forgets the sentence: for callers for whom the failure is an ordinary answer. */
void scry_error_clear(void);

#endif
