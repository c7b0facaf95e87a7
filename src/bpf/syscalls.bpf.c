/*
 * System calls of chosen processes, summed in the kernel: at each tick of a processor's clock which
 * call a thread is in, and, where calls are counted, at the end of each of them. No record is made
 * for a call; the reader takes the sums now and then.
 *
 * A sum is one thread's at one place, so nothing is shared between processors. While it is attached
 * each process of the machine pays for the question whether it is meant.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include "bpf/limits.h"
#include "bpf/mapped.h"
#include "bpf/ruby.h"
#include "bpf/slot.h"
#include "bpf/task.h"
#include "wire/bpf_syscalls_lines.h"

#include <bpf/bpf_tracing.h>

#define USER_CS 3u
#define ERRNO_MAX 4095
#define BURST 128u /* copies of stacks, and paths, that may come at once on a processor */
#define EVERY_MAX (1u << 24)
#define SITES_MAX 65536u

const volatile struct scry_syscalls_setup scry_setup;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} places SEC(".maps");

struct { /* for which the reader is woken */
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
	__type(key, struct scry_syscalls_slot);
	__type(value, struct scry_syscalls_sum);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCRY_SYSCALLS_TIMED);
	__type(key, struct scry_syscalls_slot);
	__type(value, struct scry_syscalls_timed);
} timed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SCRY_SYSCALLS_PIDS / 64);
	__type(key, __u32);
	__type(value, __u64);
} filter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCRY_SYSCALLS_RUBIES);
	__type(key, __u32);
	__type(value, struct scry_syscalls_ruby);
} rubies SEC(".maps");

struct { /* instance -> its place in `rubies` */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCRY_SYSCALLS_TASKS);
	__type(key, __u32);
	__type(value, __u32);
} lines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} instances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRY_SYSCALLS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct budget { /* of copies, on one processor */
	__u64 since_ns;
	__u64 hit_ns; /* the last call that was drawn */
	__u32 left;   /* of others, that may be made at once */
	__u32 every;  /* one of so many calls is drawn */
	__u32 until;  /* calls till the next one */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct budget);
} budgets SEC(".maps");

struct { /* places of an instance, whatever thread: of the first call there a stack is copied */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SITES_MAX);
	__type(key, struct scry_syscalls_key);
	__type(value, __u8);
} sites SEC(".maps");

struct { /* threads that have not been in the program yet */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SCRY_SYSCALLS_TASKS);
	__type(key, __u32);
	__type(value, __u8);
} newborn SEC(".maps");

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

static __always_inline __u64 *filter_word(__u32 pid)
{
	__u32 at = pid / 64;

	return bpf_map_lookup_elem(&filter, &at);
}

/* Most are not: that is to cost them nothing. */
static __always_inline bool may_be_member(const struct task_struct *task)
{
	__u32 pid = (__u32)task->tgid;
	const __u64 *word = filter_word(pid);

	return word && *word >> (pid % 64) & 1;
}

static __always_inline __u32 instance_of(struct task_struct *task)
{
	__u32 pid = scry_setup.pid_ns ? scry_pid_of(task, scry_setup.pid_ns) : (__u32)task->tgid;
	const struct scry_syscalls_member *m = bpf_map_lookup_elem(&tree, &pid);

	return m ? m->instance : 0;
}

static __u32 new_instance(void)
{
	__u32 zero = 0, *next = bpf_map_lookup_elem(&instances, &zero);

	return next ? __sync_fetch_and_add(next, 1) : 0;
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
	r->instance = key->instance;
	r->key = *key;
	r->other = m ? m->parent : 0;
}

/* Which file it is in is asked here, as the process may have ended when it is asked outside. */
static __attribute__((noinline)) int emit_place(const struct scry_syscalls_key *key)
{
	struct scry_syscalls_place p = {0};
	struct asked asked = {0};

	if (!key)
		return 0;
	set_head(&p.head, SCRY_SYSCALLS_PLACE, key);
	ask_file(key->ip, &asked);
	p.file = asked.file;
	if (bpf_ringbuf_output(&places, &p, sizeof(p), BPF_RB_NO_WAKEUP))
		count(SCRY_SYSCALLS_LOST);
	return 0;
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

/* --- lines of Ruby --------------------------------------------------------------------------- */

/* The bounds of the stack of the thread that runs, which says itself that it is its own. */
static bool read_bounds(struct scry_syscalls_lines *r, const struct scry_syscalls_ruby *ruby)
{
	uint64_t fs = BPF_CORE_READ(scry_current(), thread.fsbase), size, thread, own;

	if (!scry_read_word(fs + ruby->ec, &r->ec) || !r->ec ||
	    !scry_read_word(r->ec + ruby->layout.ec_thread, &thread) ||
	    !scry_read_word(thread + ruby->layout.th_ec, &own) || own != r->ec ||
	    !scry_read_word(r->ec + ruby->layout.ec_stack, &r->stack) ||
	    !scry_read_word(r->ec + ruby->layout.ec_stack_size, &size) ||
	    !scry_read_word(r->ec + ruby->layout.ec_cfp, &r->cfp))
		return false;
	r->end = r->stack + 8 * size;
	return size <= SCRY_STACK_WORDS_MAX && r->cfp > r->stack && r->cfp < r->end;
}

/* What the newest frame leads to: a thread in a system call is not on its way in or out of one, but
 * the reader wants to see it. */
static void read_top(struct scry_syscalls_lines *r, const struct scry_bpf_layout *l)
{
	uint64_t pc = 0, ep = 0, flags = 0, at = 0, def = 0;

	r->top_word = r->top_flags = r->top_code = 0;
	if (!l->frame_me || !scry_read_word(r->cfp + l->frame_pc, &pc) ||
	    !scry_read_word(r->cfp + l->frame_ep, &ep) || !scry_read_word(ep, &flags))
		return;
	if (pc)
		scry_read_word(pc - 8, &r->top_word);
	if ((pc && (flags & SCRY_TYPE_MASK) != SCRY_TYPE_METHOD) ||
	    !scry_read_word(ep - l->frame_me, &at) || !scry_read_word(at, &r->top_flags))
		return;
	if ((r->top_flags & SCRY_IMEMO_MASK) == SCRY_IMEMO_SVAR &&
	    (!scry_read_word(at + 8, &at) || !scry_read_word(at, &r->top_flags)))
		return;
	if (pc && scry_read_word(at + l->me_def, &def))
		scry_read_word(def + l->def_iseq, &r->top_code);
}

static __attribute__((noinline)) int emit_lines(const struct scry_syscalls_key *key,
						uint64_t weight)
{
	const struct scry_syscalls_ruby *ruby;
	struct scry_syscalls_lines *r;
	__u32 *at = key ? bpf_map_lookup_elem(&lines, &key->instance) : NULL;
	uint64_t frames, values;

	ruby = at ? bpf_map_lookup_elem(&rubies, at) : NULL;
	if (!ruby || !key)
		return 0;
	r = bpf_ringbuf_reserve(&places, sizeof(*r), 0);
	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return 0;
	}
	set_head(&r->head, SCRY_SYSCALLS_LINES, key);
	r->head.weight = weight;
	r->time_ns = bpf_ktime_get_ns();
	r->frames_size = 0;
	if (read_bounds(r, ruby)) {
		r->top = scry_find_top(r->cfp, r->stack, r->end, ruby->layout.frame_size,
				       ruby->layout.frame_ep);
		read_top(r, &ruby->layout);
		r->bottom = r->top - r->stack > SCRY_SYSCALLS_VALUES ? r->top - SCRY_SYSCALLS_VALUES
								     : r->stack;
		frames = r->end - r->cfp;
		if (frames > SCRY_SYSCALLS_FRAMES)
			frames = SCRY_SYSCALLS_FRAMES;
		values = r->top - r->bottom;
		if (values > SCRY_SYSCALLS_VALUES)
			values = SCRY_SYSCALLS_VALUES;
		if (!bpf_probe_read_user(r->frames, (__u32)frames, (void *)r->cfp) &&
		    !bpf_probe_read_user(r->values, (__u32)values, (void *)r->bottom))
			r->frames_size = (__u32)frames;
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Read in halves of halves, since where the stack ends is not known. */
static __attribute__((noinline)) int emit_stack(const struct scry_syscalls_key *key,
						const struct pt_regs___kernel *regs, __u64 weight)
{
	struct asked asked = {0};
	struct scry_syscalls_stack *r;
	__u64 size = 0, sp;

	if (key)
		ask_file(key->ip, &asked);
	r = bpf_ringbuf_reserve(&places, sizeof(*r), 0);
	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return 0;
	}
	if (!key || !regs) {
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	set_head(&r->head, SCRY_SYSCALLS_STACK, key);
	r->file = asked.file;
	r->head.weight = weight;
	r->sp = sp = BPF_CORE_READ(regs, sp);
	r->bp = BPF_CORE_READ(regs, bp);
	r->bx = BPF_CORE_READ(regs, bx);
	r->fs = BPF_CORE_READ(scry_current(), thread.fsbase);
#pragma unroll
	for (int half = SCRY_SYSCALLS_STACK_BYTES / 2; half >= 8; half /= 2)
		if (size <= (__u64)(SCRY_SYSCALLS_STACK_BYTES - half) &&
		    bpf_probe_read_user(r->bytes + size, half, (void *)(sp + size)) == 0)
			size += half;
	r->size = size;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return emit_lines(key, weight);
}

/* Of all calls that have failed so since the last one that was reported. */
static void emit_path(struct scry_syscalls_sum *s, __u64 at, __u32 kind)
{
	struct scry_syscalls_path *r;

	if (!spend())
		return;
	r = bpf_ringbuf_reserve(&places, sizeof(*r), 0);
	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return;
	}
	set_head(&r->head, kind, &s->key);
	if (bpf_probe_read_user_str(r->path, sizeof(r->path), (void *)at) < 0) {
		bpf_ringbuf_discard(r, 0);
		return;
	}
	r->head.weight = (__u32)s->absent - s->absent_reported;
	s->absent_reported = (__u32)s->absent;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* --- sums ------------------------------------------------------------------------------------ */

static __always_inline struct scry_syscalls_sum *find(const struct scry_syscalls_slot *slot)
{
	struct scry_syscalls_timed *t;

	if (!scry_setup.latency)
		return bpf_map_lookup_elem(&sums, slot);
	t = bpf_map_lookup_elem(&timed, slot);
	return t ? &t->sum : NULL;
}

/* Of a member, whose instance is not 0. */
static __attribute__((noinline)) int make(const struct scry_syscalls_slot *slot, __u32 instance)
{
	static const struct scry_syscalls_timed none;
	struct scry_syscalls_sum fresh = {0}, *s;
	long err;

	if (!slot)
		return 0;
	fresh.key.tid = scry_tid_of(scry_current(), scry_setup.pid_ns);
	fresh.key.instance = instance;
	fresh.key.number = slot->number;
	fresh.key.abi = slot->abi;
	fresh.key.ip = slot->ip;
	if (scry_setup.latency) {
		err = bpf_map_update_elem(&timed, slot, &none, BPF_NOEXIST);
		s = find(slot);
		if (!err && s)
			s->key = fresh.key;
	} else {
		err = bpf_map_update_elem(&sums, slot, &fresh, BPF_NOEXIST);
	}
	if (!err)
		emit_place(&fresh.key);
	return 0;
}

static __always_inline void add_time(struct scry_syscalls_sum *s, const struct entered *e,
				     __u64 now)
{
	struct scry_syscalls_timed *timed_sum = (struct scry_syscalls_timed *)s;
	struct scry_syscalls_times *t = &timed_sum->times;
	__u64 ns;
	__u32 step;

	if (!e || !e->ns || e->ip != s->key.ip || e->number != s->key.number) {
		t->unsure++;
		return;
	}
	ns = now - e->ns;
	t->total_ns += ns;
	if (ns > t->max_ns)
		t->max_ns = ns;
	step = scry_syscalls_step(ns);
	if (step < SCRY_SYSCALLS_STEPS)
		t->steps[step]++;
}

static __always_inline void add_error(struct scry_syscalls_sum *s,
				      const struct pt_regs___kernel *regs, long result)
{
	__u64 path;

	s->errors++;
	if (result == -11) {
		s->again++;
		s->again_ticks += s->pending;
	} else if (result == -2) {
		s->absent++;
		s->absent_ticks += s->pending;
		path = s->key.abi == SCRY_ABI_64 ? path_of(s->key.number, regs) : 0;
		if (path && (s->absent < 8 || (bpf_get_prandom_u32() & 15) == 0))
			emit_path(s, path, SCRY_SYSCALLS_PATH_ABSENT);
	} else {
		s->error = (__s32)result;
	}
}

/* The child's return from its parent's call: the first thing that a thread does. */
static __always_inline bool is_birth(const struct scry_syscalls_slot *slot, long result)
{
	return !result && !bpf_map_delete_elem(&newborn, &slot->tid);
}

/*
 * Of all calls of a processor one is drawn now and then, such that some hundred are drawn in a
 * second, and stands for as many as are drawn one of.
 */
static __always_inline void sample(struct scry_syscalls_sum *s, const struct pt_regs___kernel *regs)
{
	__u32 zero = 0, every;
	struct budget *b = bpf_map_lookup_elem(&budgets, &zero);
	__u64 now;

	if (!b || (b->until && --b->until))
		return;
	now = bpf_ktime_get_ns();
	every = b->every ? b->every : 1;
	emit_stack(&s->key, regs, every);
	if (now - b->hit_ns < scry_setup.stack_every_ns / 2 && every < EVERY_MAX)
		b->every = every * 2;
	else if (now - b->hit_ns > scry_setup.stack_every_ns * 2ull && every > 1)
		b->every = every / 2;
	else
		b->every = every;
	b->hit_ns = now;
	b->until = 1 + bpf_get_prandom_u32() % (2 * b->every - 1);
}

/* A place that no thread of the instance was at before: its callers are to be known, however rare
 * they are.
 */
static __attribute__((noinline)) int sample_first(const struct scry_syscalls_key *of,
						  const struct pt_regs___kernel *regs)
{
	struct scry_syscalls_key key;
	__u8 one = 1;

	if (!of || !regs)
		return 0;
	key = *of;
	key.tid = 0;
	if (!bpf_map_update_elem(&sites, &key, &one, BPF_NOEXIST) && spend())
		emit_stack(of, regs, 1);
	return 0;
}

/*
 * A call that a tracer has skipped returns with the number of rt_sigreturn, and is none. It is
 * known where it was seen to begin; else what a traced thread returns from with it is not known.
 */
static __always_inline bool is_skipped(struct scry_syscalls_slot *slot, struct task_struct *task)
{
	const struct entered *e;

	if (slot->number != SCRY_SYSCALLS_RETURNED || !task->ptrace)
		return false;
	e = scry_setup.latency ? bpf_task_storage_get(&threads, task, 0, 0) : NULL;
	if (!e || !e->ns)
		slot->number = SCRY_SYSCALLS_UNKNOWN;
	return e && e->ns && e->number == SCRY_SYSCALLS_RETURNED;
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
	struct scry_syscalls_slot slot;
	struct scry_syscalls_sum *s;
	struct entered *e = NULL;
	__u64 now;
	__u32 instance;

	if (!may_be_member(task))
		return 0;
	now = scry_setup.latency ? bpf_ktime_get_ns() : 0; /* before anything else is done */
	set_slot(&slot, task, regs);
	if (!result && may_be_birth(&slot) && is_birth(&slot, result))
		return 0;
	if (slot.number == SCRY_SYSCALLS_RETURNED) {
		e = bpf_task_storage_get(&threads, task, 0, 0);
		if (is_none(&slot, regs, e, result) && task->ptrace) /* a tracer has skipped it */
			return 0;
	}
	if (is_skipped(&slot, task))
		return 0;
	if (slot.number >= SCRY_SYSCALLS_UNKNOWN || is_exec(&slot, result))
		displace(&slot);
	s = find(&slot);
	if (!s) {
		instance = instance_of(task);
		if (!instance)
			return 0;
		make(&slot, instance);
		s = find(&slot);
		if (!s) {
			count(SCRY_SYSCALLS_NOWHERE);
			return 0;
		}
	}
	if (scry_setup.latency || slot.number == NR_SIGPROCMASK || slot.number == NR_MMAP ||
	    slot.number == NR_MUNMAP || slot.number >= SCRY_SYSCALLS_UNKNOWN ||
	    is_limited(slot.number) || slot.abi == SCRY_ABI_32)
		e = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (e && !scry_setup.latency &&
	    (slot.number >= SCRY_SYSCALLS_UNKNOWN || slot.abi == SCRY_ABI_32))
		e->has_mask = 0; /* it may have changed the mask */
	s->calls++;
	/* what ax was before a signal is not a result */
	if (result < 0 && result >= -ERRNO_MAX && slot.number < SCRY_SYSCALLS_UNKNOWN)
		add_error(s, regs, result);
	if (slot.abi == SCRY_ABI_64) {
		if (slot.number == NR_SIGPROCMASK)
			ask_mask(s, task, regs, result, e);
		else if (slot.number == NR_MMAP || slot.number == NR_MUNMAP)
			ask_map(s, regs, slot.number, result, e);
		else if (scry_setup.latency && (slot.number == NR_FCNTL || slot.number == NR_IOCTL))
			ask_flags(s, task, regs, slot.number, result, e);
		else if (is_limited(slot.number))
			ask_limit(s, task, regs, result, e);
		else
			ask(s, &s->key, regs, result);
	}
	if (scry_setup.latency) {
		add_time(s, e, now);
		if (e)
			e->ns = 0;
	}
	s->pending = 0;
	if (slot.ip && s->calls == 1)
		sample_first(&s->key, regs);
	else if (slot.ip)
		sample(s, regs);
	return 0;
}

SEC("tp_btf/sys_enter")
int syscalls_enter(unsigned long long *ctx)
{
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	struct entered *e;

	if (!may_be_member(task) || (scry_setup.pid_ns && !instance_of(task)))
		return 0;
	e = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!e)
		return 0;
	e->number = (__u32)ctx[1];
	e->ip = regs->ip;
	e->mask = task->blocked.sig[0];
	e->has_mask = 1;
	note_limit(e, e->number, regs);
	e->has_flags = sets_flags(e->number, regs) && read_flags(task, regs, e->number, &e->flags);
	e->ns = bpf_ktime_get_ns();
	return 0;
}

/* A handler runs with another mask, and may be left by longjmp. */
SEC("raw_tp/signal_deliver")
int syscalls_signal(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	struct entered *e;

	if (!may_be_member(task))
		return 0;
	e = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (e) {
		e->has_mask = 0;
		e->signal_sp = regs->sp;
	}
	return 0;
}

/* --- the clock ------------------------------------------------------------------------------- */

SEC("perf_event")
int syscalls_tick(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scry_syscalls_slot slot;
	struct scry_syscalls_sum *s;
	struct pt_regs___kernel *regs;
	__u32 instance;

	if (!may_be_member(task))
		return 0;
	instance = instance_of(task);
	if (!instance)
		return 0;
	count(SCRY_SYSCALLS_TICKS);
	if ((ctx->regs.cs & USER_CS) == USER_CS)
		return 0;
	regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	if ((long)regs->orig_ax < 0) /* a fault, or an interrupt of the program itself */
		return 0;
	set_slot(&slot, task, regs);
	find_place(&slot, regs);
	count(SCRY_SYSCALLS_INSIDE);
	s = find(&slot);
	if (!s) {
		make(&slot, instance);
		s = find(&slot);
		if (!s) {
			count(SCRY_SYSCALLS_UNPLACED);
			return 0;
		}
	}
	s->ticks++;
	s->pending++;
	if (!scry_setup.exact && spend())
		emit_stack(&s->key, regs, 1);
	return 0;
}

/* --- processes ------------------------------------------------------------------------------- */

static void emit_news(struct scry_syscalls_record *head)
{
	struct scry_syscalls_record *r = bpf_ringbuf_reserve(&news, sizeof(*r), 0);

	if (!r) {
		count(SCRY_SYSCALLS_LOST);
		return;
	}
	*r = *head;
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void set_filter(struct task_struct *task)
{
	__u32 pid = (__u32)BPF_CORE_READ(task, tgid);
	__u64 *word = filter_word(pid);

	if (word)
		__sync_fetch_and_or(word, 1ull << (pid % 64));
}

static __always_inline void clear_filter(struct task_struct *task)
{
	__u32 pid = (__u32)BPF_CORE_READ(task, tgid);
	__u64 *word = filter_word(pid);

	if (word && !scry_setup.pid_ns)
		__sync_fetch_and_and(word, ~(1ull << (pid % 64)));
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
	__u32 *line, at, tid = (__u32)BPF_CORE_READ(child, pid);
	__u8 one = 1;

	if (!m || !r.pid)
		return 0;
	if (r.pid == of || scry_setup.follows)
		bpf_map_update_elem(&newborn, &tid, &one, BPF_ANY);
	if (r.pid == of)
		return 0;
	if (!scry_setup.follows) {
		count(SCRY_SYSCALLS_CHILDREN);
		return 0;
	}
	r.other = born.parent = m->instance;
	if (m->instance)
		born.instance = new_instance();
	r.instance = born.instance;
	line = bpf_map_lookup_elem(&lines, &r.other);
	if (line && born.instance) { /* a copy of the parent's memory */
		at = *line;
		bpf_map_update_elem(&lines, &born.instance, &at, BPF_ANY);
	}
	set_filter(child);
	if (bpf_map_update_elem(&tree, &r.pid, &born, BPF_ANY))
		count(SCRY_SYSCALLS_STRANGE);
	else
		emit_news(&r);
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
	r.other = m->instance;
	bpf_map_delete_elem(&lines, &r.other);
	m->parent = 0;
	m->instance = r.instance = new_instance();
	emit_news(&r);
	return 0;
}

/* One that has returned is counted; which is known where its beginning was seen. */
static __always_inline bool is_in_call(struct task_struct *task)
{
	const struct entered *e =
		scry_setup.latency ? bpf_task_storage_get(&threads, task, 0, 0) : NULL;

	return e && e->ns;
}

SEC("raw_tp/sched_process_exit")
int syscalls_ended(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scry_syscalls_record r = {.kind = SCRY_SYSCALLS_ENDED,
					 .pid = scry_pid_of(scry_current(), scry_setup.pid_ns),
					 .tid = scry_tid_of(scry_current(), scry_setup.pid_ns),
					 .instance = instance_of(task)};
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	long number = (long)regs->orig_ax;

	if (!bpf_map_lookup_elem(&tree, &r.pid))
		return 0;
	r.is_last = BPF_CORE_READ(task, signal, live.counter) == 0;
	bpf_get_current_comm(r.name, sizeof(r.name));
	if (r.instance && (number == NR_EXIT || number == NR_EXIT_GROUP))
		count(SCRY_SYSCALLS_EXITS);
	else if (r.instance && is_in_call(task))
		count(SCRY_SYSCALLS_KILLED);
	if (r.is_last) {
		clear_filter(scry_current());
		bpf_map_delete_elem(&tree, &r.pid);
		bpf_map_delete_elem(&lines, &r.instance);
	}
	emit_news(&r);
	return 0;
}

char scry_license[] SEC("license") = "GPL";
