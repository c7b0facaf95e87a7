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

#define RATE 1000u
#define PROGRAMS_MAX 8	    /* layouts at a time */
#define PROCESSES_MAX 1024u /* of one layout */
#define CLOCKS 1	    /* number of these attachments */
#define TICK "stacks_holder"

SCRY_BPF_OBJECT(stacks);

struct program { /* in the kernel, for one layout */
	struct scry_bpf *bpf;
	struct scry_bpf_layout layout;
	bool is_on;
};

struct process {
	struct scry_holders_of of;
	struct program *program;
};

static struct {
	struct program programs[PROGRAMS_MAX];
	size_t program_count;
	struct process *processes;
	size_t count, room;
	char refused[512]; /* why nothing may be loaded, once and for all; "": it was not refused */
} all;

uint64_t scry_holders_period_ns(void)
{
	return scry_processors_period(RATE);
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

static int plant(struct program *p, const struct scry_holders_of *of)
{
	const struct scry_bpf_lock lock = {.table = of->table, .gc = scry_sample_gc(of->walk)};
	int err = scry_bpf_set(p->bpf, "locks", &of->pid, &lock);

	if (err)
		return scry_fail(err, "the kernel does not take a process into its map: %s",
				 strerror(-err));
	if (!p->is_on)
		err = scry_processors_tick(p->bpf, TICK, scry_holders_period_ns(), CLOCKS, NULL);
	p->is_on |= !err;
	if (err)
		scry_bpf_unset(p->bpf, "locks", &of->pid);
	return err;
}

int scry_holders_add(const struct scry_holders_of *of)
{
	struct program *p = NULL;
	int err = program_for(of->ruby, &p);

	if (!err && scry_vector_reserve(&all.processes, all.count, &all.room))
		err = scry_no_memory("the clock");
	if (!err)
		err = plant(p, of);
	if (!err)
		all.processes[all.count++] = (struct process){*of, p};
	return err;
}

static void close_all(void)
{
	for (size_t i = 0; i < all.program_count; i++)
		scry_bpf_close(all.programs[i].bpf);
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
		all.processes[i] = all.processes[--all.count];
	}
	if (!all.count)
		close_all();
}

void scry_holders_take(void)
{
	for (size_t i = 0; i < all.program_count; i++)
		scry_bpf_take(all.programs[i].bpf);
}
