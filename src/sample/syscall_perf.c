/*
 * See syscall_perf.h.
 *
 * A clock that threads inherit has to be opened for each processor, and writes into that one's
 * ring, which all threads share (sample/perf_rings). The clocks do not sway as those of processors
 * do: another period begins anew, and a thread that runs for a moment only would never see its end,
 * nor would the threads that have inherited it.
 */
#include "sample/syscall_perf.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/map.h"
#include "sample/perf_rings.h"
#include "sys/container.h"
#include "sys/proc.h"
#include "sys/task.h"

#define CPUS_MAX 1024
#define LAG_NS 200000u /* until one that is being written is there */
#define TASKS_MAX 65536u
#define PASSES 10 /* over a process's threads, which may start others meanwhile */
#define LOOK_NS 1000000000u
#define GONE_AT_ONCE 256u
#define ENOSYS_RESULT ((uint64_t)-38) /* in ax while the call has no result yet */

/* Registers of linux/arch/x86 (asm/perf_regs.h), in the order in which they come. */
enum { AX, BX, CX, BP, SP, IP, FLAGS, R11, REGISTERS };
#define REGISTER_BITS                                                                        \
	(1ull << 0 | 1ull << 1 | 1ull << 2 | 1ull << 6 | 1ull << 7 | 1ull << 8 | 1ull << 9 | \
	 1ull << 19)

struct sample { /* PERF_RECORD_SAMPLE; where `abi` is NONE there are no registers */
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time, abi;
	uint64_t registers[REGISTERS];
	uint64_t room; /* of `bytes`; behind them how many are valid */
	uint8_t bytes[];
};

struct born { /* PERF_RECORD_FORK, PERF_RECORD_EXIT */
	struct perf_event_header header;
	uint32_t pid, parent, tid, parent_tid;
	uint64_t time;
};

struct comm { /* PERF_RECORD_COMM */
	struct perf_event_header header;
	uint32_t pid, tid;
	char name[];
};

struct thread {
	uint32_t tid, pid;
	size_t fds; /* place of its descriptors + 1; 0: it has inherited them */
	char name[16];
};

struct scry_syscall_perf {
	struct scry_syscall_perf_opts opts;
	struct scry_syscall_perf_sums sums;
	int cpus;
	struct scry_perf_rings *rings;
	int *fds; /* `cpus` for each thread that was there; -1: none */
	size_t fd_count, fd_room;
	struct thread *threads;
	size_t thread_count, thread_room;
	struct scry_map by_tid;	   /* -> place in `threads` */
	struct scry_map instances; /* of members, by pid */
	struct scry_map running;   /* how many threads a member has, by pid */
	uint32_t next_instance;
	uint64_t looked_ns;
	struct scry_syscall_tick tick;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- clocks ---------------------------------------------------------------------------------- */

static struct perf_event_attr clock_of(const struct scry_syscall_perf *p, bool from_exec)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(struct perf_event_attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = p->opts.period_ns,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			       PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_regs_user = REGISTER_BITS,
		.sample_stack_user = SCRY_SYSCALLS_STACK_BYTES,
		.sample_id_all = 1,
		.disabled = from_exec,
		.enable_on_exec = from_exec,
		.inherit = 1,
		.inherit_thread = !p->opts.follows,
		.task = 1,
		.comm = 1,
		.comm_exec = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.watermark = 1,
		.wakeup_watermark = scry_perf_rings_watermark(),
		.exclude_hv = 1,
	};
}

static int open_clock(struct perf_event_attr *attr, pid_t tid, int cpu)
{
	int fd = (int)syscall(SYS_perf_event_open, attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 && errno == EINVAL && attr->inherit_thread) { /* before Linux 5.13 */
		attr->inherit_thread = 0;
		fd = (int)syscall(SYS_perf_event_open, attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

static int paranoid(void)
{
	FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
	int level = 2;

	if (!f)
		return level;
	if (fscanf(f, "%d", &level) != 1)
		level = 2;
	fclose(f);
	return level;
}

static int fail_clock(int err)
{
	if (err == -EMFILE)
		return scry_fail(err, "threads times processors are more than the files that may "
				      "be open; fix: ulimit -n 65536");
	if (err == -EACCES || err == -EPERM)
		return scry_fail(
			-EPERM,
			"neither eBPF programs (CAP_BPF and CAP_PERFMON) nor perf events "
			"that see the kernel (kernel.perf_event_paranoid is %d, 1 would do "
			"for processes of your own) are permitted; fix: sudo scry ..., or "
			"sudo sysctl kernel.perf_event_paranoid=1, or sudo setcap "
			"cap_bpf,cap_perfmon,cap_sys_ptrace+ep on scry's file%s",
			paranoid(), scry_container_fix(SCRY_CONTAINER_BPF));
	return scry_fail(err == -ENOMEM ? err : -ENOTSUP,
			 "this kernel has no clock of perf's for a thread (perf_event_open: %s)",
			 strerror(-err));
}

/* Room for the descriptors of one more thread: their place + 1. 0: no memory. */
static size_t place_fds(struct scry_syscall_perf *p)
{
	const size_t cpus = (size_t)p->cpus;

	if (p->fd_count + cpus > p->fd_room) {
		size_t room = 2 * p->fd_room + cpus;
		int *more = reallocarray(p->fds, room, sizeof(*more));

		if (!more)
			return 0;
		p->fds = more;
		p->fd_room = room;
	}
	for (size_t i = 0; i < cpus; i++)
		p->fds[p->fd_count + i] = -1;
	p->fd_count += cpus;
	return p->fd_count - cpus + 1;
}

static int open_thread(struct scry_syscall_perf *p, pid_t tid, bool from_exec, size_t fds)
{
	for (int cpu = 0; cpu < p->cpus; cpu++) {
		struct perf_event_attr attr = clock_of(p, from_exec);
		int fd = open_clock(&attr, tid, cpu), err;

		if (fd == -ENODEV) /* it is offline */
			continue;
		if (fd == -ESRCH) /* it has ended */
			return fd;
		if (fd == -EACCES || fd == -EPERM) /* our own had a clock */
			return scry_fail(-EACCES,
					 "no right to look at thread %d, which is another user's "
					 "or may not be traced; fix: sudo scry ...%s",
					 (int)tid, scry_container_fix(SCRY_CONTAINER_PTRACE));
		if (fd < 0)
			return fail_clock(fd);
		p->fds[fds - 1 + (size_t)cpu] = fd;
		err = scry_perf_rings_join(p->rings, fd, cpu);
		if (err == -EPERM)
			return scry_fail(err,
					 "no memory may be locked for the samples of processors; "
					 "fix: sudo scry ..., or ulimit -l unlimited");
		if (err)
			return fail_clock(err);
	}
	return 0;
}

int scry_syscall_perf_open(const struct scry_syscall_perf_opts *opts,
			   struct scry_syscall_perf **ret)
{
	struct scry_syscall_perf *p = calloc(1, sizeof(*p));
	const long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct perf_event_attr attr;
	int fd;

	if (!p)
		return scry_no_memory("clocks");
	p->opts = *opts;
	p->cpus = cpus < CPUS_MAX ? (int)cpus : CPUS_MAX;
	p->next_instance = opts->first_instance;
	p->rings = scry_perf_rings_new(p->cpus, offsetof(struct sample, time));
	scry_map_init(&p->by_tid, TASKS_MAX);
	scry_map_init(&p->instances, SCRY_SYSCALLS_TASKS);
	scry_map_init(&p->running, SCRY_SYSCALLS_TASKS);
	attr = clock_of(p, true);
	fd = p->rings ? open_clock(&attr, 0, -1) : -ENOMEM; /* of ourselves: may it be at all? */
	if (fd < 0) {
		scry_syscall_perf_close(p);
		return fail_clock(fd);
	}
	close(fd);
	*ret = p;
	return 0;
}

int scry_syscall_perf_check(void)
{
	const struct scry_syscall_perf_opts opts = {.period_ns = 1000000};
	struct scry_syscall_perf *p = NULL;
	int err = scry_syscall_perf_open(&opts, &p);

	scry_syscall_perf_close(p);
	return err;
}

void scry_syscall_perf_close(struct scry_syscall_perf *p)
{
	if (!p)
		return;
	scry_perf_rings_free(p->rings);
	for (size_t i = 0; i < p->fd_count; i++)
		if (p->fds[i] >= 0)
			close(p->fds[i]);
	free(p->fds);
	free(p->threads);
	scry_map_done(&p->by_tid);
	scry_map_done(&p->instances);
	scry_map_done(&p->running);
	free(p);
}

/* --- what there is ---------------------------------------------------------------------------- */

static struct thread *find(const struct scry_syscall_perf *p, uint32_t tid)
{
	uint64_t at;

	return scry_map_get(&p->by_tid, tid, &at) ? &p->threads[at] : NULL;
}

static uint32_t instance_of(const struct scry_syscall_perf *p, uint32_t pid)
{
	uint64_t instance;

	return scry_map_get(&p->instances, pid, &instance) ? (uint32_t)instance : 0;
}

static struct thread *add_thread(struct scry_syscall_perf *p, uint32_t pid, uint32_t tid)
{
	uint64_t *running;
	struct thread *more;

	if (p->thread_count == p->thread_room) {
		size_t room = p->thread_room ? 2 * p->thread_room : 64;

		more = reallocarray(p->threads, room, sizeof(*more));
		if (!more)
			return NULL;
		p->threads = more;
		p->thread_room = room;
	}
	if (scry_map_put(&p->by_tid, tid, p->thread_count) < 0)
		return NULL;
	running = scry_map_ref(&p->running, pid);
	if (running)
		++*running;
	p->threads[p->thread_count] = (struct thread){.tid = tid, .pid = pid};
	return &p->threads[p->thread_count++];
}

/* How many others its process has. */
static uint64_t remove_thread(struct scry_syscall_perf *p, const struct thread *t)
{
	const size_t at = (size_t)(t - p->threads);
	uint64_t *running = scry_map_ref(&p->running, t->pid);
	uint64_t left = running && *running ? --*running : 0;

	scry_map_remove(&p->by_tid, t->tid, NULL);
	p->threads[at] = p->threads[--p->thread_count];
	if (at < p->thread_count)
		scry_map_put(&p->by_tid, p->threads[at].tid, at);
	return left;
}

static void forget(struct scry_syscall_perf *p, uint32_t pid)
{
	scry_map_remove(&p->instances, pid, NULL);
	scry_map_remove(&p->running, pid, NULL);
}

/* --- records --------------------------------------------------------------------------------- */

static void end_thread(struct scry_syscall_perf *p, const struct thread *t)
{
	struct scry_syscalls_record r = {.kind = SCRY_SYSCALLS_ENDED,
					 .pid = t->pid,
					 .tid = t->tid,
					 .instance = instance_of(p, t->pid)};

	memcpy(r.name, t->name, sizeof(t->name));
	r.is_last = remove_thread(p, t) == 0;
	if (r.is_last)
		forget(p, r.pid);
	p->opts.news(p->opts.arg, &r);
}

static void end_process(struct scry_syscall_perf *p, uint32_t pid)
{
	const struct scry_syscalls_record r = {.kind = SCRY_SYSCALLS_ENDED,
					       .pid = pid,
					       .tid = pid,
					       .instance = instance_of(p, pid),
					       .is_last = 1};

	for (size_t i = p->thread_count; i-- > 0;)
		if (p->threads[i].pid == pid)
			end_thread(p, &p->threads[i]);
	if (!scry_syscall_perf_has(p, (pid_t)pid))
		return;
	forget(p, pid); /* for its threads there was no room */
	p->opts.news(p->opts.arg, &r);
}

static void close_fds(struct scry_syscall_perf *p, struct thread *t)
{
	for (int i = 0; i < p->cpus; i++) {
		int *fd = &p->fds[t->fds - 1 + (size_t)i];

		if (*fd >= 0)
			close(*fd);
		*fd = -1;
	}
	t->fds = 0;
}

static void on_fork(struct scry_syscall_perf *p, const struct born *r)
{
	struct scry_syscalls_record record = {
		.kind = SCRY_SYSCALLS_FORKED, .pid = r->pid, .other = instance_of(p, r->parent)};
	const struct thread *parent = find(p, r->parent_tid);
	struct thread *t = find(p, r->tid);
	char name[sizeof(t->name)] = "";
	uint64_t member;

	if (!scry_map_get(&p->instances, r->parent, &member) || !r->pid || !r->tid)
		return;
	if (t && t->fds && t->pid == r->pid) /* it was found before this was read: not twice */
		close_fds(p, t);
	if (t)
		return;
	if (r->pid != r->parent && !p->opts.follows) {
		p->sums.children++;
		return;
	}
	if (parent)
		memcpy(name, parent->name, sizeof(name));
	if (r->pid != r->parent) {
		record.instance = record.other ? p->next_instance++ : 0;
		if (scry_map_put(&p->instances, r->pid, record.instance) < 0) {
			p->sums.lost++;
			return;
		}
	}
	t = add_thread(p, r->pid, r->tid);
	if (t)
		memcpy(t->name, name, sizeof(name));
	if (r->pid != r->parent)
		p->opts.news(p->opts.arg, &record);
}

/* Its other threads have gone without a word, and the one that is left has the process's number. */
static void on_exec(struct scry_syscall_perf *p, uint32_t pid)
{
	struct scry_syscalls_record record = {
		.kind = SCRY_SYSCALLS_EXECED, .pid = pid, .other = instance_of(p, pid)};

	for (size_t i = p->thread_count; i-- > 0;)
		if (p->threads[i].pid == pid && p->threads[i].tid != pid)
			remove_thread(p, &p->threads[i]);
	if (!find(p, pid))
		add_thread(p, pid, pid);
	record.instance = p->next_instance++;
	scry_map_put(&p->instances, pid, record.instance);
	p->opts.news(p->opts.arg, &record);
}

static void on_comm(struct scry_syscall_perf *p, const struct comm *r)
{
	struct thread *t;
	uint64_t instance;

	if (r->header.misc & PERF_RECORD_MISC_COMM_EXEC &&
	    scry_map_get(&p->instances, r->pid, &instance))
		on_exec(p, r->pid);
	t = find(p, r->tid);
	if (t)
		snprintf(t->name, sizeof(t->name), "%s", r->name);
}

/* The stack behind the registers: as much as there was. */
static void copy_stack(const struct sample *r, struct scry_syscalls_stack *to)
{
	const uint64_t most = r->header.size - offsetof(struct sample, bytes);
	uint64_t valid;

	to->size = 0;
	if (!r->room || r->room > sizeof(to->bytes) || r->room + sizeof(valid) > most)
		return;
	memcpy(&valid, r->bytes + r->room, sizeof(valid));
	to->size = (uint32_t)(valid < r->room ? valid : r->room);
	memcpy(to->bytes, r->bytes, to->size);
}

/*
 * In a system call? The instruction has changed rcx and r11 (but on processors with FRED); and till
 * the call has a result, -ENOSYS stands for it.
 */
static void on_sample(struct scry_syscall_perf *p, const struct sample *r)
{
	const uint64_t *regs = r->registers;
	struct scry_syscall_tick *t = &p->tick;
	struct scry_syscalls_stack *s = &t->stack;
	const struct thread *thread = find(p, r->tid);
	const uint32_t instance = instance_of(p, r->pid);

	if (!instance || (thread && thread->pid != r->pid))
		return;
	p->sums.ticks++;
	if ((r->header.misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_KERNEL ||
	    r->abi == PERF_SAMPLE_REGS_ABI_NONE || r->header.size < offsetof(struct sample, bytes))
		return;
	t->is_compat = r->abi == PERF_SAMPLE_REGS_ABI_32;
	t->is_sure = !t->is_compat && regs[CX] == regs[IP] && regs[R11] == regs[FLAGS];
	if (!t->is_sure && regs[AX] != ENOSYS_RESULT &&
	    (!t->is_compat || (uint32_t)regs[AX] != (uint32_t)ENOSYS_RESULT))
		return;
	s->head = (struct scry_syscalls_record){
		.kind = SCRY_SYSCALLS_STACK,
		.pid = r->pid,
		.tid = r->tid,
		.instance = instance,
		.weight = 1,
		.key = {.tid = r->tid, .instance = instance, .ip = regs[IP]},
	};
	s->sp = regs[SP];
	s->bp = regs[BP];
	s->bx = regs[BX];
	copy_stack(r, s);
	p->opts.tick(p->opts.arg, t);
}

static void on_record(void *arg, const struct perf_event_header *r)
{
	struct scry_syscall_perf *p = arg;
	const struct thread *t;

	switch (r->type) {
	case PERF_RECORD_SAMPLE:
		on_sample(p, (const struct sample *)r);
		break;
	case PERF_RECORD_FORK:
		on_fork(p, (const struct born *)r);
		break;
	case PERF_RECORD_EXIT:
		t = find(p, ((const struct born *)r)->tid);
		if (t)
			end_thread(p, t);
		break;
	case PERF_RECORD_COMM:
		on_comm(p, (const struct comm *)r);
		break;
	}
}

/* --- taking ---------------------------------------------------------------------------------- */

static int read_rings(struct scry_syscall_perf *p)
{
	int err = scry_perf_rings_read(p->rings);

	return err ? scry_no_memory("samples") : 0;
}

/* Ends may have been lost. */
static void look_for_ends(struct scry_syscall_perf *p)
{
	const uint64_t now = now_ns();
	struct scry_map_slot slot;
	uint32_t gone[GONE_AT_ONCE];
	size_t cursor = 0, count = 0;

	if (now - p->looked_ns < LOOK_NS)
		return;
	p->looked_ns = now;
	while (count < GONE_AT_ONCE && scry_map_next(&p->instances, &cursor, &slot))
		if (!scry_proc_task_count((pid_t)slot.key))
			gone[count++] = (uint32_t)slot.key;
	for (size_t i = 0; i < count; i++)
		end_process(p, gone[i]);
}

int scry_syscall_perf_take(struct scry_syscall_perf *p, bool is_last)
{
	const uint64_t until = is_last ? UINT64_MAX : now_ns() - LAG_NS;

	if (read_rings(p) < 0)
		return -ENOMEM;
	scry_perf_rings_give(p->rings, until, on_record, p);
	if (!is_last)
		look_for_ends(p);
	return 0;
}

void scry_syscall_perf_wait(struct scry_syscall_perf *p, uint64_t limit_ns)
{
	scry_perf_rings_wait(p->rings, limit_ns);
}

/* --- what is watched -------------------------------------------------------------------------- */

/* One that was started by a thread that has its clock has one as well, and was reported. */
static int add_listed(struct scry_syscall_perf *p, pid_t pid, pid_t tid, bool from_exec)
{
	struct thread *t;
	size_t fds;
	int err;

	if (find(p, (uint32_t)tid))
		return 0;
	fds = place_fds(p);
	if (!fds)
		return scry_no_memory("clocks");
	err = open_thread(p, tid, from_exec, fds);
	if (err == -ESRCH)
		return 0;
	t = err ? NULL : add_thread(p, (uint32_t)pid, (uint32_t)tid);
	if (!err && !t)
		err = scry_fail(-ENOSPC, "more than %u threads", TASKS_MAX);
	if (!err) {
		t->fds = fds;
		scry_task_name(pid, tid, t->name, sizeof(t->name));
	}
	return err;
}

int scry_syscall_perf_add(struct scry_syscall_perf *p, pid_t pid, uint32_t instance)
{
	size_t before = 0;
	int err = scry_map_put(&p->instances, (uint32_t)pid, instance);

	if (err)
		return scry_fail(err, "more than %u processes", SCRY_SYSCALLS_TASKS);
	for (int pass = 0; pass < PASSES && !err; pass++) {
		pid_t *tids = NULL;
		ssize_t count = scry_proc_tasks(pid, &tids);

		err = count < 0 ? (int)count : scry_syscall_perf_take(p, true);
		for (ssize_t i = 0; i < count && !err; i++)
			err = add_listed(p, pid, tids[i], instance == 0);
		free(tids);
		if (p->thread_count == before) /* no new ones */
			break;
		before = p->thread_count;
	}
	if (err == -ESRCH || err == -ENOENT)
		return scry_proc_fail_gone(pid);
	return err;
}

bool scry_syscall_perf_has(const struct scry_syscall_perf *p, pid_t pid)
{
	uint64_t instance;

	return scry_map_get(&p->instances, (uint32_t)pid, &instance);
}

static bool is_end_of(const struct perf_event_header *r, uint64_t pid)
{
	const struct comm *comm = (const struct comm *)r;
	const struct born *born = (const struct born *)r;

	return (r->type == PERF_RECORD_COMM && comm->pid == pid &&
		r->misc & PERF_RECORD_MISC_COMM_EXEC) ||
	       (r->type == PERF_RECORD_EXIT && born->pid == pid && born->tid == pid);
}

bool scry_syscall_perf_runs(struct scry_syscall_perf *p, pid_t pid, uint32_t instance)
{
	return instance && instance_of(p, (uint32_t)pid) == instance &&
	       scry_perf_rings_read(p->rings) == 0 &&
	       !scry_perf_rings_has(p->rings, is_end_of, (uint64_t)pid) &&
	       scry_proc_task_count(pid) > 0;
}

/* --- the end --------------------------------------------------------------------------------- */

void scry_syscall_perf_stop(struct scry_syscall_perf *p)
{
	for (size_t i = 0; i < p->fd_count; i++) {
		uint64_t ran = 0;

		if (p->fds[i] < 0)
			continue;
		ioctl(p->fds[i], PERF_EVENT_IOC_DISABLE, 0);
		if (read(p->fds[i], &ran, sizeof(ran)) == sizeof(ran))
			p->sums.ran_ns += ran;
	}
}

struct scry_syscall_perf_sums scry_syscall_perf_sums(const struct scry_syscall_perf *p)
{
	struct scry_syscall_perf_sums sums = p->sums;

	sums.lost += scry_perf_rings_lost(p->rings);
	return sums;
}
