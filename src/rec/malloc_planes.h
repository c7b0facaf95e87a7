/*
 * A column of varints, as its packer and its unpacker see it, and as it lies in the frame: all
 * first bytes, then all second bytes, and so on. What follows what then says more to a compressor,
 * as the high bytes of numbers are alike, and the low ones are noise.
 *
 * Nothing else is stored: exactly one byte of each varint has no 0x80, so their number is known,
 * and the bytes with 0x80 in one plane are the length of the next.
 */
#ifndef SCRY_REC_MALLOC_PLANES_H
#define SCRY_REC_MALLOC_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `len` bytes of whole varints of at most ten bytes; as many into ret_planes. */
void scry_malloc_planes_split(const uint8_t *column, size_t len, uint8_t *ret_planes);

/* The other way round, of foreign bytes. False: they are not planes. */
bool scry_malloc_planes_join(const uint8_t *planes, size_t len, uint8_t *ret_column);

#endif
