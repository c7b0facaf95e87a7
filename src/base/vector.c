/* Arrays that grow. See vector.h. */
#include "base/vector.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST 64u

int scry_vector_grow(void **rows, size_t count, size_t *room, size_t size)
{
	const size_t more = *room ? 2 * *room : FIRST;
	void *grown;

	if (count < *room)
		return 0;
	grown = reallocarray(*rows, more, size);
	if (!grown)
		return -ENOMEM;
	*rows = grown;
	*room = more;
	return 0;
}
