/* The edit distance with swaps of neighbours, three rows of the usual table. See nearest.h. */
#include "base/nearest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Both are shorter than SCRY_NEAREST_MAX. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][SCRY_NEAREST_MAX], width = strlen(b);
	size_t *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= width; j++)
		last[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t *oldest = before;

		now[0] = i + 1;
		for (size_t j = 0; j < width; j++) {
			now[j + 1] =
				least(last[j] + (a[i] != b[j]), least(last[j + 1], now[j]) + 1);
			if (i && j && a[i] == b[j - 1] && a[i - 1] == b[j])
				now[j + 1] = least(now[j + 1], before[j - 1] + 1);
		}
		before = last;
		last = now;
		now = oldest;
	}
	return last[width];
}

void scry_nearest_begin(struct scry_nearest *n, const char *word)
{
	size_t len = strlen(word);

	*n = (struct scry_nearest){.word = word};
	if (len < SCRY_NEAREST_MAX)
		n->distance = least(len / 3, 3) + 1; /* nearer than this */
}

void scry_nearest_offer(struct scry_nearest *n, const char *candidate)
{
	size_t len = strlen(candidate), typed, far;

	if (n->distance == 0 || len == 0 || len >= SCRY_NEAREST_MAX)
		return;
	typed = strlen(n->word);
	if ((len > typed ? len - typed : typed - len) >= n->distance)
		return;
	far = distance(n->word, candidate);
	if (far >= n->distance)
		return;
	n->distance = far;
	memcpy(n->name, candidate, len + 1);
}

struct scry_nearest_text scry_nearest_ask(const struct scry_nearest *n)
{
	struct scry_nearest_text t = {{0}};

	if (*n->name)
		snprintf(t.text, sizeof(t.text), "; did you mean '%s'?", n->name);
	return t;
}
