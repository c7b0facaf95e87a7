/* Functions with frames of known size, which run to the end of their stack. */
#ifndef SCRY_TEST_FIBER_FRAMES_H
#define SCRY_TEST_FIBER_FRAMES_H

#include <stddef.h>

/* Calls itself with some 1 KiB a frame until there is no more stack. */
long frames_small(long depth);

/* One frame of 40 KiB, of which the lowest byte is written first. */
long frames_of_40k(long depth);

/* One frame of 200 KiB: larger than a guard. Without probes, and with them
 * (-fstack-clash-protection). */
long frames_of_200k(long depth);
long frames_of_200k_probed(long depth);

#endif
