/*
 * Arrays that grow: a pointer to rows, how many there are, and for how many there is room.
 *
 * Life cycle: all zero is empty; free() the rows. The caller counts, and sets its limit.
 */
#ifndef SCRY_BASE_VECTOR_H
#define SCRY_BASE_VECTOR_H

#include <stddef.h>

/*
 * Makes room for one row behind the first `count`, twice as much as there was where there is none.
 * `rows` and `room` point to the caller's pointer and its number of any unsigned type. 0, or
 * -ENOMEM without a sentence, then nothing has changed. Pointers to rows are void afterwards.
 */
#define scry_vector_reserve(rows, count, room)                                          \
	({                                                                              \
		void *rows_ = *(rows);                                                  \
		size_t room_ = *(room);                                                 \
		int err_ = scry_vector_grow(&rows_, (count), &room_, sizeof(**(rows))); \
		*(rows) = rows_;                                                        \
		*(room) = (__typeof__(*(room)))room_;                                   \
		err_;                                                                   \
	})

int scry_vector_grow(void **rows, size_t count, size_t *room, size_t size);

#endif
