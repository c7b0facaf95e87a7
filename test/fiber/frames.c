/* See frames.h; built without probes, as code of other people is. */
#include "frames.h"

__attribute__((noinline, noclone)) long frames_small(long depth)
{
	volatile char room[1000];

	room[0] = (char)depth;
	if (depth < 0)
		return 0;
	return frames_small(depth + 1) + room[0];
}

__attribute__((noinline, noclone)) long frames_of_40k(long depth)
{
	volatile char room[40 << 10];

	room[0] = (char)depth;
	return depth + room[0];
}

__attribute__((noinline, noclone)) long frames_of_200k(long depth)
{
	volatile char room[200 << 10];

	room[0] = (char)depth;
	return depth + room[0];
}
