/* See frames.h; built with -fstack-clash-protection. */
#include "frames.h"

__attribute__((noinline, noclone)) long frames_of_200k_probed(long depth)
{
	volatile char room[200 << 10];

	room[0] = (char)depth;
	return depth + room[0];
}
