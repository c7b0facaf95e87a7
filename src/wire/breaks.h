/*
 * A slab of breakpoints' copies (hook/breaks.h): SCRY_BREAKS_HEAD bytes, then one copy after the
 * other; the counter with the same number holds the address of which it is a copy.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_BREAKS_H
#define SCRY_WIRE_BREAKS_H

#define SCRY_BREAKS_HEAD 256u
#define SCRY_BREAKS_COPY 32u

#endif
