/*
 * Ractors: a VM up to 3.1.3 breaks when one starts while object events are on (class_name.c).
 */
#ifndef SCRY_AGENT_RACTOR_H
#define SCRY_AGENT_RACTOR_H

#include <stdint.h>

#include "agent/load.h"

/* Is `klass` that of a ractor, and the VM one that breaks? */
int scry_is_ractor(uint64_t klass);

/* The same of an object, by its first two words; most are known by their type. */
static inline int scry_comes_ractor(uint64_t flags, uint64_t klass)
{
	return (flags & SCRY_TYPE_MASK) == SCRY_TYPE_DATA && scry_is_ractor(klass);
}

#endif
