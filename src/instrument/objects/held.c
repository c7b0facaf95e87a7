/* See held.h. A started Ruby is judged when its first code makes an object, so this is a
 * few thousand words; one that runs no code fills it at most. */
#include "instrument/objects/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/control.h"

#define WORDS_MAX (8u * SCRY_RING_WORDS)

bool scry_objects_held_has_room(const struct scry_objects_held *h)
{
	return h->count + SCRY_RING_WORDS <= WORDS_MAX;
}

int scry_objects_held_put(struct scry_objects_held *h, const uint64_t *words, size_t count)
{
	size_t room = h->room ? h->room : 4096;
	uint64_t *more;

	while (room < h->count + count)
		room *= 2;
	if (room != h->room) {
		more = reallocarray(h->words, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		h->words = more;
		h->room = room;
	}
	memcpy(h->words + h->count, words, count * sizeof(*words));
	h->count += count;
	return 0;
}

void scry_objects_held_drop(struct scry_objects_held *h)
{
	free(h->words);
	*h = (struct scry_objects_held){0};
}
