/*
 * The smallest program: reports through a ring that it ran, in which thread, and with which number
 * it was attached. By it is found out what the kernel allows (probe/bpf: scry_bpf_check), and the
 * loader is tested.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "bpf/lost.h"
#include "wire/bpf_check.h"

const volatile __u64 scry_check_word = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} ring SEC(".maps");

static int emit(void *ctx)
{
	struct scry_bpf_checked *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		scry_lost_one();
		return 0;
	}
	r->pid_tid = bpf_get_current_pid_tgid();
	r->word = scry_check_word;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("uprobe")
int check_uprobe(void *ctx)
{
	return emit(ctx);
}

SEC("perf_event")
int check_perf(void *ctx)
{
	return emit(ctx);
}

char scry_license[] SEC("license") = "GPL";
