/*
 * What a call of a malloc function does to blocks: wire/payload_malloc.h in one function.
 */
#ifndef SCRY_REC_MALLOC_EFFECT_H
#define SCRY_REC_MALLOC_EFFECT_H

#include "wire/payload.h"

enum scry_malloc_effect {
	SCRY_MALLOC_EFFECT_NONE,  /* names no block */
	SCRY_MALLOC_EFFECT_BEGIN, /* a block begins */
	SCRY_MALLOC_EFFECT_AGAIN, /* it goes on with another size */
	SCRY_MALLOC_EFFECT_ASK,	  /* it is only named */
	SCRY_MALLOC_EFFECT_END,	  /* it ends */
};

/* Any `function` and `flags` are legal; those unknown name no block. */
static inline enum scry_malloc_effect scry_malloc_effect_of(uint32_t function, uint32_t flags)
{
	const uint32_t nowhere = SCRY_MALLOC_NULL | SCRY_MALLOC_UNKNOWN;

	switch (function) {
	case SCRY_MALLOC_MALLOC:
	case SCRY_MALLOC_CALLOC:
	case SCRY_MALLOC_POSIX_MEMALIGN:
	case SCRY_MALLOC_ALIGNED_ALLOC:
	case SCRY_MALLOC_MEMALIGN:
	case SCRY_MALLOC_VALLOC:
	case SCRY_MALLOC_PVALLOC:
	case SCRY_MALLOC_NEW:
	case SCRY_MALLOC_NEW_ARRAY:
	case SCRY_MALLOC_OLDER:
		return flags & SCRY_MALLOC_FAILED ? SCRY_MALLOC_EFFECT_NONE
						  : SCRY_MALLOC_EFFECT_BEGIN;
	case SCRY_MALLOC_REALLOC:
	case SCRY_MALLOC_REALLOCARRAY:
		if (flags & nowhere)
			return flags & (SCRY_MALLOC_FAILED | SCRY_MALLOC_ENDED)
				       ? SCRY_MALLOC_EFFECT_NONE
				       : SCRY_MALLOC_EFFECT_BEGIN;
		if (flags & SCRY_MALLOC_FAILED)
			return SCRY_MALLOC_EFFECT_ASK;
		return flags & SCRY_MALLOC_ENDED ? SCRY_MALLOC_EFFECT_END
						 : SCRY_MALLOC_EFFECT_AGAIN;
	case SCRY_MALLOC_FREE:
	case SCRY_MALLOC_DELETE:
	case SCRY_MALLOC_DELETE_ARRAY:
		return flags & nowhere ? SCRY_MALLOC_EFFECT_NONE : SCRY_MALLOC_EFFECT_END;
	case SCRY_MALLOC_USABLE_SIZE:
	case SCRY_MALLOC_TOUCHED:
		return flags & nowhere ? SCRY_MALLOC_EFFECT_NONE : SCRY_MALLOC_EFFECT_ASK;
	default:
		return SCRY_MALLOC_EFFECT_NONE;
	}
}

#endif
