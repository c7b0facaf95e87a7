/*
 * The prototypes of `scry calls`: those of -F, then those that are known of client libraries
 * (prototypes.conf, compiled in).
 */
#ifndef SCRY_INSTRUMENT_CALLS_PROTOS_H
#define SCRY_INSTRUMENT_CALLS_PROTOS_H

#include "proto/protos.h"

/* Reads the files, then the known ones. 0 or -errno with a sentence; *ret is the caller's. */
int scry_calls_protos_read(const char *const *files, size_t count, struct scry_protos **ret);

/* The i-th known function that is traced when none is named; NULL: there are no more. */
const struct scry_proto *scry_calls_protos_default(const struct scry_protos *p, size_t *i);

#endif
