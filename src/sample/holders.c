/* See holders.h. */
#include "sample/holders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/vector.h"
#include "probe/bpf.h"
#include "sample/layout.h"
#include "sample/processors.h"
#include "sys/container.h"
#include "sys/tracee.h"

#define RATE 1000u
#define QUIET_RATE 250u	    /* while nobody waits */
#define PROGRAMS_MAX 8	    /* layouts at a time */
#define PROCESSES_MAX 1024u /* of one layout */
#define THREADS_MAX 32768u  /* of them; of more it is not known how long they ran */
#define CLOCKS 1	    /* number of these attachments */
#define TICK "stacks_holder"

SCRY_BPF_OBJECT(stacks);

struct program { /* in the kernel, for one layout */
	struct scry_bpf *bpf;
	struct scry_bpf_layout layout;
	struct scry_processors clocks;
	bool is_on;
};

struct process {
	struct scry_holders_of of;
	struct program *program;
	bool is_quiet;
};

static struct {
	struct program programs[PROGRAMS_MAX];
	size_t program_count;
	struct process *processes;
	size_t count, room;
	size_t busy;			       /* of the processes: somebody waits there */
	uint64_t period_ns, paced_ns, rest_ns; /* of the clocks; since when; at least for so long */
	char refused[512]; /* why nothing may be loaded, once and for all; "": it was not refused */
} all;

uint64_t scry_holders_period_ns(void)
{
	return all.period_ns;
}

static int give(void *arg, void *record, size_t size)
{
	const struct program *p = arg;
	const struct scry_bpf_stack *r = record;

	for (size_t i = 0; size >= sizeof(*r) && i < all.count; i++)
		if (all.processes[i].program == p && all.processes[i].of.pid == (pid_t)r->pid) {
			all.processes[i].of.give(all.processes[i].of.arg, r, size);
			break;
		}
	return 0;
}

/* What only samples of whole processes need. */
static int leave_out(struct scry_bpf *bpf)
{
	static const char *const programs[] = {"stacks_tick", "stacks_tick_inside", "stacks_forked",
					       "stacks_execed", "stacks_ended"},
				 *const maps[] = {"threads", "tree"};
	int err = scry_bpf_map_entries(bpf, "locks", PROCESSES_MAX);

	if (!err)
		err = scry_bpf_map_entries(bpf, "ran_map", THREADS_MAX);
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs) && !err; i++)
		err = scry_bpf_leave_out(bpf, programs[i]);
	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps) && !err; i++)
		err = scry_bpf_map_entries(bpf, maps[i], 1);
	return err;
}

static int load(struct program *p)
{
	int err = scry_bpf_open(SCRY_BPF(stacks), &p->bpf);

	if (!err)
		err = scry_bpf_constant(p->bpf, "scry_layout", &p->layout, sizeof(p->layout));
	if (!err)
		err = leave_out(p->bpf);
	if (!err)
		err = scry_bpf_load(p->bpf);
	if (!err)
		err = scry_bpf_ring(p->bpf, "ring", give, p);
	if (err)
		scry_bpf_close(p->bpf);
	return err;
}

static int program_for(const struct scry_ruby *ruby, struct program **ret)
{
	struct scry_bpf_layout layout = scry_sample_layout(ruby);
	struct program *p = &all.programs[all.program_count];
	int err;

	layout.pid_ns = scry_container_pid_ns();
	for (size_t i = 0; i < all.program_count; i++)
		if (memcmp(&all.programs[i].layout, &layout, sizeof(layout)) == 0) {
			*ret = &all.programs[i];
			return 0;
		}
	if (all.program_count == PROGRAMS_MAX)
		return scry_fail(-ENOTSUP, "more than %d different Rubies", PROGRAMS_MAX);
	if (!scry_sample_is_readable(ruby))
		return scry_fail(-ENOTSUP, "this Ruby's frames are not laid out as the eBPF "
					   "program reads them");
	if (all.refused[0]) /* rights do not come back, and each child of a program asks */
		return scry_fail(-EPERM, "%s", all.refused);
	*p = (struct program){.layout = layout};
	err = load(p);
	if (err == -EPERM)
		snprintf(all.refused, sizeof(all.refused), "%s", scry_error());
	if (err)
		return err;
	all.program_count++;
	*ret = p;
	return 0;
}

int scry_holders_load(const struct scry_ruby *ruby)
{
	struct program *p;

	return program_for(ruby, &p);
}

static int set_lock(struct program *p, const struct scry_holders_of *of)
{
	const struct scry_bpf_lock lock = {
		.table = of->table, .period_ns = all.period_ns, .gc = scry_sample_gc(of->walk)};

	return scry_bpf_set(p->bpf, "locks", &of->pid, &lock);
}

static int plant(struct program *p, const struct scry_holders_of *of)
{
	int err = set_lock(p, of);

	if (err)
		return scry_fail(err, "the kernel does not take a process into its map: %s",
				 strerror(-err));
	if (!p->is_on)
		err = scry_processors_tick(p->bpf, TICK, all.period_ns, CLOCKS, &p->clocks);
	p->is_on |= !err;
	if (err)
		scry_bpf_unset(p->bpf, "locks", &of->pid);
	return err;
}

/* A record has the weight of the pace at which it is taken: so those that are there come first.
 * Ticks at the moment of the change may have the other weight. The clocks are slowed down only a
 * while after they were made faster. */
static void set_pace(void)
{
	const uint64_t period_ns = scry_processors_period(all.busy ? RATE : QUIET_RATE),
		       now = scry_now_ns();

	if (period_ns == all.period_ns || (!all.busy && now - all.paced_ns < all.rest_ns))
		return;
	for (size_t i = 0; i < all.program_count; i++)
		scry_bpf_take(all.programs[i].bpf);
	all.rest_ns = 0;
	for (size_t i = 0; i < all.program_count; i++) {
		struct scry_processors *clocks = &all.programs[i].clocks;

		scry_processors_pace(clocks, period_ns);
		all.rest_ns += scry_processors_rest_ns(clocks);
	}
	all.period_ns = period_ns;
	all.paced_ns = now;
	for (size_t i = 0; i < all.count; i++)
		set_lock(all.processes[i].program, &all.processes[i].of);
}

void scry_holders_pace(const void *arg, bool is_quiet)
{
	for (size_t i = 0; i < all.count; i++)
		if (all.processes[i].of.arg == arg && all.processes[i].is_quiet != is_quiet) {
			all.processes[i].is_quiet = is_quiet;
			all.busy += is_quiet ? -(size_t)1 : 1;
		}
	set_pace();
}

int scry_holders_add(const struct scry_holders_of *of)
{
	struct program *p = NULL;
	int err = program_for(of->ruby, &p);

	if (!all.count)
		all.period_ns = scry_processors_period(RATE);
	if (!err && scry_vector_reserve(&all.processes, all.count, &all.room))
		err = scry_no_memory("the clock");
	if (!err)
		err = plant(p, of);
	if (!err)
		all.processes[all.count++] = (struct process){*of, p, .is_quiet = false};
	all.busy += !err;
	set_pace();
	return err;
}

static void close_all(void)
{
	for (size_t i = 0; i < all.program_count; i++) {
		scry_processors_done(&all.programs[i].clocks);
		scry_bpf_close(all.programs[i].bpf);
	}
	free(all.processes);
	all.processes = NULL;
	all.program_count = all.count = all.room = 0;
}

void scry_holders_remove(const void *arg)
{
	for (size_t i = all.count; i-- > 0;) {
		const struct process p = all.processes[i];

		if (p.of.arg != arg)
			continue;
		scry_bpf_unset(p.program->bpf, "locks", &p.of.pid);
		all.busy -= !p.is_quiet;
		all.processes[i] = all.processes[--all.count];
	}
	if (!all.count)
		close_all();
}

struct scry_holders_ran scry_holders_ran(const void *arg, pid_t tid)
{
	struct scry_bpf_ran ran = {0};

	for (size_t i = 0; i < all.count; i++)
		if (all.processes[i].of.arg == arg)
			scry_bpf_get(all.processes[i].program->bpf, "ran_map", &tid, &ran);
	return (struct scry_holders_ran){ran.held, ran.other};
}

void scry_holders_take(void)
{
	for (size_t i = 0; i < all.program_count; i++)
		scry_bpf_take(all.programs[i].bpf);
	set_pace();
}
