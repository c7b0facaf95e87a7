/* See ruby_lines.h. */
#include "instrument/ruby_lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <x86intrin.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/err.h"
#include "instrument/objects/alloc_functions.h"
#include "instrument/objects/plan.h"
#include "hook/own.h"
#include "hook/parts.h"
#include "sys/maps.h"
#include "watch/ask.h"

#define THREAD_DEPTH                                                                \
	(64u << 10) /* less than a thread's VM stack, more than it uses without one \
		     */

void scry_ruby_lines_leave_out(struct scry_ruby_lines *l, const char *why)
{
	snprintf(l->why, sizeof(l->why), "%s", why);
	scry_error_clear();
	scry_ruby_free(l->ruby);
	l->ruby = NULL;
	l->is_booting = false;
}

/* The layout of thread-local storage that the agent knows is glibc's. */
static bool is_musl(const struct scry_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (strstr(maps->entries[i].path, "/ld-musl"))
			return true;
	return false;
}

/* From 3.3 on VM stacks of threads are allocated; before they were in the machine stack. */
static uint64_t depth_of(const struct scry_ruby *ruby)
{
	unsigned int major = 0, minor = 0;

	if (sscanf(ruby->description, "ruby %u.%u", &major, &minor) == 2 &&
	    (major > 3 || (major == 3 && minor >= 3)))
		return 0;
	return THREAD_DEPTH;
}

static int find_ec(struct scry_ruby_lines *l)
{
	struct scry_agent_hooks *plan = &l->place.plan;
	int r = scry_ruby_current_ec(l->ruby, &plan->tls_module, &plan->tls_offset);

	if (r < 0 && scry_alloc_functions_find(l->ruby, &l->watch->proc) == 0)
		r = scry_ruby_current_ec(l->ruby, &plan->tls_module, &plan->tls_offset);
	return r;
}

void scry_ruby_lines_plan(struct scry_ruby_lines *l, struct scry_watch *w)
{
	struct scry_maps maps = {0};
	size_t entry;
	bool other_libc;
	int r = scry_maps_read(w->proc.pid, &maps);

	*l = (struct scry_ruby_lines){.watch = w, .user = l->user};
	if (r == 0)
		r = scry_ruby_find(w->proc.pid, &maps, &entry);
	other_libc = is_musl(&maps);
	scry_maps_done(&maps);
	if (r < 0) {
		scry_error_clear();
		return;
	}
	if (scry_ruby_open(w->proc.pid, w->held ? SCRY_RUBY_ANY : SCRY_RUBY_BOOTED, &l->ruby) < 0)
		scry_ruby_lines_leave_out(l, scry_error());
	else if (other_libc)
		scry_ruby_lines_leave_out(l, "its libc is not glibc");
	else if (scry_objects_has_jit(w, l->ruby))
		scry_ruby_lines_leave_out(
			l, "it runs code made at run time (a JIT), which does not keep the line "
			   "that it is at");
	else if (find_ec(l) < 0)
		scry_ruby_lines_leave_out(l, scry_error());
	if (l->ruby)
		l->down = scry_ruby_symbol(l->ruby, "ruby_sig_finalize");
	if (l->ruby && !l->down)
		scry_ruby_lines_leave_out(
			l, "its end cannot be seen: it does not export ruby_sig_finalize");
	if (!l->ruby)
		return;
	l->place.ruby = l->ruby;
	l->depth = depth_of(l->ruby);
	scry_objects_fill_frames(&l->ruby->layout, false, false, &l->frames);
	l->is_booting = w->held != NULL;
	w->runtime = l->ruby->description;
}

void scry_ruby_lines_check(struct scry_ruby_lines *l, const struct scry_hooks *hooks)
{
	char why[256];

	for (size_t i = 0; l->ruby && i < hooks->count; i++)
		if (hooks->rows[i].address == l->down && !hooks->rows[i].way) {
			snprintf(why, sizeof(why), "its end cannot be seen: %s",
				 hooks->rows[i].why);
			scry_ruby_lines_leave_out(l, why);
		}
}

/* What the agent knows of the VM. A watch of objects has given it more: only where threads keep
 * their execution context is added then. */
static int give_vm(const struct scry_ruby_lines *l, const struct scry_inject *inj)
{
	const uint64_t at = scry_inject_symbol(inj, "scry_agent_vm");
	const struct scry_agent_hooks *place = &l->place.plan;
	const size_t tls = offsetof(struct scry_agent_hooks, tls_module);
	struct scry_agent_ruby plan;
	int r;

	if (inj->vm_is_known)
		return scry_edit_poke(inj->mem.fd, at + offsetof(struct scry_agent_vm, hooks) + tls,
				      (const char *)place + tls,
				      sizeof(place->tls_module) + sizeof(place->tls_offset));
	scry_objects_fill_plan(l->ruby, &plan);
	r = scry_objects_report_source(l->watch, &l->place);
	return r < 0 ? r
		     : scry_edit_poke(inj->mem.fd, at + offsetof(struct scry_agent_vm, ruby), &plan,
				      sizeof(plan));
}
_Static_assert(offsetof(struct scry_agent_hooks, tls_offset) ==
		       offsetof(struct scry_agent_hooks, tls_module) + 8,
	       "written at once");

int scry_ruby_lines_report(struct scry_ruby_lines *l)
{
	struct scry_inject *inj = l->watch->inj;
	const uint64_t at = inj->data + offsetof(struct scry_agent_data, line_plan);
	struct scry_agent_line_plan lines = {.frames = l->frames, .depth = l->depth};
	int r;

	if (l->ruby && !l->watch->held && !scry_objects_keep_ec(l->watch, &l->place))
		scry_ruby_lines_leave_out(
			l, "its threads do not keep their execution context where they should");
	if (!l->ruby)
		return 0;
	r = scry_parts_need(inj, l->watch->held, SCRY_PART_VM | SCRY_PART_LINES);
	if (r < 0)
		return r;
	r = give_vm(l, inj);
	/* others may have them on already: what they know of the watch stays true */
	if (r == 0)
		r = scry_mem_read(&inj->mem, at + offsetof(struct scry_agent_line_plan, watch),
				  &lines.watch, sizeof(lines.watch));
	if (r == 0)
		r = scry_mem_u32(&inj->mem, at, &lines.on);
	lines.watch = lines.on ? lines.watch : __rdtsc();
	lines.on |= l->user;
	if (r == 0)
		r = scry_edit_poke(inj->mem.fd, at, &lines, sizeof(lines));
	return r < 0 ? scry_fail(r, "cannot write into process %d", inj->proc->pid) : 0;
}

/* The layout does not hold: what came so far is native. */
static void give_up(struct scry_ruby_lines *l)
{
	const struct scry_inject *inj = l->watch->inj;
	const uint64_t at = inj->data + offsetof(struct scry_agent_data, line_plan.on);
	uint32_t on = 0;

	scry_ruby_lines_leave_out(l, scry_error());
	scry_ruby_drop(l->ruby);
	if (!l->watch->is_over && scry_own_check(inj) == 0 &&
	    scry_mem_u32(&inj->mem, at, &on) == 0) {
		on &= ~l->user;
		scry_edit_poke(inj->mem.fd, at, &on, sizeof(on));
	}
	scry_error_clear();
}

/* Its VM was up, and is being taken down or gone: the agent ends lines before (agent/lines.c). */
static bool is_over(const struct scry_ruby_lines *l)
{
	const struct scry_inject *inj = l->watch->inj;
	uint32_t on;

	return scry_mem_u32(&inj->mem, inj->data + offsetof(struct scry_agent_data, line_plan.on),
			    &on) < 0 ||
	       !on;
}

bool scry_ruby_lines_judge(struct scry_ruby_lines *l)
{
	int r = l->is_booting ? scry_ruby_validate_once(l->ruby) : -EAGAIN;

	if (!l->is_booting)
		return false;
	/* What was recorded is by a layout that was learned in this run, from its own program. */
	l->is_unseen = r < 0 && (r == -ESRCH || is_over(l));
	if (r == -EAGAIN && !l->is_unseen) {
		scry_error_clear();
		return false;
	}
	l->is_booting = false;
	if (l->is_unseen)
		scry_error_clear();
	else if (r < 0)
		give_up(l);
	return true;
}

void scry_ruby_lines_done(struct scry_ruby_lines *l)
{
	scry_ruby_free(l->ruby);
	l->ruby = NULL;
}
