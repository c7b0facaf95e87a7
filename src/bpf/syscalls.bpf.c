/*
 * System calls of chosen processes, summed in the kernel: at each tick of a processor's clock which
 * call a thread is in, and, where calls are counted, at the end of each of them. No record is made
 * for a call; who reads takes the sums now and then.
 *
 * A sum is one thread's at one place, so nothing is shared between processors. While it is
 * attached each process of the machine pays for the question whether it is meant.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include "bpf/task.h"
#include "wire/bpf_syscalls.h"

#include <bpf/bpf_tracing.h>

#define TS_COMPAT 0x2u
#define USER_CS 3u
#define ERRNO_MAX 4095
#define BURST 128u /* copies of stacks, and paths, that may come at once on a processor */
#define RANDOM 127u

const volatile struct scry_syscalls_setup scry_setup;

struct pt_regs___kernel { /* as the running kernel lays it out */
	unsigned long bx, bp, r10, dx, si, di, orig_ax, ip, sp;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} places SEC(".maps");

struct { /* for which who reads is woken */
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} news SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCRY_SYSCALLS_TASKS);
	__type(key, __u32);
	__type(value, struct scry_syscalls_member);
} tree SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCRY_SYSCALLS_SUMS);
	__type(key, struct scry_syscalls_key);
	__type(value, struct scry_syscalls_sum);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCRY_SYSCALLS_TIMES);
	__type(key, struct scry_syscalls_key);
	__type(value, struct scry_syscalls_times);
} times SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} images SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRY_SYSCALLS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct budget { /* of copies, on one processor */
	__u64 since_ns;
	__u32 left;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct budget);
} budgets SEC(".maps");

struct entered {  /* the call that a thread is in, or was in last */
	__u64 ns; /* 0: it was not seen to begin */
	__u64 ip;
	__u64 mask; /* blocked signals: when it began; without --latency, after the last change */
	__u32 number;
	__u32 flags; /* of the file, or of the descriptor */
	__u8 has_mask, has_flags;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entered);
} threads SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &what);

	if (counter)
		*counter += 1;
}

static __always_inline __u32 image_of(struct task_struct *task)
{
	__u32 pid = scry_setup.pid_ns ? scry_pid_of(task, scry_setup.pid_ns) : (__u32)task->tgid;
	const struct scry_syscalls_member *m = bpf_map_lookup_elem(&tree, &pid);

	return m ? m->image : 0;
}

static __u32 new_image(void)
{
	__u32 zero = 0, *next = bpf_map_lookup_elem(&images, &zero);

	return next ? __sync_fetch_and_add(next, 1) : 0;
}

static void set_key(struct scry_syscalls_key *key, struct task_struct *task,
		    const struct pt_regs___kernel *regs)
{
	key->tid = scry_tid_of(task, scry_setup.pid_ns);
	key->number = (__u32)regs->orig_ax;
	key->abi = task->thread_info.status & TS_COMPAT ? SCRY_ABI_32 : SCRY_ABI_64;
	key->ip = regs->ip;
}

/* --- copies: of places, stacks and paths ----------------------------------------------------- */

static __always_inline void set_head(struct scry_syscalls_record *r, __u32 kind,
				     const struct scry_syscalls_key *key)
{
	__u32 pid = scry_pid_of(scry_current(), scry_setup.pid_ns);
	const struct scry_syscalls_member *m = bpf_map_lookup_elem(&tree, &pid);

	r->kind = kind;
	r->tid = key->tid;
	r->pid = pid;
	r->image = key->image;
	r->key = *key;
	r->other = m ? m->parent : 0;
}

static void tell_place(const struct scry_syscalls_key *key)
{
	struct scry_syscalls_record *r = bpf_ringbuf_reserve(&places, sizeof(*r), 0);

	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return;
	}
	set_head(r, SCRY_SYSCALLS_PLACE, key);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* May one more be made now? */
static bool spend(void)
{
	__u64 now = bpf_ktime_get_ns(), fresh;
	__u32 zero = 0;
	struct budget *b = bpf_map_lookup_elem(&budgets, &zero);

	if (!b)
		return false;
	fresh = (now - b->since_ns) / scry_setup.stack_every_ns;
	if (fresh) {
		b->left = b->left + fresh > BURST ? BURST : b->left + fresh;
		b->since_ns = now;
	}
	if (!b->left)
		return false;
	b->left--;
	return true;
}

/* Read in halves of halves, since where the stack ends is not known. */
static __attribute__((noinline)) int tell_stack(const struct scry_syscalls_key *key,
						const struct pt_regs___kernel *regs)
{
	struct scry_syscalls_stack *r = bpf_ringbuf_reserve(&places, sizeof(*r), 0);
	__u64 size = 0, sp;

	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return 0;
	}
	if (!key || !regs) {
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	set_head(&r->head, SCRY_SYSCALLS_STACK, key);
	r->sp = sp = BPF_CORE_READ(regs, sp);
	r->bp = BPF_CORE_READ(regs, bp);
	r->bx = BPF_CORE_READ(regs, bx);
#pragma unroll
	for (int half = SCRY_SYSCALLS_STACK_BYTES / 2; half >= 8; half /= 2)
		if (size <= (__u64)(SCRY_SYSCALLS_STACK_BYTES - half) &&
		    bpf_probe_read_user(r->bytes + size, half, (void *)(sp + size)) == 0)
			size += half;
	r->size = size;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static void tell_path(const struct scry_syscalls_key *key, __u64 at, __u32 kind)
{
	struct scry_syscalls_path *r;

	if (!spend())
		return;
	r = bpf_ringbuf_reserve(&places, sizeof(*r), 0);
	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return;
	}
	set_head(&r->head, kind, key);
	if (bpf_probe_read_user_str(r->path, sizeof(r->path), (void *)at) < 0) {
		bpf_ringbuf_discard(r, 0);
		return;
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* --- calls in vain --------------------------------------------------------------------------- */

enum { /* numbers of system calls */
       NR_READ = 0,
       NR_WRITE = 1,
       NR_OPEN = 2,
       NR_STAT = 4,
       NR_LSTAT = 6,
       NR_POLL = 7,
       NR_LSEEK = 8,
       NR_BRK = 12,
       NR_SIGPROCMASK = 14,
       NR_IOCTL = 16,
       NR_ACCESS = 21,
       NR_YIELD = 24,
       NR_MADVISE = 28,
       NR_SENDTO = 44,
       NR_RECVFROM = 45,
       NR_SETSOCKOPT = 54,
       NR_CLONE = 56,
       NR_FORK = 57,
       NR_VFORK = 58,
       NR_EXECVE = 59,
       NR_EXIT = 60,
       NR_FCNTL = 72,
       NR_READLINK = 89,
       NR_GETTIMEOFDAY = 96,
       NR_TIME = 201,
       NR_FUTEX = 202,
       NR_CLOCK_GETTIME = 228,
       NR_EXIT_GROUP = 231,
       NR_EPOLL_WAIT = 232,
       NR_EPOLL_CTL = 233,
       NR_OPENAT = 257,
       NR_NEWFSTATAT = 262,
       NR_READLINKAT = 267,
       NR_FACCESSAT = 269,
       NR_EPOLL_PWAIT = 281,
       NR_EXECVEAT = 322,
       NR_STATX = 332,
       NR_CLONE3 = 435,
       NR_OPENAT2 = 437,
       NR_FACCESSAT2 = 439,
};
#define F_SETFD 2
#define F_SETFL 4
#define FIONBIO 0x5421
#define FUTEX_CMD 0x7f
#define FUTEX_WAKE 1
#define FUTEX_WAKE_BITSET 10
#define EPOLL_CTL_MOD 3
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define CLOCKS_OF_VDSO 0x8e3u /* CLOCK_REALTIME, MONOTONIC, their COARSE ones, BOOTTIME, TAI */

static __always_inline void found(struct scry_syscalls_sum *s, __u32 what, bool is_vain)
{
	if (s->what != what) {
		if (s->what)
			return;
		s->what = what;
	}
	s->asked++;
	s->vain += is_vain;
}

/* The argument that is a path; 0: none is. */
static __always_inline __u64 path_of(__u32 number, const struct pt_regs___kernel *regs)
{
	switch (number) {
	case NR_OPEN:
	case NR_STAT:
	case NR_LSTAT:
	case NR_ACCESS:
	case NR_READLINK:
	case NR_EXECVE:
		return regs->di;
	case NR_OPENAT:
	case NR_NEWFSTATAT:
	case NR_READLINKAT:
	case NR_FACCESSAT:
	case NR_FACCESSAT2:
	case NR_STATX:
	case NR_OPENAT2:
	case NR_EXECVEAT:
		return regs->si;
	}
	return 0;
}

static __always_inline void ask_localtime(struct scry_syscalls_sum *s,
					  const struct scry_syscalls_key *key,
					  const struct pt_regs___kernel *regs)
{
	static const char wanted[16] = "/etc/localtime";
	__u64 path[2] = {0}, want[2];

	__builtin_memcpy(want, wanted, sizeof(want));
	if (bpf_probe_read_user_str(path, sizeof(path), (void *)path_of(key->number, regs)) < 0)
		return;
	found(s, SCRY_VAIN_LOCALTIME, path[0] == want[0] && path[1] == want[1]);
}

/* The mask is the thread's own: nobody else changes it, but for a signal that is delivered. */
static __always_inline void ask_mask(struct scry_syscalls_sum *s, struct task_struct *task,
				     const struct pt_regs___kernel *regs, struct entered *e)
{
	__u64 now = task->blocked.sig[0];

	if (!e)
		return;
	if (regs->si && e->has_mask)
		found(s, SCRY_VAIN_MASK, e->mask == now);
	e->mask = now;
	e->has_mask = 1;
}

/* What is seen of the descriptor `fd` of a thread: its file's flags; or its own (F_SETFD). */
static __always_inline bool
read_flags(struct task_struct *task, const struct pt_regs___kernel *regs, __u32 number, __u32 *ret)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	__u32 fd = (__u32)regs->di, most = BPF_CORE_READ(table, max_fds);
	unsigned long *bits = BPF_CORE_READ(table, close_on_exec), word;
	struct file **files = BPF_CORE_READ(table, fd), *file;

	if (fd >= most)
		return false;
	if (number == NR_FCNTL && (__u32)regs->si == F_SETFD) {
		if (bpf_probe_read_kernel(&word, sizeof(word), bits + fd / 64))
			return false;
		*ret = word >> (fd % 64) & 1;
		return true;
	}
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
		return false;
	*ret = BPF_CORE_READ(file, f_flags);
	return true;
}

static __always_inline bool sets_flags(__u32 number, const struct pt_regs___kernel *regs)
{
	__u32 what = (__u32)regs->si;

	return (number == NR_FCNTL && (what == F_SETFD || what == F_SETFL)) ||
	       (number == NR_IOCTL && what == FIONBIO);
}

static __always_inline void ask_flags(struct scry_syscalls_sum *s, struct task_struct *task,
				      const struct pt_regs___kernel *regs, __u32 number,
				      const struct entered *e)
{
	__u32 now;

	if (e && e->has_flags && sets_flags(number, regs) && read_flags(task, regs, number, &now))
		found(s,
		      number == NR_FCNTL && (__u32)regs->si == F_SETFD ? SCRY_VAIN_CLOEXEC
								       : SCRY_VAIN_FLAGS,
		      now == e->flags);
}

static __always_inline void ask(struct scry_syscalls_sum *s, const struct scry_syscalls_key *key,
				const struct pt_regs___kernel *regs, long result)
{
	switch (key->number) {
	case NR_READ:
	case NR_WRITE:
	case NR_SENDTO:
	case NR_RECVFROM:
		found(s, SCRY_VAIN_BYTE, regs->dx == 1 && result == 1);
		break;
	case NR_POLL:
		found(s, SCRY_VAIN_POLL, (int)regs->dx == 0 && result == 0);
		break;
	case NR_EPOLL_WAIT:
	case NR_EPOLL_PWAIT:
		found(s, SCRY_VAIN_POLL, (int)regs->r10 == 0 && result == 0);
		break;
	case NR_LSEEK:
		found(s, SCRY_VAIN_TELL, regs->dx == 1 && regs->si == 0 && result >= 0);
		break;
	case NR_BRK:
		found(s, SCRY_VAIN_TRIM, (__u64)result < s->last);
		s->last = (__u64)result;
		break;
	case NR_MADVISE:
		found(s, SCRY_VAIN_TRIM, regs->dx == MADV_DONTNEED || regs->dx == MADV_FREE);
		break;
	case NR_YIELD:
		found(s, SCRY_VAIN_YIELD, true);
		break;
	case NR_SETSOCKOPT:
		found(s, SCRY_VAIN_OPTION, result == 0);
		break;
	case NR_FUTEX:
		if ((regs->si & FUTEX_CMD) == FUTEX_WAKE ||
		    (regs->si & FUTEX_CMD) == FUTEX_WAKE_BITSET)
			found(s, SCRY_VAIN_WAKE, result == 0);
		break;
	case NR_CLOCK_GETTIME:
		found(s, SCRY_VAIN_CLOCK,
		      regs->di < 32 && CLOCKS_OF_VDSO >> regs->di & 1 && result == 0);
		break;
	case NR_GETTIMEOFDAY:
	case NR_TIME:
		found(s, SCRY_VAIN_CLOCK, true);
		break;
	case NR_EPOLL_CTL:
		found(s, SCRY_VAIN_EPOLL, regs->si == EPOLL_CTL_MOD && result == 0);
		break;
	case NR_STAT:
	case NR_LSTAT:
	case NR_STATX:
	case NR_NEWFSTATAT:
		ask_localtime(s, key, regs);
		break;
	}
}

/* --- sums ------------------------------------------------------------------------------------ */

static __always_inline struct scry_syscalls_sum *sum_of(const struct scry_syscalls_key *key)
{
	struct scry_syscalls_sum none = {0}, *s = bpf_map_lookup_elem(&sums, key);

	if (s)
		return s;
	if (!bpf_map_update_elem(&sums, key, &none, BPF_NOEXIST))
		tell_place(key);
	return bpf_map_lookup_elem(&sums, key); /* the clock's tick may have come first */
}

static __always_inline void add_time(const struct scry_syscalls_key *key, const struct entered *e)
{
	static const struct scry_syscalls_times none;
	struct scry_syscalls_times *t = bpf_map_lookup_elem(&times, key);
	__u64 ns;
	__u32 step;

	if (!t) {
		bpf_map_update_elem(&times, key, &none, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&times, key);
	}
	if (!t) {
		count(SCRY_SYSCALLS_UNTIMED);
		return;
	}
	if (!e || !e->ns || e->ip != key->ip || e->number != key->number) {
		t->unsure++;
		return;
	}
	ns = bpf_ktime_get_ns() - e->ns;
	t->total_ns += ns;
	if (ns > t->max_ns)
		t->max_ns = ns;
	step = scry_syscalls_step(ns);
	if (step < SCRY_SYSCALLS_STEPS)
		t->steps[step]++;
}

static __always_inline void add_error(struct scry_syscalls_sum *s,
				      const struct scry_syscalls_key *key,
				      const struct pt_regs___kernel *regs, long result)
{
	__u64 path;

	s->errors++;
	if (result == -11) {
		s->again++;
	} else if (result == -2) {
		s->absent++;
		path = path_of(key->number, regs);
		if (path && (s->absent < 8 || s->absent % 16 == 0))
			tell_path(key, path, SCRY_SYSCALLS_PATH_ABSENT);
	} else {
		s->error = (__s32)result;
	}
}

/* The child's return from its parent's call. */
static __always_inline bool is_birth(const struct scry_syscalls_key *key, long result)
{
	return !result && key->abi == SCRY_ABI_64 &&
	       (key->number == NR_CLONE || key->number == NR_FORK || key->number == NR_VFORK ||
		key->number == NR_CLONE3);
}

/*
 * A call has returned. Its number is kept by the kernel, but not that of rt_sigreturn, which has
 * put other registers in place; and where execve has succeeded there is no place any more.
 */
SEC("tp_btf/sys_exit")
int syscalls_exit(unsigned long long *ctx)
{
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)ctx[0];
	long result = (long)ctx[1];
	struct task_struct *task = bpf_get_current_task_btf();
	struct scry_syscalls_key key = {.image = image_of(task)};
	struct scry_syscalls_sum *s;
	struct entered *e = NULL;

	if (!key.image)
		return 0;
	set_key(&key, task, regs);
	if (is_birth(&key, result))
		return 0;
	count(SCRY_SYSCALLS_CALLS);
	if (key.number == SCRY_SYSCALLS_RETURNED ||
	    ((key.number == NR_EXECVE || key.number == NR_EXECVEAT) && result == 0))
		key.ip = 0;
	if (scry_setup.latency || key.number == NR_SIGPROCMASK ||
	    key.number == SCRY_SYSCALLS_RETURNED)
		e = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (e && !scry_setup.latency && key.number == SCRY_SYSCALLS_RETURNED)
		e->has_mask = 0;
	s = sum_of(&key);
	if (!s) {
		count(SCRY_SYSCALLS_NOWHERE);
		return 0;
	}
	s->calls++;
	if (result < 0 && result >= -ERRNO_MAX)
		add_error(s, &key, regs, result);
	if (key.abi == SCRY_ABI_64) {
		if (key.number == NR_SIGPROCMASK)
			ask_mask(s, task, regs, e);
		else if (scry_setup.latency && (key.number == NR_FCNTL || key.number == NR_IOCTL))
			ask_flags(s, task, regs, key.number, e);
		else
			ask(s, &key, regs, result);
	}
	if (scry_setup.latency) {
		add_time(&key, e);
		if (e)
			e->ns = 0;
	}
	if (key.ip && s->calls >= s->next) {
		s->next = s->calls < 4 ? s->calls + 1
				       : s->calls + 1 + (bpf_get_prandom_u32() & RANDOM);
		if (spend())
			tell_stack(&key, regs);
	}
	return 0;
}

SEC("tp_btf/sys_enter")
int syscalls_enter(unsigned long long *ctx)
{
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	struct entered *e;

	if (!image_of(task))
		return 0;
	e = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!e)
		return 0;
	e->number = (__u32)ctx[1];
	e->ip = regs->ip;
	e->mask = task->blocked.sig[0];
	e->has_mask = 1;
	e->has_flags = sets_flags(e->number, regs) && read_flags(task, regs, e->number, &e->flags);
	e->ns = bpf_ktime_get_ns();
	return 0;
}

/* A handler runs with another mask, and may be left by longjmp. */
SEC("raw_tp/signal_deliver")
int syscalls_signal(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct entered *e;

	if (!image_of(task))
		return 0;
	e = bpf_task_storage_get(&threads, task, 0, 0);
	if (e)
		e->has_mask = 0;
	return 0;
}

/* --- the clock ------------------------------------------------------------------------------- */

SEC("perf_event")
int syscalls_tick(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scry_syscalls_key key = {.image = image_of(task)};
	struct scry_syscalls_sum *s;
	struct pt_regs___kernel *regs;

	if (!key.image)
		return 0;
	count(SCRY_SYSCALLS_TICKS);
	if ((ctx->regs.cs & USER_CS) == USER_CS)
		return 0;
	regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	if ((long)regs->orig_ax < 0) /* a fault, or an interrupt of the program itself */
		return 0;
	set_key(&key, task, regs);
	count(SCRY_SYSCALLS_INSIDE);
	s = sum_of(&key);
	if (!s) {
		count(SCRY_SYSCALLS_UNPLACED);
		return 0;
	}
	s->ticks++;
	if (!scry_setup.exact && spend())
		tell_stack(&key, regs);
	return 0;
}

/* --- processes ------------------------------------------------------------------------------- */

static void tell_news(struct scry_syscalls_record *head)
{
	struct scry_syscalls_record *r = bpf_ringbuf_reserve(&news, sizeof(*r), 0);

	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return;
	}
	*r = *head;
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
}

SEC("raw_tp/sched_process_fork")
int syscalls_forked(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	__u32 of = scry_pid_of(parent, scry_setup.pid_ns);
	struct scry_syscalls_record r = {.kind = SCRY_SYSCALLS_FORKED,
					 .pid = scry_pid_of(child, scry_setup.pid_ns)};
	const struct scry_syscalls_member *m = bpf_map_lookup_elem(&tree, &of);
	struct scry_syscalls_member born = {0};

	if (!m || r.pid == of || !r.pid)
		return 0;
	r.other = born.parent = m->image;
	if (m->image)
		born.image = new_image();
	r.image = born.image;
	if (bpf_map_update_elem(&tree, &r.pid, &born, BPF_ANY))
		count(SCRY_SYSCALLS_STRANGE);
	else
		tell_news(&r);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int syscalls_execed(struct bpf_raw_tracepoint_args *ctx)
{
	struct scry_syscalls_record r = {.kind = SCRY_SYSCALLS_EXECED,
					 .pid = scry_pid_of(scry_current(), scry_setup.pid_ns)};
	struct scry_syscalls_member *m = bpf_map_lookup_elem(&tree, &r.pid);

	if (!m)
		return 0;
	r.other = m->image;
	m->parent = 0;
	m->image = r.image = new_image();
	tell_news(&r);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int syscalls_ended(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scry_syscalls_record r = {.kind = SCRY_SYSCALLS_ENDED,
					 .pid = scry_pid_of(scry_current(), scry_setup.pid_ns),
					 .tid = scry_tid_of(scry_current(), scry_setup.pid_ns),
					 .image = image_of(task)};
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	long number = (long)regs->orig_ax;

	if (!bpf_map_lookup_elem(&tree, &r.pid))
		return 0;
	r.is_last = BPF_CORE_READ(task, signal, live.counter) == 0;
	bpf_get_current_comm(r.name, sizeof(r.name));
	if (r.image && (number == NR_EXIT || number == NR_EXIT_GROUP))
		count(SCRY_SYSCALLS_EXITS);
	else if (r.image && number >= 0)
		count(SCRY_SYSCALLS_KILLED);
	if (r.is_last)
		bpf_map_delete_elem(&tree, &r.pid);
	tell_news(&r);
	return 0;
}

char scry_license[] SEC("license") = "GPL";
