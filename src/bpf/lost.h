/*
 * Records for which a program's ring had no room, counted by processor: `scry_bpf_sum(bpf, "lost",
 * 0)` of probe/bpf.h adds them up. For programs of eBPF only.
 */
#ifndef SCRY_BPF_LOST_H
#define SCRY_BPF_LOST_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void scry_lost_one(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		*count += 1;
}

#endif
