/*
 * At each tick of a processor's clock, of the thread that runs there: its control frames, and the
 * values on its VM stack that their environments are in, copied into the ring as they are. What
 * they mean is found out outside, by the same code that reads them from outside.
 *
 * No reader is woken for a record: that would cost the thread an interrupt more, and scry looks by
 * itself.
 *
 * The thread does not run, so what is copied belongs together. Only what is not in memory at the
 * moment cannot be had: rejected, and counted.
 */
#include <asm/ptrace.h>
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/ruby.h"
#include "bpf/task.h"
#include "wire/bpf_stacks.h"
#include "wire/gvl_others.h"

#define TASKS_MAX 32768 /* room for all at once: before Linux 6.1 the judge takes no other map */

const volatile struct scry_bpf_layout scry_layout;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct { /* for which the reader is woken: forks, and that the ring fills */
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} news SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS_MAX);
	__type(key, __u32);
	__type(value, struct scry_bpf_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} tree SEC(".maps");

struct { /* as many as are wanted */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scry_bpf_lock);
} locks SEC(".maps");

struct { /* as many as are wanted */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scry_bpf_ran);
} ran_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRY_BPF_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static void count(__u32 what, __u64 by)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &what);

	if (counter)
		*counter += by;
}

/* --- records ---------------------------------------------------------------------------------- */

static __always_inline void emit_in(void *map, const struct scry_bpf_stack *head, __u32 kind,
				    __u64 how)
{
	struct scry_bpf_stack *r = bpf_ringbuf_reserve(map, sizeof(*r), 0);

	if (!r) {
		count(SCRY_BPF_LOST, 1);
		return;
	}
	*r = *head;
	r->kind = kind;
	r->frames_size = 0;
	r->bottom = r->top;
	bpf_ringbuf_submit(r, how);
}

static void emit(const struct scry_bpf_stack *head, __u32 kind)
{
	emit_in(&ring, head, kind, BPF_RB_NO_WAKEUP);
}

/*
 * Where it is in native code: its registers in user space, which the kernel keeps at the end of the
 * task's own stack, and its native stack. That is read in halves of halves, since where it ends is
 * not known, and what reaches beyond is not read at all.
 */
static __attribute__((noinline)) int emit_native(struct scry_bpf_stack *head)
{
	struct scry_bpf_native *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	struct pt_regs regs = {0};
	__u64 size = 0;

	if (!r) {
		count(SCRY_BPF_LOST, 1);
		return 0;
	}
	bpf_probe_read_kernel(&regs, sizeof(regs),
			      (void *)bpf_task_pt_regs(bpf_get_current_task_btf()));
	r->time_ns = head->time_ns;
	r->tid = head->tid;
	r->pid = head->pid;
	r->kind = SCRY_BPF_NATIVE;
	r->pc = regs.rip;
	r->sp = regs.rsp;
	r->bp = regs.rbp;
	r->bx = regs.rbx;
#pragma unroll
	for (int half = SCRY_BPF_NATIVE_BYTES / 2; half >= 8; half /= 2)
		if (size <= SCRY_BPF_NATIVE_BYTES - half &&
		    bpf_probe_read_user(r->bytes + size, half, (void *)(regs.rsp + size)) == 0)
			size += half;
	r->size = size;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A record of one of the sizes: as many frames as fit, and twice as many bytes of values. */
#define COPY(name, bytes)                                                                       \
	static __attribute__((noinline)) int copy_##name(struct scry_bpf_stack *head)           \
	{                                                                                       \
		char *r = bpf_ringbuf_reserve(&ring, sizeof(*head) + (bytes) + 2 * (bytes), 0); \
		__u64 frames, values;                                                           \
                                                                                                \
		if (!r) {                                                                       \
			count(SCRY_BPF_LOST, 1);                                                \
			return 0;                                                               \
		}                                                                               \
		frames = head->end - head->cfp;                                                 \
		if (frames > (bytes))                                                           \
			frames = (bytes);                                                       \
		if (head->top - head->stack > 2 * (bytes))                                      \
			head->bottom = head->top - 2 * (bytes);                                 \
		values = head->top - head->bottom;                                              \
		if (values > 2 * (bytes))                                                       \
			values = 2 * (bytes);                                                   \
		head->frames_at = sizeof(*head);                                                \
		head->frames_size = (__u32)frames;                                              \
		head->values_at = sizeof(*head) + (bytes);                                      \
		if (bpf_probe_read_user(r + sizeof(*head), (__u32)frames, (void *)head->cfp) || \
		    bpf_probe_read_user(r + sizeof(*head) + (bytes), (__u32)values,             \
					(void *)head->bottom)) {                                \
			head->kind = SCRY_BPF_REJECTED;                                         \
			head->frames_size = 0;                                                  \
		}                                                                               \
		*(struct scry_bpf_stack *)r = *head;                                            \
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);                                        \
		return 0;                                                                       \
	}

COPY(small, SCRY_BPF_SMALL)
COPY(middle, SCRY_BPF_MIDDLE)
COPY(large, SCRY_BPF_LARGE)
COPY(largest, SCRY_BPF_LARGEST)

/* --- a sample --------------------------------------------------------------------------------- */

/* Is it that thread of the VM's that runs here now? Threads of ractors change theirs (M:N). */
static bool is_on_it(const struct scry_bpf_thread *t)
{
	uint64_t base = t->th;
	__u32 tid;

	if (!t->tid)
		return true;
	if (scry_layout.th_nt != SCRY_BPF_NONE &&
	    (!scry_read_word(t->th + scry_layout.th_nt, &base) || !base))
		return false;
	return bpf_probe_read_user(&tid, sizeof(tid), (void *)(base + scry_layout.th_tid)) == 0 &&
	       tid == t->tid;
}

/* The bounds of its stack. */
static __u32 read_bounds(struct scry_bpf_stack *head)
{
	uint64_t size, owner;

	if (!scry_read_word(head->th + scry_layout.th_ec, &head->ec))
		return SCRY_BPF_REJECTED;
	if (!head->ec)
		return SCRY_BPF_EMPTY;
	if (!scry_read_word(head->ec + scry_layout.ec_stack, &head->stack) ||
	    !scry_read_word(head->ec + scry_layout.ec_stack_size, &size) ||
	    !scry_read_word(head->ec + scry_layout.ec_cfp, &head->cfp) ||
	    !scry_read_word(head->ec + scry_layout.ec_thread, &owner) || owner != head->th)
		return SCRY_BPF_REJECTED;
	if (!head->stack || !head->cfp)
		return SCRY_BPF_EMPTY;
	head->end = head->stack + 8 * size;
	if (size > SCRY_STACK_WORDS_MAX || head->cfp <= head->stack || head->cfp >= head->end)
		return SCRY_BPF_REJECTED;
	return SCRY_BPF_STACK;
}

/* What is not read stays 0, and says nothing. */
static void read_gc(struct scry_bpf_stack *head, const struct scry_bpf_gc *gc)
{
	if (gc->count)
		scry_read_word(gc->count, &head->gc_count);
	if (gc->during)
		bpf_probe_read_user(&head->gc_during, 1, (void *)gc->during);
	if (gc->marking)
		bpf_probe_read_user(&head->gc_marking, 1, (void *)gc->marking);
}

/* The kernel's judge knows a constant offset, but no quotient. */
static __attribute__((always_inline)) uint64_t word_of(const uint64_t *words, uint32_t at)
{
	return *(const uint64_t *)((const char *)words + at);
}

/* A method entry: its flags, and its definition. */
static __attribute__((always_inline)) bool read_entry(uint64_t at, struct scry_bpf_stack *head,
						      uint64_t *ret_def)
{
	uint64_t words[SCRY_BPF_ENTRY_WORDS] = {0};

	if (scry_layout.me_def > 8 * (SCRY_BPF_ENTRY_WORDS - 1) ||
	    bpf_probe_read_user(words, scry_layout.me_def + 8, (void *)at))
		return false;
	head->top_flags = words[0];
	*ret_def = (words[0] & SCRY_IMEMO_MASK) == SCRY_IMEMO_SVAR
			   ? words[1] /* the entry, perhaps */
			   : word_of(words, scry_layout.me_def);
	return true;
}

/*
 * Whether the newest frame is there already is seen by what it leads to, which may be gone when it
 * is asked outside. Each read costs 0.1 us: only what is asked of this kind of frame.
 */
static void read_top(struct scry_bpf_stack *head)
{
	uint64_t frame[SCRY_BPF_FRAME_WORDS] = {0}, env[SCRY_BPF_ENV_WORDS], pc, at;
	uint32_t last = scry_layout.frame_pc > scry_layout.frame_ep ? scry_layout.frame_pc
								    : scry_layout.frame_ep;

	if (!scry_layout.frame_me || last > 8 * (SCRY_BPF_FRAME_WORDS - 1) ||
	    bpf_probe_read_user(frame, last + 8, (void *)head->cfp) ||
	    bpf_probe_read_user(
		    env, sizeof(env),
		    (void *)(word_of(frame, scry_layout.frame_ep) - 8 * (SCRY_BPF_ENV_WORDS - 1))))
		return;
	pc = word_of(frame, scry_layout.frame_pc);
	if (pc)
		scry_read_word(pc - 8, &head->top_word);
	if (pc && (env[SCRY_BPF_ENV_WORDS - 1] & SCRY_TYPE_MASK) != SCRY_TYPE_METHOD)
		return;
	at = word_of(env, 8 * (SCRY_BPF_ENV_WORDS - 1) - scry_layout.frame_me);
	if (!read_entry(at, head, &at) ||
	    ((head->top_flags & SCRY_IMEMO_MASK) == SCRY_IMEMO_SVAR && !read_entry(at, head, &at)))
		return;
	if (pc)
		scry_read_word(at + scry_layout.def_iseq, &head->top_code);
}

/* The reader waits for long where it can; from a quarter on he is called. */
static void call_for_room(const struct scry_bpf_stack *head)
{
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >
		    bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) / 4 &&
	    !bpf_ringbuf_query(&news, BPF_RB_AVAIL_DATA))
		emit_in(&news, head, SCRY_BPF_FILLS, BPF_RB_FORCE_WAKEUP);
}

/* The record of head->th, which runs here. */
static __always_inline void give(struct scry_bpf_stack *head, const struct scry_bpf_gc *gc)
{
	const __u32 kind = read_bounds(head);
	__u64 frames, values;

	if (kind != SCRY_BPF_STACK) {
		emit(head, kind);
		return;
	}
	if (scry_layout.native)
		emit_native(head);
	head->top = scry_find_top(head->cfp, head->stack, head->end, scry_layout.frame_size,
				  scry_layout.frame_ep);
	read_gc(head, gc);
	read_top(head);
	head->bottom = head->stack;
	frames = head->end - head->cfp;
	values = (head->top - head->stack) / 2;
	if (frames <= SCRY_BPF_SMALL && values <= SCRY_BPF_SMALL)
		copy_small(head);
	else if (frames <= SCRY_BPF_MIDDLE && values <= SCRY_BPF_MIDDLE)
		copy_middle(head);
	else if (frames <= SCRY_BPF_LARGE && values <= SCRY_BPF_LARGE)
		copy_large(head);
	else
		copy_largest(head);
	call_for_room(head);
}

/* True: this thread was asked for. A clock ticks on each processor, for whoever runs there. */
static bool take(__u32 tid)
{
	struct scry_bpf_stack head = {.time_ns = bpf_ktime_get_ns(), .tid = tid};
	const struct scry_bpf_thread *t = bpf_map_lookup_elem(&threads, &tid);

	head.pid = scry_pid_of(scry_current(), scry_layout.pid_ns);
	if (t && t->pid != head.pid) /* the number of one that has ended */
		t = NULL;
	if (!t && !bpf_map_lookup_elem(&tree, &head.pid))
		return false;
	if (t && !t->th)
		return true;
	if (!t || !is_on_it(t)) {
		emit(&head, SCRY_BPF_STRANGER);
		return true;
	}
	head.th = t->th;
	give(&head, &t->gc);
	return true;
}

static int timed(__u32 tid)
{
	__u64 began = bpf_ktime_get_ns();

	if (take(tid)) {
		count(SCRY_BPF_RUNS, 1);
		count(SCRY_BPF_NS, bpf_ktime_get_ns() - began);
	}
	return 0;
}

SEC("perf_event")
int stacks_tick(void *ctx)
{
	return timed((__u32)bpf_get_current_pid_tgid());
}

/* The same for a scry that lives in a namespace of its own. */
SEC("perf_event")
int stacks_tick_inside(void *ctx)
{
	return timed(scry_tid_in(scry_current(), scry_layout.pid_ns));
}

/* --- what keeps others waiting ------------------------------------------------------------------
 */

#define ROLE_WORDS 6 /* of the table, with its roles */
#define ROW_WORDS 6  /* of a row, with what is read here */
_Static_assert(offsetof(struct scry_gvl_table, sequence) == 0 &&
		       offsetof(struct scry_gvl_table, roles) + 8 <= 8 * ROLE_WORDS,
	       "they are not read");
_Static_assert(offsetof(struct scry_gvl_row, tid) + 4 <= 8 * ROW_WORDS, "it is not read");

/* As the thread itself knows it: in its own namespace, the innermost. */
static __always_inline __u32 own_tid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	const char *first = (const char *)pid + bpf_core_field_offset(struct pid, numbers);
	const struct upid *u =
		(const struct upid *)(first +
				      BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid));

	return (__u32)BPF_CORE_READ(u, nr);
}

/* Of the thread that runs here, by the agent's tables. */
enum role {
	ROLE_UNKNOWN,
	ROLE_HOLDS,
	ROLE_ELSE, /* another one has the lock, or none */
};

/* By one of them. Others write the table meanwhile: what fits this thread is of now. A row without
 * a tid may be this thread's. */
static __always_inline enum role role_in(uint64_t table, uint32_t row_at, uint32_t rows,
					 struct scry_bpf_stack *head)
{
	const __u32 own = own_tid(scry_current());
	uint64_t first[ROLE_WORDS] = {0}, at, words[ROW_WORDS] = {0}, roles, state;
	__u32 row, uses = 0, tid;

	if (bpf_probe_read_user(first, sizeof(first), (void *)table))
		return ROLE_UNKNOWN;
	roles = word_of(first, offsetof(struct scry_gvl_table, roles));
	row = roles & 0xffff;
	head->waiting = roles >> 32 & 0xffff;
	if (!row)
		return first[0] ? ROLE_ELSE : ROLE_UNKNOWN; /* there was no event yet */
	if (row >= rows || head->waiting > rows)
		return ROLE_UNKNOWN;
	at = table + row_at + row * sizeof(struct scry_gvl_row);
	if (bpf_probe_read_user(words, sizeof(words), (void *)at))
		return ROLE_UNKNOWN;
	head->th = word_of(words, offsetof(struct scry_gvl_row, th));
	state = word_of(words, offsetof(struct scry_gvl_row, state)); /* and tid */
	tid = state >> 32;
	if (!head->th || !tid)
		return ROLE_UNKNOWN;
	if ((__u32)state != SCRY_GVL_HOLDS || tid != own)
		return ROLE_ELSE;
	if (head->waiting &&
	    bpf_probe_read_user(&uses, sizeof(uses),
				(void *)(at + offsetof(struct scry_gvl_row, uses))))
		return ROLE_UNKNOWN;
	head->holder = SCRY_GVL_WHO(row, uses);
	return ROLE_HOLDS;
}

static __always_inline void count_ran(__u32 tid, enum role role, uint64_t ns)
{
	struct scry_bpf_ran one = {.held = role == ROLE_HOLDS ? ns : 0,
				   .other = role == ROLE_ELSE ? ns : 0};
	struct scry_bpf_ran *ran = bpf_map_lookup_elem(&ran_map, &tid);

	if (!ran) {
		bpf_map_update_elem(&ran_map, &tid, &one, BPF_NOEXIST);
		return;
	}
	ran->held += one.held; /* a thread is on one processor at a time */
	ran->other += one.other;
}

/* By the locks of other ractors, of which there are few, where it has not the first one. */
static __always_inline enum role role_in_others(uint64_t first, enum role role,
						struct scry_bpf_stack *head)
{
	__u32 others = 0;
	uint64_t at, mutex = 0;
	enum role here;

	if (bpf_probe_read_user(&others, sizeof(others),
				(void *)(first + offsetof(struct scry_gvl_table, others))))
		return ROLE_UNKNOWN;
	for (__u32 i = 0; i < SCRY_GVL_OTHERS; i++) {
		if (i >= others)
			break;
		at = first + SCRY_GVL_OTHERS_AT + i * sizeof(struct scry_gvl_other);
		here = role_in(at, offsetof(struct scry_gvl_other, row), SCRY_GVL_OTHER_THREADS,
			       head);
		if (here == ROLE_HOLDS) {
			head->lock = i + 1;
			return bpf_probe_read_user(
				       &head->lock_uses, sizeof(head->lock_uses),
				       (void *)(at + offsetof(struct scry_gvl_table, uses)))
				       ? ROLE_UNKNOWN
				       : ROLE_HOLDS;
		}
		if (here == ROLE_UNKNOWN &&
		    (bpf_probe_read_user(&mutex, sizeof(mutex),
					 (void *)(at + offsetof(struct scry_gvl_table, mutex))) ||
		     mutex)) /* else the table is free */
			role = ROLE_UNKNOWN;
	}
	return role;
}

static __always_inline enum role role_of(const struct scry_bpf_lock *lock,
					 struct scry_bpf_stack *head)
{
	const enum role role =
		role_in(lock->table, offsetof(struct scry_gvl_table, row), SCRY_GVL_THREADS, head);

	return role == ROLE_HOLDS ? role : role_in_others(lock->table, role, head);
}

/* As stacks_tick, for holders alone. */
SEC("perf_event")
int stacks_holder(void *ctx)
{
	struct scry_bpf_stack head = {.time_ns = bpf_ktime_get_ns()};
	const struct scry_bpf_lock *lock;
	enum role role;

	head.pid = scry_pid_of(scry_current(), scry_layout.pid_ns);
	lock = bpf_map_lookup_elem(&locks, &head.pid);
	if (!lock)
		return 0;
	head.tid = scry_tid_of(scry_current(), scry_layout.pid_ns);
	role = role_of(lock, &head);
	if (role != ROLE_UNKNOWN)
		count_ran(head.tid, role, lock->period_ns);
	if (role == ROLE_HOLDS && head.waiting)
		give(&head, &lock->gc);
	count(SCRY_BPF_RUNS, 1);
	count(SCRY_BPF_NS, bpf_ktime_get_ns() - head.time_ns);
	return 0;
}

/* --- children --------------------------------------------------------------------------------- */

/*
 * A process of the tree has forked. The child, which has not run yet, is known before its first
 * tick: its one thread is the one that forked, in a copy of all memory.
 * Not so where the memory is the parent's own (vfork): then there will be another program.
 */
SEC("raw_tp/sched_process_fork")
int stacks_forked(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	struct scry_bpf_stack head = {.time_ns = bpf_ktime_get_ns()};
	struct scry_bpf_thread entry, *known;
	__u32 one = 1, of = scry_pid_of(parent, scry_layout.pid_ns);

	head.pid = scry_pid_of(child, scry_layout.pid_ns);
	if (head.pid == of || !bpf_map_lookup_elem(&tree, &of))
		return 0;
	if (bpf_map_update_elem(&tree, &head.pid, &one, BPF_ANY))
		count(SCRY_BPF_LOST, 1);
	head.tid = scry_tid_of(parent, scry_layout.pid_ns);
	known = bpf_map_lookup_elem(&threads, &head.tid);
	if (known && known->pid == of && BPF_CORE_READ(parent, mm) != BPF_CORE_READ(child, mm)) {
		entry = *known;
		head.th = entry.th;
		entry.tid = 0;
		entry.pid = head.pid;
		bpf_map_update_elem(&threads, &head.pid, &entry, BPF_ANY);
	}
	emit_in(&news, &head, SCRY_BPF_FORKED, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Another program: nothing is known of it. Its thread has the process's number by now. */
SEC("raw_tp/sched_process_exec")
int stacks_execed(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid = scry_pid_of(scry_current(), scry_layout.pid_ns);

	bpf_map_delete_elem(&threads, &pid);
	return 0;
}

/* Numbers are used again. */
SEC("raw_tp/sched_process_exit")
int stacks_ended(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 tid = scry_tid_of(scry_current(), scry_layout.pid_ns),
	      pid = scry_pid_of(scry_current(), scry_layout.pid_ns);

	bpf_map_delete_elem(&threads, &tid);
	if (!BPF_CORE_READ(scry_current(), signal, live.counter))
		bpf_map_delete_elem(&tree, &pid);
	return 0;
}

char scry_license[] SEC("license") = "GPL";
