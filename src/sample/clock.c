/*
 * See clock.h.
 *
 * The kernel's side knows threads by their number and finds the VM's struct of each in a map, which
 * is filled here from the VM's own list. A thread that is not in it asks to be looked for; is it
 * none of the VM's, it learns so, and is quiet.
 */
#include "sample/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "probe/bpf.h"
#include "sample/layout.h"
#include "sample/processors.h"
#include "sys/container.h"
#include "sys/tracee.h"

#define PROGRAMS_MAX 8 /* layouts in one run */
#define STRANGERS_MAX 256
#define WAIT_NEW_NS 1000000
#define WAIT_MAX_NS 32000000
#define WAIT_CHILDREN_NS 4000000 /* what one did since the last turn has no names later */
#define SURE_TURNS 64
#define NATIVE_RING (64u << 20) /* bytes: records have 32 KiB of stack more */
#define RELIST_NS 3000000u	/* the list is read again after so long, where it was out of date */
#define CLOCKS 1		/* number of these attachments */

_Static_assert(SCRY_BPF_NONE == SCRY_RUBY_NONE, "a field that is not there");

SCRY_BPF_OBJECT(stacks);

struct program { /* in the kernel, for one layout */
	struct scry_clock *clock;
	struct scry_bpf *bpf;
	struct scry_bpf_layout layout;
	const char *tick;
	bool is_on;
};

struct process {
	struct scry_samples *samples;
	struct program *program;
	uint32_t listings;		   /* of samples, when the map was filled */
	uint32_t strangers[STRANGERS_MAX]; /* that have asked */
	size_t stranger_count;
	bool is_outdated; /* the list: a thread has ended, or one is new */
	bool has_hushed;  /* one that may become a thread of the VM's, and does not ask again */
};

struct scry_clock {
	struct scry_clock_opts opts;
	uint64_t period_ns;
	struct program *programs[PROGRAMS_MAX];
	size_t program_count;
	struct process **processes;
	size_t process_count, last; /* last: found */
	bool is_attached;
	uint64_t wait_ns, unsure;
	unsigned int sure; /* turns in a row in which that did not change */
};

/* --- opening ---------------------------------------------------------------------------------- */

static struct process *find(struct scry_clock *c, uint32_t pid)
{
	for (size_t i = 0; i < c->process_count; i++) {
		size_t at = (c->last + i) % c->process_count;

		if (c->processes[at]->samples->ruby->pid != (pid_t)pid)
			continue;
		c->last = at;
		return c->processes[at];
	}
	return NULL;
}

/* Where there is no room for it, it goes on asking. */
static void hush(struct program *p, uint32_t pid, uint32_t tid)
{
	const struct scry_bpf_thread none = {.pid = pid};

	scry_bpf_set(p->bpf, "threads", &tid, &none);
}

static int give_process(struct process *of, const struct scry_bpf_stack *r, size_t size)
{
	int err = scry_samples_record(of->samples, r, size);

	/* The VM gives a native thread that has ended to the next one of its own. */
	of->is_outdated |=
		err == -ENOENT || (r->kind != SCRY_BPF_STACK && r->kind != SCRY_BPF_NATIVE);
	if (err != -ENOENT)
		return err;
	if (r->kind != SCRY_BPF_STRANGER)
		of->samples->unrecorded++; /* it has ended since */
	else if (of->stranger_count < STRANGERS_MAX)
		of->strangers[of->stranger_count++] = r->tid;
	return 0;
}

static int give(void *arg, void *record, size_t size)
{
	struct program *p = arg;
	struct scry_clock *c = p->clock;
	const struct scry_bpf_stack *r = record;
	struct process *of;

	if (r->kind == SCRY_BPF_FILLS)
		return 0;
	if (r->kind == SCRY_BPF_FORKED) {
		c->opts.forked(c->opts.arg, (pid_t)r->pid, r->th != 0);
		return 0;
	}
	of = find(c, r->pid);
	if (of && of->program == p)
		return give_process(of, r, size);
	/* Of another program's Ruby, or of none. */
	if (of || (c->opts.follows && r->kind != SCRY_BPF_NATIVE &&
		   c->opts.unidentified(c->opts.arg, (pid_t)r->pid, r->kind == SCRY_BPF_STACK)))
		hush(p, r->pid, r->tid);
	return 0;
}

static struct scry_bpf_layout layout_of(const struct scry_clock *c, const struct scry_ruby *ruby)
{
	struct scry_bpf_layout layout = scry_sample_layout(ruby);

	layout.pid_ns = scry_container_pid_ns();
	layout.native = c->opts.native;
	return layout;
}

static int leave_out(struct program *p, bool is_inside)
{
	int err = scry_bpf_leave_out(p->bpf, is_inside ? "stacks_tick" : "stacks_tick_inside");

	if (!err && !p->clock->opts.follows)
		err = scry_bpf_leave_out(p->bpf, "stacks_forked");
	if (!err && !p->clock->opts.follows)
		err = scry_bpf_leave_out(p->bpf, "stacks_execed");
	return err;
}

/* What has ended leaves the maps; children come into them. */
static int watch_tasks(struct program *p)
{
	int err = scry_bpf_attach_own(p->bpf, "stacks_ended");

	if (!err && p->clock->opts.follows)
		err = scry_bpf_attach_own(p->bpf, "stacks_forked");
	if (!err && p->clock->opts.follows)
		err = scry_bpf_attach_own(p->bpf, "stacks_execed");
	return err;
}

static int load(struct program *p)
{
	int err = scry_bpf_open(SCRY_BPF(stacks), &p->bpf);

	p->tick = p->layout.pid_ns ? "stacks_tick_inside" : "stacks_tick";
	if (!err)
		err = scry_bpf_constant(p->bpf, "scry_layout", &p->layout, sizeof(p->layout));
	if (!err)
		err = leave_out(p, p->layout.pid_ns != 0);
	if (!err)
		err = scry_bpf_leave_out(p->bpf, "stacks_holder");
	if (!err && p->layout.native)
		err = scry_bpf_map_entries(p->bpf, "ring", NATIVE_RING);
	if (!err)
		err = scry_bpf_load(p->bpf);
	if (!err) /* first: which threads give samples is known by then */
		err = scry_bpf_ring(p->bpf, "news", give, p);
	if (!err)
		err = scry_bpf_ring(p->bpf, "ring", give, p);
	return err ? err : watch_tasks(p);
}

static void free_program(struct program *p)
{
	scry_bpf_close(p->bpf);
	free(p);
}

/* The program for this Ruby. */
static int program_for(struct scry_clock *c, const struct scry_ruby *ruby, struct program **ret)
{
	const struct scry_bpf_layout layout = layout_of(c, ruby);
	struct program *p;
	int err;

	for (size_t i = 0; i < c->program_count; i++)
		if (memcmp(&c->programs[i]->layout, &layout, sizeof(layout)) == 0) {
			*ret = c->programs[i];
			return 0;
		}
	if (c->program_count == PROGRAMS_MAX)
		return scry_fail(-ENOTSUP, "more than %d different Rubies", PROGRAMS_MAX);
	if (!scry_sample_is_readable(ruby))
		return scry_fail(
			-ENOTSUP,
			"this Ruby's frames are not laid out as the eBPF program reads them; "
			"fix: --engine=read");
	p = calloc(1, sizeof(*p));
	if (!p)
		return scry_no_memory("the clock");
	*p = (struct program){.clock = c, .layout = layout};
	err = load(p);
	if (err) {
		free_program(p);
		return err;
	}
	c->programs[c->program_count++] = p;
	*ret = p;
	return 0;
}

int scry_clock_open(const struct scry_clock_opts *opts, struct scry_clock **ret)
{
	struct scry_clock *c = calloc(1, sizeof(*c));

	if (!c)
		return scry_no_memory("the clock");
	c->opts = *opts;
	c->period_ns = scry_processors_period(opts->rate);
	c->wait_ns = WAIT_NEW_NS;
	*ret = c;
	return 0;
}

void scry_clock_close(struct scry_clock *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->program_count; i++)
		free_program(c->programs[i]);
	for (size_t i = 0; i < c->process_count; i++)
		free(c->processes[i]);
	free(c->processes);
	free(c);
}

/* --- on the processors ------------------------------------------------------------------------ */

static int put_on(struct program *p)
{
	int err =
		p->is_on ? 0
			 : scry_processors_tick(p->bpf, p->tick, p->clock->period_ns, CLOCKS, NULL);

	p->is_on |= !err;
	return err;
}

/* They belong to the tree: they are sampled, and a child of theirs that comes from now on is
 * reported, too. *ret_new: how many did not belong to it. */
static int plant(struct program *p, const pid_t *pids, ssize_t count, size_t *ret_new)
{
	const uint32_t one = 1;
	int err = 0;

	*ret_new = 0;
	for (ssize_t i = 0; i < count && !err; i++) {
		if (scry_bpf_has(p->bpf, "tree", &pids[i]))
			continue;
		err = scry_bpf_set(p->bpf, "tree", &pids[i], &one);
		++*ret_new;
	}
	return err ? scry_fail(err, "the kernel does not take a process into its map: %s",
			       strerror(-err))
		   : 0;
}

int scry_clock_attach(struct scry_clock *c, ssize_t (*list)(void *arg, pid_t **ret))
{
	struct program *p = c->programs[0];
	size_t new = 1;
	int err = 0;

	for (size_t i = 0; i < c->process_count && !err; i++) /* whom it knows before a tick */
		err = scry_clock_list(c, c->processes[i]->samples);
	while (new && !err) { /* a child may have come before its parent belonged to the tree */
		pid_t *pids = NULL;
		ssize_t count = list(c->opts.arg, &pids);

		err = count < 0 ? (int)count : plant(p, pids, count, &new);
		free(pids);
	}
	if (!err)
		err = put_on(p);
	c->is_attached = !err;
	return err;
}

/* One that came later, and is not known to this program: it was another before. */
static int attach_one(struct program *p, pid_t pid)
{
	size_t new;
	int err = plant(p, &pid, 1, &new);

	return err ? err : put_on(p);
}

int scry_clock_add(struct scry_clock *c, struct scry_samples *samples)
{
	struct process *of = calloc(1, sizeof(*of));
	struct process **more =
		reallocarray(c->processes, c->process_count + 1, sizeof(struct process *));
	int err = of && more ? 0 : scry_no_memory("the clock");

	if (more)
		c->processes = more;
	if (!err)
		err = program_for(c, samples->ruby, &of->program);
	if (!err && c->is_attached)
		err = attach_one(of->program, samples->ruby->pid);
	if (err) {
		free(of);
		return err;
	}
	of->samples = samples;
	samples->clock_ns = c->period_ns;
	c->processes[c->process_count++] = of;
	return 0;
}

void scry_clock_remove(struct scry_clock *c, struct scry_samples *samples)
{
	for (size_t i = 0; i < c->process_count; i++) {
		if (c->processes[i]->samples != samples)
			continue;
		free(c->processes[i]);
		c->processes[i] = c->processes[--c->process_count];
		c->last = 0;
		samples->clock_ns = 0;
		return;
	}
}

bool scry_clock_works(const struct scry_clock *c)
{
	return c->program_count > 0;
}

/* --- turns ------------------------------------------------------------------------------------ */

/* Registers a thread with the kernel's side. The VM's own number of it is given where it is right:
 * after a fork it may be the parent's (see vm/ruby_threads). */
static int give_thread(struct process *of, struct scry_samples_thread *t)
{
	const struct scry_ruby *ruby = of->samples->ruby;
	const struct scry_ruby_layout *l = &ruby->layout;
	struct scry_bpf_thread entry = {.th = t->ruby.th,
					.gc = scry_sample_gc(&of->samples->walk),
					.pid = (uint32_t)ruby->pid};
	uint64_t base = t->ruby.th;
	uint32_t key = (uint32_t)t->ruby.tid, tid;

	if (l->th_tid != SCRY_RUBY_NONE &&
	    (l->th_nt == SCRY_RUBY_NONE ||
	     scry_mem_u64(&ruby->mem, t->ruby.th + l->th_nt, &base) == 0) &&
	    base && scry_mem_u32(&ruby->mem, base + l->th_tid, &tid) == 0 &&
	    (pid_t)tid == scry_proc_tid_inside(ruby->pid, t->ruby.tid))
		entry.tid = tid;
	t->is_given = true;
	return scry_bpf_set(of->program->bpf, "threads", &key, &entry);
}

static bool is_listed(const struct process *of, uint32_t tid)
{
	for (size_t i = 0; i < of->samples->count; i++)
		if (of->samples->threads[i].ruby.tid == (pid_t)tid)
			return true;
	return false;
}

static int fill_map(struct process *of)
{
	struct scry_samples *s = of->samples;
	int err = 0;

	of->listings = s->listings;
	of->is_outdated = false;
	for (size_t i = 0; i < of->stranger_count; i++)
		if (!is_listed(of, of->strangers[i])) {
			hush(of->program, (uint32_t)s->ruby->pid, of->strangers[i]);
			of->has_hushed = true;
		}
	of->stranger_count = 0;
	for (size_t i = 0; i < s->count && !err; i++)
		if (!s->threads[i].is_given && s->threads[i].ruby.tid)
			err = give_thread(of, &s->threads[i]);
	return err ? scry_fail(err, "the kernel does not take a thread into its map: %s",
			       strerror(-err))
		   : 0;
}

static bool has_changed(const struct process *of)
{
	const struct scry_samples *s = of->samples;

	return of->is_outdated ||
	       (of->has_hushed && !scry_ruby_threads_stand(s->ruby, s->listed, s->listed_count));
}

static int list(struct process *of)
{
	bool now = scry_now_ns() - of->samples->listed_ns > RELIST_NS && has_changed(of);
	int err = scry_samples_list(of->samples, now);

	if (!err && of->listings != of->samples->listings)
		err = fill_map(of);
	if (!err)
		scry_symbols_turn(&of->samples->symbols);
	return err;
}

int scry_clock_list(struct scry_clock *c, struct scry_samples *samples)
{
	for (size_t i = 0; i < c->process_count; i++)
		if (c->processes[i]->samples == samples)
			return list(c->processes[i]);
	return 0;
}

int scry_clock_take(struct scry_clock *c)
{
	for (size_t i = 0; i < c->program_count; i++) {
		int got = scry_bpf_take(c->programs[i]->bpf);

		if (got < 0)
			return got;
	}
	return 0;
}

/* Changes with code that died before its name was read, and with code whose birth is reported. */
static uint64_t restless(const struct scry_samples *s)
{
	return s->unsure + (s->symbols.births ? s->symbols.births->sums.born : 0);
}

/* While code comes and goes names are to be read soon. Else it is the longer the longer it stayed.
 */
void scry_clock_wait(struct scry_clock *c)
{
	struct pollfd fds[PROGRAMS_MAX];
	struct timespec limit = {0};
	uint64_t unsure = 0, most;

	for (size_t i = 0; i < c->process_count; i++)
		unsure += restless(c->processes[i]->samples);
	c->sure = unsure != c->unsure ? 0 : c->sure + 1;
	c->unsure = unsure;
	c->wait_ns = c->sure < SURE_TURNS ? WAIT_NEW_NS : 2 * c->wait_ns;
	most = c->process_count > 1 ? WAIT_CHILDREN_NS : WAIT_MAX_NS;
	c->wait_ns = c->wait_ns < most ? c->wait_ns : most;
	limit.tv_nsec = (long)c->wait_ns;
	for (size_t i = 0; i < c->program_count; i++)
		fds[i] = (struct pollfd){scry_bpf_map_fd(c->programs[i]->bpf, "news"), POLLIN, 0};
	ppoll(fds, c->program_count, &limit, NULL);
}

void scry_clock_end(struct scry_clock *c, struct scry_ev_sampling *sums)
{
	for (size_t i = 0; i < c->program_count; i++)
		scry_bpf_detach(c->programs[i]->bpf);
	scry_clock_take(c);
	for (size_t i = 0; i < c->program_count; i++) {
		sums->lost += scry_bpf_sum(c->programs[i]->bpf, "counters", SCRY_BPF_LOST);
		sums->kernel_ns += scry_bpf_sum(c->programs[i]->bpf, "counters", SCRY_BPF_NS);
	}
}
