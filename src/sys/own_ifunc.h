/*
 * What an IFUNC's resolver of the C library chooses, where no slot of the process shows it yet
 * (lazy binding). Resolvers look at the processor and nothing else, and scry runs on the same one:
 * where it has loaded the very same file its own loader has chosen already. Nothing is run in the
 * process.
 */
#ifndef SCRY_SYS_OWN_IFUNC_H
#define SCRY_SYS_OWN_IFUNC_H

#include <stdint.h>

#include "sys/linkmap.h"
#include "sys/symbols.h"

/* The implementation, run-time, in the process; 0: not known: another C library, or another choice
 * is asked for (GLIBC_TUNABLES), of the process or of us. */
uint64_t scry_own_ifunc(const struct scry_linkmap *lm, const struct scry_function *function);

#endif
