/*
 * Numbers of lines of calls: these are many, and printf would take longer than all the rest.
 */
#ifndef SCRY_VIEW_CALLS_NUMBER_H
#define SCRY_VIEW_CALLS_NUMBER_H

#include <stdint.h>

#include "base/buf.h"

/* Decimal, with at least so many digits. */
void scry_call_put_u64(struct scry_buf *buf, uint64_t value, unsigned int digits);
void scry_call_put_i64(struct scry_buf *buf, int64_t value);
/* Bits of a digit: 4, 3 or 1: "0x1f", "037" and "0b11111"; 0 is "0", of 3 "00". */
void scry_call_put_based(struct scry_buf *buf, uint64_t value, unsigned int bits);
/* "1.000600123", in seconds from nanoseconds. */
void scry_call_put_seconds(struct scry_buf *buf, uint64_t ns);

#endif
