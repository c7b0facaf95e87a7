/*
 * See stacks_clock.h.
 *
 * The kernel's side knows threads by their number and finds the VM's struct of each in a map, which
 * is filled here from the VM's own list. A thread that is not in it asks to be looked for; is it
 * none of the VM's, it is told so, and is quiet.
 */
#include "cmd/stacks_clock.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "probe/bpf.h"
#include "sys/tracee.h"

#define FIRST_PID_NS 0xeffffffcu /* linux/proc_ns.h, PROC_PID_INIT_INO */
#define TRIES 5
#define STRANGERS_MAX 256
#define WAIT_NEW_NS 1000000
#define WAIT_NS 4000000
#define WAIT_TICKS 8 /* of a clock, at most: a deep stack is 400 KB */
#define WAIT_IDLE_NS 16000000
#define NATIVE_RING (64u << 20) /* bytes: records have 32 KiB of stack more */
#define RELIST_NS 3000000u	/* the list is read again after so long, where it was out of date */

_Static_assert(SCRY_BPF_NONE == SCRY_RUBY_NONE, "a field that is not there");

SCRY_BPF_OBJECT(stacks);

struct scry_clock {
	struct scry_bpf *bpf;
	const char *program;
	struct scry_samples *samples;
	uint64_t period_ns;
	uint32_t listings;		   /* of samples, when the map was filled */
	uint32_t strangers[STRANGERS_MAX]; /* who have asked */
	size_t stranger_count;
	bool is_outdated; /* the list: a thread has ended, or one is new */
	size_t missing;
	int taken; /* by the last turn */
	uint64_t wait_ns, unsure;
};

/* --- opening ---------------------------------------------------------------------------------- */

/* The inode of our pid namespace; 0 where it is the machine's. */
static uint32_t own_namespace(void)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == FIRST_PID_NS)
		return 0;
	return (uint32_t)st.st_ino;
}

static int give(void *arg, void *record, size_t size)
{
	struct scry_clock *c = arg;
	const struct scry_bpf_stack *r = record;
	int err = scry_samples_record(c->samples, record, size);

	/* The VM gives a native thread that has ended to the next one of its own. */
	c->is_outdated |=
		err == -ENOENT || (r->kind != SCRY_BPF_STACK && r->kind != SCRY_BPF_NATIVE);
	if (err != -ENOENT)
		return err;
	if (r->kind != SCRY_BPF_STRANGER)
		c->samples->unrecorded++; /* it has ended since */
	else if (c->stranger_count < STRANGERS_MAX)
		c->strangers[c->stranger_count++] = r->tid;
	return 0;
}

/* Does the program read the words that it needs of a newest frame? */
static bool is_readable(const struct scry_ruby_layout *l)
{
	return l->frame_ep <= 8 * (SCRY_BPF_FRAME_WORDS - 1) && l->frame_ep % 8 == 0 &&
	       l->frame_pc <= 8 * (SCRY_BPF_FRAME_WORDS - 1) && l->frame_pc % 8 == 0 &&
	       l->frame_me <= 8 * (SCRY_BPF_ENV_WORDS - 1) && l->frame_me % 8 == 0 &&
	       l->me_def <= 8 * (SCRY_BPF_ENTRY_WORDS - 1) && l->me_def % 8 == 0;
}

static int load(struct scry_clock *c)
{
	const struct scry_ruby_layout *l = &c->samples->ruby->layout;
	struct scry_bpf_layout layout = {
		.th_ec = l->th_ec,
		.th_nt = l->th_nt,
		.th_tid = l->th_tid,
		.ec_stack = l->ec_stack,
		.ec_stack_size = l->ec_stack_size,
		.ec_cfp = l->ec_cfp,
		.ec_thread = l->ec_thread,
		.frame_size = l->frame_size,
		.frame_ep = l->frame_ep,
		.frame_pc = l->frame_pc,
		.frame_me = l->frame_me,
		.me_def = l->me_def,
		.def_iseq = l->def_iseq,
		.pid_ns = own_namespace(),
		.native = c->samples->native != NULL,
	};
	const struct scry_walk *w = &c->samples->walk;
	int err;

	if (!is_readable(l))
		return scry_fail(
			-ENOTSUP,
			"this Ruby's frames are not laid out as the eBPF program reads them; "
			"fix: --engine=read");
	err = scry_bpf_open(SCRY_BPF(stacks), &c->bpf);

	if (w->gc_heap && w->gc.is_known)
		layout.gc_during = w->gc_heap + w->gc.during.at;
	if (w->gc_heap && w->gc.has_epochs) {
		layout.gc_count = w->gc_heap + w->gc.count;
		layout.gc_marking = w->gc_heap + w->gc.marking.at;
	}

	c->program = layout.pid_ns ? "stacks_tick_inside" : "stacks_tick";
	if (!err)
		err = scry_bpf_constant(c->bpf, "scry_layout", &layout, sizeof(layout));
	if (!err)
		err = scry_bpf_leave_out(c->bpf,
					 layout.pid_ns ? "stacks_tick" : "stacks_tick_inside");
	if (!err && layout.native)
		err = scry_bpf_map_entries(c->bpf, "ring", NATIVE_RING);
	if (!err)
		err = scry_bpf_load(c->bpf);
	if (!err)
		err = scry_bpf_ring(c->bpf, "ring", give, c);
	return err;
}

int scry_clock_open(struct scry_samples *samples, uint64_t rate, struct scry_clock **ret)
{
	struct scry_clock *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return scry_fail(-ENOMEM, "no memory for the clock");
	c->samples = samples;
	c->period_ns = 1000000000u / rate;
	c->wait_ns = WAIT_NEW_NS;
	err = load(c);
	if (err) {
		scry_clock_close(c);
		return err;
	}
	samples->clock_ns = c->period_ns;
	*ret = c;
	return 0;
}

void scry_clock_close(struct scry_clock *c)
{
	if (!c)
		return;
	scry_bpf_close(c->bpf);
	c->samples->clock_ns = 0;
	free(c);
}

/* --- on the threads --------------------------------------------------------------------------- */

/* Two descriptors a thread. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* 0; -ESRCH: it has ended. */
static int put_on(struct scry_clock *c, pid_t tid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = c->period_ns,
		.disabled = 1,
		.inherit = 1,
		.inherit_thread = 1, /* Linux 5.13; a child process is watched by itself */
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 && errno == ESRCH)
		return -ESRCH;
	if (fd < 0)
		return scry_fail(-errno, "no clock for thread %d (perf_event_open): %s%s", (int)tid,
				 strerror(errno),
				 errno == EMFILE ? "; fix: ulimit -n 65536"
				 : errno == EACCES || errno == EPERM
					 ? "; fix: sudo scry ..., or sysctl "
					   "kernel.perf_event_paranoid=2"
					 : "");
	return scry_bpf_attach_perf(c->bpf, c->program, fd);
}

static bool has(const pid_t *tids, ssize_t n, pid_t tid)
{
	for (ssize_t i = 0; i < n; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

/*
 * On all that are there. *ret_new: how many are there now that were not before: they have the clock
 * of the thread that started them, if that had one already.
 */
static int put_on_all(struct scry_clock *c, size_t *ret_new)
{
	pid_t pid = c->samples->ruby->pid, *before = NULL, *after = NULL;
	ssize_t n = scry_proc_tasks(pid, &before), m = 0;
	int err = n < 0 ? scry_fail((int)n, "process %d is gone", (int)pid) : 0;

	for (ssize_t i = 0; i < n && !err; i++) {
		err = put_on(c, before[i]);
		if (err == -ESRCH)
			err = 0;
	}
	if (!err)
		m = scry_proc_tasks(pid, &after);
	*ret_new = 0;
	for (ssize_t i = 0; i < m; i++)
		*ret_new += !has(before, n, after[i]);
	free(before);
	free(after);
	return err;
}

int scry_clock_attach(struct scry_clock *c)
{
	int err = 0;

	allow_descriptors();
	err = scry_clock_turn(c); /* whom it knows before the first tick */
	for (int try = 0; try < TRIES && !err; try++) {
		scry_bpf_detach(c->bpf);
		err = put_on_all(c, &c->missing);
		if (!c->missing)
			break;
	}
	return err;
}

size_t scry_clock_missing(const struct scry_clock *c)
{
	return c->missing;
}

/* --- turns ------------------------------------------------------------------------------------ */

/* Tells the kernel's side of a thread. The VM's own number of it is given where it is right: after
 * a fork it may be the parent's (see vm/ruby_threads). */
static int tell_thread(struct scry_clock *c, struct scry_samples_thread *t)
{
	const struct scry_ruby *ruby = c->samples->ruby;
	const struct scry_ruby_layout *l = &ruby->layout;
	struct scry_bpf_thread told = {.th = t->ruby.th};
	uint64_t base = t->ruby.th;
	uint32_t key = (uint32_t)t->ruby.tid, tid;

	if (l->th_tid != SCRY_RUBY_NONE &&
	    (l->th_nt == SCRY_RUBY_NONE ||
	     scry_mem_u64(&ruby->mem, t->ruby.th + l->th_nt, &base) == 0) &&
	    base && scry_mem_u32(&ruby->mem, base + l->th_tid, &tid) == 0 &&
	    (pid_t)tid == scry_proc_tid_inside(ruby->pid, t->ruby.tid))
		told.tid = tid;
	t->is_told = true;
	return scry_bpf_set(c->bpf, "threads", &key, &told);
}

static bool is_listed(const struct scry_clock *c, uint32_t tid)
{
	for (size_t i = 0; i < c->samples->count; i++)
		if (c->samples->threads[i].ruby.tid == (pid_t)tid)
			return true;
	return false;
}

static int fill_map(struct scry_clock *c)
{
	const struct scry_bpf_thread none = {0};
	int err = 0;

	c->listings = c->samples->listings;
	c->is_outdated = false;
	for (size_t i = 0; i < c->stranger_count && !err; i++)
		if (!is_listed(c, c->strangers[i]))
			err = scry_bpf_set(c->bpf, "threads", &c->strangers[i], &none);
	c->stranger_count = 0;
	for (size_t i = 0; i < c->samples->count && !err; i++)
		if (!c->samples->threads[i].is_told && c->samples->threads[i].ruby.tid)
			err = tell_thread(c, &c->samples->threads[i]);
	return err ? scry_fail(err, "the kernel does not take a thread into its map: %s",
			       strerror(-err))
		   : 0;
}

int scry_clock_turn(struct scry_clock *c)
{
	bool now = c->is_outdated && scry_now_ns() - c->samples->listed_ns > RELIST_NS;
	int err = scry_samples_list(c->samples, now);

	if (!err && c->listings != c->samples->listings)
		err = fill_map(c);
	if (err)
		return err;
	scry_symbols_turn(&c->samples->symbols);
	c->taken = scry_bpf_take(c->bpf);
	return c->taken < 0 ? c->taken : 0;
}

void scry_clock_wait(struct scry_clock *c)
{
	uint64_t unsure = c->samples->sums.repaired + c->samples->sums.rejected;

	if (unsure != c->unsure)
		c->wait_ns = WAIT_NEW_NS; /* code that was not known: names are to be read soon */
	else
		c->wait_ns = c->taken ? WAIT_NS : 2 * c->wait_ns;
	c->unsure = unsure;
	if (c->taken && c->wait_ns > WAIT_TICKS * c->period_ns)
		c->wait_ns = WAIT_TICKS * c->period_ns;
	if (c->wait_ns > WAIT_IDLE_NS)
		c->wait_ns = WAIT_IDLE_NS;
	nanosleep(&(struct timespec){0, (long)c->wait_ns}, NULL);
}

void scry_clock_end(struct scry_clock *c)
{
	struct scry_ev_sampling *sums = &c->samples->sums;

	scry_bpf_detach(c->bpf);
	scry_bpf_take(c->bpf);
	sums->lost += scry_bpf_sum(c->bpf, "counters", SCRY_BPF_LOST);
	sums->kernel_ns += scry_bpf_sum(c->bpf, "counters", SCRY_BPF_NS);
}
