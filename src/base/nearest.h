/*
 * "Did you mean ...?": of many words the one that a mistyped word is nearest to.
 *
 * The distance counts letters that were added, left out, replaced, or swapped with the next. A word
 * counts as meant when at most a third of its letters differ, and at most three.
 */
#ifndef SCRY_BASE_NEAREST_H
#define SCRY_BASE_NEAREST_H

#include <stddef.h>

#define SCRY_NEAREST_MAX 64 /* longer words are never near */

struct scry_nearest {
	const char *word; /* as it was typed */
	size_t distance;
	char name[SCRY_NEAREST_MAX]; /* "": nothing is near */
};

void scry_nearest_begin(struct scry_nearest *n, const char *word);
/* The first of several words at the same distance stays. */
void scry_nearest_offer(struct scry_nearest *n, const char *candidate);

/* "; did you mean 'malloc'?", or "" where nothing is near. Good while `n` is. */
struct scry_nearest_text {
	char text[SCRY_NEAREST_MAX + 32];
};
struct scry_nearest_text scry_nearest_ask(const struct scry_nearest *n);

#endif
