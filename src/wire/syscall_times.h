/* How long system calls took, in steps: shared by the kernel's side and ours. */
#ifndef SCRY_WIRE_SYSCALL_TIMES_H
#define SCRY_WIRE_SYSCALL_TIMES_H

#include <stdint.h>

/*
 * How long calls took, in steps: step s holds times from scry_syscalls_step_ns(s) on, to that of s
 * + 1. Eight to each doubling: within 12 %.
 */
#define SCRY_SYSCALLS_STEPS 256
#define SCRY_SYSCALLS_STEP_FIRST 5 /* bits: what takes less than 32 ns is in the first */
struct scry_syscalls_times {
	uint64_t total_ns, max_ns;
	uint64_t unsure; /* of calls that a filter with a supervisor may have held: not counted */
	uint32_t steps[SCRY_SYSCALLS_STEPS];
};

static inline uint32_t scry_syscalls_step(uint64_t ns)
{
	uint32_t bits = SCRY_SYSCALLS_STEP_FIRST, step;

	if (ns < 1u << SCRY_SYSCALLS_STEP_FIRST)
		return 0;
	for (uint32_t half = 32; half; half /= 2) /* no clz: not all BPF compilers have it */
		if (bits + half < 64 && ns >> (bits + half))
			bits += half;
	step = (bits - SCRY_SYSCALLS_STEP_FIRST) * 8 + (uint32_t)(ns >> (bits - 3) & 7) + 1;
	return step < SCRY_SYSCALLS_STEPS ? step : SCRY_SYSCALLS_STEPS - 1;
}
static inline uint64_t scry_syscalls_step_ns(uint32_t step)
{
	uint64_t one = 1;

	if (!step)
		return 0;
	step--;
	return (one << (SCRY_SYSCALLS_STEP_FIRST + step / 8)) +
	       ((one << (SCRY_SYSCALLS_STEP_FIRST + step / 8)) >> 3) * (step % 8);
}

#endif
