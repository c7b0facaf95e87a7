/*
 * Strings of the system calls of chosen processes, copied as each call begins, and what calls have
 * written, copied as they return: what reads the tracepoint from outside sees a pointer, and what
 * it leads to may be another thing by then.
 *
 * Each call whose number has strings has a record, also where nothing could be copied, and so has
 * each return: they are paired with the tracepoint's by their order in a thread. A call of 32 bits
 * has another meaning for its number, and nothing is copied of it.
 *
 * What is not in memory at that moment is not copied, as nothing may wait here. While it is
 * attached each system call of the machine pays for the question whether its process is meant.
 */
#include <linux/bpf.h>

#include "bpf/lost.h"
#include "bpf/task.h"
#include "wire/bpf_strings.h"

#include <bpf/bpf_tracing.h>

const volatile struct scry_strings_setup scry_setup;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} strings SEC(".maps");

struct { /* process -> 1 */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCRY_STRINGS_PIDS);
	__type(key, __u32);
	__type(value, __u8);
} pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCRY_STRINGS_NUMBERS);
	__type(key, __u32);
	__type(value, struct scry_strings_wanted);
} wanted SEC(".maps");

/* Of a thread that is meant. NULL: it is not. */
static __always_inline const struct scry_strings_wanted *wants(__u32 pid, __u32 number)
{
	return pid && bpf_map_lookup_elem(&pids, &pid) ? bpf_map_lookup_elem(&wanted, &number)
						       : NULL;
}

static __always_inline __u32 text_max(void)
{
	return scry_setup.max < SCRY_STRINGS_MAX ? scry_setup.max : SCRY_STRINGS_MAX;
}

/* As the tracepoint has them. */
static __always_inline bool put_args(__u64 args[8], const struct pt_regs___kernel *regs,
				     const struct task_struct *task)
{
	const bool is_compat = task->thread_info.status & TS_COMPAT;

	args[0] = is_compat ? regs->bx : regs->di;
	args[1] = is_compat ? regs->cx : regs->si;
	args[2] = regs->dx;
	args[3] = is_compat ? regs->si : regs->r10;
	args[4] = is_compat ? regs->di : regs->r8;
	return is_compat;
}

static __always_inline void copy(struct scry_strings_record *r, const struct scry_strings_wanted *w,
				 const __u64 args[8], __u32 i)
{
	const __u32 arg = (w->arg[i] - 1u) & 7, length = (w->length[i] - 1u) & 7;
	const void *at = (const void *)args[arg];
	__u64 size = args[length], max = text_max();
	long n;

	r->arg[i] = w->arg[i];
	if (!w->arg[i])
		return;
	if (!w->length[i]) {
		n = bpf_probe_read_user_str(r->text[i], (__u32)max + 2, at);
		if (n > 0)
			r->bytes[i] = (__u16)(n - 1);
		return;
	}
	if (size > max)
		size = max + 1;
	if (size <= SCRY_STRINGS_MAX + 1 && !bpf_probe_read_user(r->text[i], (__u32)size, at))
		r->bytes[i] = (__u16)size;
}

SEC("tp_btf/sys_enter")
int strings_enter(unsigned long long *ctx)
{
	const struct pt_regs___kernel *regs = (const struct pt_regs___kernel *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 number = (__u32)ctx[1], pid = scry_pid_of(task, scry_setup.pid_ns);
	const struct scry_strings_wanted *w;
	struct scry_strings_record *r;
	__u64 args[8] = {0}, now = bpf_ktime_get_ns();
	bool is_compat;

	w = wants(pid, number);
	if (!w || !w->arg[0])
		return 0;
	r = bpf_ringbuf_reserve(&strings, sizeof(*r), 0);
	if (!r) {
		scry_lost_one();
		return 0;
	}
	is_compat = put_args(args, regs, task);
	for (int i = 0; i < (int)SCRY_STRINGS_ARGS; i++)
		r->args[i] = args[i];
	r->time_ns = now;
	r->pid = pid;
	r->tid = scry_tid_of(task, scry_setup.pid_ns);
	r->number = number;
	r->is_exit = 0;
	r->bytes[0] = r->bytes[1] = SCRY_STRINGS_NONE;
	if (!is_compat) {
		copy(r, w, args, 0);
		copy(r, w, args, 1);
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* What the call has written: not more than the size behind the buffer says, where a result says
 * more (MSG_TRUNC). */
static __always_inline void copy_back(struct scry_strings_record *r,
				      const struct scry_strings_wanted *w, const __u64 args[8],
				      long result)
{
	const __u32 arg = (w->back - 1u) & 7;
	const void *at = (const void *)args[arg];
	__u64 size = result < 0 ? 0 : (__u64)result, max = text_max();
	long n;

	r->arg[0] = w->back;
	r->args[1] = args[arg];
	if (result < 0)
		return;
	if (!w->back_is_counted) {
		n = bpf_probe_read_user_str(r->text[0], (__u32)max + 2, at);
		if (n > 0)
			r->bytes[0] = (__u16)(n - 1);
		return;
	}
	if (size > args[(arg + 1) & 7])
		size = args[(arg + 1) & 7];
	if (size > max)
		size = max + 1;
	if (size <= SCRY_STRINGS_MAX + 1 && !bpf_probe_read_user(r->text[0], (__u32)size, at))
		r->bytes[0] = (__u16)size;
}

SEC("tp_btf/sys_exit")
int strings_exit(unsigned long long *ctx)
{
	const struct pt_regs___kernel *regs = (const struct pt_regs___kernel *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 number = (__u32)regs->orig_ax, pid = scry_pid_of(task, scry_setup.pid_ns);
	const struct scry_strings_wanted *w = wants(pid, number);
	__u64 args[8] = {0}, now = bpf_ktime_get_ns();
	struct scry_strings_record *r;

	if (!w || !w->back)
		return 0;
	r = bpf_ringbuf_reserve(&strings, SCRY_STRINGS_EXIT_BYTES, 0);
	if (!r) {
		scry_lost_one();
		return 0;
	}
	r->time_ns = now;
	r->pid = pid;
	r->tid = scry_tid_of(task, scry_setup.pid_ns);
	r->number = number;
	r->is_exit = 1;
	r->args[0] = ctx[1];
	r->bytes[0] = SCRY_STRINGS_NONE;
	r->arg[0] = r->arg[1] = 0;
	if (!put_args(args, regs, task))
		copy_back(r, w, args, (long)ctx[1]);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("raw_tp/sched_process_fork")
int strings_forked(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	__u32 of = scry_pid_of(parent, scry_setup.pid_ns);
	__u32 pid = scry_pid_of(child, scry_setup.pid_ns);
	__u8 one = 1;

	if (scry_setup.follow && of && pid && of != pid && bpf_map_lookup_elem(&pids, &of))
		bpf_map_update_elem(&pids, &pid, &one, BPF_ANY);
	return 0;
}

/* Perf leaves it, too (sys/syscalls). */
SEC("raw_tp/sched_process_exec")
int strings_ran(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid = scry_pid_of(bpf_get_current_task_btf(), scry_setup.pid_ns);

	if (scry_setup.follow && pid)
		bpf_map_delete_elem(&pids, &pid);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int strings_ended(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = scry_pid_of(task, scry_setup.pid_ns);

	if (pid && BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&pids, &pid);
	return 0;
}

char scry_license[] SEC("license") = "GPL";
